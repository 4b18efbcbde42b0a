//! A small tree in memory, on a real mount.
#![allow(dead_code)] // Each test binary uses its part.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use atoll_fuse::abi::{Attr, ROOT_ID, StatFs};
use atoll_fuse::{
    Call, Config, Data, DirSink, Entry, Errno, FOREVER, FileSystem, MountOptions, Reply, Session,
};
use bytes::Bytes;

pub enum Node {
    Dir(BTreeMap<Vec<u8>, u64>),
    File(Bytes),
    Link(Bytes),
}

/// Nodes by id; the root is 1.
pub struct MemTree {
    pub nodes: Vec<Node>,
    pub xattrs: bool,
    /// READ says that it is slow, and is.
    pub slow: AtomicBool,
}

impl MemTree {
    pub fn new(xattrs: bool) -> Self {
        MemTree { nodes: vec![Node::Dir(BTreeMap::new())], xattrs, slow: AtomicBool::new(false) }
    }

    pub fn add(&mut self, parent: u64, name: &str, node: Node) -> u64 {
        self.nodes.push(node);
        let id = self.nodes.len() as u64;
        match &mut self.nodes[parent as usize - 1] {
            Node::Dir(names) => names.insert(name.as_bytes().to_vec(), id),
            _ => panic!("{parent} is no folder"),
        };
        id
    }

    fn node(&self, id: u64) -> Reply<&Node> {
        self.nodes.get(id.wrapping_sub(1) as usize).ok_or(Errno::ESTALE)
    }

    fn attr(&self, id: u64) -> Reply<Attr> {
        let (mode, size) = match self.node(id)? {
            Node::Dir(_) => (libc::S_IFDIR | 0o755, 0),
            Node::File(bytes) => (libc::S_IFREG | 0o644, bytes.len() as u64),
            Node::Link(target) => (libc::S_IFLNK | 0o777, target.len() as u64),
        };
        Ok(Attr {
            ino: id,
            size,
            blocks: size.div_ceil(512),
            mode,
            nlink: 1,
            blksize: 4096,
            ..Attr::default()
        })
    }

    fn entry(&self, id: u64) -> Reply<Entry> {
        Ok(Entry { node: id, generation: 0, attr: self.attr(id)?, valid: FOREVER, attr_valid: FOREVER })
    }
}

impl FileSystem for MemTree {
    fn lookup(&self, _: &Call<'_>, parent: u64, name: &[u8]) -> Reply<Entry> {
        let Node::Dir(names) = self.node(parent)? else { return Err(Errno::ENOTDIR) };
        if name == b"." {
            return self.entry(parent);
        }
        names.get(name).map_or(Ok(Entry::none(FOREVER)), |id| self.entry(*id))
    }

    fn getattr(&self, _: &Call<'_>, node: u64) -> Reply<(Attr, Duration)> {
        Ok((self.attr(node)?, FOREVER))
    }

    fn readdir(&self, _: &Call<'_>, node: u64, offset: u64, sink: &mut DirSink<'_>) -> Reply<()> {
        let Node::Dir(names) = self.node(node)? else { return Err(Errno::ENOTDIR) };
        for (index, (name, id)) in names.iter().enumerate().skip(offset as usize) {
            let entry = if sink.plus() { Some(self.entry(*id)?) } else { None };
            let kind = self.attr(*id)?.mode >> 12;
            if !sink.add(*id, index as u64 + 1, kind, name, entry.as_ref()) {
                break;
            }
        }
        Ok(())
    }

    fn read(&self, call: &Call<'_>, node: u64, _: u64, offset: u64, size: u32, out: &mut Data) -> Reply<()> {
        if self.slow.load(Ordering::Relaxed) {
            call.slow();
            std::thread::sleep(Duration::from_millis(1));
        }
        let Node::File(bytes) = self.node(node)? else { return Err(Errno::EINVAL) };
        let start = bytes.len().min(offset as usize);
        out.push(bytes.slice(start..bytes.len().min(start + size as usize)));
        Ok(())
    }

    fn readlink(&self, _: &Call<'_>, node: u64) -> Reply<Bytes> {
        let Node::Link(target) = self.node(node)? else { return Err(Errno::EINVAL) };
        Ok(target.clone())
    }

    fn getxattr(&self, _: &Call<'_>, node: u64, name: &[u8]) -> Reply<Bytes> {
        if !self.xattrs {
            return Err(Errno::ENOSYS);
        }
        if node != ROOT_ID && name == b"user.id" {
            return Ok(Bytes::from(format!("node {node}")));
        }
        Err(Errno::ENODATA)
    }

    fn listxattr(&self, _: &Call<'_>, node: u64) -> Reply<Bytes> {
        if !self.xattrs {
            return Err(Errno::ENOSYS);
        }
        Ok(if node == ROOT_ID { Bytes::new() } else { Bytes::from_static(b"user.id\0") })
    }

    fn lseek(&self, _: &Call<'_>, node: u64, offset: u64, whence: u32) -> Reply<u64> {
        let size = self.attr(node)?.size;
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        Ok(if whence == libc::SEEK_HOLE as u32 { size } else { offset })
    }

    fn statfs(&self, _: &Call<'_>) -> Reply<StatFs> {
        Ok(StatFs { bsize: 4096, frsize: 4096, namelen: 255, ..StatFs::default() })
    }
}

/// A served mount; gone when this is.
pub struct Mounted {
    pub session: Arc<Session<MemTree>>,
    server: Option<JoinHandle<std::io::Result<()>>>,
    dir: tempfile::TempDir,
}

impl Mounted {
    /// `None` (said on stderr) where this process may not mount.
    pub fn new(tree: MemTree, config: Config) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let options = MountOptions {
            name: "test".into(),
            subtype: "atoll".into(),
            read_only: true,
            ..Default::default()
        };
        let device = match atoll_fuse::mount::mount(dir.path(), &options) {
            Ok(device) => device,
            Err(error) => {
                eprintln!("skipped: no right to mount FUSE here ({error})");
                return None;
            }
        };
        let session = Arc::new(Session::new(tree, config));
        let server = {
            let session = session.clone();
            std::thread::spawn(move || atoll_fuse::serve(&session, device.as_fd()))
        };
        Some(Mounted { session, server: Some(server), dir })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn count(&self, opcode: u32) -> u64 {
        self.session.counters().of(opcode)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = atoll_fuse::mount::unmount(self.dir.path(), false)
            .or_else(|_| atoll_fuse::mount::unmount(self.dir.path(), true));
        if let (Ok(()), Some(server)) = (unmounted, self.server.take()) {
            let result = server.join().expect("the server panicked");
            if !std::thread::panicking() {
                result.expect("the server failed");
            }
        }
    }
}

/// 40 folders of 25 files, each with its own content, and a link.
pub fn sample(xattrs: bool) -> MemTree {
    let mut tree = MemTree::new(xattrs);
    for folder in 0..40 {
        let dir = tree.add(ROOT_ID, &format!("dir{folder}"), Node::Dir(BTreeMap::new()));
        for file in 0..25 {
            let text = format!("{folder}/{file}\n").repeat(file * 40 + 1);
            tree.add(dir, &format!("file{file}"), Node::File(Bytes::from(text)));
        }
    }
    tree.add(ROOT_ID, "link", Node::Link(Bytes::from_static(b"dir3/file1")));
    tree.add(
        ROOT_ID,
        "big",
        Node::File(Bytes::from((0..3_000_000u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>())),
    );
    tree
}
