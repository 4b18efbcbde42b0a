//! Random operations on a live workspace, against a model; with restarts, power cuts and commits between them.

mod live_support;

use std::path::Path;

use atoll_store::Hash;
use atoll_store::tree::load_all;
use live_support::{Model, Pair, Step, Trees, step};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Event {
    Step(Step),
    Sync,
    /// The process dies and another opens the workspace.
    Restart,
    /// The machine loses its power; what was not synced may be gone, and is.
    PowerCut(u64),
    /// A commit, with steps while it is made.
    Commit(Vec<Step>),
    Tend,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        30 => step().prop_map(Event::Step),
        2 => Just(Event::Sync),
        1 => Just(Event::Restart),
        1 => any::<u64>().prop_map(Event::PowerCut),
        2 => proptest::collection::vec(step(), 0..6).prop_map(Event::Commit),
        1 => Just(Event::Tend),
    ]
}

/// A workspace that begins at a commit has just what the model has.
fn check_commit(trees: &Trees, commit: &Hash, model: &Model) {
    let folder = tempfile::tempdir().unwrap();
    let (live, lost) = trees.open(folder.path(), commit, 1);
    assert!(lost.is_none());
    Pair::new(live).compare_with(model);
}

/// What the disk has after a power cut: of each file what was there at the last sync, and of what came behind it
/// some bytes, or none, or others.
fn cut_power(folder: &Path, synced: &[(std::ffi::OsString, u64)], chance: u64) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let Some((_, len)) = synced.iter().find(|(name, _)| *name == entry.file_name()) else {
            // A file whose name was not synced.
            if chance.is_multiple_of(3) {
                std::fs::remove_file(entry.path()).unwrap();
            }
            continue;
        };
        if entry.file_name() == "data" {
            continue;
        }
        let mut bytes = std::fs::read(entry.path()).unwrap();
        let behind = bytes.len() as u64 - (*len).min(bytes.len() as u64);
        if behind > 0 {
            match chance % 4 {
                0 => bytes.truncate((*len + chance / 4 % behind) as usize),
                1 => bytes[*len as usize..].fill(0),
                2 => bytes[(*len + chance / 4 % behind) as usize] ^= 0x40,
                _ => {}
            }
            std::fs::write(entry.path(), bytes).unwrap();
        }
    }
}

fn lengths(folder: &Path) -> Vec<(std::ffi::OsString, u64)> {
    let listed = std::fs::read_dir(folder).unwrap();
    listed
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name(), entry.metadata().unwrap().len()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_workspace_is_what_a_model_says(events in proptest::collection::vec(event(), 1..120)) {
        let trees = Trees::default();
        let folder = tempfile::tempdir().unwrap();
        let mut base = trees.empty();
        let mut boot = 1;
        let open = |base: &Hash, boot| trees.open(folder.path(), base, boot);
        let mut pair = Pair::new(open(&base, boot).0);
        // What is certainly there, and in which lengths of the files.
        let mut synced = (pair.model.clone(), lengths(folder.path()));
        for event in events {
            match event {
                Event::Step(step) => pair.step(&step),
                Event::Sync | Event::Tend => {
                    if matches!(event, Event::Tend) {
                        pair.live.tend().unwrap();
                    }
                    pair.live.sync().unwrap();
                    synced = (pair.model.clone(), lengths(folder.path()));
                }
                Event::Restart => {
                    let Pair { live, model, .. } = pair;
                    drop(live);
                    let (live, lost) = open(&base, boot);
                    prop_assert!(lost.is_none(), "{:?}", lost);
                    pair = Pair::new(live);
                    pair.model = model;
                    pair.find_inos();
                }
                Event::PowerCut(chance) => {
                    drop(pair);
                    boot += 1;
                    cut_power(folder.path(), &synced.1, chance);
                    let (live, _) = open(&base, boot);
                    pair = Pair::new(live);
                    pair.model = synced.0.clone();
                    pair.find_inos();
                    pair.compare();
                    // It began a journal anew, which is synced, or none was needed.
                    pair.live.sync().unwrap();
                    synced.1 = lengths(folder.path());
                }
                Event::Commit(steps) => {
                    let frozen = pair.live.freeze();
                    let then = pair.model.clone();
                    for step in &steps {
                        pair.step(step);
                    }
                    let made = trees.commit(&base, &frozen).0;
                    check_commit(&trees, &made, &then);
                    pair.live.rebase(frozen, trees.base(&made), made.0).unwrap();
                    base = made;
                    pair.live.sync().unwrap();
                    synced = (pair.model.clone(), lengths(folder.path()));
                    pair.compare();
                }
            }
        }
        pair.compare();
        let frozen = pair.live.freeze();
        let made = trees.commit(&base, &frozen).0;
        check_commit(&trees, &made, &pair.model);
        // Committed again, nothing changes.
        pair.live.rebase(frozen, trees.base(&made), made.0).unwrap();
        let again = trees.commit(&made, &pair.live.freeze()).0;
        prop_assert_eq!(trees.base(&again).root, trees.base(&made).root);
        let whole = load_all(&*trees.objects, trees.base(&made).root).unwrap();
        prop_assert_eq!(whole.inodes.len(), pair.model.files.len());
    }
}
