//! Undo, workspaces, slots.

mod store_support;

use atoll_store::store::{NewOperation, Profile, RefChange, RefName, RefState, Slot, Workspace};
use atoll_store::tree::Time;
use atoll_store::{Code, Hash, Store};
use store_support::*;

fn workspace(id: u64, branch: &str, commit: Hash) -> Workspace {
    Workspace {
        id: format!("{id:016x}"),
        branch: branch.to_owned(),
        driver: "overlay".to_owned(),
        base: commit,
        head: commit,
        mountpoint: None,
        settings: "{\"upper\": \"disk\"}".to_owned(),
        created: Time { sec: 1_700_000_000, nsec: 1 },
    }
}

#[test]
fn undo_takes_back_one_operation_after_another() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let one = commit_files(&store, "main", &some_files(1, 2, 300), "one").unwrap().commits[0];
    let two = commit_files(&store, "main", &some_files(2, 2, 300), "two").unwrap().commits[0];
    fork(&store, "side", one).unwrap();
    let (undone, _) = store.undo(None).unwrap();
    assert_eq!((undone.seq, undone.kind.as_str()), (3, "fork"));
    assert_eq!(store.get_ref(&branch("side")).unwrap(), None);
    store.undo(None).unwrap();
    assert_eq!(store.resolve("main").unwrap(), one);
    store.undo(None).unwrap();
    assert_eq!(store.refs().unwrap(), []);
    assert_eq!(store.undo(None).unwrap_err().code, Code::NotFound);
    // An undo is taken back by its number, and then its operation can be undone once more.
    let undo_of_two =
        store.operations(9).unwrap().iter().find(|operation| operation.undoes == Some(2)).unwrap().seq;
    assert_eq!(store.undo(Some(undo_of_two)).unwrap_err().code, Code::Moved);
    let undo_of_one =
        store.operations(9).unwrap().iter().find(|operation| operation.undoes == Some(1)).unwrap().seq;
    store.undo(Some(undo_of_one)).unwrap();
    store.undo(Some(undo_of_two)).unwrap();
    assert_eq!(store.resolve("main").unwrap(), two);
    let (undone, _) = store.undo(None).unwrap();
    assert_eq!(undone.seq, 2);
    assert_eq!(store.undo(Some(2)).unwrap_err().code, Code::Conflict);
    assert_eq!(store.undo(Some(999)).unwrap_err().code, Code::NotFound);
}

#[test]
fn undo_refuses_when_a_branch_moved_and_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let one = commit_files(&store, "main", &some_files(1, 2, 300), "one").unwrap().commits[0];
    let state = |commit| Some(RefState { commit, base: one, folder: Some(b"/p".to_vec()) });
    let changes = ["x", "y"].map(|name| RefChange { name: branch(name), old: None, new: state(one) });
    let operation = NewOperation { kind: "fork".to_owned(), changes: changes.into(), ..Default::default() };
    let seq = store.publish(store.writer().unwrap(), operation).unwrap().seq;
    commit_files(&store, "y", &some_files(2, 2, 300), "moved").unwrap();
    let error = store.undo(Some(seq)).unwrap_err();
    assert_eq!(error.code, Code::Moved);
    assert!(error.message.contains("'y'") && !error.message.contains("'x'"), "{error}");
    assert!(store.get_ref(&branch("x")).unwrap().is_some());
    store.undo(None).unwrap();
    // `y` is where the fork left it, but with another base and folder than commit_files gives it.
    store.undo(Some(seq)).unwrap();
    assert_eq!(store.refs().unwrap().len(), 1);
}

#[test]
fn several_refs_move_together_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let one = commit_files(&store, "a", &some_files(1, 2, 300), "one").unwrap().commits[0];
    let old = store.get_ref(&branch("a")).unwrap();
    let new = Some(RefState { commit: one, base: one, folder: None });
    let change = |name: &str, old: &Option<RefState>, new: &Option<RefState>| RefChange {
        name: branch(name),
        old: old.clone(),
        new: new.clone(),
    };
    let operation = NewOperation {
        kind: "test".to_owned(),
        changes: vec![change("b", &None, &new), change("a", &None, &new)],
        ..Default::default()
    };
    assert_eq!(store.publish(store.writer().unwrap(), operation).unwrap_err().code, Code::Exists);
    assert_eq!(store.get_ref(&branch("b")).unwrap(), None);
    // A folder of branches can take the place of a branch within one operation.
    let operation = NewOperation {
        kind: "rename".to_owned(),
        changes: vec![change("a", &old, &None), change("a/b", &None, &new)],
        ..Default::default()
    };
    store.publish(store.writer().unwrap(), operation).unwrap();
    assert_eq!(store.resolve("a/b").unwrap(), one);
    store.undo(None).unwrap();
    assert_eq!(store.get_ref(&branch("a")).unwrap(), old);
    let tag = move_ref(&store, "tag", RefName::Tag("a/b".to_owned()), None, new);
    assert!(tag.is_ok(), "tags and branches have folders of their own");
}

#[test]
fn workspaces_are_kept_and_belong_to_one_branch() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let one = commit_files(&store, "main", &some_files(1, 2, 300), "one").unwrap().commits[0];
    let mut first = workspace(1, "main", one);
    store.put_workspace(&first).unwrap();
    first.mountpoint = Some("/mnt/with \"quotes\"".into());
    store.put_workspace(&first).unwrap();
    let error = store.put_workspace(&workspace(2, "main", one)).unwrap_err();
    assert_eq!(error.code, Code::Exists);
    assert!(error.message.contains(&first.id), "{error}");
    assert_eq!(store.put_workspace(&workspace(3, "x", Hash::of(b"none"))).unwrap_err().code, Code::NotFound);
    let mut odd = workspace(4, "y", one);
    odd.id = "../../etc".to_owned();
    assert_eq!(store.put_workspace(&odd).unwrap_err().code, Code::Usage);
    store.put_workspace(&workspace(5, "side", one)).unwrap();
    store.remove_workspace(&workspace(5, "side", one).id).unwrap();
    store.remove_workspace("unknown").unwrap();
    let path = store.dir().to_owned();
    let json =
        std::fs::read_to_string(path.join("workspaces").join(&first.id).join("workspace.json")).unwrap();
    assert!(json.contains("\"schema\": 1") && json.contains("with \\\"quotes\\\""), "{json}");
    drop(store);
    for wiped in [false, true] {
        if wiped {
            wipe_database(&path);
        }
        let store = Store::open(&path).unwrap();
        assert_eq!(store.workspaces().unwrap(), [first.clone()]);
        assert_eq!(store.workspace_of("main").unwrap().as_ref(), Some(&first));
        assert_eq!(store.workspace_of("side").unwrap(), None);
    }
}

#[test]
fn a_slot_means_one_commit_until_all_are_taken() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(&dir.path().join("store"), Profile::Off).unwrap();
    let writer = store.writer().unwrap();
    let root = tree_of(&writer, &some_files(1, 1, 300)).unwrap();
    let commits: Vec<_> =
        (0..8194).map(|number| new_commit(root, Vec::new(), &format!("{number}"))).collect();
    let operation = NewOperation { kind: "test".to_owned(), commits, ..Default::default() };
    let ids = store.publish(writer, operation).unwrap().commits;
    store.put_workspace(&workspace(1, "main", ids[0])).unwrap();
    for (index, id) in ids[..8191].iter().enumerate() {
        assert_eq!(store.slot(id).unwrap(), Slot { number: index as u16 + 1, generation: 1 });
    }
    // The first belongs to a workspace, so the second is used again, with a new generation.
    let again = store.slot(&ids[8191]).unwrap();
    assert_eq!(again, Slot { number: 2, generation: 2 });
    assert_eq!(store.slot(&ids[8191]).unwrap(), again);
    assert_eq!(store.slot_commit(1).unwrap(), Some((ids[0], Slot { number: 1, generation: 1 })));
    assert_eq!(store.slot_commit(2).unwrap(), Some((ids[8191], again)));
    assert_eq!(store.slot_commit(0).unwrap(), None);
    assert_eq!(store.slot(&ids[1]).unwrap(), Slot { number: 3, generation: 2 });
    assert_eq!(store.slot(&Hash::of(b"none")).unwrap_err().code, Code::NotFound);
    let path = store.dir().to_owned();
    drop(store);
    wipe_database(&path);
    let store = Store::open(&path).unwrap();
    assert_eq!(store.slot(&ids[8191]).unwrap(), again);
    assert_eq!(store.slot(&ids[5]).unwrap(), Slot { number: 6, generation: 1 });
    assert_eq!(store.slot(&ids[8192]).unwrap(), Slot { number: 4, generation: 2 });
}
