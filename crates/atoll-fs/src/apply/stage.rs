//! Makes all that is new in a folder beside the target, looks at the target once more, and decides.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use atoll_store::tree::{Extent, FileType, Inode, Time, TreeView};
use atoll_store::{Code, Error, Ino, Num, Objects, Result};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::journal::{self, Decided, Step};
use super::plan::{Action, Plan};
use super::target::{Here, Target};
use super::{ApplyOptions, ApplyReport, check, run};
use crate::export::meta::{self, Lost};
use crate::progress::{Phase, Progress, check as check_progress};
use crate::scan::HostStat;

/// Carries a plan out, from the first file that is prepared to the last step.
pub(super) fn carry_out(
    objects: &dyn Objects,
    result: Num,
    plan: &Plan,
    options: &ApplyOptions,
    progress: &dyn Progress,
) -> Result<ApplyReport> {
    let target = options.target.canonicalize().map_err(|error| Error::io("find", &options.target, error))?;
    let staging = place(&target)?;
    journal::prepare(&options.journal, &staging)?;
    let prepared = prepare(objects, result, plan, options, &target, &staging, progress);
    let decided =
        match prepared.and_then(|decided| journal::decide(&options.journal, &decided).map(|()| decided)) {
            Ok(decided) => decided,
            Err(error) => {
                // The target is untouched: away with what was prepared. If that fails too, the next call does it.
                let cleared = run::clear(&staging).and_then(|()| journal::remove(&options.journal));
                if let Err(second) = cleared {
                    log::warn!("{second}");
                }
                return Err(error);
            }
        };
    run::finish(&options.journal, &decided)
}

/// A folder on the target's file system: beside it where that can be, else in it.
fn place(target: &Path) -> Result<PathBuf> {
    let mut random = [0; 8];
    getrandom::fill(&mut random)
        .map_err(|_| Error::new(Code::Io, "The system gave no random bytes; try again."))?;
    let name = format!(".atoll-apply-{:016x}", u64::from_le_bytes(random));
    let stat = |path: &Path| rustix::fs::stat(path).map(|stat| stat.st_dev);
    let writable = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    let is_mount = HostStat::at(rustix::fs::CWD, target).is_ok_and(|stat| stat.mount_root);
    Ok(match target.parent() {
        Some(above) if !is_mount && stat(above) == stat(target) && writable(above) => above.join(name),
        _ => target.join(name),
    })
}

fn prepare(
    objects: &dyn Objects,
    result: Num,
    plan: &Plan,
    options: &ApplyOptions,
    target_path: &Path,
    staging: &Path,
    progress: &dyn Progress,
) -> Result<Decided> {
    let failed = |error: Errno| Error::io("make the folder", staging, error.into());
    rustix::fs::mkdir(staging, Mode::from_raw_mode(0o700)).map_err(failed)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(staging, flags, Mode::empty()).map_err(failed)?;
    let mut stage = Stage {
        tree: TreeView::new(objects, result),
        target: Target::open(target_path)?,
        dir,
        staging,
        slots: 0,
        few: plan.actions.len() <= 64,
        first: HashMap::new(),
        sources: plan
            .actions
            .iter()
            .filter_map(|action| match action {
                Action::Take { at, back: Some(path), .. } => Some((path.clone(), at.clone())),
                Action::Meta { path, at, .. } => Some((path.clone(), at.clone())),
                _ => None,
            })
            .collect(),
        linked: HashSet::new(),
        made: plan
            .actions
            .iter()
            .filter_map(|action| match action {
                Action::Make { path, .. } => Some(path.clone()),
                _ => None,
            })
            .collect(),
        lost: Vec::new(),
    };
    let steps = stage.steps(plan, progress)?;
    let synced = if stage.few { rustix::fs::fsync(&stage.dir) } else { rustix::fs::syncfs(&stage.dir) };
    synced.map_err(|error| Error::io("sync", staging, error.into()))?;
    if let Some(above) = staging.parent() {
        journal::sync_dir(above)?;
    }
    stage.look_again(plan)?;
    let staging = staging.to_path_buf();
    Ok(Decided { target: target_path.to_path_buf(), staging, force: options.force, steps, lost: stage.lost })
}

struct Stage<'a> {
    tree: TreeView<'a>,
    target: Target,
    dir: OwnedFd,
    staging: &'a Path,
    slots: u32,
    /// So few that each is synced by itself: whole file systems can have much that is not ours to write.
    few: bool,
    /// Files of several names: the slot of the first.
    first: HashMap<Ino, Vec<u8>>,
    /// Where files of the result are in the target now, as the plan found them.
    sources: HashMap<Vec<u8>, Vec<u8>>,
    /// Places that were linked from: their change time is ours.
    linked: HashSet<Vec<u8>>,
    /// Paths that are made: not to be linked from.
    made: HashSet<Vec<u8>>,
    lost: Vec<(Vec<u8>, String)>,
}

/// The name of a slot.
pub(super) fn slot_name(slot: u32) -> Vec<u8> {
    slot.to_string().into_bytes()
}

impl Stage<'_> {
    fn slot(&mut self) -> u32 {
        self.slots += 1;
        self.slots
    }

    /// Away from the deepest up, then in from the top down, then what forbids writing in folders, from the deepest up.
    fn steps(&mut self, plan: &Plan, progress: &dyn Progress) -> Result<Vec<Step>> {
        let (mut away, mut puts, mut metas) = (Vec::new(), Vec::new(), Vec::new());
        for action in &plan.actions {
            check_progress(progress)?;
            match action {
                Action::Take { at, host, back } => {
                    let slot = self.slot();
                    away.push(Step::Take { path: at.clone(), ino: host.ino, slot });
                    if let Some(path) = back {
                        puts.push(Step::Put { path: path.clone(), slot, is_dir: host.kind == FileType::Dir });
                    }
                }
                Action::RemoveDir { at, host } => {
                    away.push(Step::RemoveDir { path: at.clone(), ino: host.ino })
                }
                Action::Make { path, ino, inode } => {
                    let slot = self.slot();
                    if self.make(slot, path, *ino, inode)? {
                        puts.push(Step::Put {
                            path: path.clone(),
                            slot,
                            is_dir: inode.kind == FileType::Dir,
                        });
                    }
                    progress.advance(Phase::Write, 1, inode.size);
                }
                Action::Meta { path, ino, inode, .. } => metas.push(Step::Meta {
                    path: path.clone(),
                    is_link: inode.kind == FileType::Symlink,
                    mode: inode.mode,
                    uid: inode.uid,
                    gid: inode.gid,
                    xattrs: self.tree.xattrs(*ino)?,
                }),
            }
        }
        let path = |step: &Step| match step {
            Step::Take { path, .. }
            | Step::RemoveDir { path, .. }
            | Step::Put { path, .. }
            | Step::Meta { path, .. } => path.clone(),
        };
        away.sort_by_cached_key(|step| std::cmp::Reverse(path(step)));
        puts.sort_by_cached_key(path);
        metas.sort_by_cached_key(|step| std::cmp::Reverse(path(step)));
        Ok(away.into_iter().chain(puts).chain(metas).collect())
    }

    /// Makes one file in its slot. False when this user cannot make it.
    fn make(&mut self, slot: u32, path: &[u8], ino: Ino, inode: &Inode) -> Result<bool> {
        super::fault::hit();
        let name = slot_name(slot);
        let failed = |error: Errno| Error::io("prepare files in", self.staging, error.into());
        if inode.kind != FileType::Dir && inode.nlink > 1 && self.link(&name, ino, inode)? {
            return Ok(true);
        }
        let now = Time { sec: 0, nsec: rustix::fs::UTIME_NOW as u32 };
        let inode = Inode { mtime: now, ..*inode };
        let xattrs = self.tree.xattrs(ino)?;
        let mode = Mode::from_raw_mode(0o600);
        let lost = match inode.kind {
            FileType::Dir => {
                // Its own mode comes at the end: it could forbid to write in it.
                rustix::fs::mkdirat(&self.dir, &name[..], Mode::from_raw_mode(0o700)).map_err(failed)?;
                Vec::new()
            }
            FileType::File => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = File::from(rustix::fs::openat(&self.dir, &name[..], flags, mode).map_err(failed)?);
                self.contents(&file, ino, inode.size)?;
                let lost = meta::restore_open(&file, &inode, &xattrs).map_err(failed)?;
                if self.few {
                    rustix::fs::fsync(&file).map_err(failed)?;
                }
                lost
            }
            FileType::Symlink => {
                let target = self.tree.readlink(ino)?;
                rustix::fs::symlinkat(&target[..], &self.dir, &name[..]).map_err(failed)?;
                meta::restore_at(&self.dir, &name, &inode, &xattrs).map_err(failed)?
            }
            FileType::Fifo | FileType::Socket | FileType::Char | FileType::Block => {
                let kind = match inode.kind {
                    FileType::Fifo => rustix::fs::FileType::Fifo,
                    FileType::Socket => rustix::fs::FileType::Socket,
                    FileType::Char => rustix::fs::FileType::CharacterDevice,
                    _ => rustix::fs::FileType::BlockDevice,
                };
                match rustix::fs::mknodat(&self.dir, &name[..], kind, mode, inode.rdev) {
                    Err(Errno::PERM | Errno::ACCESS) => {
                        self.lost.push((path.to_vec(), Lost::Device.to_string()));
                        return Ok(false);
                    }
                    other => other.map_err(failed)?,
                }
                meta::restore_at(&self.dir, &name, &inode, &xattrs).map_err(failed)?
            }
        };
        self.lost.extend(lost.into_iter().map(|lost| (path.to_vec(), lost.to_string())));
        if inode.nlink > 1 {
            self.first.insert(ino, name);
        }
        Ok(true)
    }

    /// Makes another name of a file: of one that was prepared, or of one in the target that stays as it is.
    fn link(&mut self, name: &[u8], ino: Ino, inode: &Inode) -> Result<bool> {
        let failed = |error: Errno| Error::io("prepare files in", self.staging, error.into());
        if let Some(first) = self.first.get(&ino) {
            rustix::fs::linkat(&self.dir, &first[..], &self.dir, name, AtFlags::empty()).map_err(failed)?;
            return Ok(true);
        }
        for path in self.tree.paths(ino)?.into_iter().filter(|path| !self.made.contains(path)) {
            let planned = self.sources.get(&path);
            let at = planned.unwrap_or(&path).clone();
            let Here::Is(host) = self.target.here(&at)? else { continue };
            let fits = planned.is_some() || check::is_as(&self.target, &at, &host, self.tree, (ino, *inode))?;
            if fits
                && host.kind == inode.kind
                && let Ok((dir, from)) = self.target.folder_of(&at)
                // Some systems forbid to link other users' files: then it becomes a file of its own.
                && rustix::fs::linkat(&*dir, from, &self.dir, name, AtFlags::empty()).is_ok()
            {
                self.linked.insert(at);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn contents(&self, file: &File, ino: Ino, size: u64) -> Result<()> {
        let failed = |error| Error::io("prepare files in", self.staging, error);
        let mut end = 0;
        for (offset, extent) in self.tree.extents(ino, 0..size)? {
            let bytes = match extent {
                Extent::Inline(bytes) => bytes.into(),
                Extent::Chunk { num, .. } => self.tree.objects.chunk(num)?,
            };
            let bytes = &bytes[..bytes.len().min(size.saturating_sub(offset) as usize)];
            file.write_all_at(bytes, offset).map_err(failed)?;
            end = offset + bytes.len() as u64;
        }
        if end < size { file.set_len(size).map_err(failed) } else { Ok(()) }
    }

    /// The target must be as the plan found it.
    fn look_again(&self, plan: &Plan) -> Result<()> {
        self.target.forget();
        for (path, before) in &plan.found {
            let now = match self.target.here(path)? {
                Here::Is(stat) => Some(stat),
                _ => None,
            };
            let same = match (before, now) {
                // Names may come and go in a folder; what matters has been looked at by itself.
                (Some(before), Some(now)) if before.kind == FileType::Dir => {
                    (before.ino, before.kind) == (now.ino, now.kind)
                }
                (Some(before), Some(now)) if self.linked.contains(path) => {
                    (before.ino, before.size, before.mtime) == (now.ino, now.size, now.mtime)
                }
                (Some(before), Some(now)) => before.same_state(&now),
                (before, now) => before.is_none() && now.is_none(),
            };
            if !same {
                let shown = String::from_utf8_lossy(path);
                let message = format!(
                    "'{shown}' changed while the apply was prepared; nothing was applied, try again."
                );
                return Err(Error::new(Code::Changed, message));
            }
        }
        Ok(())
    }
}
