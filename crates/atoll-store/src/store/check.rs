//! Reads everything and says what is not as it was written.

use std::collections::{BTreeMap, HashSet};

use rusqlite::Connection;

use super::cache::{OpenPack, PackKey};
use super::read::salvaged_from;
use super::{Store, apply, db};
use crate::oplog::PackId;
use crate::pack::{Coding, Entry, Frame, Kind};
use crate::tree::Node;
use crate::{Code, Commit, Hash, Num, Objects, Result};

/// Something that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The pack it is in, where that is known.
    pub pack: Option<String>,
    /// The object, where that is known.
    pub object: Option<Hash>,
    /// The commit whose tree it was missed in; others can be hit as well.
    pub commit: Option<Hash>,
    /// A sentence.
    pub message: String,
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Packs that were read.
    pub packs: u64,
    /// Objects that were read and compared with their names.
    pub objects: u64,
    /// Commits whose trees were walked.
    pub commits: u64,
    /// Bytes before compression.
    pub bytes: u64,
    /// Everything that is wrong.
    pub problems: Vec<Problem>,
}

impl CheckReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }
}

impl Store {
    /// Reads every pack and compares every object with the hash it is named by, then walks every commit's tree for
    /// what is missing. Changes nothing. `progress` gets the bytes that were read so far.
    ///
    /// # Errors
    /// Only when the check itself cannot go on; what it finds is in the report.
    pub fn check(&self, progress: &mut dyn FnMut(u64)) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        let packs = self.read(pack_keys)?;
        for (key, damaged) in packs {
            let name = pack_name(key.id);
            let opened = if damaged { Ok(None) } else { self.pack(key) };
            match opened {
                Ok(Some(pack)) => self.check_pack(&pack, &name, &mut report, progress)?,
                Ok(None) if self.read(|db| db::pack_row(db, key.id))?.is_none() => {} // gc was faster.
                Ok(None) => {
                    report.add(
                        Some(name.clone()),
                        None,
                        format!("The pack {name} is missing, or its table is damaged."),
                    );
                }
                Err(error) => report.add(Some(name), None, error.message),
            }
            report.packs += 1;
        }
        self.check_commits(&mut report)?;
        Ok(report)
    }

    fn check_pack(
        &self,
        open: &OpenPack,
        name: &str,
        report: &mut CheckReport,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let table = open.pack.table();
        let mut by_frame: BTreeMap<u32, Vec<(Num, Entry)>> = BTreeMap::new();
        for (num, entry) in table.iter() {
            by_frame.entry(entry.frame).or_default().push((num, entry));
        }
        for (index, frame) in table.frames().iter().enumerate() {
            let members = by_frame.remove(&(index as u32)).unwrap_or_default();
            let raw = match self.check_frame(open, frame) {
                Ok(raw) => raw,
                Err(error) if error.code == Code::Damaged => {
                    // Each object that is lost by its name; of a group in which all can still be had, the pack.
                    let raw = match frame.kind {
                        Kind::Chunk => open.pack.salvage(frame),
                        Kind::Node => Vec::new(),
                    };
                    let before = report.problems.len();
                    for (_, entry) in members.iter().filter(|(_, entry)| salvaged_from(&raw, entry).is_none())
                    {
                        report.add(Some(name.to_owned()), Some(entry.hash), error.message.clone());
                    }
                    if report.problems.len() == before {
                        report.add(Some(name.to_owned()), None, error.message);
                    }
                    continue;
                }
                Err(error) => return Err(error),
            };
            for (num, entry) in members {
                let bytes = &raw[entry.offset as usize..(entry.offset + entry.len) as usize];
                if let Some(message) = self.check_object(frame.kind, num, &entry, bytes)? {
                    report.add(Some(name.to_owned()), Some(entry.hash), message);
                }
                report.objects += 1;
            }
            report.bytes += u64::from(frame.raw);
            progress(report.bytes);
        }
        Ok(())
    }

    /// Past the caches: what is checked is what is on the disk.
    fn check_frame(&self, open: &OpenPack, frame: &Frame) -> Result<Vec<u8>> {
        let base = match frame.coding {
            Coding::Delta => Some(self.raw(frame.base, Some(frame.kind), 0)?),
            _ => None,
        };
        open.pack.raw(frame, base.as_deref())
    }

    fn check_object(&self, kind: Kind, num: Num, entry: &Entry, bytes: &[u8]) -> Result<Option<String>> {
        let hash = match kind {
            Kind::Chunk => Hash::of(bytes),
            // What nobody can find any more may name what is gone.
            Kind::Node if !self.read(|db| is_indexed(db, num, &entry.hash))? => return Ok(None),
            Kind::Node => match Node::from_stored(bytes).and_then(|node| node.canonical(self)) {
                Ok(canonical) => Hash::of_node(&canonical),
                Err(error) if error.code == Code::Damaged => {
                    return Ok(Some(format!("Tree node {} cannot be read: {}", entry.hash, error.message)));
                }
                Err(error) => return Err(error),
            },
        };
        Ok((hash != entry.hash).then(|| format!("Object {} has the contents of {hash}.", entry.hash)))
    }

    fn check_commits(&self, report: &mut CheckReport) -> Result<()> {
        let commits: Vec<(Hash, Num, Vec<u8>)> = self.read(|db| {
            let mut statement = db.prepare_cached("SELECT id, root, record FROM commits ORDER BY ord")?;
            let rows = statement.query_map([], |row| {
                Ok((Hash(row.get(0)?), Num(row.get::<_, i64>(1)? as u64), row.get::<_, Vec<u8>>(2)?))
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })?;
        let known: HashSet<Hash> = commits.iter().map(|(id, ..)| *id).collect();
        let mut seen = HashSet::new();
        for (id, root, record) in commits {
            report.commits += 1;
            let commit = match Commit::decode(id, root, &record) {
                Ok(commit) if Hash::of_commit(&record) == id => commit,
                Ok(_) => {
                    report.in_commit(
                        id,
                        None,
                        format!("The record of commit {id} is not the one it is named by."),
                    );
                    continue;
                }
                Err(error) => {
                    report.in_commit(id, None, error.message);
                    continue;
                }
            };
            for parent in commit.record.parents.iter().filter(|parent| !known.contains(*parent)) {
                report.in_commit(
                    id,
                    None,
                    format!("Commit {parent}, which commit {id} came from, is missing."),
                );
            }
            if let Ok(tree) = self.hash(root)
                && tree != commit.tree
            {
                report.in_commit(
                    id,
                    Some(commit.tree),
                    format!("Commit {id} names a tree that is not the one it was made with."),
                );
            }
            self.check_tree(id, root, &mut seen, report)?;
        }
        for (name, state) in self.refs()? {
            if !known.contains(&state.commit) {
                report.in_commit(state.commit, None, format!("'{name}' names a commit that is missing."));
            }
        }
        Ok(())
    }

    fn check_tree(
        &self,
        commit: Hash,
        root: Num,
        seen: &mut HashSet<Num>,
        report: &mut CheckReport,
    ) -> Result<()> {
        let mut todo = vec![root];
        while let Some(num) = todo.pop() {
            if !seen.insert(num) {
                continue;
            }
            match self.node(num) {
                Ok(node) => {
                    todo.extend(node.children());
                    for chunk in node.chunks() {
                        if seen.insert(chunk) && self.locate(chunk)?.is_none() {
                            report.in_commit(
                                commit,
                                None,
                                format!("Chunk {} is missing from the store.", chunk.0),
                            );
                        }
                    }
                }
                Err(error) if error.code == Code::Damaged => {
                    let object = self.hash(num).ok();
                    report.in_commit(commit, object, error.message);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl CheckReport {
    fn add(&mut self, pack: Option<String>, object: Option<Hash>, message: String) {
        self.problems.push(Problem { pack, object, commit: None, message });
    }

    fn in_commit(&mut self, commit: Hash, object: Option<Hash>, message: String) {
        self.problems.push(Problem { pack: None, object, commit: Some(commit), message });
    }
}

fn pack_keys(db: &Connection) -> Result<Vec<(PackKey, bool)>> {
    let generation = db::meta(db, "log_generation")?;
    let mut statement = db.prepare_cached("SELECT kind, number, len, damaged FROM packs ORDER BY pack")?;
    let rows = statement.query_map([], |row| {
        let id = db::pack_id(row.get(0)?, row.get(1)?);
        let generation = if let PackId::Log(_) = id { generation } else { 0 };
        Ok((PackKey { id, generation, len: row.get::<_, i64>(2)? as u64 }, row.get(3)?))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn pack_name(id: PackId) -> String {
    match id {
        PackId::File(id) => crate::pack::file_name(id),
        PackId::Log(offset) => format!("in oplog at byte {offset}"),
    }
}

/// Whether an object can be found by its hash.
pub(super) fn is_indexed(db: &Connection, num: Num, hash: &Hash) -> Result<bool> {
    let mut statement = db.prepare_cached("SELECT 1 FROM hashes WHERE prefix = ?1 AND num = ?2")?;
    Ok(statement.exists((apply::prefix(hash), num.0 as i64))?)
}
