//! Overlays on plain folders: mounting, unmounting, what stands in the way.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use atoll_mount::overlay::{
    Fitness, FsyncMode, Overlay, clear_volatile, find_mount, holders, is_volatile, mount, mount_scratch,
    probe_upper, set_aside, umount, umount_scratch,
};
use atoll_store::Code;
use rustix::fs::XattrFlags;
use rustix::mount::UnmountFlags;

/// A folder with a lower, and everything below it unmounted at the end.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Option<Place> {
        let can = rustix::process::geteuid().is_root()
            && rustix::mount::fsopen("overlay", rustix::mount::FsOpenFlags::FSOPEN_CLOEXEC).is_ok();
        if !can {
            eprintln!("skipped: no right to mount an overlay");
            return None;
        }
        let dir = tempfile::Builder::new().prefix("atoll-mount-").tempdir().unwrap();
        for name in ["lower/dir", "mnt"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("lower/file"), "below").unwrap();
        Some(Place(dir))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn overlay(&self, fsync: FsyncMode) -> Overlay {
        Overlay { lower: self.at("lower"), upper: self.at("upper"), work: self.at("work"), fsync }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mounts = atoll_mount::overlay::mounts().unwrap_or_default();
        for mount in mounts.iter().rev().filter(|mount| mount.target.starts_with(self.0.path())) {
            let _ = rustix::mount::unmount(&mount.target, UnmountFlags::DETACH);
        }
    }
}

/// A child that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_workspace_is_mounted_found_and_unmounted() {
    let Some(place) = Place::new() else { return };
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_500_000_000);
    fs::set_permissions(place.at("lower"), fs::Permissions::from_mode(0o2751)).unwrap();
    std::os::unix::fs::chown(place.at("lower"), Some(12), Some(34)).unwrap();
    fs::set_permissions(place.at("lower"), fs::Permissions::from_mode(0o2751)).unwrap();
    rustix::fs::setxattr(place.at("lower"), "user.root", b"r", XattrFlags::empty()).unwrap();
    File::open(place.at("lower")).unwrap().set_times(fs::FileTimes::new().set_modified(old)).unwrap();

    let overlay = place.overlay(FsyncMode::Real);
    mount(&overlay, &place.at("mnt")).unwrap();
    let found = find_mount(&place.at("mnt")).unwrap().unwrap();
    assert!(found.is_workspace());
    assert_eq!(found.options["upperdir"], overlay.upper.to_str().unwrap());
    assert!(!found.is_volatile());
    for key in ["redirect_dir", "index", "metacopy"] {
        assert_eq!(found.options[key], "on", "{key}");
    }
    // The root is the lower's to the last attribute.
    let root = fs::metadata(place.at("mnt")).unwrap();
    assert_eq!((root.mode() & 0o7777, root.uid(), root.gid()), (0o2751, 12, 34));
    assert_eq!(root.modified().unwrap(), old);
    let mut value = [0; 8];
    assert_eq!(rustix::fs::getxattr(place.at("mnt"), "user.root", &mut value[..]), Ok(1));

    fs::write(place.at("mnt/new"), "above").unwrap();
    let error = mount(&overlay, &place.at("mnt")).unwrap_err();
    assert_eq!(error.code, Code::Busy);
    assert!(error.message.contains("already"), "{error}");
    umount(&place.at("mnt")).unwrap();
    assert!(find_mount(&place.at("mnt")).unwrap().is_none());
    assert_eq!(umount(&place.at("mnt")).unwrap_err().code, Code::NotFound);
    // And again, with what was there.
    mount(&overlay, &place.at("mnt")).unwrap();
    assert_eq!(fs::read_to_string(place.at("mnt/new")).unwrap(), "above");
    umount(&place.at("mnt")).unwrap();
}

#[test]
fn paths_need_no_escaping_and_may_be_long() {
    let Some(place) = Place::new() else { return };
    for name in ["a:b,c\\d e", &"long".repeat(60)] {
        let dir = place.at(name);
        fs::create_dir(&dir).unwrap();
        fs::rename(place.at("lower"), dir.join("low,er:1")).unwrap();
        fs::create_dir(dir.join("m,n:t")).unwrap();
        let overlay = Overlay {
            lower: dir.join("low,er:1"),
            upper: dir.join("up,per:1"),
            work: dir.join("wo,rk:1"),
            fsync: FsyncMode::Real,
        };
        mount(&overlay, &dir.join("m,n:t")).unwrap();
        assert_eq!(fs::read_to_string(dir.join("m,n:t/file")).unwrap(), "below");
        fs::write(dir.join("m,n:t/new"), "n").unwrap();
        assert!(overlay.upper.join("new").exists());
        if overlay.upper.as_os_str().len() < 250 {
            assert_eq!(find_mount(&dir.join("m,n:t")).unwrap().unwrap().upper(), Some(overlay.upper.clone()));
        }
        umount(&dir.join("m,n:t")).unwrap();
        fs::rename(dir.join("low,er:1"), place.at("lower")).unwrap();
    }
}

fn busy_with(place: &Place, command: &mut Command, how: &str) {
    let child = Running(command.spawn().unwrap());
    // Until it is there; it has no way to say so.
    let pid = child.0.id();
    for _ in 0..500 {
        if holders(&place.at("mnt")).unwrap().iter().any(|holder| holder.pid == pid) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let error = umount(&place.at("mnt")).unwrap_err();
    assert_eq!(error.code, Code::Busy);
    assert!(error.message.contains(&format!("(process {pid}, {how}")), "{error}");
    assert!(find_mount(&place.at("mnt")).unwrap().is_some(), "never lazily");
}

#[test]
fn a_busy_workspace_names_process_and_pid() {
    let Some(place) = Place::new() else { return };
    mount(&place.overlay(FsyncMode::Real), &place.at("mnt")).unwrap();
    busy_with(&place, Command::new("sleep").arg("60").current_dir(place.at("mnt/dir")), "working folder");
    let file = File::create(place.at("mnt/open")).unwrap();
    busy_with(&place, Command::new("sleep").arg("60").stdin(file), "open file");
    umount(&place.at("mnt")).unwrap();
}

#[test]
fn a_mount_on_top_is_named() {
    let Some(place) = Place::new() else { return };
    mount(&place.overlay(FsyncMode::Real), &place.at("mnt")).unwrap();
    fs::create_dir(place.at("mnt/top")).unwrap();
    mount_scratch(&place.at("mnt/top"), Some(1 << 20)).unwrap();
    let error = umount(&place.at("mnt")).unwrap_err();
    assert_eq!(error.code, Code::Busy);
    assert!(error.message.contains("mnt/top"), "{error}");
    umount_scratch(&place.at("mnt/top")).unwrap();
    umount(&place.at("mnt")).unwrap();
}

#[test]
fn another_mount_of_it_is_named_and_nothing_is_unmounted() {
    let Some(place) = Place::new() else { return };
    mount(&place.overlay(FsyncMode::Real), &place.at("mnt")).unwrap();
    fs::create_dir(place.at("bound")).unwrap();
    rustix::mount::mount_bind(place.at("mnt"), place.at("bound")).unwrap();
    let error = umount(&place.at("mnt")).unwrap_err();
    assert_eq!(error.code, Code::Busy);
    assert!(error.message.contains("/bound"), "{error}");
    assert!(find_mount(&place.at("mnt")).unwrap().is_some());
    rustix::mount::unmount(place.at("bound"), UnmountFlags::empty()).unwrap();

    // A namespace of its own, which no unmount here reaches.
    let child = Running(
        Command::new("unshare").args(["-m", "--propagation", "private", "sleep", "60"]).spawn().unwrap(),
    );
    let pid = child.0.id();
    let here = fs::read_link("/proc/self/ns/mnt").unwrap();
    for _ in 0..500 {
        let there = fs::read_link(format!("/proc/{pid}/ns/mnt"));
        let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if there.is_ok_and(|there| there != here) && program.trim() == "sleep" {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let error = umount(&place.at("mnt")).unwrap_err();
    assert!(error.message.contains(&format!("process {pid}, in a mount namespace")), "{error}");
    drop(child);
    umount(&place.at("mnt")).unwrap();
}

#[test]
fn a_volatile_mount_says_so_until_it_was_synced() {
    let Some(place) = Place::new() else { return };
    let overlay = place.overlay(FsyncMode::Commit);
    mount(&overlay, &place.at("mnt")).unwrap();
    assert!(find_mount(&place.at("mnt")).unwrap().unwrap().is_volatile());
    assert!(is_volatile(&overlay.work));
    fs::write(place.at("mnt/new"), "n").unwrap();
    umount(&place.at("mnt")).unwrap();
    assert!(is_volatile(&overlay.work), "the kernel leaves its marker");
    let refused = mount(&overlay, &place.at("mnt")).unwrap_err();
    assert!(matches!(refused.code, Code::Unsupported | Code::Io), "{refused}");
    clear_volatile(&overlay.upper, &overlay.work).unwrap();
    mount(&overlay, &place.at("mnt")).unwrap();
    umount(&place.at("mnt")).unwrap();
    // As after a crash: what there was is kept, and a fresh upper is made.
    let aside = set_aside(&overlay.upper, &overlay.work).unwrap();
    assert_eq!(fs::read_to_string(aside.join("new")).unwrap(), "n");
    mount(&overlay, &place.at("mnt")).unwrap();
    assert!(!place.at("mnt/new").exists());
    umount(&place.at("mnt")).unwrap();
}

#[test]
fn a_scratch_in_memory_has_its_size() {
    let Some(place) = Place::new() else { return };
    fs::create_dir(place.at("scratch")).unwrap();
    mount_scratch(&place.at("scratch"), Some(8 << 20)).unwrap();
    assert_eq!(mount_scratch(&place.at("scratch"), None).unwrap_err().code, Code::Busy);
    let overlay = Overlay {
        upper: place.at("scratch/upper"),
        work: place.at("scratch/work"),
        ..place.overlay(FsyncMode::Real)
    };
    mount(&overlay, &place.at("mnt")).unwrap();
    fs::write(place.at("mnt/file"), vec![1; 4 << 20]).unwrap();
    let full = fs::write(place.at("mnt/large"), vec![1; 16 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(umount_scratch(&place.at("scratch")).unwrap_err().code, Code::Busy);
    umount(&place.at("mnt")).unwrap();
    umount_scratch(&place.at("scratch")).unwrap();
    assert_eq!(umount_scratch(&place.at("scratch")).unwrap_err().code, Code::NotFound);
}

fn unfit(dir: &Path) -> String {
    match probe_upper(dir).unwrap() {
        Fitness::Unfit(reason) => reason,
        Fitness::Fit => panic!("{} should not do", dir.display()),
    }
}

#[test]
fn where_an_upper_cannot_live_one_sentence_says_so() {
    let Some(place) = Place::new() else { return };
    assert_eq!(probe_upper(&place.at("lower")).unwrap(), Fitness::Fit);
    assert_eq!(fs::read_dir(place.at("lower")).unwrap().count(), 2, "nothing is left behind");
    mount(&place.overlay(FsyncMode::Real), &place.at("mnt")).unwrap();
    let reason = unfit(&place.at("mnt"));
    assert!(reason.contains("overlay itself") && reason.contains("--scratch memory"), "{reason}");
    umount(&place.at("mnt")).unwrap();
}
