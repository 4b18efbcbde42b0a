//! Git repositories in an imported folder. They are imported like anything else, with two duties: not while git
//! is writing, and never so that a command in a workspace would write to the original repository. What points
//! out of the folder is made relative where that is certain to mean the same, and refused otherwise.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::ops::Bound;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use atoll_store::tree::FileType;
use atoll_store::{Code, Error, Result};

use super::SkipReason;
use super::git_config;
use crate::scan::host::{open_dir, open_file};
use crate::scan::{Scan, ScanDir, join, parent, unreadable};

/// Contents (of files) and targets (of links) that the tree gets instead of the host's, by path.
pub type Overrides = BTreeMap<Vec<u8>, Vec<u8>>;

/// Looks at every repository in the scan; leaves out what belongs to worktrees elsewhere.
///
/// # Errors
/// `Busy` when git is writing; `Unsupported` when a repository reaches out of the folder.
pub fn prepare(scan: &mut Scan) -> Result<Overrides> {
    let folder = std::fs::canonicalize(&scan.folder).unwrap_or_else(|_| scan.folder.clone());
    let mut look = Look { scan: &*scan, folder, overrides: Overrides::new(), foreign: Vec::new() };
    let mut repositories: Vec<&[u8]> = Vec::new();
    for (path, dir) in &look.scan.dirs {
        if let Some(kind) = kind_of(dir, b".git") {
            match kind {
                FileType::File => look.git_file(path)?,
                FileType::Symlink => look.link(path, b".git")?,
                FileType::Dir => look.locks(&join(path, b".git"))?,
                _ => {}
            }
        }
        let looks_like = [&b"HEAD"[..], b"objects", b"refs"].iter().all(|name| kind_of(dir, name).is_some());
        if looks_like {
            repositories.push(path);
        }
    }
    for path in repositories {
        look.repository(path)?;
    }
    let Look { overrides, foreign, .. } = look;
    for (dir, name) in foreign {
        scan.leave_out(&dir, &name, SkipReason::Worktree);
    }
    Ok(overrides)
}

/// Where a path that git wrote down leads.
enum Place {
    /// To this path in the folder.
    Inside(Vec<u8>),
    /// Out of the folder, or nowhere.
    Outside,
}

struct Look<'a> {
    scan: &'a Scan,
    folder: PathBuf,
    overrides: Overrides,
    foreign: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Look<'_> {
    fn shown(&self, path: &[u8]) -> String {
        self.scan.host_path(path).display().to_string()
    }

    fn refuse(&self, path: &[u8], reason: &str, way_out: &str) -> Error {
        Error::new(
            Code::Unsupported,
            format!(
                "{} {reason}, outside of the imported folder: git in a workspace would write to the original \
                 repository. {way_out}",
                self.shown(path)
            ),
        )
    }

    /// A small file's text; `None` when it is not there.
    fn text(&self, path: &[u8]) -> Result<Option<Vec<u8>>> {
        let dir = parent(path);
        let name = &path[if dir.is_empty() { 0 } else { dir.len() + 1 }..];
        if self.scan.dirs.get(dir).and_then(|dir| kind_of(dir, name)) != Some(FileType::File) {
            return Ok(None);
        }
        let failed = |error| unreadable("read", &self.scan.host_path(path), error, false);
        let dir = open_dir(self.scan.root.as_fd(), dir).map_err(failed)?;
        let mut text = Vec::new();
        let file = open_file(&dir, name).map_err(failed)?;
        file.take(4 << 20)
            .read_to_end(&mut text)
            .map_err(|error| Error::io("read", &self.scan.host_path(path), error))?;
        Ok(Some(text))
    }

    /// Where `path`, written down in the folder `from`, leads. Only what is certain counts as inside: every
    /// component on the way is a real folder of the scan.
    fn locate(&self, from: &[u8], path: &[u8]) -> Place {
        let mut at: Vec<&[u8]> = Vec::new();
        let resolved;
        let walk = if path.starts_with(b"/") {
            let Ok(real) = std::fs::canonicalize(Path::new(OsStr::from_bytes(path))) else {
                return Place::Outside;
            };
            let Ok(below) = real.strip_prefix(&self.folder) else { return Place::Outside };
            resolved = below.as_os_str().as_bytes().to_vec();
            &resolved[..]
        } else {
            at.extend(from.split(|&byte| byte == b'/').filter(|name| !name.is_empty()));
            path
        };
        for name in walk.split(|&byte| byte == b'/') {
            match name {
                b"" | b"." => continue,
                b".." if at.pop().is_none() => return Place::Outside,
                b".." => {}
                name => {
                    let above = at.join(&b'/');
                    if !self.scan.dirs.contains_key(&above[..]) {
                        return Place::Outside;
                    }
                    at.push(name);
                }
            }
        }
        let found = at.join(&b'/');
        let dir = self.scan.dirs.get(parent(&found));
        let name = at.last().copied().unwrap_or_default();
        match dir.and_then(|dir| kind_of(dir, name)) {
            _ if found.is_empty() => Place::Inside(found),
            None | Some(FileType::Symlink) => Place::Outside,
            Some(_) => Place::Inside(found),
        }
    }

    /// A `.git` file: a worktree or a submodule, whose repository is elsewhere.
    fn git_file(&mut self, dir: &[u8]) -> Result<()> {
        let path = join(dir, b".git");
        let Some(text) = self.text(&path)? else { return Ok(()) };
        let Some(target) = text.strip_prefix(b"gitdir:").map(<[u8]>::trim_ascii) else { return Ok(()) };
        match self.locate(dir, target) {
            Place::Inside(there) if target.starts_with(b"/") => {
                let text = [b"gitdir: ", &relative(dir, &there)[..], b"\n"].concat();
                self.overrides.insert(path, text);
                Ok(())
            }
            Place::Inside(_) => Ok(()),
            Place::Outside => {
                let reason = format!("belongs to the repository {}", String::from_utf8_lossy(target));
                let commands = own_repository(&self.scan.host_path(dir), target);
                let way_out = format!(
                    "Import the folder that holds both, or the files without git (--exclude .git), or first make it a \
                     repository of its own: {commands}"
                );
                Err(self.refuse(&path, &reason, &way_out))
            }
        }
    }

    /// A symbolic link that git follows.
    fn link(&mut self, dir: &[u8], name: &[u8]) -> Result<()> {
        let path = join(dir, name);
        let failed = |error| unreadable("read", &self.scan.host_path(&path), error, false);
        let opened = open_dir(self.scan.root.as_fd(), dir).map_err(failed)?;
        let target = rustix::fs::readlinkat(&opened, name, Vec::new()).map_err(failed)?.into_bytes();
        let climbs = target.split(|&byte| byte == b'/').any(|name| name == b"..");
        if !target.starts_with(b"/") && !climbs {
            return Ok(());
        }
        match self.locate(dir, &target) {
            Place::Inside(there) => {
                if target.starts_with(b"/") {
                    self.overrides.insert(path, relative(dir, &there));
                }
                Ok(())
            }
            Place::Outside => {
                let reason = format!("is a link to {}", String::from_utf8_lossy(&target));
                Err(self.refuse(
                    &path,
                    &reason,
                    "Import the folder that holds both, or a clone (git clone --no-local).",
                ))
            }
        }
    }

    /// Lock files below a `.git` folder, where git makes them.
    fn locks(&self, git: &[u8]) -> Result<()> {
        let (mut from, mut to) = (git.to_vec(), git.to_vec());
        from.push(b'/');
        to.push(b'/' + 1);
        let below = self.scan.dirs.range::<[u8], _>((Bound::Included(&from[..]), Bound::Excluded(&to[..])));
        let own = self.scan.dirs.get(git).map(|dir| (git, dir));
        for (path, dir) in own.into_iter().chain(below.map(|(path, dir)| (&path[..], dir))) {
            let inner = path[git.len()..].strip_prefix(b"/").unwrap_or_default();
            let first = inner.split(|&byte| byte == b'/').next().unwrap_or_default();
            if !matches!(
                first,
                b"" | b"refs" | b"objects" | b"modules" | b"worktrees" | b"logs" | b"reftable"
            ) {
                continue;
            }
            for entry in dir.entries.iter().filter(|entry| entry.stat.kind == FileType::File) {
                let lock = join(path, &entry.name);
                let held =
                    entry.name.ends_with(b".lock") || (*entry.name == *b"gc.pid" && self.gc_runs(&lock)?);
                if held {
                    let place = self.shown(&lock);
                    return Err(Error::new(
                        Code::Busy,
                        format!(
                            "Git is running here ({place} exists); wait until it has ended, or remove that file if no git runs."
                        ),
                    ));
                }
            }
        }
        Ok(())
    }

    /// `gc.pid` stays behind when a gc is killed.
    fn gc_runs(&self, path: &[u8]) -> Result<bool> {
        let Some(text) = self.text(path)? else { return Ok(false) };
        let pid = text.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
        Ok(pid.is_empty() || Path::new("/proc").join(OsStr::from_bytes(pid)).exists())
    }

    /// A repository: its configuration, its alternates, its worktrees.
    fn repository(&mut self, git: &[u8]) -> Result<()> {
        for name in [&b"config"[..], b"config.worktree"] {
            let path = join(git, name);
            let Some(text) = self.text(&path)? else { continue };
            let mut failed = None;
            let changed = git_config::map_worktree(&text, &mut |value| match self.locate(git, value) {
                Place::Inside(there) if value.starts_with(b"/") => Some(relative(git, &there)),
                Place::Inside(_) => None,
                Place::Outside => {
                    let reason = format!("sets core.worktree to {}", String::from_utf8_lossy(value));
                    let way_out = format!(
                        "Import the folder that holds both, or first run: git config --file {} --unset-all \
                         core.worktree",
                        quoted(&self.scan.host_path(&path))
                    );
                    failed = Some(self.refuse(&path, &reason, &way_out));
                    None
                }
            });
            if let Some(error) = failed {
                return Err(error);
            }
            match changed {
                Ok(None) => {}
                Ok(Some(text)) => drop(self.overrides.insert(path, text)),
                Err(git_config::Unclear) => {
                    let place = self.shown(&path);
                    return Err(Error::new(
                        Code::Unsupported,
                        format!(
                            "{place} sets core.worktree in a way that atoll does not understand; set it with git config and try again."
                        ),
                    ));
                }
            }
        }
        self.alternates(git)?;
        self.worktrees(git)?;
        // git-new-workdir and the like share parts of another repository by links.
        let links: Vec<_> = match self.scan.dirs.get(git) {
            Some(dir) => dir.entries.iter().filter(|entry| entry.stat.kind == FileType::Symlink).collect(),
            None => Vec::new(),
        };
        // Hooks are run, not written; what else links there is git's to write.
        for entry in links.into_iter().filter(|entry| *entry.name != *b"hooks") {
            self.link(git, &entry.name)?;
        }
        Ok(())
    }

    fn alternates(&mut self, git: &[u8]) -> Result<()> {
        let objects = join(git, b"objects");
        let path = join(&objects, b"info/alternates");
        let Some(text) = self.text(&path)? else { return Ok(()) };
        let mut changed = false;
        let mut lines = Vec::new();
        for line in text.split(|&byte| byte == b'\n') {
            if line.is_empty() || line.starts_with(b"#") {
                lines.push(line.to_vec());
                continue;
            }
            match self.locate(&objects, line) {
                Place::Inside(there) if line.starts_with(b"/") => {
                    changed = true;
                    lines.push(relative(&objects, &there));
                }
                Place::Inside(_) => lines.push(line.to_vec()),
                Place::Outside => {
                    let reason = format!("borrows objects from {}", String::from_utf8_lossy(line));
                    let way_out = format!(
                        "First make the repository independent: git --git-dir={} repack -a -d && rm {}",
                        quoted(&self.scan.host_path(git)),
                        quoted(&self.scan.host_path(&path))
                    );
                    return Err(self.refuse(&path, &reason, &way_out));
                }
            }
        }
        if changed {
            self.overrides.insert(path, lines.join(&b'\n'));
        }
        Ok(())
    }

    /// The administration of linked worktrees: of one in the folder the way there is made relative (git itself
    /// renews it); of one elsewhere it is left out, else `git worktree repair` or `remove` would reach it.
    fn worktrees(&mut self, git: &[u8]) -> Result<()> {
        let all = join(git, b"worktrees");
        let Some(dir) = self.scan.dirs.get(&all[..]) else { return Ok(()) };
        let names: Vec<_> = dir.entries.iter().map(|entry| entry.name.clone()).collect();
        for name in names {
            let admin = join(&all, &name);
            let path = join(&admin, b"gitdir");
            let Some(text) = self.text(&path)? else { continue };
            let target = text.trim_ascii();
            match self.locate(&admin, target) {
                Place::Inside(there) if target.starts_with(b"/") => {
                    let text = [&relative(&admin, &there)[..], b"\n"].concat();
                    self.overrides.insert(path, text);
                }
                Place::Inside(_) => {}
                Place::Outside => self.foreign.push((all.clone(), name.to_vec())),
            }
        }
        Ok(())
    }
}

/// The commands that turn `dir`, a linked worktree or a submodule whose `.git` file names `target`, into a repository
/// of its own. The other repository is only read.
fn own_repository(dir: &Path, target: &[u8]) -> String {
    let admin = dir.join(OsStr::from_bytes(target));
    let common = std::fs::read(admin.join("commondir")).ok();
    let common = common.map(|text| admin.join(OsStr::from_bytes(text.trim_ascii())));
    let (old, new) = (quoted(&dir.join(".git")), quoted(&dir.join(".git.own")));
    let config = quoted(&dir.join(".git.own/config"));
    let own = match common {
        Some(common) => format!(
            "cp -a {} {new} && rm -rf {} && cp {} {} {new} && git config --file {config} core.bare false",
            quoted(&common),
            quoted(&dir.join(".git.own/worktrees")),
            quoted(&admin.join("HEAD")),
            quoted(&admin.join("index")),
        ),
        None => {
            format!("cp -a {} {new} && git config --file {config} --unset-all core.worktree", quoted(&admin))
        }
    };
    format!("{own} && rm {old} && mv {new} {old}")
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,@%:=".contains(c);
    if text.chars().all(plain) { text.into_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

fn kind_of(dir: &ScanDir, name: &[u8]) -> Option<FileType> {
    dir.entries.binary_search_by(|entry| (*entry.name).cmp(name)).ok().map(|at| dir.entries[at].stat.kind)
}

/// The way from the folder `from` to `to`, both relative to the root.
fn relative(from: &[u8], to: &[u8]) -> Vec<u8> {
    let names = |path: &'_ [u8]| {
        path.split(|&byte| byte == b'/')
            .filter(|name| !name.is_empty())
            .map(<[u8]>::to_vec)
            .collect::<Vec<_>>()
    };
    let (from, to) = (names(from), names(to));
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let mut way = vec![b"..".to_vec(); from.len() - common];
    way.extend_from_slice(&to[common..]);
    if way.is_empty() { b".".to_vec() } else { way.join(&b'/') }
}

#[cfg(test)]
mod tests {
    use super::relative;

    #[test]
    fn relative_ways() {
        assert_eq!(relative(b"", b"a/b"), b"a/b");
        assert_eq!(relative(b"sub", b".git/modules/sub"), b"../.git/modules/sub");
        assert_eq!(relative(b".git/modules/sub", b"sub"), b"../../../sub");
        assert_eq!(relative(b"a/b", b"a/b"), b".");
        assert_eq!(relative(b".git", b""), b"..");
    }
}
