//! The second hash: equal for trees with equal names, kinds, modes, owners, attributes and contents, wherever
//! they came from (inode numbers, birth ids, times and cookies are left out).
//!
//! It is a sum over all paths of a 1024-bit hash of each (path, metadata, contents), so a commit updates it
//! from the differences alone, and a tree needs no hash per folder. It finds equal content; it is no proof
//! against someone who constructs collisions: the root hash is.
//!
//! The hash of a path is BLAKE3 (`derive_key` mode, context `atoll 1 path and content`) of the path and of the 32 bytes of
//! BLAKE3 of its body, read as 16 little-endian numbers of 64 bits. A body is, with the numbers of [`super::node`]: file
//! type (1 byte), mode, uid, gid, rdev, size (0 for a folder), how many names it has (0 for a folder), how many attributes,
//! each as length, name, length, value; then each extent as offset, length, and its bytes if it is inline, else the chunk's
//! 32 bytes of hash. A hole is thus not equal to zeros: those are different for whoever copies the file.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use crate::commit::Summary;
use crate::tree::codec::put_varint;
use crate::tree::record::{Paths, Record, differing, same_fields};
use crate::tree::{Extent, FileType, TreeView};
use crate::{Ino, Num, Objects, Result};

/// The sum: 16 lanes of 64 bits, each added modulo 2^64. The empty tree's is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContentSum(pub [u64; 16]);

impl ContentSum {
    /// The sum and summary of `new`, computed from those of `old` and what differs.
    ///
    /// # Errors
    /// Those of [`Objects`].
    pub fn update(
        objects: &dyn Objects,
        old: Option<(Num, ContentSum, Summary)>,
        new: Num,
    ) -> Result<(ContentSum, Summary)> {
        let (root, sum, summary) = old
            .map_or((None, ContentSum::default(), Summary::default()), |(num, sum, summary)| {
                (Some(num), sum, summary)
            });
        let mut update = Update {
            objects,
            summary,
            sum,
            touched: HashSet::new(),
            bodies: HashMap::new(),
            moved: Vec::new(),
        };
        let mut sides =
            [root.map(|root| Side::new(objects, root, false)), Some(Side::new(objects, new, true))];
        update.collect(&mut sides, root, new)?;
        for side in sides.into_iter().flatten() {
            update.add_side(side)?;
        }
        Ok((update.sum, update.summary))
    }

    fn add(&mut self, path: &[u8], body: &[u8; 32], sign: bool) {
        static DOMAIN: LazyLock<blake3::Hasher> =
            LazyLock::new(|| blake3::Hasher::new_derive_key("atoll 1 path and content"));
        let mut hasher = DOMAIN.clone();
        hasher.update(path).update(&[0]).update(body);
        let mut bytes = [0; 128];
        hasher.finalize_xof().fill(&mut bytes);
        for (lane, chunk) in self.0.iter_mut().zip(bytes.as_chunks::<8>().0) {
            let part = u64::from_le_bytes(*chunk);
            *lane = if sign { lane.wrapping_add(part) } else { lane.wrapping_sub(part) };
        }
    }
}

/// Whether two trees have equal content: names, kinds, modes, owners, attributes, contents. Costs what differs.
///
/// # Errors
/// Those of [`Objects`].
pub fn content_equal(objects: &dyn Objects, a: Num, b: Num) -> Result<bool> {
    let start = (a, ContentSum::default(), Summary::default());
    Ok(ContentSum::update(objects, Some(start), b)?.0 == ContentSum::default())
}

/// A folder and a name in it; the root has none.
type Place = (Ino, Box<[u8]>);

/// One tree's part: the names that count, each with its file's body.
struct Side<'a> {
    view: TreeView<'a>,
    paths: Paths<'a>,
    is_new: bool,
    items: Vec<(Option<Place>, [u8; 32])>,
}

impl<'a> Side<'a> {
    fn new(objects: &'a dyn Objects, root: Num, is_new: bool) -> Self {
        let view = TreeView::new(objects, root);
        Side { view, paths: Paths::new(view), is_new, items: Vec::new() }
    }

    /// Every name of a file counts with its body.
    fn push(&mut self, objects: &dyn Objects, ino: Ino, record: Record) -> Result<()> {
        let Some(body) = body(objects, &record)? else { return Ok(()) };
        let is_dir = record.inode.is_some_and(|inode| inode.kind == FileType::Dir);
        if ino == Ino::ROOT {
            self.items.push((None, body));
        }
        for (dir, name) in record.parents {
            if is_dir {
                self.paths.know(ino, dir, &name);
            }
            self.items.push((Some((dir, name)), body));
        }
        Ok(())
    }
}

struct Update<'a> {
    objects: &'a dyn Objects,
    sum: ContentSum,
    summary: Summary,
    /// Inodes all of whose names count by themselves.
    touched: HashSet<Ino>,
    /// Bodies of files below moved folders: the same on both sides.
    bodies: HashMap<Ino, Option<[u8; 32]>>,
    /// Folders whose path differs though they are in both trees.
    moved: Vec<Ino>,
}

impl<'a> Update<'a> {
    /// Walks over the differences: counts, and finds what has to be taken out of the sum and put in.
    fn collect(&mut self, sides: &mut [Option<Side<'a>>; 2], old: Option<Num>, new: Num) -> Result<()> {
        for item in differing(self.objects, old, Some(new)) {
            let (ino, differing) = item?;
            self.count(&differing.old, false);
            self.count(&differing.new, true);
            let (old, new) = (differing.old.inode, differing.new.inode);
            match (old, new) {
                (Some(old), Some(new)) if !differing.beyond_inode() && same_fields(&old, &new) => continue,
                (None, None) if !differing.beyond_inode() => continue,
                // Only in one of the trees: the differences are all that there is of it. Whatever is in such a
                // folder has got its name by a difference too.
                (Some(_), None) => {
                    if let [Some(side), _] = sides {
                        side.push(self.objects, ino, differing.old)?;
                    }
                }
                (None, Some(_)) => {
                    if let [_, Some(side)] = sides {
                        side.push(self.objects, ino, differing.new)?;
                    }
                }
                _ => {
                    let mut is_dir = false;
                    for side in sides.iter_mut().flatten() {
                        if let Some(record) = side.view.record(ino)? {
                            is_dir |= record.inode.is_some_and(|inode| inode.kind == FileType::Dir);
                            side.push(self.objects, ino, record)?;
                        }
                    }
                    if is_dir && !(differing.old.parents.is_empty() && differing.new.parents.is_empty()) {
                        self.moved.push(ino);
                    }
                }
            }
            self.touched.insert(ino);
        }
        Ok(())
    }

    fn count(&mut self, record: &Record, is_new: bool) {
        let step = |field: &mut u64, by: u64| {
            *field = if is_new { field.wrapping_add(by) } else { field.wrapping_sub(by) };
        };
        step(&mut self.summary.xattrs, record.xattrs.len() as u64);
        if let Some(inode) = record.inode {
            match inode.kind {
                FileType::File => {
                    step(&mut self.summary.files, 1);
                    step(&mut self.summary.bytes, inode.size);
                }
                FileType::Dir => step(&mut self.summary.dirs, 1),
                _ => step(&mut self.summary.others, 1),
            }
        }
    }

    fn add_side(&mut self, mut side: Side<'a>) -> Result<()> {
        for (place, body) in std::mem::take(&mut side.items) {
            match place {
                None => self.sum.add(&[], &body, side.is_new),
                Some((dir, name)) => {
                    if let Some(path) = side.paths.of(dir, &name)? {
                        self.sum.add(&path, &body, side.is_new);
                    }
                }
            }
        }
        self.add_moved(side)
    }

    /// What is below a moved folder and is not a difference itself has another path all the same.
    fn add_moved(&mut self, mut side: Side<'a>) -> Result<()> {
        let mut seen: HashSet<Ino> = HashSet::new();
        let mut dirs = self.moved.clone();
        while let Some(dir) = dirs.pop() {
            if !seen.insert(dir) {
                continue;
            }
            let Some(path) = side.paths.dir(dir)? else { continue };
            for (name, entry) in side.view.readdir(dir)? {
                if entry.kind == FileType::Dir {
                    side.paths.know(entry.ino, dir, &name);
                    dirs.push(entry.ino);
                }
                if !self.touched.contains(&entry.ino)
                    && let Some(body) = self.body_of(&side, entry.ino)?
                {
                    self.sum.add(&crate::tree::record::join(&path, &name), &body, side.is_new);
                }
            }
        }
        Ok(())
    }

    fn body_of(&mut self, side: &Side<'_>, ino: Ino) -> Result<Option<[u8; 32]>> {
        if let Some(body) = self.bodies.get(&ino) {
            return Ok(*body);
        }
        let body = match side.view.record(ino)? {
            Some(record) => body(self.objects, &record)?,
            None => None,
        };
        self.bodies.insert(ino, body);
        Ok(body)
    }
}

fn body(objects: &dyn Objects, record: &Record) -> Result<Option<[u8; 32]>> {
    let Some(inode) = record.inode else { return Ok(None) };
    let is_dir = inode.kind == FileType::Dir;
    let mut out = Vec::with_capacity(128);
    out.push(inode.kind as u8);
    for number in [u64::from(inode.mode), inode.uid.into(), inode.gid.into(), inode.rdev] {
        put_varint(&mut out, number);
    }
    put_varint(&mut out, if is_dir { 0 } else { inode.size });
    put_varint(&mut out, if is_dir { 0 } else { record.parents.len() as u64 });
    put_varint(&mut out, record.xattrs.len() as u64);
    for bytes in record.xattrs.iter().flat_map(|(name, value)| [name, value]) {
        put_varint(&mut out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }
    for (offset, extent) in &record.extents {
        put_varint(&mut out, *offset);
        put_varint(&mut out, extent.len());
        match extent {
            Extent::Inline(bytes) => out.extend_from_slice(bytes),
            Extent::Chunk { num, .. } => out.extend_from_slice(&objects.hash(*num)?.0),
        }
    }
    Ok(Some(*blake3::hash(&out).as_bytes()))
}
