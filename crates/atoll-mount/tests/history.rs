//! The history mount, served by real processes. Skipped by name where the process may not mount.

mod common;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

use atoll_store::Ino;
use common::{Files, Node, World};

fn sample() -> Files {
    let big: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
    Files::default()
        .file("readme", "hello\n")
        .file("src/main.rs", "fn main() {}\n".repeat(300))
        .file("src/lib/a.rs", "a")
        .file("big", big)
        .node("link", Node::Link("src/main.rs".into()))
        .node("src/twin.rs", Node::Hard("src/main.rs".into()))
        .node("sparse", Node::Sparse(vec![(65_536, vec![7; 4096]), (262_144, vec![9; 1000])], 1_000_000))
        .node("empty", Node::Dir)
}

#[test]
fn shows_a_commit_as_it_is() {
    let world = World::new();
    let commit = world.commit("main", &sample());
    let Some(server) = world.serve() else { return };
    assert_eq!(server.paths, world.paths);
    let dir = world.folder(&commit);
    let mut names: Vec<_> =
        fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["big", "empty", "link", "readme", "sparse", "src"]);
    assert_eq!(fs::read_to_string(dir.join("readme")).unwrap(), "hello\n");
    assert_eq!(fs::read_to_string(dir.join("link")).unwrap(), "fn main() {}\n".repeat(300));
    assert_eq!(
        fs::read(dir.join("big")).unwrap(),
        (0..200_000u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>()
    );
    let (one, two) =
        (fs::metadata(dir.join("src/main.rs")).unwrap(), fs::metadata(dir.join("src/twin.rs")).unwrap());
    assert_eq!((one.ino(), one.nlink()), (two.ino(), 2));
    assert!(Ino::from_shown(one.ino()).is_some());
    assert_eq!((one.mtime(), one.mtime_nsec()), (1_700_000_000, 123_456_789));
    assert_eq!((one.ctime(), one.ctime_nsec()), (1_700_000_001, 987_654_321));
    assert_eq!(fs::read_dir(dir.join("empty")).unwrap().count(), 0);
    assert!(fs::write(dir.join("new"), "x").is_err());
}

#[test]
fn holes_stay_holes() {
    let world = World::new();
    let commit = world.commit("main", &sample());
    let Some(_server) = world.serve() else { return };
    let file = fs::File::open(world.folder(&commit).join("sparse")).unwrap();
    assert_eq!(file.metadata().unwrap().blocks(), (4096u64 + 1000).div_ceil(512));
    let mut bytes = vec![1; 1_000_000];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let mut expected = vec![0; 1_000_000];
    expected[65_536..69_632].fill(7);
    expected[262_144..263_144].fill(9);
    assert!(bytes == expected);
    let seek = |from| rustix::fs::seek(&file, from);
    assert_eq!(seek(rustix::fs::SeekFrom::Data(0)), Ok(65_536));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(66_000)), Ok(66_000));
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(65_536)), Ok(69_632));
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)), Ok(0));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(263_144)), Err(rustix::io::Errno::NXIO));
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(999_999)), Ok(999_999));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(1_000_000)), Err(rustix::io::Errno::NXIO));
}

#[test]
fn a_moved_branch_is_seen_at_once() {
    let world = World::new();
    let first = world.commit("main", &Files::default().file("a", "one"));
    let Some(_server) = world.serve() else { return };
    let branch = world.paths.root.join("branches/main");
    assert_eq!(fs::read_link(&branch).unwrap().to_str().unwrap(), format!("../commits/{}", first.id));
    assert_eq!(fs::read_to_string(branch.join("a")).unwrap(), "one");
    let second = world.commit("main", &Files::default().file("a", "two"));
    assert_eq!(fs::read_to_string(branch.join("a")).unwrap(), "two");
    assert_eq!(fs::read_link(&branch).unwrap().to_str().unwrap(), format!("../commits/{}", second.id));
    // The folder of the first is as it was.
    assert_eq!(fs::read_to_string(world.folder(&first).join("a")).unwrap(), "one");
    world.point("feature/x/y", first.id);
    let nested = world.paths.root.join("branches/feature/x/y/a");
    assert_eq!(fs::read_to_string(nested).unwrap(), "one");
    let list = |dir: &str| {
        let dir = fs::read_dir(world.paths.root.join(dir)).unwrap();
        dir.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(list("branches"), ["feature", "main"]);
    assert_eq!(list("branches/feature"), ["x"]);
    world.point("other", second.id);
    assert_eq!(list("branches"), ["feature", "main", "other"]);
    assert_eq!(list("commits").len(), 2);
    let short = world.paths.root.join("commits").join(&first.id.hex()[..12]);
    assert_eq!(fs::read_to_string(short.join("a")).unwrap(), "one");
    assert!(!world.paths.root.join("commits/000000000000").exists());
    assert!(!world.paths.root.join("branches/nobody").exists());
}

#[test]
fn trees_with_attributes_are_in_the_other_mount() {
    let world = World::new();
    let with =
        world.commit("with", &sample().node("readme", Node::Xattr("user.mark".into(), b"yes".to_vec())));
    let without = world.commit("without", &sample());
    let Some(_server) = world.serve() else { return };
    let attribute = |path: &std::path::Path| {
        let mut value = [0u8; 64];
        rustix::fs::getxattr(path, "user.mark", &mut value).map(|len| value[..len].to_vec())
    };
    assert!(world.folder(&with).starts_with(&world.paths.xattr));
    assert!(world.folder(&without).starts_with(&world.paths.plain));
    assert_eq!(attribute(&world.folder(&with).join("readme")).unwrap(), b"yes");
    assert_eq!(attribute(&world.paths.root.join("branches/with/readme")).unwrap(), b"yes");
    assert_eq!(attribute(&world.folder(&without).join("readme")), Err(rustix::io::Errno::OPNOTSUPP));
    // Asked for in the wrong one: a link.
    for (side, commit) in [(&world.paths.plain, &with), (&world.paths.xattr, &without)] {
        let folder = side.join("commits").join(commit.id.hex());
        assert!(fs::symlink_metadata(&folder).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(folder.join("readme")).unwrap(), "hello\n");
    }
}

#[test]
fn large_folders_are_listed_whole() {
    let world = World::new();
    let mut files = Files::default();
    for number in 0..20_000 {
        files = files.file(&format!("many/a file with quite a long name, number {number:05}"), "x");
    }
    let commit = world.commit("main", &files);
    let Some(_server) = world.serve() else { return };
    let names: Vec<_> =
        fs::read_dir(world.folder(&commit).join("many")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 20_000);
    assert!(names.is_sorted());
}

#[test]
fn one_server_for_many_who_ask_at_once() {
    let world = World::new();
    world.commit("main", &sample());
    if world.serve().is_none() {
        return;
    }
    atoll_mount::stop_server(&world.paths).unwrap();
    let pids: std::collections::HashSet<u32> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..16).map(|_| scope.spawn(|| world.serve().unwrap())).collect();
        let servers: Vec<_> = asking.into_iter().map(|thread| thread.join().unwrap()).collect();
        servers.iter().map(|server| server.info.pid).collect()
    });
    assert_eq!(pids.len(), 1);
    let listed = atoll_mount::servers().unwrap();
    assert_eq!(listed.len(), 1);
    assert!(pids.contains(&listed[0].pid));
    assert!(listed[0].rss_bytes > 0 && listed[0].supervisor_pid > 0);
    assert_eq!(listed[0].transport, "dev");
}

/// The only copy of a chunk is damaged: reading it fails, nothing else does, and the log says where it was.
#[test]
fn a_damaged_chunk_is_an_error_for_its_range_only() {
    let world = World::new();
    let noise = |seed: u8| {
        let mut state = u64::from(seed) + 1;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        std::iter::repeat_with(next).take(300_000).collect::<Vec<u8>>()
    };
    let files =
        Files::default().file("sound", noise(1)).file("hurt", noise(2)).file("small", "x".repeat(500));
    let commit = world.commit("main", &files);
    // A byte in the first group of chunks of `hurt` (they are cut at 100,000 bytes here, and two fit into a
    // group), wherever it is: it cannot be compressed.
    let needle = &noise(2)[150_000..150_032];
    let packs = fs::read_dir(world.store.dir().join("packs")).unwrap().map(|entry| entry.unwrap().path());
    let mut places = packs.chain([world.store.dir().join("oplog")]).filter_map(|path| {
        let bytes = fs::read(&path).unwrap();
        Some((path, bytes.windows(needle.len()).position(|window| window == needle)?, bytes))
    });
    let (path, at, mut bytes) = places.next().expect("the chunk stands in a pack as it is");
    bytes[at] ^= 1;
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    fs::write(&path, bytes).unwrap();

    let Some(_server) = world.serve() else { return };
    let dir = world.folder(&commit);
    assert!(fs::read(dir.join("sound")).unwrap() == noise(1));
    assert_eq!(fs::read_to_string(dir.join("small")).unwrap(), "x".repeat(500));
    let hurt = fs::File::open(dir.join("hurt")).unwrap();
    // Without read-ahead, which would read more than was asked for.
    rustix::fs::fadvise(&hurt, 0, None, rustix::fs::Advice::Random).unwrap();
    let mut part = vec![0; 4096];
    assert_eq!(hurt.read_exact_at(&mut part, 151_552).unwrap_err().raw_os_error(), Some(5));
    hurt.read_exact_at(&mut part, 294_912).unwrap();
    assert!(part == noise(2)[294_912..299_008]);
    let log = world.log();
    assert!(log.contains(&commit.id.hex()) && log.contains("/hurt"), "{log}");
}
