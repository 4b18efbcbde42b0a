//! A private mount namespace that shows the workspace at another path.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use atoll_store::Code;
use nix::sched::{CloneFlags, unshare};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount_bind_recursive, mount_change, mount_remount,
    unmount,
};

use super::report::Failure;
use super::spec::{Pass, Spec};
use crate::overlay::{Mount, mounts};

/// Which namespace the command is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The caller's own: nothing is shown elsewhere.
    None,
    /// A mount namespace (the caller may mount).
    Mount,
    /// A mount namespace inside a user namespace that keeps the caller's own ids.
    User,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::None => "none",
            Kind::Mount => "mount",
            Kind::User => "user",
        }
    }
}

/// What was made in the workspace to have something to mount on.
#[derive(Debug, Default)]
pub(super) struct Placeholders {
    made: Vec<PathBuf>,
}

impl Placeholders {
    /// Takes them away again, deepest first: only what is still as it was made (an empty file, an empty folder).
    pub(super) fn remove(&self) {
        for path in self.made.iter().rev() {
            let Ok(stat) = fs::symlink_metadata(path) else { continue };
            if stat.is_dir() {
                let _ = fs::remove_dir(path);
            } else if stat.len() == 0 && stat.is_file() {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// Enters the namespace that `spec` asks for and mounts all that it names.
///
/// # Errors
/// `no_namespace` when this process may have none. The process may then be half inside: the caller starts another.
pub(super) fn enter(spec: &Spec) -> Result<(Kind, Placeholders), Failure> {
    if spec.at.is_none() && spec.passes.is_empty() {
        return Ok((Kind::None, Placeholders::default()));
    }
    if let Some(at) = &spec.at {
        check_target(at, &spec.workspace)?;
    }
    let placeholders = prepare_passes(spec)?;
    let kind = match mount_all(spec) {
        Ok(kind) => kind,
        Err(failure) => {
            placeholders.remove();
            return Err(failure);
        }
    };
    Ok((kind, placeholders))
}

fn mount_all(spec: &Spec) -> Result<Kind, Failure> {
    let kind = unshare_mounts()?;
    // Nothing that is mounted from now on leaves; what the host mounts and unmounts goes on reaching us, so that
    // this namespace keeps nobody else's file system busy.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .map_err(|errno| no_mount(kind, "make its mounts private", errno))?;
    if kind == Kind::Mount {
        let_go_of_other_workspaces(&spec.workspace);
    }
    // The passed files are taken before the workspace covers them.
    let taken: Vec<_> = spec.passes.iter().map(take).collect::<Result<_, _>>()?;
    if let Some(at) = &spec.at {
        mount_bind_recursive(&spec.workspace, at)
            .map_err(|errno| no_mount(kind, &format!("show the workspace at {}", at.display()), errno))?;
    }
    for (pass, tree) in spec.passes.iter().zip(taken) {
        put(pass, &tree)?;
    }
    Ok(kind)
}

fn check_target(at: &Path, workspace: &Path) -> Result<(), Failure> {
    if !at.is_dir() {
        return Err(Failure::no_namespace(format!(
            "The workspace cannot be shown at {}: there is no folder of that name.",
            at.display()
        )));
    }
    if at == Path::new("/") {
        return Err(Failure::new(Code::Usage, "The workspace cannot be shown at '/': name a folder."));
    }
    if workspace != at && workspace.starts_with(at) {
        // The bind itself works, and the workspace's own path is hidden by it: said, since paths that the command
        // was given beforehand may lie there.
        log::debug!("{} covers the workspace's own path", at.display());
    }
    Ok(())
}

fn unshare_mounts() -> Result<Kind, Failure> {
    match unshare(CloneFlags::CLONE_NEWNS) {
        Ok(()) => return Ok(Kind::Mount),
        Err(nix::errno::Errno::EPERM) => {}
        Err(errno) => return Err(no_namespace_because(errno)),
    }
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).map_err(no_namespace_because)?;
    let map = |file: &str, text: String| fs::write(format!("/proc/self/{file}"), text);
    map("setgroups", "deny".to_owned())
        .and_then(|()| map("uid_map", format!("{uid} {uid} 1")))
        .and_then(|()| map("gid_map", format!("{gid} {gid} 1")))
        .map_err(|error| {
            Failure::no_namespace(format!("A user namespace cannot keep your own ids here: {error}."))
        })?;
    Ok(Kind::User)
}

fn no_namespace_because(errno: nix::errno::Errno) -> Failure {
    Failure::no_namespace(format!(
        "This process may have no mount namespace of its own ({}); 'atoll doctor' names what would allow it.",
        io::Error::from(errno)
    ))
}

fn no_mount(kind: Kind, doing: &str, errno: Errno) -> Failure {
    let cause = io::Error::from(errno);
    let restricted = kind == Kind::User
        && fs::read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
            .is_ok_and(|text| text.starts_with(b"1"));
    let why = if restricted {
        "AppArmor restricts user namespaces here; 'sysctl kernel.apparmor_restrict_unprivileged_userns=0' lifts it"
    } else {
        "'atoll doctor' names what would allow it"
    };
    Failure::no_namespace(format!("The private mount namespace cannot {doing} ({cause}); {why}."))
}

/// A copy of another workspace's mount in this namespace would keep it from being mounted again when it is
/// unmounted outside. The file system itself stays where it is: only this namespace's view of it goes.
fn let_go_of_other_workspaces(own: &Path) {
    let workspaces = mounts().unwrap_or_default().into_iter().filter(Mount::is_workspace);
    for mount in workspaces.filter(|mount| !own.starts_with(&mount.target)) {
        let _ = unmount(&mount.target, UnmountFlags::DETACH);
    }
}

fn take(pass: &Pass) -> Result<std::os::fd::OwnedFd, Failure> {
    use rustix::mount::{OpenTreeFlags, open_tree};
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    open_tree(rustix::fs::CWD, &pass.source, flags).map_err(|errno| {
        let cause = io::Error::from(errno);
        Failure::new(Code::NotFound, format!("'--pass {}' cannot be shown: {cause}.", pass.source.display()))
    })
}

/// Mounts a taken tree at its target and makes it, and all mounts in it, read-only.
fn put(pass: &Pass, tree: &std::os::fd::OwnedFd) -> Result<(), Failure> {
    use rustix::mount::{MoveMountFlags, move_mount};
    let failed = |errno: Errno| {
        let cause = io::Error::from(errno);
        Failure::new(Code::Io, format!("'--pass {}' cannot be shown: {cause}.", pass.source.display()))
    };
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(tree, "", rustix::fs::CWD, &pass.target, flags).map_err(failed)?;
    let seen = mounts()?;
    for mount in seen.iter().filter(|mount| mount.target.starts_with(&pass.target)) {
        // Flags that the mount has already are repeated: inside a user namespace they may not be dropped.
        let mut flags = MountFlags::BIND | MountFlags::RDONLY;
        for option in mount.flags.split(',') {
            flags |= match option {
                "nosuid" => MountFlags::NOSUID,
                "nodev" => MountFlags::NODEV,
                "noexec" => MountFlags::NOEXEC,
                "noatime" => MountFlags::NOATIME,
                "nodiratime" => MountFlags::NODIRATIME,
                "relatime" => MountFlags::RELATIME,
                _ => MountFlags::empty(),
            };
        }
        mount_remount(&mount.target, flags, "").map_err(failed)?;
    }
    Ok(())
}

/// A pass inside the workspace needs something there to be mounted on: an empty file or folder, made in the
/// workspace for the time of the run when the tree has none.
fn prepare_passes(spec: &Spec) -> Result<Placeholders, Failure> {
    let mut placeholders = Placeholders::default();
    for pass in &spec.passes {
        let inside = spec.at.as_deref().unwrap_or(&spec.workspace);
        let place = match pass.target.strip_prefix(inside) {
            Ok(relative) if !relative.as_os_str().is_empty() => spec.workspace.join(relative),
            _ => continue,
        };
        if let Err(error) = make_place(&pass.source, &place, &spec.workspace, &mut placeholders.made) {
            placeholders.remove();
            let shown = pass.source.display();
            return Err(Failure::new(
                Code::Io,
                format!("'--pass {shown}' has no place in the workspace: {error}."),
            ));
        }
    }
    Ok(placeholders)
}

fn make_place(source: &Path, place: &Path, workspace: &Path, made: &mut Vec<PathBuf>) -> io::Result<()> {
    let relative = place.strip_prefix(workspace).map_err(io::Error::other)?;
    let folder = fs::metadata(source)?.is_dir();
    let mut path = workspace.to_path_buf();
    let parts: Vec<_> = relative.iter().collect();
    for (index, part) in parts.iter().enumerate() {
        if part.as_bytes() == b".." {
            return Err(io::Error::other("its path leads out of the workspace"));
        }
        path.push(part);
        let last = index + 1 == parts.len();
        match fs::symlink_metadata(&path) {
            Ok(stat) if stat.is_symlink() => {
                return Err(io::Error::other(format!("{} is a link", path.display())));
            }
            Ok(stat) if stat.is_dir() == (folder || !last) => continue,
            Ok(_) if folder || !last => {
                return Err(io::Error::other(format!("{} is no folder", path.display())));
            }
            Ok(_) => return Err(io::Error::other(format!("{} is a folder", path.display()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        if folder || !last {
            fs::create_dir(&path)?;
        } else {
            fs::File::create_new(&path)?;
        }
        made.push(path.clone());
    }
    Ok(())
}
