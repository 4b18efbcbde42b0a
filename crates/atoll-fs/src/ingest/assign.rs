//! Which inode number of the tree each host file has: its old one where it is the old file, else a new one.

use std::collections::HashSet;

use atoll_store::tree::{FileType, Inode};
use atoll_store::{BirthId, Ino, Result};

use super::base::Base;
use super::fast::{FastMap, FastSet};
use crate::scan::{HostStat, Scan, join};

/// Draws inode numbers' random bits and birth ids. Each is distinct from all others that it drew.
pub struct Ids {
    state: u64,
    random: u32,
}

impl Ids {
    /// From a seed, or from the system.
    ///
    /// # Errors
    /// `Io` when the system gives no random bytes.
    pub fn new(seed: Option<u64>) -> Result<Ids> {
        let state = match seed {
            Some(seed) => seed,
            None => getrandom::u64().map_err(|error| std::io::Error::other(error.to_string()))?,
        };
        let mut ids = Ids { state, random: 0 };
        ids.random = ids.draw_random();
        Ok(ids)
    }

    /// A step of SplitMix64: a permutation, so no value comes twice.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 18 bits, never all zero: small numbers stay free for the root.
    fn draw_random(&mut self) -> u32 {
        (self.next() >> 46).max(1) as u32
    }

    /// A new birth id.
    pub fn birth(&mut self) -> BirthId {
        BirthId(self.next())
    }

    /// A number ending in `low` that `taken` does not hold.
    pub fn ino(&mut self, low: u32, taken: impl Fn(Ino) -> bool) -> Ino {
        let mut ino = Ino::new(self.random, low);
        while taken(ino) {
            ino = Ino::new(self.draw_random(), low);
        }
        ino
    }
}

/// A host file with its place in the tree.
pub struct Node {
    /// What the scan saw (of the first of its names).
    pub stat: HostStat,
    /// Its number in the tree.
    pub ino: Ino,
    /// Its identity.
    pub birth: BirthId,
    /// Whether the base tree has it (under this number).
    pub in_base: bool,
    /// Its names: folder (index into the nodes) and name.
    pub names: Vec<(usize, Box<[u8]>)>,
    /// A folder's names: name and node, sorted by name.
    pub children: Vec<(Box<[u8]>, usize)>,
    /// The host does not have it (a device that could not be made); it is kept as the base tree has it.
    pub kept: bool,
}

/// All files of a scan, the root first; a folder stands before what is in it.
pub struct Assigned {
    /// The files.
    pub nodes: Vec<Node>,
    /// A file was seen more often than the host says it has names: the walk was torn.
    pub torn: Vec<Box<[u8]>>,
}

const NONE: Ino = Ino::ROOT;

/// Relates a scan to the base tree. `ids` and the scan's order decide new numbers, nothing else.
pub fn assign(scan: &Scan, base: &Base, ids: &mut Ids, known: &mut FastMap<u64, (Ino, BirthId)>) -> Assigned {
    let mut nodes: Vec<Node> = Vec::new();
    let mut torn = Vec::new();
    // Host number to node, of what may have further names; and who took which number of the base.
    let mut linked: FastMap<u64, usize> = FastMap::default();
    linked.reserve(base.files.len());
    let mut claimed: FastSet<Ino> = FastSet::default();
    claimed.reserve(base.files.len());
    // What replaces what: node to the base's file that had its name.
    let mut replaced: Vec<(usize, Ino)> = Vec::new();
    let Some(root) = scan.dirs.get(&b""[..]) else { return Assigned { nodes, torn } };
    nodes.push(Node {
        stat: root.stat,
        ino: Ino::ROOT,
        birth: base.files.get(&Ino::ROOT).map_or(BirthId(0), |file| file.inode.birth),
        in_base: base.files.contains_key(&Ino::ROOT),
        names: Vec::new(),
        children: Vec::new(),
        kept: false,
    });
    let mut open: Vec<(usize, Vec<u8>)> = vec![(0, Vec::new())];
    while let Some((at, path)) = open.pop() {
        let Some(dir) = scan.dirs.get(&path[..]) else { continue };
        nodes[at].stat = dir.stat;
        let before = nodes[at].in_base.then_some(nodes[at].ino);
        let mut below = Vec::new();
        for entry in &dir.entries {
            let stat = &entry.stat;
            let is_dir = stat.kind == FileType::Dir;
            if let Some(&node) = linked.get(&stat.ino).filter(|_| !is_dir) {
                if nodes[node].names.len() >= stat.nlink as usize {
                    torn.push(path.clone().into_boxed_slice());
                }
                nodes[node].names.push((at, entry.name.clone()));
                nodes[at].children.push((entry.name.clone(), node));
                continue;
            }
            let there = before.and_then(|dir| base.lookup(dir, &entry.name)).map(|dirent| dirent.ino);
            let free = |ino: &Ino| !claimed.contains(ino);
            let found = there
                .filter(|ino| base.is_at_its_place(*ino, stat))
                .filter(free)
                .or_else(|| base.moved(stat).find(free));
            let node = nodes.len();
            if let Some(ino) = found {
                claimed.insert(ino);
            } else if let Some(ino) = there {
                replaced.push((node, ino));
            }
            let birth =
                found.and_then(|ino| base.files.get(&ino)).map_or(BirthId(0), |file| file.inode.birth);
            nodes.push(Node {
                stat: *stat,
                ino: found.unwrap_or(NONE),
                birth,
                in_base: found.is_some(),
                names: vec![(at, entry.name.clone())],
                children: Vec::new(),
                kept: false,
            });
            nodes[at].children.push((entry.name.clone(), node));
            if !is_dir {
                linked.insert(stat.ino, node);
            } else {
                below.push((node, join(&path, &entry.name)));
            }
        }
        open.extend(below.into_iter().rev());
    }
    keep_absent(&mut nodes, base);
    inherit_births(&mut nodes, base, &claimed, &replaced);
    number(&mut nodes, base, ids, known);
    Assigned { nodes, torn }
}

/// A file that took another's place gets its birth id, if the other has no name left.
fn inherit_births(nodes: &mut [Node], base: &Base, claimed: &FastSet<Ino>, replaced: &[(usize, Ino)]) {
    let mut used = HashSet::new();
    for &(node, old) in replaced {
        let Some(file) = base.files.get(&old) else { continue };
        let gone = !claimed.contains(&old) && !base.absent.contains(&old);
        if gone && file.inode.kind == nodes[node].stat.kind && used.insert(old) {
            nodes[node].birth = file.inode.birth;
        }
    }
}

/// Numbers for the new files. `known` keeps them from one pass over a live folder to the next.
fn number(nodes: &mut [Node], base: &Base, ids: &mut Ids, known: &mut FastMap<u64, (Ino, BirthId)>) {
    let mut taken: FastSet<Ino> = known.values().map(|(ino, _)| *ino).collect();
    for (at, node) in nodes.iter_mut().enumerate() {
        if node.in_base {
            continue;
        }
        let kept = known.get(&node.stat.ino).filter(|(ino, _)| (at == 0) == (*ino == Ino::ROOT)).copied();
        let inherited = node.birth;
        let (ino, birth) = match kept {
            Some(kept) => kept,
            None => {
                let free = |ino: Ino| {
                    ino.key() > Ino::ROOT.key() && !base.files.contains_key(&ino) && !taken.contains(&ino)
                };
                let ino = if at == 0 { Ino::ROOT } else { ids.ino(node.stat.ino as u32, |ino| !free(ino)) };
                (ino, ids.birth())
            }
        };
        taken.insert(ino);
        known.insert(node.stat.ino, (ino, birth));
        node.ino = ino;
        node.birth = if inherited == BirthId(0) { birth } else { inherited };
    }
}

/// Files of the base tree that the host never had keep their names, where nothing took them and the folder is
/// still there.
fn keep_absent(nodes: &mut Vec<Node>, base: &Base) {
    if base.absent.is_empty() {
        return;
    }
    let mut kept: FastMap<Ino, usize> = FastMap::default();
    for at in 0..nodes.len() {
        let Some(names) = base.dirs.get(&nodes[at].ino).filter(|_| nodes[at].in_base) else { continue };
        for (name, dirent) in names.iter().filter(|(_, dirent)| base.absent.contains(&dirent.ino)) {
            let Some(file) = base.files.get(&dirent.ino) else { continue };
            let Err(place) = nodes[at].children.binary_search_by(|(have, _)| have.cmp(name)) else {
                continue;
            };
            let node = *kept.entry(dirent.ino).or_insert_with(|| {
                nodes.push(absent(dirent.ino, &file.inode));
                nodes.len() - 1
            });
            nodes[node].names.push((at, name.clone()));
            nodes[at].children.insert(place, (name.clone(), node));
        }
    }
}

fn absent(ino: Ino, inode: &Inode) -> Node {
    let stat = HostStat {
        ino: 0,
        dev: 0,
        kind: inode.kind,
        mode: inode.mode,
        uid: inode.uid,
        gid: inode.gid,
        size: inode.size,
        allocated: 0,
        nlink: inode.nlink,
        rdev: inode.rdev,
        mtime: inode.mtime,
        ctime: inode.ctime,
        btime: inode.btime,
        mount_root: false,
    };
    Node { stat, ino, birth: inode.birth, in_base: true, names: Vec::new(), children: Vec::new(), kept: true }
}
