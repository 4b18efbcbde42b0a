//! What stands in the operation log.

use crate::codec::{Reader, put_bytes, put_option, put_signed, put_varint};
use crate::store::{Operation, RefChange, RefName, RefState, Workspace};
use crate::tree::Time;
use crate::{Hash, Num, Result};

/// One record. All are states or steps that, applied in order to an empty database, rebuild it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Record {
    /// An operation with what it brought: applied whole.
    Operation(Published),
    /// A workspace's record, or its removal.
    Workspace(Box<Workspace>),
    WorkspaceGone(String),
    /// A history slot and the commit that it now stands for.
    Slot {
        number: u16,
        generation: u32,
        commit: Option<Hash>,
    },
    /// gc replaced packs and forgot what nothing names.
    Collected(Collected),
    /// The counters, written at the head of a rewritten log.
    Counters {
        next_num: u64,
        next_seq: u64,
        epoch: u64,
        expired_seq: u64,
    },
    /// A commit, a pack file, a ref, an old operation, kept by a rewrite of the log.
    Commit {
        id: Hash,
        root: Num,
        record: Vec<u8>,
    },
    Pack {
        id: u64,
        dead: Vec<NumRun>,
    },
    Ref(RefName, RefState),
    History(Operation),
    /// A pack, kept by a rewrite of the log.
    Embedded(Vec<u8>),
    /// Numbers that cannot be found any more, kept by a rewrite of the log.
    Dead(Vec<NumRun>),
}

/// Numbers `first .. first + count`.
pub(crate) type NumRun = (u64, u64);

/// What a gc did. A number that a removed pack had and no added one has is gone; one of `dead` is still in a
/// pack (some delta may stand on it) but must not be found any more: what it names can be gone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Collected {
    pub(crate) removed: Vec<PackId>,
    pub(crate) added: Vec<u64>,
    pub(crate) dead: Vec<NumRun>,
    pub(crate) commits: Vec<Hash>,
    /// Operations up to this one keep nothing any more.
    pub(crate) expired_seq: u64,
    pub(crate) epoch: u64,
}

/// How a pack is named in the log and in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum PackId {
    /// The file `packs/ID.pack`.
    File(u64),
    /// Embedded in the log, at this offset.
    Log(u64),
}

/// An operation as it was published.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Published {
    pub(crate) operation: Operation,
    /// Its commits: id, root node, canonical record; parents first.
    pub(crate) commits: Vec<(Hash, Num, Vec<u8>)>,
    /// The pack file that its objects are in.
    pub(crate) pack: Option<u64>,
    /// Or the pack itself, last in the record so that its place is known.
    pub(crate) embedded: Option<Vec<u8>>,
    /// All numbers below are taken.
    pub(crate) next_num: u64,
}

impl Record {
    fn kind(&self) -> u8 {
        match self {
            Record::Operation(_) => 1,
            Record::Workspace(_) => 2,
            Record::WorkspaceGone(_) => 3,
            Record::Slot { .. } => 4,
            Record::Collected(_) => 5,
            Record::Counters { .. } => 6,
            Record::Commit { .. } => 7,
            Record::Pack { .. } => 8,
            Record::Ref(..) => 9,
            Record::History(_) => 10,
            Record::Embedded(_) => 11,
            Record::Dead(_) => 12,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.kind()];
        let out_ref = &mut out;
        match self {
            Record::Operation(published) => put_published(out_ref, published),
            Record::Workspace(workspace) => put_workspace(out_ref, workspace),
            Record::WorkspaceGone(id) => put_bytes(out_ref, id.as_bytes()),
            Record::Slot { number, generation, commit } => {
                put_varint(out_ref, u64::from(*number));
                put_varint(out_ref, u64::from(*generation));
                put_option(out_ref, commit.as_ref(), |out, commit| out.extend_from_slice(&commit.0));
            }
            Record::Collected(collected) => {
                put_many(out_ref, &collected.removed, |out, &id| put_pack_id(out, id));
                put_many(out_ref, &collected.added, |out, &id| put_varint(out, id));
                put_runs(out_ref, &collected.dead);
                put_many(out_ref, &collected.commits, |out, commit| out.extend_from_slice(&commit.0));
                put_varint(out_ref, collected.expired_seq);
                put_varint(out_ref, collected.epoch);
            }
            Record::Counters { next_num, next_seq, epoch, expired_seq } => {
                [next_num, next_seq, epoch, expired_seq]
                    .into_iter()
                    .for_each(|&value| put_varint(out_ref, value));
            }
            Record::Commit { id, root, record } => {
                out_ref.extend_from_slice(&id.0);
                put_varint(out_ref, root.0);
                put_bytes(out_ref, record);
            }
            Record::Pack { id, dead } => {
                put_varint(out_ref, *id);
                put_runs(out_ref, dead);
            }
            Record::Ref(name, state) => {
                put_ref_name(out_ref, name);
                put_ref_state(out_ref, state);
            }
            Record::History(operation) => put_operation(out_ref, operation),
            Record::Embedded(blob) => put_bytes(out_ref, blob),
            Record::Dead(runs) => put_runs(out_ref, runs),
        }
        out
    }

    /// From a record's bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Record> {
        let mut reader = Reader::new(bytes, "operation-log record");
        let record = match reader.byte()? {
            1 => Record::Operation(published(&mut reader)?),
            2 => Record::Workspace(Box::new(workspace(&mut reader)?)),
            3 => Record::WorkspaceGone(reader.text()?),
            4 => Record::Slot {
                number: reader.small()?,
                generation: reader.small()?,
                commit: reader.option(Reader::hash)?,
            },
            5 => Record::Collected(Collected {
                removed: many(&mut reader, pack_id)?,
                added: many(&mut reader, Reader::varint)?,
                dead: runs(&mut reader)?,
                commits: many(&mut reader, Reader::hash)?,
                expired_seq: reader.varint()?,
                epoch: reader.varint()?,
            }),
            6 => Record::Counters {
                next_num: reader.varint()?,
                next_seq: reader.varint()?,
                epoch: reader.varint()?,
                expired_seq: reader.varint()?,
            },
            7 => Record::Commit { id: reader.hash()?, root: reader.num()?, record: reader.bytes()?.to_vec() },
            8 => Record::Pack { id: reader.varint()?, dead: runs(&mut reader)? },
            9 => Record::Ref(ref_name(&mut reader)?, ref_state(&mut reader)?),
            10 => Record::History(operation(&mut reader)?),
            11 => Record::Embedded(reader.bytes()?.to_vec()),
            12 => Record::Dead(runs(&mut reader)?),
            _ => return Err(reader.bad()),
        };
        reader.end()?;
        Ok(record)
    }
}

fn many<'a, T>(
    reader: &mut Reader<'a>,
    mut read: impl FnMut(&mut Reader<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = reader.count()?;
    (0..count).map(|_| read(reader)).collect()
}

fn put_many<T>(out: &mut Vec<u8>, items: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
    put_varint(out, items.len() as u64);
    items.iter().for_each(|item| put(out, item));
}

/// Runs in ascending order: each as its distance from the end of the one before, and its length.
fn put_runs(out: &mut Vec<u8>, runs: &[NumRun]) {
    put_varint(out, runs.len() as u64);
    let mut end = 0;
    for &(first, count) in runs {
        put_varint(out, first - end);
        put_varint(out, count);
        end = first + count;
    }
}

fn runs(reader: &mut Reader) -> Result<Vec<NumRun>> {
    let mut end = 0u64;
    many(reader, |reader| {
        let (skip, count) = (reader.varint()?, reader.varint()?);
        let first = end.checked_add(skip).ok_or_else(|| reader.bad())?;
        end = first.checked_add(count).ok_or_else(|| reader.bad())?;
        Ok((first, count))
    })
}

fn put_pack_id(out: &mut Vec<u8>, id: PackId) {
    let (kind, number) = match id {
        PackId::File(id) => (0, id),
        PackId::Log(offset) => (1, offset),
    };
    out.push(kind);
    put_varint(out, number);
}

fn pack_id(reader: &mut Reader) -> Result<PackId> {
    match reader.byte()? {
        0 => Ok(PackId::File(reader.varint()?)),
        1 => Ok(PackId::Log(reader.varint()?)),
        _ => Err(reader.bad()),
    }
}

fn put_published(out: &mut Vec<u8>, published: &Published) {
    put_operation(out, &published.operation);
    put_varint(out, published.commits.len() as u64);
    for (id, root, record) in &published.commits {
        out.extend_from_slice(&id.0);
        put_varint(out, root.0);
        put_bytes(out, record);
    }
    put_varint(out, published.next_num);
    put_option(out, published.pack, put_varint);
    put_option(out, published.embedded.as_deref(), put_bytes);
}

fn published(reader: &mut Reader) -> Result<Published> {
    Ok(Published {
        operation: operation(reader)?,
        commits: many(reader, |reader| Ok((reader.hash()?, reader.num()?, reader.bytes()?.to_vec())))?,
        next_num: reader.varint()?,
        pack: reader.option(Reader::varint)?,
        embedded: reader.option(|reader| Ok(reader.bytes()?.to_vec()))?,
    })
}

fn put_time(out: &mut Vec<u8>, time: Time) {
    put_signed(out, time.sec);
    put_varint(out, u64::from(time.nsec));
}

fn time(reader: &mut Reader) -> Result<Time> {
    Ok(Time { sec: reader.signed()?, nsec: reader.small()? })
}

fn put_operation(out: &mut Vec<u8>, operation: &Operation) {
    put_varint(out, operation.seq);
    put_time(out, operation.time);
    put_bytes(out, operation.user.as_bytes());
    put_bytes(out, operation.kind.as_bytes());
    put_bytes(out, operation.note.as_bytes());
    put_option(out, operation.workspace.as_deref(), |out, text| put_bytes(out, text.as_bytes()));
    put_option(out, operation.undoes, put_varint);
    put_changes(out, &operation.changes);
}

fn operation(reader: &mut Reader) -> Result<Operation> {
    Ok(Operation {
        seq: reader.varint()?,
        time: time(reader)?,
        user: reader.text()?,
        kind: reader.text()?,
        note: reader.text()?,
        workspace: reader.option(Reader::text)?,
        undoes: reader.option(Reader::varint)?,
        changes: changes(reader)?,
    })
}

/// The ref changes of an operation; the database keeps them in the same form.
pub(crate) fn put_changes(out: &mut Vec<u8>, changes: &[RefChange]) {
    put_varint(out, changes.len() as u64);
    for change in changes {
        put_ref_name(out, &change.name);
        put_option(out, change.old.as_ref(), put_ref_state);
        put_option(out, change.new.as_ref(), put_ref_state);
    }
}

/// Reads what [`put_changes`] wrote.
pub(crate) fn changes(reader: &mut Reader) -> Result<Vec<RefChange>> {
    many(reader, |reader| {
        Ok(RefChange {
            name: ref_name(reader)?,
            old: reader.option(ref_state)?,
            new: reader.option(ref_state)?,
        })
    })
}

fn put_ref_name(out: &mut Vec<u8>, name: &RefName) {
    put_bytes(out, name.to_string().as_bytes());
}

fn ref_name(reader: &mut Reader) -> Result<RefName> {
    let text = reader.text()?;
    RefName::from_stored(&text).ok_or_else(|| reader.bad())
}

fn put_ref_state(out: &mut Vec<u8>, state: &RefState) {
    out.extend_from_slice(&state.commit.0);
    out.extend_from_slice(&state.base.0);
    put_option(out, state.folder.as_deref(), put_bytes);
}

fn ref_state(reader: &mut Reader) -> Result<RefState> {
    Ok(RefState {
        commit: reader.hash()?,
        base: reader.hash()?,
        folder: reader.option(|reader| Ok(reader.bytes()?.to_vec()))?,
    })
}

fn put_workspace(out: &mut Vec<u8>, workspace: &Workspace) {
    put_bytes(out, workspace.id.as_bytes());
    put_bytes(out, workspace.branch.as_bytes());
    put_bytes(out, workspace.driver.as_bytes());
    out.extend_from_slice(&workspace.base.0);
    out.extend_from_slice(&workspace.head.0);
    put_option(out, workspace.mountpoint.as_deref(), |out, path| {
        put_bytes(out, path.as_os_str().as_encoded_bytes())
    });
    put_bytes(out, workspace.settings.as_bytes());
    put_time(out, workspace.created);
}

fn workspace(reader: &mut Reader) -> Result<Workspace> {
    use std::os::unix::ffi::OsStringExt;
    Ok(Workspace {
        id: reader.text()?,
        branch: reader.text()?,
        driver: reader.text()?,
        base: reader.hash()?,
        head: reader.hash()?,
        mountpoint: reader
            .option(|reader| Ok(std::ffi::OsString::from_vec(reader.bytes()?.to_vec()).into()))?,
        settings: reader.text()?,
        created: time(reader)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn state() -> RefState {
        RefState { commit: Hash::of(b"c"), base: Hash::of(b"b"), folder: Some(b"/home/\xff".to_vec()) }
    }

    fn operation() -> Operation {
        Operation {
            seq: 7,
            time: Time { sec: -1, nsec: 999_999_999 },
            user: "user@host".to_owned(),
            kind: "commit".to_owned(),
            note: "a note".to_owned(),
            workspace: Some("0123456789abcdef".to_owned()),
            undoes: Some(3),
            changes: vec![RefChange {
                name: RefName::Branch("a/b".to_owned()),
                old: None,
                new: Some(state()),
            }],
        }
    }

    fn every_kind() -> Vec<Record> {
        let id = Hash::of(b"id");
        vec![
            Record::Operation(Published {
                operation: operation(),
                commits: vec![(id, Num(3), b"record".to_vec())],
                pack: Some(u64::MAX),
                embedded: Some(b"pack".to_vec()),
                next_num: 9,
            }),
            Record::Workspace(Box::new(Workspace {
                id: "0123456789abcdef".to_owned(),
                branch: "main".to_owned(),
                driver: "copy".to_owned(),
                base: id,
                head: id,
                mountpoint: Some("/mnt".into()),
                settings: "{}".to_owned(),
                created: Time { sec: 1, nsec: 2 },
            })),
            Record::WorkspaceGone("0123456789abcdef".to_owned()),
            Record::Slot { number: 8191, generation: 4, commit: Some(id) },
            Record::Collected(Collected {
                removed: vec![PackId::File(5), PackId::Log(6)],
                added: vec![7],
                dead: vec![(3, 2), (9, 1)],
                commits: vec![id],
                expired_seq: 8,
                epoch: 2,
            }),
            Record::Counters { next_num: 1, next_seq: 2, epoch: 3, expired_seq: 4 },
            Record::Commit { id, root: Num(1), record: b"record".to_vec() },
            Record::Pack { id: 3, dead: vec![(0, 1)] },
            Record::Ref(RefName::Tag("v1".to_owned()), state()),
            Record::History(operation()),
            Record::Embedded(b"pack".to_vec()),
            Record::Dead(vec![(1, 1), (3, 4)]),
        ]
    }

    #[test]
    fn every_kind_is_read_as_it_was_written_and_refused_when_cut() {
        for record in every_kind() {
            let bytes = record.encode();
            assert_eq!(Record::decode(&bytes).unwrap(), record);
            for len in 0..bytes.len() {
                assert!(Record::decode(&bytes[..len]).is_err(), "{record:?} cut to {len}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(kind in 0u8..14, bytes in any::<Vec<u8>>()) {
            let _ = Record::decode(&[&[kind][..], &bytes].concat());
        }
    }
}
