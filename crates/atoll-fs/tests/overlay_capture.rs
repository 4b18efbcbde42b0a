//! What an upper can hold, one kind at a time, on kernel overlayfs.

mod overlay_support;

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use overlay_support::{Bench, Scratch, bytes, can_mount};
use rustix::fs::{Mode, XattrFlags};

fn fill(lower: &Path) {
    for dir in ["a", "a/b", "a/b/c", "many", "gone", "gone/deep"] {
        fs::create_dir_all(lower.join(dir)).unwrap();
    }
    for at in 0..20 {
        fs::write(lower.join(format!("many/{at}")), bytes(at, 1000 + at as usize)).unwrap();
    }
    fs::write(lower.join("file"), "some words\n").unwrap();
    fs::write(lower.join("large"), bytes(7, 900_000)).unwrap();
    fs::write(lower.join("a/one"), bytes(1, 5000)).unwrap();
    fs::write(lower.join("a/b/two"), bytes(2, 300)).unwrap();
    fs::write(lower.join("a/b/c/three"), "3").unwrap();
    fs::write(lower.join("gone/x"), "x").unwrap();
    fs::write(lower.join("gone/deep/y"), "y").unwrap();
    fs::write(lower.join("h1"), bytes(3, 4000)).unwrap();
    fs::hard_link(lower.join("h1"), lower.join("a/h2")).unwrap();
    fs::hard_link(lower.join("h1"), lower.join("a/b/h3")).unwrap();
    symlink("a/one", lower.join("link")).unwrap();
    set_xattr(&lower.join("file"), "user.kept", "value");
    // Times apart from the test's own, so that a copy of them is seen.
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_nanos(1_600_000_000_123_456_789);
    for name in ["file", "large", "a/one", "a/b/two", "h1", "many/3", "a/b", "a", "many"] {
        File::open(lower.join(name)).unwrap().set_times(fs::FileTimes::new().set_modified(old)).unwrap();
    }
}

fn set_xattr(path: &Path, name: &str, value: &str) {
    rustix::fs::setxattr(path, name, value.as_bytes(), XattrFlags::empty()).unwrap();
}

fn append(path: &Path, text: &[u8]) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(text).unwrap();
}

fn bench() -> Option<Bench> {
    can_mount().then(|| Bench::new(Scratch::Disk, fill))
}

#[test]
fn an_untouched_workspace_is_its_base() {
    let Some(mut bench) = bench() else { return };
    let done = bench.commit_and_check();
    assert!(!done.changed);
    bench.check_without_index();
}

#[test]
fn new_files_of_every_kind() {
    let Some(mut bench) = bench() else { return };
    fs::create_dir_all(bench.ws("new/dir")).unwrap();
    fs::write(bench.ws("new/dir/file"), bytes(9, 70_000)).unwrap();
    fs::write(bench.ws("a/b/small"), "tiny").unwrap();
    fs::write(bench.ws("empty"), "").unwrap();
    symlink("/nowhere/at all", bench.ws("a/absolute")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, bench.ws("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0)
        .unwrap();
    let device = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        bench.ws("null"),
        rustix::fs::FileType::CharacterDevice,
        Mode::RUSR,
        device,
    )
    .unwrap();
    drop(std::os::unix::net::UnixListener::bind(bench.ws("socket")).unwrap());
    let sparse = File::create(bench.ws("sparse")).unwrap();
    sparse.write_all_at(b"end", 10_000_000).unwrap();
    fs::write(bench.ws("linked"), "l").unwrap();
    fs::hard_link(bench.ws("linked"), bench.ws("new/linked")).unwrap();
    set_xattr(&bench.ws("new/dir"), "user.dir", "d");
    set_xattr(&bench.ws("new/dir/file"), "trusted.file", "t");
    let name: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"not\xffutf8");
    fs::write(bench.ws("a").join(name), "bytes").unwrap();
    fs::set_permissions(bench.ws("new/dir/file"), fs::Permissions::from_mode(0o6750)).unwrap();
    std::os::unix::fs::chown(bench.ws("empty"), Some(1234), Some(5678)).unwrap();
    let done = bench.commit_and_check();
    assert!(done.changes.iter().all(|change| change.starts_with("Added ")), "{:?}", done.changes);
    let (ino, inode) = bench.root(bench.head).resolve(b"new/dir/file").unwrap().unwrap();
    let stat = fs::metadata(bench.ws("new/dir/file")).unwrap();
    assert_eq!(ino.low(), stat.ino() as u32, "the low 32 bits are the upper's");
    assert_eq!((inode.ctime.sec, inode.ctime.nsec), (stat.ctime(), stat.ctime_nsec() as u32));
    bench.check_without_index();
}

#[test]
fn a_file_that_was_merely_copied_up_is_no_change() {
    let Some(mut bench) = bench() else { return };
    // Open for writing copies up; nothing is written.
    for name in ["file", "a/b/two", "large", "h1"] {
        drop(OpenOptions::new().write(true).open(bench.ws(name)).unwrap());
        assert!(bench.upper().join(name).exists());
    }
    // Metadata only, and back.
    fs::set_permissions(bench.ws("a/one"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(bench.ws("a/one"), fs::Permissions::from_mode(0o644)).unwrap();
    let done = bench.commit();
    assert!(!done.changed, "{:?}", done.changes);
    bench.check();
    assert_eq!(bench.head, bench.base);
}

#[test]
fn a_change_of_an_inherited_file_keeps_its_number() {
    let Some(mut bench) = bench() else { return };
    append(&bench.ws("file"), b"more");
    fs::write(bench.ws("a/one"), "rewritten").unwrap();
    let mut large = OpenOptions::new().write(true).open(bench.ws("large")).unwrap();
    large.seek(SeekFrom::Start(500_000)).unwrap();
    large.write_all(b"here").unwrap();
    let done = bench.commit_and_check();
    assert_eq!(done.changes.len(), 3, "{:?}", done.changes);
    for name in ["file", "a/one", "large"] {
        assert_eq!(bench.ino(bench.base, name), bench.ino(bench.head, name), "{name}");
    }
    // Chunks that did not change are the same ones.
    let extents = |commit| {
        let tree = bench.root(commit);
        let (ino, _) = tree.resolve(b"large").unwrap().unwrap();
        tree.extents(ino, 0..u64::MAX).unwrap()
    };
    let (before, after) = (extents(bench.base), extents(bench.head));
    assert!(before.len() > 5);
    assert!(after.iter().filter(|extent| !before.contains(extent)).count() <= 2);
    bench.check_without_index();
}

#[test]
fn metadata_alone_reads_no_data() {
    let Some(mut bench) = bench() else { return };
    fs::set_permissions(bench.ws("large"), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::chown(bench.ws("a/one"), Some(7), Some(8)).unwrap();
    set_xattr(&bench.ws("file"), "user.added", "x");
    rustix::fs::removexattr(bench.ws("file"), "user.kept").unwrap();
    let done = bench.commit();
    bench.check();
    assert_eq!(done.read_files, 0, "metadata-only copies have no data to read");
    assert_eq!(done.changes.len(), 3, "{:?}", done.changes);
    assert!(done.changes.iter().all(|change| change.starts_with("Metadata ")), "{:?}", done.changes);
    bench.commit_and_check();
    bench.check_without_index();
}

#[test]
fn deletions_and_opaque_folders() {
    let Some(mut bench) = bench() else { return };
    fs::remove_file(bench.ws("file")).unwrap();
    fs::remove_file(bench.ws("a/b/two")).unwrap();
    fs::remove_dir_all(bench.ws("gone")).unwrap();
    fs::create_dir(bench.ws("gone")).unwrap();
    fs::write(bench.ws("gone/new"), "n").unwrap();
    fs::write(bench.ws("gone/x"), "another x").unwrap();
    let done = bench.commit_and_check();
    let mut expected =
        ["Deleted a/b/two", "Deleted file", "Deleted gone/deep", "Deleted gone/deep/y", "Added gone/new"];
    expected.sort_unstable();
    for change in expected {
        assert!(done.changes.iter().any(|have| have == change), "{change}: {:?}", done.changes);
    }
    // The folder and the file took the place of others: same identity, other numbers.
    let birth = |commit, path: &str| bench.root(commit).resolve(path.as_bytes()).unwrap().unwrap().1.birth;
    for path in ["gone", "gone/x"] {
        assert_ne!(bench.ino(bench.base, path), bench.ino(bench.head, path));
        assert_eq!(birth(bench.base, path), birth(bench.head, path), "{path}");
    }
    bench.check_without_index();
}

#[test]
fn a_moved_base_folder_is_one_moved_key() {
    let Some(mut bench) = bench() else { return };
    fs::rename(bench.ws("many"), bench.ws("a/moved")).unwrap();
    fs::rename(bench.ws("a/b"), bench.ws("a/renamed")).unwrap();
    let done = bench.commit_and_check();
    assert_eq!(done.changes, ["Renamed a/moved from many", "Renamed a/renamed from a/b"]);
    assert_eq!(done.read_files, 0);
    let keys = |commit| (bench.ino(commit, "many"), bench.ino(commit, "a/moved"));
    assert_eq!(keys(bench.base).0, keys(bench.head).1);
    let differences = atoll_store::tree::diff(
        &bench.store,
        Some(bench.root(bench.base).root),
        Some(bench.root(bench.head).root),
    );
    let count = differences.count();
    // Two names gone, two come, as entries and ways back; and the records of the root and of `a`.
    assert!(count <= 10, "{count} keys");
    // A change deep in a moved folder, and the folder moved on.
    append(&bench.ws("a/renamed/c/three"), b"33");
    fs::rename(bench.ws("a/moved"), bench.ws("back")).unwrap();
    fs::remove_file(bench.ws("back/5")).unwrap();
    bench.commit_and_check();
    fs::rename(bench.ws("back"), bench.ws("many")).unwrap();
    bench.commit_and_check();
    assert_eq!(bench.ino(bench.base, "many"), bench.ino(bench.head, "many"));
    bench.check_without_index();
}

#[test]
fn a_rename_over_an_inherited_file() {
    let Some(mut bench) = bench() else { return };
    // Saving by renaming: another file, the same identity.
    fs::write(bench.ws("file.tmp"), "saved").unwrap();
    fs::rename(bench.ws("file.tmp"), bench.ws("file")).unwrap();
    // An inherited file over an inherited one.
    fs::rename(bench.ws("a/one"), bench.ws("a/b/two")).unwrap();
    // Two files change places.
    fs::rename(bench.ws("many/1"), bench.ws("many/t")).unwrap();
    fs::rename(bench.ws("many/2"), bench.ws("many/1")).unwrap();
    fs::rename(bench.ws("many/t"), bench.ws("many/2")).unwrap();
    let done = bench.commit_and_check();
    let inode =
        |bench: &Bench, commit, path: &str| bench.root(commit).resolve(path.as_bytes()).unwrap().unwrap();
    assert_ne!(inode(&bench, bench.base, "file").0, inode(&bench, bench.head, "file").0);
    assert_eq!(inode(&bench, bench.base, "file").1.birth, inode(&bench, bench.head, "file").1.birth);
    assert_eq!(inode(&bench, bench.base, "a/one").0, inode(&bench, bench.head, "a/b/two").0);
    assert_eq!(inode(&bench, bench.base, "many/1").0, inode(&bench, bench.head, "many/2").0);
    assert!(done.changes.contains(&"Modified file +content".to_owned()), "{:?}", done.changes);
    // And saved again: the identity goes on.
    fs::write(bench.ws("file.tmp"), "saved again").unwrap();
    fs::rename(bench.ws("file.tmp"), bench.ws("file")).unwrap();
    bench.commit_and_check();
    assert_eq!(inode(&bench, bench.base, "file").1.birth, inode(&bench, bench.head, "file").1.birth);
    bench.check_without_index();
}

#[test]
fn hard_links() {
    let Some(mut bench) = bench() else { return };
    // An inherited file with three names, changed through one of them: all of them show it.
    append(&bench.ws("h1"), b"more");
    assert!(!bench.upper().join("a/h2").exists());
    let done = bench.commit_and_check();
    assert_eq!(bench.ino(bench.head, "h1"), bench.ino(bench.head, "a/b/h3"));
    assert_eq!(done.changes.len(), 3, "{:?}", done.changes);
    // The name that was copied up goes: the others keep the change, which only the index folder has then.
    fs::remove_file(bench.ws("h1")).unwrap();
    bench.commit_and_check();
    bench.check_without_index();
    fs::rename(bench.ws("a/h2"), bench.ws("h4")).unwrap();
    fs::hard_link(bench.ws("h4"), bench.ws("many/h5")).unwrap();
    // A new link to an inherited file with one name.
    fs::hard_link(bench.ws("many/3"), bench.ws("a/three again")).unwrap();
    bench.commit_and_check();
    for name in ["h4", "many/h5", "a/b/h3"] {
        fs::remove_file(bench.ws(name)).unwrap();
    }
    bench.commit_and_check();
    bench.check_without_index();
}

#[test]
fn a_hard_link_without_any_upper_name_is_found_in_the_index_folder() {
    let Some(mut bench) = bench() else { return };
    append(&bench.ws("h1"), b"more");
    fs::remove_file(bench.ws("h1")).unwrap();
    let done = bench.commit_and_check();
    assert_eq!(done.read_files, 1);
    let found = fs::read(bench.ws("a/h2")).unwrap();
    assert!(found.ends_with(b"more"));
    bench.check_without_index();
}

#[test]
fn changes_of_type() {
    let Some(mut bench) = bench() else { return };
    fs::remove_file(bench.ws("file")).unwrap();
    fs::create_dir(bench.ws("file")).unwrap();
    fs::write(bench.ws("file/in"), "i").unwrap();
    fs::remove_dir_all(bench.ws("gone")).unwrap();
    symlink("a", bench.ws("gone")).unwrap();
    fs::remove_file(bench.ws("link")).unwrap();
    fs::write(bench.ws("link"), "no link").unwrap();
    bench.commit_and_check();
    bench.check_without_index();
}

#[test]
fn a_moved_folder_with_a_folder_in_its_place() {
    let Some(mut bench) = bench() else { return };
    fs::rename(bench.ws("a/b"), bench.ws("b2")).unwrap();
    fs::create_dir(bench.ws("a/b")).unwrap();
    fs::write(bench.ws("a/b/two"), "new two").unwrap();
    fs::rename(bench.ws("b2/two"), bench.ws("two")).unwrap();
    fs::remove_dir_all(bench.ws("b2")).unwrap();
    bench.commit_and_check();
    let inode =
        |bench: &Bench, commit, path: &str| bench.root(commit).resolve(path.as_bytes()).unwrap().unwrap();
    assert_eq!(inode(&bench, bench.base, "a/b/two").0, inode(&bench, bench.head, "two").0);
    bench.check_without_index();
}

#[test]
fn numbers_stay_from_capture_to_capture_and_over_a_remount() {
    let Some(mut bench) = bench() else { return };
    for at in 0..50 {
        fs::write(bench.ws(&format!("n{at}")), bytes(at, 200)).unwrap();
    }
    bench.commit_and_check();
    let before: Vec<_> = (0..50).map(|at| bench.ino(bench.head, &format!("n{at}")).unwrap()).collect();
    fs::rename(bench.ws("n7"), bench.ws("a/n7")).unwrap();
    append(&bench.ws("n8"), b"x");
    bench.umount();
    bench.mount();
    bench.commit_and_check();
    assert_eq!(bench.ino(bench.head, "a/n7"), Some(before[7]));
    for at in (0..50).filter(|at| *at != 7) {
        assert_eq!(bench.ino(bench.head, &format!("n{at}")), Some(before[at]), "n{at}");
    }
    // A file that gets a freed number of the upper is another file.
    fs::remove_file(bench.ws("n9")).unwrap();
    bench.commit();
    for at in 0..20 {
        fs::write(bench.ws(&format!("later{at}")), "l").unwrap();
    }
    bench.commit_and_check();
    for at in 0..20 {
        assert_ne!(bench.ino(bench.head, &format!("later{at}")), Some(before[9]));
    }
}

#[test]
fn a_memory_scratch() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(Scratch::Memory, fill);
    append(&bench.ws("file"), b"more");
    fs::rename(bench.ws("many"), bench.ws("a/moved")).unwrap();
    append(&bench.ws("h1"), b"more");
    fs::write(bench.ws("new"), "new").unwrap();
    fs::remove_file(bench.ws("a/one")).unwrap();
    bench.commit_and_check();
    bench.check_without_index();
}

/// Status and unmount take a file that was made again, the same in all that anybody can set, for the old one; so does
/// a commit, and the next capture is right although the index was not saved.
#[test]
fn a_file_that_only_has_another_number_is_no_change() {
    let Some(mut bench) = bench() else { return };
    fs::write(bench.ws("new"), bytes(5, 9000)).unwrap();
    let first = bench.commit_and_check();
    assert!(first.changed);
    let modified = |name: &str| fs::metadata(bench.ws(name)).unwrap().modified().unwrap();
    let (of_file, of_root) = (modified("new"), modified("."));
    let again = |name: &str, time| {
        File::open(bench.ws(name)).unwrap().set_times(fs::FileTimes::new().set_modified(time)).unwrap();
    };
    fs::copy(bench.ws("new"), bench.ws("copy")).unwrap();
    again("copy", of_file);
    fs::rename(bench.ws("copy"), bench.ws("new")).unwrap();
    again(".", of_root);
    assert_eq!(bench.look().1, Vec::<String>::new());
    assert!(!bench.commit().changed);
    append(&bench.ws("new"), b"more");
    let done = bench.commit_and_check();
    assert_eq!(done.changes, ["Modified new +content"]);
    bench.check_without_index();
}
