//! Whether an upper can live in a folder, and why not.

use std::fs;
use std::path::Path;

use atoll_store::{Code, Error, Result};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::mount::{FsyncMode, Overlay, open};

/// What a folder is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fitness {
    /// An upper can live here.
    Fit,
    /// It cannot: one sentence that names the reason and the volume or flag that mends it.
    Unfit(String),
}

/// Tries, without leaving anything behind, whether an upper can live in `dir` and an overlay can be mounted by
/// this process.
///
/// # Errors
/// `Io` when the folder cannot be written to.
pub fn probe_upper(dir: &Path) -> Result<Fitness> {
    let place = dir.join(format!(".atoll-probe-{}", std::process::id()));
    let result = try_in(&place, dir);
    match fs::remove_dir_all(&place) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::io("remove the probe", &place, error));
        }
        _ => {}
    }
    match result {
        Ok(()) => Ok(Fitness::Fit),
        Err(error) if matches!(error.code, Code::Unsupported | Code::Permission) => {
            Ok(Fitness::Unfit(error.message))
        }
        Err(error) => Err(error),
    }
}

fn try_in(place: &Path, dir: &Path) -> Result<()> {
    let overlay = Overlay {
        lower: place.join("lower"),
        upper: place.join("upper"),
        work: place.join("work"),
        fsync: FsyncMode::Real,
    };
    for folder in [&overlay.lower, &overlay.upper, &overlay.work] {
        fs::create_dir_all(folder).map_err(|error| Error::io("make the folder", folder, error))?;
    }
    // The kernel mounts what it then cannot use well (no redirects), and only its log says so.
    mark(&overlay.upper).map_err(|error| why_not(&overlay, dir, error))?;
    // Never attached anywhere, so closing it is the unmount.
    open(&overlay, dir).map(drop)
}

/// Whether files here can have the attributes that overlayfs keeps its own things in.
fn mark(upper: &Path) -> rustix::io::Result<()> {
    let name = "trusted.overlay.opaque";
    rustix::fs::setxattr(upper, name, b"n", XattrFlags::empty())?;
    rustix::fs::removexattr(upper, name)
}

/// A sentence for a mount that the kernel refused; `named` is the folder that it speaks of.
pub(super) fn why_not(overlay: &Overlay, named: &Path, error: Errno) -> Error {
    let upper = named.display();
    let fs_type = fs_type(&overlay.upper);
    let mend = "keep the store on a volume with ext4, xfs or btrfs (--store DIR), or use '--scratch memory' or \
                '--driver copy'";
    let (code, message) = match (fs_type, error) {
        (_, Errno::PERM | Errno::ACCESS) => (
            Code::Permission,
            "This process may not mount an overlay: that takes root (in a container: '--cap-add SYS_ADMIN \
             --device /dev/fuse'); '--driver copy' needs neither."
                .to_owned(),
        ),
        (_, Errno::NODEV) => (
            Code::Unsupported,
            "This kernel has no overlayfs; load it with 'modprobe overlay', or use '--driver copy'."
                .to_owned(),
        ),
        (Some(OVERLAY), _) => (
            Code::Unsupported,
            format!(
                "{upper} is on an overlay itself (as everything in a container is), where changes of a workspace \
                 cannot be kept; mount a volume there ('docker run -v atoll:{upper}'), {mend}."
            ),
        ),
        (Some(NFS), _) => (Code::Unsupported, elsewhere(&upper, "NFS", mend)),
        (Some(SMB | CIFS), _) => (Code::Unsupported, elsewhere(&upper, "a Windows share", mend)),
        (Some(V9FS), _) => {
            (Code::Unsupported, elsewhere(&upper, "9p (a drive of the host, as in WSL)", mend))
        }
        (Some(FUSE), _) => (Code::Unsupported, elsewhere(&upper, "FUSE", mend)),
        (_, Errno::STALE) => (
            Code::Damaged,
            format!(
                "{upper} belongs to another base than {}, so it cannot be mounted over it.",
                overlay.lower.display()
            ),
        ),
        (_, Errno::BUSY) => (
            Code::Busy,
            format!(
                "{upper} is in use by another overlay, perhaps in the mount namespace of a command that still runs; \
                 end that or unmount it ('atoll workspaces' lists them)."
            ),
        ),
        (_, Errno::NOTSUP | Errno::INVAL) => (
            Code::Unsupported,
            format!(
                "The kernel refuses an overlay with its changes in {upper} ({error}); {mend}, and look at the end \
                 of 'dmesg' for its reason."
            ),
        ),
        _ => return Error::io("mount an overlay with its changes in", &overlay.upper, error.into()),
    };
    let source = Some(error.into());
    Error { code, message, source }
}

fn elsewhere(upper: &std::path::Display<'_>, what: &str, mend: &str) -> String {
    format!("{upper} is on {what}, where changes of a workspace cannot be kept; {mend}.")
}

const OVERLAY: u64 = 0x794c_7630;
const NFS: u64 = 0x6969;
const SMB: u64 = 0xfe53_4d42;
const CIFS: u64 = 0xff53_4d42;
const V9FS: u64 = 0x0102_1997;
const FUSE: u64 = 0x6573_5546;

fn fs_type(path: &Path) -> Option<u64> {
    rustix::fs::statfs(path).ok().map(|stat| stat.f_type as u64 & 0xffff_ffff)
}
