//! A commit: a tree, its parents, and who made it, when and why.

use std::collections::BTreeMap;

use crate::codec::{Reader, put_bytes, put_signed, put_varint};
use crate::tree::{ContentSum, Time};
use crate::{Hash, Num, Result};

/// Counts over a whole tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Regular files (inodes, not names).
    pub files: u64,
    /// Folders, the root included.
    pub dirs: u64,
    /// Everything else.
    pub others: u64,
    /// Bytes in regular files, holes included.
    pub bytes: u64,
    /// Extended attributes.
    pub xattrs: u64,
}

/// A commit that is to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCommit {
    /// The tree's root node.
    pub root: Num,
    /// The second hash's sum.
    pub content: ContentSum,
    /// Counts.
    pub summary: Summary,
    /// The commits it came from, the first one first.
    pub parents: Vec<Hash>,
    /// Who: `name <mail>` or a user name.
    pub author: String,
    /// When.
    pub time: Time,
    /// The author's offset from UTC in minutes.
    pub utc_offset: i16,
    /// Why.
    pub message: String,
    /// Free metadata: keys to JSON texts (the command, its exit code, the agent, the tool call).
    pub meta: BTreeMap<String, String>,
}

/// A stored commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The hash of its record.
    pub id: Hash,
    /// The root node's hash, the same in every store.
    pub tree: Hash,
    /// Everything else; `root` is this store's number for `tree`.
    pub record: NewCommit,
}

/// The first byte of a commit's record.
const VERSION: u8 = 1;

impl NewCommit {
    /// The canonical record, the same in every store; `tree` is the root node's hash. The commit's id is
    /// [`Hash::of_commit`] of it.
    pub fn encode(&self, tree: &Hash) -> Vec<u8> {
        let mut out = Vec::with_capacity(320 + self.message.len());
        out.push(VERSION);
        out.extend_from_slice(&tree.0);
        self.content.0.iter().for_each(|lane| out.extend_from_slice(&lane.to_le_bytes()));
        let Summary { files, dirs, others, bytes, xattrs } = self.summary;
        [files, dirs, others, bytes, xattrs].into_iter().for_each(|count| put_varint(&mut out, count));
        put_varint(&mut out, self.parents.len() as u64);
        self.parents.iter().for_each(|parent| out.extend_from_slice(&parent.0));
        put_bytes(&mut out, self.author.as_bytes());
        put_signed(&mut out, self.time.sec);
        put_varint(&mut out, u64::from(self.time.nsec));
        put_signed(&mut out, i64::from(self.utc_offset));
        put_bytes(&mut out, self.message.as_bytes());
        put_varint(&mut out, self.meta.len() as u64);
        for (key, value) in &self.meta {
            put_bytes(&mut out, key.as_bytes());
            put_bytes(&mut out, value.as_bytes());
        }
        out
    }
}

impl Commit {
    /// From its canonical record and this store's number for its tree.
    ///
    /// # Errors
    /// `Damaged` when the bytes are not a commit's record, `NewerFormat` when a later program wrote it.
    pub fn decode(id: Hash, root: Num, record: &[u8]) -> Result<Commit> {
        let mut reader = Reader::new(record, "commit record");
        let version = reader.byte()?;
        if version > VERSION {
            return Err(crate::Error::new(
                crate::Code::NewerFormat,
                format!(
                    "Commit {id} was written by a newer version of atoll; update this program to read it."
                ),
            ));
        }
        let tree = reader.hash()?;
        let mut content = ContentSum::default();
        for lane in &mut content.0 {
            *lane = u64::from_le_bytes(reader.take(8)?.try_into().expect("8 bytes were taken"));
        }
        let mut counts = [0; 5];
        for count in &mut counts {
            *count = reader.varint()?;
        }
        let [files, dirs, others, bytes, xattrs] = counts;
        let parents = (0..reader.count()?).map(|_| reader.hash()).collect::<Result<_>>()?;
        let author = reader.text()?;
        let time = Time { sec: reader.signed()?, nsec: reader.small()? };
        let utc_offset = i16::try_from(reader.signed()?).map_err(|_| reader.bad())?;
        let message = reader.text()?;
        let meta =
            (0..reader.count()?).map(|_| Ok((reader.text()?, reader.text()?))).collect::<Result<_>>()?;
        reader.end()?;
        let summary = Summary { files, dirs, others, bytes, xattrs };
        let record = NewCommit { root, content, summary, parents, author, time, utc_offset, message, meta };
        Ok(Commit { id, tree, record })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written(
            counts in any::<[u64; 5]>(), lanes in any::<[u64; 16]>(), parents in any::<Vec<[u8; 32]>>(),
            author in ".*", message in ".*", sec in any::<i64>(), nsec in 0u32..1_000_000_000,
            utc_offset in any::<i16>(), meta in any::<BTreeMap<String, String>>(),
        ) {
            let [files, dirs, others, bytes, xattrs] = counts;
            let commit = NewCommit {
                root: Num(7), content: ContentSum(lanes), summary: Summary { files, dirs, others, bytes, xattrs },
                parents: parents.into_iter().map(Hash).collect(), author, time: Time { sec, nsec }, utc_offset, message, meta,
            };
            let record = commit.encode(&Hash::of(b"tree"));
            let id = Hash::of_commit(&record);
            let read = Commit::decode(id, Num(7), &record).unwrap();
            prop_assert_eq!(read, Commit { id, tree: Hash::of(b"tree"), record: commit });
            prop_assert!(Commit::decode(id, Num(7), &record[..record.len() - 1]).is_err());
        }
    }
}
