//! Inode numbers for the upper's new files: `(random bits << 32) | low 32 bits of the upper's own number`.

use std::collections::HashSet;

use atoll_store::tree::{Inode, TreeView, scan};
use atoll_store::{BirthId, Hash, Ino, Result};

use super::index::{Index, nanos};
use crate::ingest::assign::Ids;
use crate::scan::HostStat;

/// Hands out numbers and birth ids.
pub(super) struct Keys<'a> {
    base: TreeView<'a>,
    head: TreeView<'a>,
    index: &'a Index,
    /// The random bits tried in turn, so that neighbours in a folder stay neighbours also where numbers are taken.
    randoms: Vec<Random>,
    ids: Ids,
    given: HashSet<Ino>,
    births: HashSet<BirthId>,
}

/// Random bits, and whether no file of the two trees has them.
#[derive(Clone, Copy)]
struct Random {
    bits: u32,
    unused: bool,
}

impl<'a> Keys<'a> {
    /// The workspace's random bits are the index's, or (the same ones when the index is lost) those that its id
    /// and base give.
    pub fn new(
        base: TreeView<'a>,
        head: TreeView<'a>,
        index: &'a Index,
        workspace: &str,
        base_id: &Hash,
        seed: Option<u64>,
    ) -> Result<Self> {
        let name = Hash::of(format!("{workspace} {base_id}").as_bytes());
        let derived = u32::from_le_bytes([name.0[0], name.0[1], name.0[2], 0]) & 0x3_ffff;
        let mut keys = Keys {
            base,
            head,
            index,
            randoms: Vec::new(),
            ids: Ids::new(seed)?,
            given: HashSet::new(),
            births: HashSet::new(),
        };
        keys.add_random(index.random.unwrap_or(derived).max(1))?;
        Ok(keys)
    }

    /// The random bits that the index is to remember.
    pub fn random(&self) -> u32 {
        self.randoms[0].bits
    }

    fn add_random(&mut self, bits: u32) -> Result<Random> {
        let from = (u64::from(bits) << 32).to_be_bytes();
        let to = (u64::from(bits + 1) << 32).to_be_bytes();
        let mut unused = true;
        for tree in [self.base, self.head] {
            if let Some(entry) = scan(tree.objects, tree.root, &from, Some(&to)).next() {
                entry?;
                unused = false;
            }
        }
        let random = Random { bits, unused };
        self.randoms.push(random);
        Ok(random)
    }

    /// Says that a number is in use by a file that is not new.
    pub fn keep(&mut self, key: Ino) {
        self.given.insert(key);
    }

    /// The number of a file that head has and the index forgot: same birth time, and the number that it would
    /// have been given. `there` is what head has under the file's name.
    pub fn recall(&self, stat: &HostStat, there: Option<Ino>) -> Result<Option<Ino>> {
        let likely = Ino::new(self.random(), stat.ino as u32);
        for key in there.into_iter().chain([likely]) {
            if key.low() != stat.ino as u32 || self.given.contains(&key) || self.base.inode(key)?.is_some() {
                continue;
            }
            let same = |inode: Inode| inode.kind == stat.kind && nanos(inode.btime) == nanos(stat.btime);
            if self.head.inode(key)?.is_some_and(same) {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    /// A number for a new file.
    pub fn new_key(&mut self, stat: &HostStat) -> Result<Ino> {
        let low = stat.ino as u32;
        // The file that had the upper's number before is another one: its number in the tree is spent.
        let spent = self.index.get(stat.ino).and_then(|record| record.key);
        let mut at = 0;
        loop {
            let random = match self.randoms.get(at) {
                Some(random) => *random,
                None => {
                    let bits = ((self.ids.birth().0 >> 46) as u32).max(1);
                    self.add_random(bits)?
                }
            };
            at += 1;
            let key = Ino::new(random.bits, low);
            let taken = self.given.contains(&key)
                || spent == Some(key)
                || (!random.unused && (self.head.inode(key)?.is_some() || self.base.inode(key)?.is_some()));
            if !taken {
                self.given.insert(key);
                return Ok(key);
            }
        }
    }

    /// A new birth id.
    pub fn birth(&mut self) -> BirthId {
        self.ids.birth()
    }

    /// A birth id that is handed on, once.
    pub fn hand_on(&mut self, birth: BirthId) -> Option<BirthId> {
        self.births.insert(birth).then_some(birth)
    }
}
