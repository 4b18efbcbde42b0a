//! Archives: what other programs make of ours and we of theirs, and what must not get in.

mod import_common;

use std::fs;
use std::path::Path;
use std::process::Command;

use atoll_fs::Silent;
use atoll_fs::export::{CompareOptions, compare_folder};
use atoll_fs::import::{CommitRequest, Committed, commit_captured};
use atoll_fs::tar::{ImportTarOptions, export_tar, import_tar};
use atoll_store::tree::{TreeView, changes};
use atoll_store::{Code, Hash, Result};
use import_common::*;

fn archive(place: &Place, id: Hash) -> Vec<u8> {
    let mut out = Vec::new();
    export_tar(place.tree(id), b"", &mut out, &Silent).unwrap();
    out
}

fn import(place: &Place, bytes: &[u8], base: Option<Hash>) -> Result<Committed> {
    let options = ImportTarOptions { base, seed: None };
    let request = CommitRequest { branch: "tar".into(), head: base, ..Default::default() };
    commit_captured(&place.store, &request, &mut || {
        import_tar(&place.store, &mut &bytes[..], &options, &Silent)
    })
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Without what no archive holds.
fn nasty_for_tar(place: &Place) {
    nasty(&place.folder);
    fs::remove_file(place.path("socket")).unwrap();
}

#[test]
fn a_tree_comes_back_from_its_archive() {
    let place = Place::new();
    nasty_for_tar(&place);
    let id = place.import().commit;
    let bytes = archive(&place, id);
    assert!(bytes.len() < 12 << 20, "holes take no room: {}", bytes.len());
    let back = import(&place, &bytes, None).unwrap().commit;
    assert_eq!(place.compare(back, &place.folder, &all()), [""; 0]);
    assert_eq!(archive(&place, back), bytes);
    assert_eq!(place.commit(back).record.content, place.commit(id).record.content);
    let again = import(&place, &bytes, Some(back)).unwrap();
    assert!(again.published.is_none());
}

#[test]
fn sockets_are_said() {
    let place = Place::new();
    nasty(&place.folder);
    let id = place.import().commit;
    let report = export_tar(place.tree(id), b"", &mut std::io::sink(), &Silent).unwrap();
    assert_eq!(report.skipped, [b"socket"]);
    let error = export_tar(place.tree(id), b"no/such", &mut std::io::sink(), &Silent).unwrap_err();
    assert_eq!(error.code, Code::NotFound);
}

#[test]
fn gnu_tar_reads_ours() {
    let place = Place::new();
    nasty_for_tar(&place);
    if !is_root() {
        // GNU tar sets the mode first, and then may not set the attribute.
        let file = place.path("read only");
        set_mode(&file, 0o644);
        rustix::fs::lremovexattr(&file, "user.x").unwrap();
        set_mode(&file, 0o444);
    }
    let id = place.import().commit;
    let file = place.temp.path().join("a.tar");
    fs::write(&file, archive(&place, id)).unwrap();
    let out = place.temp.path().join("out");
    fs::create_dir(&out).unwrap();
    run(Command::new("tar")
        .args(["--xattrs", "--xattrs-include=*", "--numeric-owner", "-xpf"])
        .arg(&file)
        .arg("-C")
        .arg(&out));
    assert_eq!(place.compare(id, &out, &all()), [""; 0]);
}

#[test]
fn python_reads_ours() {
    let place = Place::new();
    nasty_for_tar(&place);
    let id = place.import().commit;
    let file = place.temp.path().join("a.tar");
    fs::write(&file, archive(&place, id)).unwrap();
    let script = "import tarfile,sys,hashlib\nt=tarfile.open(sys.argv[1],encoding='utf-8',errors='surrogateescape')\n\
        m={x.name:x for x in t}\nassert m['a/b/small as well'].size==129\nassert m['huge and sparse'].size==(5<<30)+22\n\
        assert m['a/small again'].islnk() and m['small'].islnk()\nassert 'n'*255 in m\n\
        print(hashlib.sha256(t.extractfile('large').read()).hexdigest())\n";
    let output = Command::new("python3").args(["-c", script]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let sum = Command::new("sha256sum").arg(place.path("large")).output().unwrap();
    assert_eq!(output.stdout[..64], sum.stdout[..64]);
}

#[test]
fn we_read_every_form_of_gnu_tar() {
    let place = Place::new();
    nasty_for_tar(&place);
    let forms: &[&[&str]] = &[
        &["--format=posix"],
        &["--format=posix", "--sparse", "--sparse-version=1.0"],
        &["--format=posix", "--sparse", "--sparse-version=0.1"],
        &["--format=posix", "--sparse", "--sparse-version=0.0"],
        &["--format=gnu", "--sparse"],
    ];
    // Where holes are not told they would be gigabytes of zeros.
    for name in ["only a hole", "huge and sparse"] {
        fs::remove_file(place.path(name)).unwrap();
    }
    for form in forms {
        let file = place.temp.path().join("a.tar");
        run(Command::new("tar")
            .args(*form)
            .args(["--xattrs", "--xattrs-include=*", "-cf"])
            .arg(&file)
            .arg("-C")
            .arg(&place.folder)
            .arg("."));
        let id = import(&place, &fs::read(&file).unwrap(), None)
            .unwrap_or_else(|error| panic!("{form:?}: {error}"))
            .commit;
        let gnu = form[0] == "--format=gnu";
        let sparse = form.contains(&"--sparse");
        let options = CompareOptions { mtime: !gnu, xattrs: !gnu, ..Default::default() };
        assert_eq!(place.compare(id, &place.folder, &options), [""; 0], "{form:?}");
        if sparse {
            let (ino, inode) = place.at(id, "holes");
            let data: u64 = place.tree(id).extents(ino, 0..inode.size).unwrap().len() as u64;
            assert!(data < 10, "{form:?}: {data} extents");
        }
        drop_branch(&place);
    }
}

fn drop_branch(place: &Place) {
    use atoll_store::store::{NewOperation, RefChange, RefName};
    let name = RefName::Branch("tar".into());
    let old = place.store.get_ref(&name).unwrap();
    let operation = NewOperation {
        kind: "drop".into(),
        changes: vec![RefChange { name, old, new: None }],
        ..Default::default()
    };
    place.store.publish(place.store.writer().unwrap(), operation).unwrap();
}

fn member(name: &str, kind: tar::EntryType, link: &str, contents: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(contents.len() as u64);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(contents);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// Members with an archive's end marks.
fn whole(members: &[Vec<u8>]) -> Vec<u8> {
    [members.concat(), vec![0; 1024]].concat()
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    use tar::EntryType::{Directory, Link, Regular, Symlink};
    let place = Place::new();
    let bad = [
        vec![member("/etc/passwd", Regular, "", b"x")],
        vec![member("a/../../x", Regular, "", b"x")],
        vec![member("..", Directory, "", b"")],
        vec![member("l", Symlink, "/etc", b""), member("l/passwd", Regular, "", b"x")],
        vec![member("h", Link, "../x", b"")],
        vec![member("h", Link, "no such", b"")],
        vec![member("f", Regular, "", b"x"), member("f/g", Regular, "", b"x")],
        vec![member("./", Regular, "", b"x")],
    ];
    for members in bad {
        let error = import(&place, &whole(&members), None).unwrap_err();
        assert_eq!(error.code, Code::Usage, "{error}");
        assert!(!error.message.contains("too early"), "{error}");
    }
    let good = [
        member("./a//b/./c", Regular, "", b"one"),
        member("abs", Symlink, "/etc/passwd", b""),
        member("a/b/c", Regular, "", b"two"),
        member("d/", Directory, "", b""),
        member("d/h", Link, "./a/b/c", b""),
    ];
    let id = import(&place, &whole(&good), None).unwrap().commit;
    assert_eq!(place.text(id, "a/b/c"), b"two");
    assert_eq!(place.at(id, "d/h").1.nlink, 2);
    assert_eq!(&place.tree(id).readlink(place.at(id, "abs").0).unwrap()[..], b"/etc/passwd");
}

#[test]
fn damaged_archives_are_refused() {
    let place = Place::new();
    place.write("a", vec![7; 3000]);
    place.write("b", b"b");
    let id = place.import().commit;
    let sound = archive(&place, id);
    for end in [1, 511, 513, 1000, 2000, sound.len() - 1800] {
        let error = import(&place, &sound[..end], None).unwrap_err();
        assert_eq!(error.code, Code::Usage, "cut at {end}: {error}");
    }
    for at in (0..512).step_by(7) {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x55;
        // Whatever it is taken for, it is no panic; a wrong checksum is always noticed.
        assert_eq!(import(&place, &bytes, None).unwrap_err().code, Code::Usage, "byte {at}");
    }
    assert_eq!(import(&place, b"", None).unwrap_err().code, Code::Usage);
}

#[test]
fn identity_stays_by_path() {
    let place = Place::new();
    place.write("keep", b"k");
    place.write("d/change", b"1");
    place.write("d/gone", b"g");
    let id = place.import().commit;
    let one = import(&place, &archive(&place, id), None).unwrap().commit;
    fs::write(place.path("d/change"), b"22").unwrap();
    fs::remove_file(place.path("d/gone")).unwrap();
    place.write("new", b"n");
    let id = place.import().commit;
    let two = import(&place, &archive(&place, id), Some(one)).unwrap().commit;
    assert_eq!(place.at(one, "keep"), place.at(two, "keep"));
    assert_eq!(place.at(one, "d/change").0, place.at(two, "d/change").0);
    assert_eq!(compare_folder(place.tree(two), b"", Path::new(&place.folder), &all(), &Silent).unwrap(), []);
    let roots = [one, two].map(|id| Some(place.commit(id).record.root));
    let tree = TreeView::new(&place.store, roots[1].unwrap());
    assert!(tree.resolve(b"d/gone").unwrap().is_none());
    assert_eq!(changes(&place.store, roots[0], roots[1]).unwrap().len(), 3);
}
