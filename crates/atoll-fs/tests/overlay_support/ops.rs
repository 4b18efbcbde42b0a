//! Random operations that have the same result on a workspace and on a plain folder.

use std::fs::{self, FileTimes, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{RenameFlags, XattrFlags};

/// Contents that no two calls with different seeds share.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(length);
    out
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A path in a small world, so that names meet.
    pub fn path(&mut self) -> PathBuf {
        let depth = 1 + self.below(3);
        (0..depth).map(|_| ["a", "b", "c", "d"][self.below(4) as usize]).collect()
    }
}

/// One operation; the same call on both sides has the same result.
#[derive(Debug, Clone)]
pub enum Op {
    Write(PathBuf, u64, usize),
    WriteAt(PathBuf, u64, u64, usize),
    Append(PathBuf, u64, usize),
    Truncate(PathBuf, u64),
    Touch(PathBuf),
    OpenForWriting(PathBuf),
    Mkdir(PathBuf),
    Unlink(PathBuf),
    Rmdir(PathBuf),
    RemoveAll(PathBuf),
    Rename(PathBuf, PathBuf),
    Exchange(PathBuf, PathBuf),
    Save(PathBuf, u64, usize),
    Link(PathBuf, PathBuf),
    Symlink(PathBuf, u64),
    Fifo(PathBuf),
    Chmod(PathBuf, u32),
    Chown(PathBuf, u32, u32),
    Times(PathBuf, u64),
    SetXattr(PathBuf, u64, usize),
    RemoveXattr(PathBuf, u64),
}

impl Op {
    pub fn random(random: &mut Random) -> Op {
        let seed = random.next();
        let size = |random: &mut Random| match random.below(6) {
            0 => 0,
            1 => 100,
            2 => 300_000,
            _ => random.below(9000) as usize,
        };
        let path = random.path();
        match random.below(30) {
            0..=3 => Op::Write(path, seed, size(random)),
            4 => Op::WriteAt(path, random.below(2_000_000), seed, 1 + random.below(5000) as usize),
            5 | 6 => Op::Append(path, seed, 1 + random.below(300) as usize),
            7 => Op::Truncate(path, random.below(6000)),
            8 => Op::Touch(path),
            9 => Op::OpenForWriting(path),
            10 | 11 => Op::Mkdir(path),
            12 | 13 => Op::Unlink(path),
            14 => Op::Rmdir(path),
            15 => Op::RemoveAll(path),
            16..=19 => Op::Rename(path, random.path()),
            20 => Op::Exchange(path, random.path()),
            21 => Op::Save(path, seed, size(random)),
            22 | 23 => Op::Link(path, random.path()),
            24 => Op::Symlink(path, seed),
            25 => Op::Fifo(path),
            26 => Op::Chmod(path, [0o600, 0o755, 0o4755, 0o1777, 0o2750][random.below(5) as usize]),
            27 => match random.below(2) {
                0 => Op::Chown(path, random.below(3) as u32, random.below(3) as u32),
                _ => Op::Times(path, random.below(1 << 40)),
            },
            28 => Op::SetXattr(path, random.below(3), 1 + random.below(200) as usize),
            _ => Op::RemoveXattr(path, random.below(3)),
        }
    }

    pub fn run(&self, root: &Path) -> io::Result<()> {
        let at = |path: &Path| root.join(path);
        let is_file = |path: &Path| fs::symlink_metadata(at(path)).is_ok_and(|stat| stat.is_file());
        let need_file =
            |path: &Path| if is_file(path) { Ok(()) } else { Err(io::Error::from(io::ErrorKind::NotFound)) };
        // Opening a pipe would wait, and a link leads anywhere.
        let may_write = |path: &Path| match fs::symlink_metadata(at(path)) {
            Ok(stat) if !stat.is_file() => Err(io::Error::from(io::ErrorKind::AlreadyExists)),
            _ => Ok(()),
        };
        match self {
            Op::Write(path, seed, size) => {
                may_write(path)?;
                fs::write(at(path), bytes(*seed, *size))
            }
            Op::WriteAt(path, offset, seed, size) => {
                need_file(path)?;
                OpenOptions::new().write(true).open(at(path))?.write_all_at(&bytes(*seed, *size), *offset)
            }
            Op::Append(path, seed, size) => {
                need_file(path)?;
                let mut file = OpenOptions::new().append(true).open(at(path))?;
                io::Write::write_all(&mut file, &bytes(*seed, *size))
            }
            Op::Truncate(path, size) => {
                need_file(path)?;
                OpenOptions::new().write(true).open(at(path))?.set_len(*size)
            }
            Op::Touch(path) => {
                need_file(path)?;
                fs::File::open(at(path))?.set_times(FileTimes::new().set_modified(SystemTime::now()))
            }
            Op::OpenForWriting(path) => {
                need_file(path)?;
                OpenOptions::new().write(true).open(at(path)).map(drop)
            }
            Op::Mkdir(path) => fs::create_dir(at(path)),
            Op::Unlink(path) => fs::remove_file(at(path)),
            Op::Rmdir(path) => fs::remove_dir(at(path)),
            Op::RemoveAll(path) => fs::remove_dir_all(at(path)),
            Op::Rename(from, to) => fs::rename(at(from), at(to)),
            Op::Exchange(from, to) => {
                rustix::fs::renameat_with(
                    rustix::fs::CWD,
                    at(from),
                    rustix::fs::CWD,
                    at(to),
                    RenameFlags::EXCHANGE,
                )?;
                Ok(())
            }
            Op::Save(path, seed, size) => {
                may_write(path)?;
                let temporary = root.join(".save");
                fs::write(&temporary, bytes(*seed, *size))?;
                let renamed = fs::rename(&temporary, at(path));
                if renamed.is_err() {
                    fs::remove_file(&temporary)?;
                }
                renamed
            }
            Op::Link(from, to) => fs::hard_link(at(from), at(to)),
            Op::Symlink(path, seed) => symlink(format!("target {}", seed % 100), at(path)),
            Op::Fifo(path) => {
                let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
                rustix::fs::mknodat(rustix::fs::CWD, at(path), rustix::fs::FileType::Fifo, mode, 0)?;
                Ok(())
            }
            Op::Chmod(path, mode) => {
                if fs::symlink_metadata(at(path))?.is_symlink() {
                    return Ok(());
                }
                fs::set_permissions(at(path), fs::Permissions::from_mode(*mode))
            }
            Op::Chown(path, uid, gid) => lchown(at(path), Some(*uid), Some(*gid)),
            Op::Times(path, nanos) => {
                let stat = fs::symlink_metadata(at(path))?;
                if !(stat.is_file() || stat.is_dir()) {
                    return Ok(());
                }
                let time = SystemTime::UNIX_EPOCH + Duration::from_micros(*nanos);
                fs::File::open(at(path))?.set_times(FileTimes::new().set_modified(time))
            }
            Op::SetXattr(path, which, size) => {
                may_have_xattrs(&at(path))?;
                let name = ["user.one", "user.two", "trusted.three"][*which as usize];
                rustix::fs::setxattr(at(path), name, &bytes(*which, *size), XattrFlags::empty())?;
                Ok(())
            }
            Op::RemoveXattr(path, which) => {
                may_have_xattrs(&at(path))?;
                let name = ["user.one", "user.two", "trusted.three"][*which as usize];
                rustix::fs::removexattr(at(path), name)?;
                Ok(())
            }
        }
    }
}

fn may_have_xattrs(path: &Path) -> io::Result<()> {
    let stat = fs::symlink_metadata(path)?;
    if stat.is_file() || stat.is_dir() { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
}
