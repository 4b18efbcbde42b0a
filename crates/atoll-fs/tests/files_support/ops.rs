//! Random changes of a folder's state.

use proptest::prelude::*;

use super::{Files, Kind, is_below};

pub fn contents() -> impl Strategy<Value = Vec<u8>> {
    let lines = proptest::collection::vec(prop_oneof!["[a-c]{0,2}", Just("fn main() {".to_owned())], 0..40);
    prop_oneof![
        6 => (lines, any::<bool>()).prop_map(|(lines, end)| {
            let mut text = lines.join("\n").into_bytes();
            text.extend(end.then_some(b'\n'));
            text
        }),
        1 => proptest::collection::vec(any::<u8>(), 0..3000),
        1 => Just(Vec::new()),
    ]
}

pub fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => "[a-d]".prop_map(String::into_bytes),
        1 => Just(b"with space".to_vec()),
        1 => Just("na\u{ef}ve \u{65e5}".as_bytes().to_vec()),
        1 => Just(b"q\"uote\\\ttab\n\xff\x01".to_vec()),
    ]
}

#[derive(Debug, Clone)]
pub enum Op {
    Add(usize, Vec<u8>, Vec<u8>, bool),
    Dir(usize, Vec<u8>),
    Symlink(usize, Vec<u8>, u8),
    Set(usize, Vec<u8>),
    Append(usize, u8),
    Chmod(usize),
    Rename(usize, usize, Vec<u8>),
    Remove(usize),
}

pub fn op() -> impl Strategy<Value = Op> {
    let at = || 0usize..500;
    prop_oneof![
        4 => (at(), name(), contents(), any::<bool>()).prop_map(|(at, name, text, x)| Op::Add(at, name, text, x)),
        2 => (at(), name()).prop_map(|(at, name)| Op::Dir(at, name)),
        1 => (at(), name(), any::<u8>()).prop_map(|(at, name, target)| Op::Symlink(at, name, target)),
        2 => (at(), contents()).prop_map(|(at, text)| Op::Set(at, text)),
        2 => (at(), b'a'..=b'z').prop_map(|(at, byte)| Op::Append(at, byte)),
        1 => at().prop_map(Op::Chmod),
        3 => (at(), at(), name()).prop_map(|(at, to, name)| Op::Rename(at, to, name)),
        1 => at().prop_map(Op::Remove),
    ]
}

pub fn apply(files: &mut Files, op: &Op) {
    let pick = |files: &Files, at: usize, dirs: bool| {
        let mut paths: Vec<_> = files
            .entries
            .iter()
            .filter(|(_, e)| (e.kind == Kind::Dir) == dirs)
            .map(|(p, _)| p.clone())
            .collect();
        if dirs {
            paths.push(Vec::new());
        }
        (!paths.is_empty()).then(|| paths[at % paths.len()].clone())
    };
    let place = |files: &Files, at: usize, name: &[u8]| {
        let dir = pick(files, at, true).unwrap();
        let path = if dir.is_empty() { name.to_vec() } else { [&dir[..], name].join(&b'/') };
        (!files.entries.contains_key(&path)).then_some(path)
    };
    match op {
        Op::Add(at, name, text, executable) => {
            if let Some(path) = place(files, *at, name) {
                files.add(&path, Kind::File(text.clone()), if *executable { 0o755 } else { 0o644 });
            }
        }
        Op::Dir(at, name) => {
            if let Some(path) = place(files, *at, name) {
                files.add(&path, Kind::Dir, 0o755);
            }
        }
        Op::Symlink(at, name, target) => {
            if let Some(path) = place(files, *at, name) {
                files.add(&path, Kind::Symlink(vec![b'm' + target % 10; 1 + usize::from(*target)]), 0o777);
            }
        }
        Op::Set(at, text) => {
            if let Some(path) = pick(files, *at, false) {
                let entry = files.entries.get_mut(&path).unwrap();
                if let Kind::File(old) = &mut entry.kind {
                    *old = text.clone();
                }
            }
        }
        Op::Append(at, byte) => {
            if let Some(path) = pick(files, *at, false)
                && let Kind::File(old) = &mut files.entries.get_mut(&path).unwrap().kind
            {
                old.push(*byte);
            }
        }
        Op::Chmod(at) => {
            if let Some(path) = pick(files, *at, false) {
                let entry = files.entries.get_mut(&path).unwrap();
                if matches!(entry.kind, Kind::File(_)) {
                    entry.mode ^= 0o111;
                }
            }
        }
        Op::Rename(at, to, name) => {
            let paths: Vec<_> = files.entries.keys().cloned().collect();
            let Some(from) = (!paths.is_empty()).then(|| paths[at % paths.len()].clone()) else { return };
            let dir = pick(files, *to, true).unwrap();
            let to = if dir.is_empty() { name.clone() } else { [&dir[..], name].join(&b'/') };
            if !is_below(&to, &from) && !is_below(&from, &to) {
                files.rename(&from, &to);
            }
        }
        Op::Remove(at) => {
            let paths: Vec<_> = files.entries.keys().cloned().collect();
            if !paths.is_empty() {
                files.remove(&paths[at % paths.len()]);
            }
        }
    }
}
