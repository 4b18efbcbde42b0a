//! Random operations on a store against a map: commits, forks, drops, undo, clean-ups, openings, a wiped
//! database.

mod store_support;

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_store::store::{GcOptions, Profile};
use atoll_store::{Code, Hash, Store};
use proptest::prelude::*;
use store_support::*;

#[derive(Debug, Clone)]
enum Step {
    Commit { branch: u8, seed: u8, count: u8 },
    Fork { from: u8, to: u8 },
    Drop { branch: u8 },
    Undo,
    Gc { expire: bool, thorough: bool },
    Reopen,
    Wipe,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4u8, 0..12u8, 0..60u8).prop_map(|(branch, seed, count)| Step::Commit { branch, seed, count }),
        2 => (0..4u8, 0..4u8).prop_map(|(from, to)| Step::Fork { from, to }),
        2 => (0..4u8).prop_map(|branch| Step::Drop { branch }),
        2 => Just(Step::Undo),
        2 => (any::<bool>(), any::<bool>()).prop_map(|(expire, thorough)| Step::Gc { expire, thorough }),
        1 => Just(Step::Reopen),
        1 => Just(Step::Wipe),
    ]
}

fn files(seed: u8, count: u8) -> BTreeMap<String, Vec<u8>> {
    // Overlaps with other seeds, so that commits share chunks.
    (0..count)
        .map(|index| (format!("f{index}"), noise(u64::from(seed / 3) * 7 + u64::from(index), 1400)))
        .collect()
}

type Tips = BTreeMap<u8, Hash>;

/// The model: what branches hold, and for each operation that is not taken back the branches it changed.
#[derive(Default)]
struct Model {
    tips: Tips,
    contents: BTreeMap<Hash, BTreeMap<String, Vec<u8>>>,
    done: Vec<(u8, Option<Hash>, Option<Hash>, bool)>,
}

impl Model {
    fn set(&mut self, branch: u8, tip: Option<Hash>) {
        let old = match tip {
            Some(tip) => self.tips.insert(branch, tip),
            None => self.tips.remove(&branch),
        };
        self.done.push((branch, old, tip, false));
    }
}

fn name(branch: u8) -> String {
    format!("b{branch}")
}

fn run(store: Store, steps: &[Step]) {
    let (mut store, mut model) = (store, Model::default());
    let path = store.dir().to_owned();
    for step in steps {
        match step {
            Step::Commit { branch, seed, count } => {
                let files = files(*seed, *count);
                let id = commit_files(&store, &name(*branch), &files, "step").unwrap().commits[0];
                model.contents.insert(id, files);
                model.set(*branch, Some(id));
            }
            Step::Fork { from, to } => match (model.tips.get(from).copied(), model.tips.contains_key(to)) {
                (Some(tip), false) => {
                    fork(&store, &name(*to), tip).unwrap();
                    model.set(*to, Some(tip));
                }
                (Some(tip), true) => {
                    assert_eq!(fork(&store, &name(*to), tip).unwrap_err().code, Code::Exists)
                }
                (None, _) => assert_eq!(store.resolve(&name(*from)).unwrap_err().code, Code::NotFound),
            },
            Step::Drop { branch } => {
                if model.tips.contains_key(branch) {
                    delete(&store, &name(*branch)).unwrap();
                    model.set(*branch, None);
                }
            }
            Step::Undo => match (model.done.pop(), store.undo(None)) {
                (None, undone) => assert_eq!(undone.unwrap_err().code, Code::NotFound),
                (Some((branch, old, new, expired)), Ok(_)) => {
                    assert_eq!(model.tips.get(&branch).copied(), new);
                    match old {
                        Some(old) => model.tips.insert(branch, old),
                        None => model.tips.remove(&branch),
                    };
                    let _ = expired;
                }
                // Only what gc was allowed to forget can be missing.
                (Some(done), Err(error)) => {
                    assert!(done.3 && error.code == Code::NotFound, "{done:?} {error}");
                    model.done.push(done);
                }
            },
            Step::Gc { expire, thorough } => {
                let keep = Duration::from_secs(if *expire { 0 } else { 14 * 24 * 3600 });
                store.gc_with(&GcOptions { expire: keep, dry_run: false, thorough: *thorough }).unwrap();
                if *expire {
                    model.done.iter_mut().for_each(|done| done.3 = true);
                }
            }
            Step::Reopen => store = Store::open(&path).unwrap(),
            Step::Wipe => {
                wipe_database(&path);
                store = Store::open(&path).unwrap();
            }
        }
        let refs: Tips = store
            .refs()
            .unwrap()
            .into_iter()
            .map(|(name, state)| (name.short()[1..].parse().unwrap(), state.commit))
            .collect();
        assert_eq!(refs, model.tips, "after {step:?}");
    }
    for tip in model.tips.values() {
        for commit in store.ancestors(tip) {
            let id = commit.unwrap().id;
            assert_eq!(&files_of(&store, &id).unwrap(), &model.contents[&id]);
        }
    }
    let report = store.check(&mut |_| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, ..ProptestConfig::default() })]
    #[test]
    fn a_store_is_a_map_with_history(steps in prop::collection::vec(step(), 1..40)) {
        let dir = tempfile::tempdir().unwrap();
        run(Store::create(&dir.path().join("store"), Profile::Off).unwrap(), &steps);
    }
}
