//! Round trips: a folder with everything in it comes back from the store as it was.

mod import_common;

use std::fs;
use std::os::unix::fs::MetadataExt;

use atoll_fs::Silent;
use atoll_fs::export::{CompareOptions, ExportOptions, compare_folder, export_folder};
use atoll_store::Code;
use import_common::*;

#[test]
fn everything_comes_back() {
    let place = Place::new();
    nasty(&place.folder);
    let imported = place.import();
    assert_eq!(place.compare(imported.commit, &place.folder, &all()), [""; 0]);
    let out = place.temp.path().join("out");
    let report =
        export_folder(place.tree(imported.commit), b"", &out, &ExportOptions::default(), &Silent).unwrap();
    assert_eq!(place.compare(imported.commit, &out, &all()), [""; 0]);
    assert_eq!(report.lost, []);
    assert_eq!((report.files, report.dirs), (imported.report.files, imported.report.dirs));
    let hole = fs::metadata(out.join("huge and sparse")).unwrap();
    assert_eq!(hole.size(), (5 << 30) + 3 + 19);
    assert!(hole.blocks() < 100, "{} blocks", hole.blocks());
}

#[test]
fn a_comparison_finds_every_difference() {
    let place = Place::new();
    for name in ["a", "b", "c", "d", "e", "f", "dir/x", "zeros"] {
        place.write(name, [name.as_bytes(), &[0; 5000]].concat());
    }
    fs::hard_link(place.path("a"), place.path("a2")).unwrap();
    let id = place.import().commit;
    let options = CompareOptions { mtime: false, ..all() };
    assert_eq!(place.compare(id, &place.folder, &options), [""; 0]);
    let mut text = fs::read(place.path("a")).unwrap();
    text[4000] = 1;
    fs::write(place.path("a"), &text).unwrap();
    fs::remove_file(place.path("b")).unwrap();
    set_mode(&place.path("c"), 0o600);
    fs::remove_file(place.path("d")).unwrap();
    std::os::unix::fs::symlink("a", place.path("d")).unwrap();
    set_xattr(&place.path("e"), "user.x", b"1");
    fs::write(place.path("f"), b"short").unwrap();
    place.write("dir/new", b"n");
    fs::remove_file(place.path("a2")).unwrap();
    fs::copy(place.path("a"), place.path("a2")).unwrap();
    let found = place.compare(id, &place.folder, &options);
    let expected = [
        "a: contents",
        "a: link count",
        "a2: contents",
        "a2: hard link",
        "a2: link count",
        "b: missing",
        "c: mode",
        "d: kind",
        "dir/new: not in the tree",
        "e: extended attributes",
        "f: size",
    ];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found} instead of {expected}");
    }
}

#[test]
fn part_of_a_tree() {
    let place = Place::new();
    nasty(&place.folder);
    let id = place.import().commit;
    let out = place.temp.path().join("out");
    export_folder(
        place.tree(id),
        b"a/b",
        &out,
        &ExportOptions { durable: true, ..Default::default() },
        &Silent,
    )
    .unwrap();
    let options = CompareOptions { links: false, ..all() };
    assert_eq!(compare_folder(place.tree(id), b"a/b", &out, &options, &Silent).unwrap(), []);
    assert_eq!(fs::read(out.join("c/deep")).unwrap(), b"deep");
    let code = |path: &[u8]| {
        let other = place.temp.path().join("other");
        export_folder(place.tree(id), path, &other, &ExportOptions::default(), &Silent).unwrap_err().code
    };
    assert_eq!(code(b"no/such"), Code::NotFound);
    assert_eq!(code(b"small"), Code::Usage);
}

#[test]
fn what_is_there_is_safe_unless_told() {
    let place = Place::new();
    place.write("a", b"new");
    place.write("sub/b", b"new");
    std::os::unix::fs::symlink("target", place.path("l")).unwrap();
    fs::hard_link(place.path("a"), place.path("a2")).unwrap();
    let id = place.import().commit;
    let out = place.temp.path().join("out");
    let elsewhere = place.temp.path().join("elsewhere");
    fs::create_dir_all(out.join("sub")).unwrap();
    fs::write(out.join("a"), b"old").unwrap();
    fs::write(out.join("a2"), b"old").unwrap();
    fs::write(out.join("sub/other"), b"stays").unwrap();
    fs::write(&elsewhere, b"not to be touched").unwrap();
    std::os::unix::fs::symlink(&elsewhere, out.join("sub/b")).unwrap();
    let plain = export_folder(place.tree(id), b"", &out, &ExportOptions::default(), &Silent);
    assert_eq!(plain.unwrap_err().code, Code::Exists);
    assert_eq!(fs::read(out.join("a")).unwrap(), b"old");
    let options = ExportOptions { into_existing: true, ..Default::default() };
    for _ in 0..2 {
        export_folder(place.tree(id), b"", &out, &options, &Silent).unwrap();
        assert_eq!(fs::read(out.join("a")).unwrap(), b"new");
        assert_eq!(fs::read(out.join("sub/b")).unwrap(), b"new");
        assert_eq!(fs::read(out.join("sub/other")).unwrap(), b"stays");
        assert_eq!(fs::read(&elsewhere).unwrap(), b"not to be touched");
        assert_eq!(fs::metadata(out.join("a2")).unwrap().nlink(), 2);
        assert_eq!(fs::read_dir(&out).unwrap().count(), 4);
    }
    fs::remove_file(out.join("a")).unwrap();
    fs::create_dir(out.join("a")).unwrap();
    let error = export_folder(place.tree(id), b"", &out, &options, &Silent).unwrap_err();
    assert_eq!(error.code, Code::Conflict);
}

#[test]
fn deeper_than_a_path_can_be_long() {
    let place = Place::new();
    let name = "d".repeat(200);
    let mut dir = fs::File::open(&place.folder).unwrap();
    for level in 0..60 {
        use rustix::fs::{Mode, OFlags, mkdirat, openat};
        mkdirat(&dir, &name, Mode::from_raw_mode(0o755)).unwrap();
        dir = openat(&dir, &name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap().into();
        let file = openat(&dir, "file", OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o644)).unwrap();
        rustix::io::write(&file, format!("level {level}").repeat(40).as_bytes()).unwrap();
    }
    tick();
    let imported = place.import();
    assert_eq!((imported.report.files, imported.report.dirs), (60, 61));
    let out = place.temp.path().join("out");
    export_folder(place.tree(imported.commit), b"", &out, &ExportOptions::default(), &Silent).unwrap();
    assert_eq!(place.compare(imported.commit, &out, &all()), [""; 0]);
    let again = place.import();
    assert_eq!(again.report.read_files, 0);
}
