//! Writes a tree as an archive.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use atoll_store::tree::{Dirent, Extent, FileType, Inode, TreeView};
use atoll_store::{Error, Ino, Result};
use tar::{EntryType, Header};

use super::pax;
use crate::progress::{Phase, Progress, check};
use crate::scan::join;

/// What [`export_tar`] wrote.
#[derive(Debug, Clone, Default)]
pub struct TarReport {
    /// Entries written.
    pub entries: u64,
    /// Bytes of contents.
    pub bytes: u64,
    /// What a tar cannot hold (sockets), sorted.
    pub skipped: Vec<Vec<u8>>,
}

/// Writes the tree's folder at `path` (`b""`: the whole tree) as a tar archive, entries in path order, the folder
/// itself first as `./`. Holes are kept (GNU.sparse 1.0), so are hard links, nanoseconds, attributes
/// (SCHILY.xattr), and files of any size.
///
/// # Errors
/// `NotFound` when the tree has no such path; `Io` (or `NoSpace`) when `out` fails.
pub fn export_tar(
    tree: TreeView<'_>,
    path: &[u8],
    out: &mut dyn Write,
    progress: &dyn Progress,
) -> Result<TarReport> {
    let root = crate::export::folder(tree, path)?;
    let mut writer = TarWriter { tree, out, report: TarReport::default() };
    let mut first: HashMap<Ino, Vec<u8>> = HashMap::new();
    let mut seen: HashSet<Ino> = HashSet::from([root]);
    writer.entry(b"./", root, FileType::Dir)?;
    let mut open = vec![(Vec::new(), tree.readdir(root)?.into_iter())];
    while let Some((dir, names)) = open.last_mut() {
        let Some((name, Dirent { ino, kind, .. })) = names.next() else {
            open.pop();
            continue;
        };
        check(progress)?;
        let path = join(dir, &name);
        if kind == FileType::Dir {
            if !seen.insert(ino) {
                let shown = String::from_utf8_lossy(&path);
                return Err(Error::damaged(format!("The tree has the folder '{shown}' in two places.")));
            }
            writer.entry(&[&path[..], b"/"].concat(), ino, kind)?;
            open.push((path, tree.readdir(ino)?.into_iter()));
        } else if let Some(target) = first.get(&ino) {
            writer.link(&path, ino, target)?;
        } else if kind == FileType::Socket {
            writer.report.skipped.push(path);
        } else {
            writer.entry(&path, ino, kind)?;
            first.insert(ino, path);
        }
        progress.advance(Phase::Write, 1, 0);
    }
    // Two blocks of zeros end an archive.
    writer.write(&[0; 1024])?;
    writer.out.flush().map_err(failed)?;
    writer.report.skipped.sort();
    Ok(writer.report)
}

fn failed(error: io::Error) -> Error {
    let message = format!("atoll could not write the archive: {error}");
    Error { message, ..Error::from(error) }
}

struct TarWriter<'a, 'o> {
    tree: TreeView<'a>,
    out: &'o mut dyn Write,
    report: TarReport,
}

/// How a file's bytes stand in the archive.
struct Layout {
    /// Runs of data, by offset.
    extents: Vec<(u64, Extent)>,
    /// The map of a sparse file, as it stands before the data.
    map: Option<Vec<u8>>,
    /// Bytes in the archive.
    stored: u64,
}

impl TarWriter<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(failed)
    }

    fn pad(&mut self, length: u64) -> Result<()> {
        let fill = length.next_multiple_of(512) - length;
        self.write(&[0; 512][..fill as usize])
    }

    fn inode(&self, ino: Ino) -> Result<Inode> {
        self.tree
            .inode(ino)?
            .ok_or_else(|| Error::damaged(format!("The tree names file {} but does not hold it.", ino.key())))
    }

    fn link(&mut self, path: &[u8], ino: Ino, target: &[u8]) -> Result<()> {
        let inode = self.inode(ino)?;
        let mut records = Vec::new();
        self.header(path, &inode, EntryType::Link, target, 0, &mut records)
    }

    fn entry(&mut self, path: &[u8], ino: Ino, kind: FileType) -> Result<()> {
        let inode = self.inode(ino)?;
        let mut records = Vec::new();
        for (name, value) in self.tree.xattrs(ino)? {
            pax::put(&mut records, &[b"SCHILY.xattr.", &pax::escape(&name)[..]].concat(), &value);
        }
        let entry_type = match kind {
            FileType::File => return self.file(path, ino, &inode, records),
            FileType::Symlink => {
                let target = self.tree.readlink(ino)?;
                return self.header(path, &inode, EntryType::Symlink, &target, 0, &mut records);
            }
            FileType::Dir => EntryType::Directory,
            FileType::Fifo => EntryType::Fifo,
            FileType::Char => EntryType::Char,
            _ => EntryType::Block,
        };
        self.header(path, &inode, entry_type, b"", 0, &mut records)
    }

    fn file(&mut self, path: &[u8], ino: Ino, inode: &Inode, mut records: Vec<u8>) -> Result<()> {
        let layout = self.layout(ino, inode)?;
        let name;
        let mut header_path = path;
        if layout.map.is_some() {
            pax::put(&mut records, b"GNU.sparse.major", b"1");
            pax::put(&mut records, b"GNU.sparse.minor", b"0");
            pax::put(&mut records, b"GNU.sparse.name", path);
            pax::put(&mut records, b"GNU.sparse.realsize", inode.size.to_string().as_bytes());
            // A reader that knows no sparse files shows the map as a file of this name.
            name = [b"GNUSparseFile.0/", path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)].concat();
            header_path = &name;
        }
        self.header(header_path, inode, EntryType::Regular, b"", layout.stored, &mut records)?;
        if let Some(map) = &layout.map {
            self.write(map)?;
        }
        let mut written = layout.map.as_ref().map_or(0, |map| map.len() as u64);
        for (_, extent) in &layout.extents {
            let chunk;
            let data = match extent {
                Extent::Inline(data) => &data[..],
                Extent::Chunk { num, .. } => {
                    chunk = self.tree.objects.chunk(*num)?;
                    &chunk[..]
                }
            };
            self.write(data)?;
            written += data.len() as u64;
            self.report.bytes += data.len() as u64;
        }
        if written != layout.stored {
            let shown = String::from_utf8_lossy(path);
            return Err(Error::damaged(format!(
                "The chunks of '{shown}' do not have the lengths that the tree names."
            )));
        }
        self.pad(layout.stored)
    }

    fn layout(&self, ino: Ino, inode: &Inode) -> Result<Layout> {
        let extents = self.tree.extents(ino, 0..inode.size)?;
        let mut regions: Vec<(u64, u64)> = Vec::new();
        for (offset, extent) in &extents {
            let length = match extent {
                Extent::Inline(data) => data.len() as u64,
                Extent::Chunk { len, .. } => u64::from(*len),
            };
            match regions.last_mut() {
                Some((start, run)) if *start + *run == *offset => *run += length,
                _ => regions.push((*offset, length)),
            }
        }
        let data: u64 = regions.iter().map(|(_, length)| length).sum();
        if data == inode.size {
            return Ok(Layout { extents, map: None, stored: data });
        }
        // A hole at the end is told by an empty region at the size.
        if regions.last().is_none_or(|(start, run)| start + run < inode.size) {
            regions.push((inode.size, 0));
        }
        let mut map = format!("{}\n", regions.len()).into_bytes();
        for (start, run) in regions {
            map.extend_from_slice(format!("{start}\n{run}\n").as_bytes());
        }
        map.resize(map.len().next_multiple_of(512), 0);
        let stored = data + map.len() as u64;
        Ok(Layout { extents, map: Some(map), stored })
    }

    /// Writes the extended header, when one is needed, and the header.
    fn header(
        &mut self,
        path: &[u8],
        inode: &Inode,
        entry_type: EntryType,
        link: &[u8],
        stored: u64,
        records: &mut Vec<u8>,
    ) -> Result<()> {
        let mut header = Header::new_ustar();
        let old = header.as_old_mut();
        let mut binary = false;
        for (field, bytes, key) in
            [(&mut old.name, path, &b"path"[..]), (&mut old.linkname, link, b"linkpath")]
        {
            let kept = bytes.len().min(field.len());
            field[..kept].copy_from_slice(&bytes[..kept]);
            if bytes.len() > field.len() || !bytes.is_ascii() {
                binary |= std::str::from_utf8(bytes).is_err();
                pax::put(records, key, bytes);
            }
        }
        header.set_mode(u32::from(inode.mode));
        header.set_entry_type(entry_type);
        type Set = fn(&mut Header, u64);
        let ids: [(&[u8], u64, Set); 3] = [
            (b"uid", u64::from(inode.uid), Header::set_uid),
            (b"gid", u64::from(inode.gid), Header::set_gid),
            (b"size", stored, Header::set_size),
        ];
        for (key, value, set) in ids {
            // Seven and eleven octal digits.
            let limit = if key == b"size" { 1 << 33 } else { 1 << 21 };
            set(&mut header, value);
            if value >= limit {
                pax::put(records, key, value.to_string().as_bytes());
            }
        }
        let mtime = inode.mtime;
        header.set_mtime(mtime.sec.max(0) as u64);
        if mtime.nsec != 0 || !(0..1 << 33).contains(&mtime.sec) {
            pax::put(records, b"mtime", pax::time_text(mtime).as_bytes());
        }
        if matches!(inode.kind, FileType::Char | FileType::Block) {
            let (major, minor) = (rustix::fs::major(inode.rdev), rustix::fs::minor(inode.rdev));
            header.set_device_major(major).and_then(|()| header.set_device_minor(minor)).map_err(failed)?;
            if major.max(minor) >= 1 << 21 {
                // Seven octal digits; star's records hold the rest.
                pax::put(records, b"SCHILY.devmajor", major.to_string().as_bytes());
                pax::put(records, b"SCHILY.devminor", minor.to_string().as_bytes());
            }
        }
        if binary {
            let mut before = Vec::new();
            pax::put(&mut before, b"hdrcharset", b"BINARY");
            records.splice(0..0, before);
        }
        if !records.is_empty() {
            let mut extended = Header::new_ustar();
            extended.as_old_mut().name[..10].copy_from_slice(b"PaxHeaders");
            extended.set_entry_type(EntryType::XHeader);
            extended.set_mode(0o644);
            extended.set_size(records.len() as u64);
            extended.set_cksum();
            self.write(extended.as_bytes())?;
            self.write(records)?;
            self.pad(records.len() as u64)?;
        }
        header.set_cksum();
        self.report.entries += 1;
        self.write(header.as_bytes())
    }
}
