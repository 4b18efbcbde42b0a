//! The journal of an apply: first only where things are prepared, then, when all is ready, every step. Its file is
//! replaced as a whole and synced; a file that does not match its checksum was never in force.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use atoll_store::{Error, Hash, Result};

use crate::ingest::xattrs::Xattrs;

/// One step, good to do twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Moves the host's file with this inode number from the path to a slot of the staging folder.
    Take { path: Vec<u8>, ino: u64, slot: u32 },
    /// Removes the folder with this inode number if it is empty.
    RemoveDir { path: Vec<u8>, ino: u64 },
    /// Moves a slot to the path, over a file that is there.
    Put { path: Vec<u8>, slot: u32, is_dir: bool },
    /// Sets owner, attributes and mode.
    Meta { path: Vec<u8>, is_link: bool, mode: u16, uid: u32, gid: u32, xattrs: Xattrs },
}

/// All that is needed to finish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decided {
    pub target: PathBuf,
    pub staging: PathBuf,
    /// What is in the way at the last moment may go too.
    pub force: bool,
    pub steps: Vec<Step>,
    /// What could not be restored while things were prepared.
    pub lost: Vec<(Vec<u8>, String)>,
}

pub(super) enum Found {
    Nothing,
    /// Only this was prepared; the target is untouched.
    Prepared(PathBuf),
    Decided(Decided),
}

const PREPARED: &str = "prepared";
const DECIDED: &str = "steps";
const MAGIC: &[u8] = b"atoll apply 1\n";

/// Names the staging folder, before it is made.
pub(super) fn prepare(journal: &Path, staging: &Path) -> Result<()> {
    fs::create_dir_all(journal).map_err(|error| Error::io("make the journal in", journal, error))?;
    write(journal, PREPARED, staging.as_os_str().as_bytes())
}

/// From here on the apply will be finished.
pub(super) fn decide(journal: &Path, decided: &Decided) -> Result<()> {
    write(journal, DECIDED, &encode(decided))
}

pub(super) fn open(journal: &Path) -> Result<Found> {
    if let Some(bytes) = read(journal, DECIDED)? {
        let damaged =
            || Error::damaged(format!("The journal of an apply in {} is damaged.", journal.display()));
        return decode(&bytes).map(Found::Decided).ok_or_else(damaged);
    }
    Ok(match read(journal, PREPARED)? {
        Some(bytes) => Found::Prepared(PathBuf::from(std::ffi::OsString::from_vec(bytes))),
        None => Found::Nothing,
    })
}

/// The apply is over. The steps go first: what is left then means that nothing is in force.
pub(super) fn remove(journal: &Path) -> Result<()> {
    for name in [DECIDED, PREPARED] {
        super::fault::hit();
        match fs::remove_file(journal.join(name)) {
            Ok(()) => sync_dir(journal)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("remove the journal in", journal, error)),
        }
    }
    // The folder may be the caller's for other things too.
    let _ = fs::remove_dir(journal);
    Ok(())
}

fn write(journal: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let failed = |error| Error::io("write the journal in", journal, error);
    super::fault::hit();
    let temporary = journal.join(format!("{name}.new"));
    let mut file = File::create(&temporary).map_err(failed)?;
    file.write_all(MAGIC).map_err(failed)?;
    file.write_all(&Hash::of(bytes).0).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    super::fault::hit();
    fs::rename(&temporary, journal.join(name)).map_err(failed)?;
    super::fault::hit();
    sync_dir(journal)
}

fn read(journal: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    match fs::read(journal.join(name)) {
        Ok(bytes) => {
            let body = bytes.strip_prefix(MAGIC).and_then(|rest| rest.split_at_checked(32));
            Ok(body.filter(|(sum, body)| Hash::of(body).0 == **sum).map(|(_, body)| body.to_vec()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read the journal in", journal, error)),
    }
}

pub(super) fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| Error::io("sync", dir, error))
}

fn encode(decided: &Decided) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, decided.target.as_os_str().as_bytes());
    put(&mut out, decided.staging.as_os_str().as_bytes());
    out.push(u8::from(decided.force));
    number(&mut out, decided.lost.len() as u64);
    for (path, what) in &decided.lost {
        put(&mut out, path);
        put(&mut out, what.as_bytes());
    }
    for step in &decided.steps {
        match step {
            Step::Take { path, ino, slot } => {
                out.push(1);
                put(&mut out, path);
                number(&mut out, *ino);
                number(&mut out, (*slot).into());
            }
            Step::RemoveDir { path, ino } => {
                out.push(2);
                put(&mut out, path);
                number(&mut out, *ino);
            }
            Step::Put { path, slot, is_dir } => {
                out.push(3 + u8::from(*is_dir));
                put(&mut out, path);
                number(&mut out, (*slot).into());
            }
            Step::Meta { path, is_link, mode, uid, gid, xattrs } => {
                out.push(5 + u8::from(*is_link));
                put(&mut out, path);
                for field in [u64::from(*mode), (*uid).into(), (*gid).into(), xattrs.len() as u64] {
                    number(&mut out, field);
                }
                for (name, value) in xattrs {
                    put(&mut out, name);
                    put(&mut out, value);
                }
            }
        }
    }
    out
}

fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn decode(bytes: &[u8]) -> Option<Decided> {
    let mut from = Reader(bytes);
    let path = |bytes: Vec<u8>| PathBuf::from(std::ffi::OsString::from_vec(bytes));
    let target = path(from.bytes()?);
    let staging = path(from.bytes()?);
    let force = from.byte()? != 0;
    let mut lost = Vec::new();
    for _ in 0..from.number()? {
        lost.push((from.bytes()?, String::from_utf8(from.bytes()?).ok()?));
    }
    let mut steps = Vec::new();
    while let Some(kind) = from.byte() {
        let path = from.bytes()?;
        steps.push(match kind {
            1 => Step::Take { path, ino: from.number()?, slot: from.small()? },
            2 => Step::RemoveDir { path, ino: from.number()? },
            3 | 4 => Step::Put { path, slot: from.small()?, is_dir: kind == 4 },
            5 | 6 => {
                let (mode, uid, gid) = (from.small()?, from.small()?, from.small()?);
                let mut xattrs = Xattrs::new();
                for _ in 0..from.number()? {
                    xattrs.push((from.bytes()?.into(), from.bytes()?.into()));
                }
                Step::Meta { path, is_link: kind == 6, mode, uid, gid, xattrs }
            }
            _ => return None,
        });
    }
    Some(Decided { target, staging, force, steps, lost })
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn small<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.number()?).ok()
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes.to_vec())
    }
}
