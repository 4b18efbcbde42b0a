//! Reading a commit's tree: one entry, a folder, everything below it, contents.

use atoll_store::tree::{FileType, Inode, TreeView};
use atoll_store::{Code, Error, Ino, Num, Result};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::convert::{self, hash};
use crate::errors::working;
use crate::store::{Store, list};

type Found = (Vec<u8>, Ino, Inode);

fn root_of(store: &atoll_store::Store, id: &atoll_store::Hash) -> Result<Num> {
    Ok(store.commit(id)?.record.root)
}

fn find(view: &TreeView<'_>, path: &[u8]) -> Result<(Ino, Inode)> {
    view.resolve(path)?.ok_or_else(|| {
        let shown = String::from_utf8_lossy(path).into_owned();
        Error::new(
            Code::NotFound,
            format!("There is no '{shown}' in this commit; `atoll ls` lists what there is."),
        )
    })
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

fn inode_of(view: &TreeView<'_>, ino: Ino) -> Result<Inode> {
    view.inode(ino)?
        .ok_or_else(|| Error::damaged(format!("The tree names inode {} and does not hold it.", ino.key())))
}

/// The entry at a path, or `None`.
#[pyfunction]
fn stat<'py>(
    py: Python<'py>,
    store: &Store,
    commit: &str,
    path: &[u8],
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let id = hash(py, commit)?;
    let found = working(py, || {
        let view = TreeView::new(&store.inner, root_of(&store.inner, &id)?);
        view.resolve(path)
    })?;
    found.map(|(ino, inode)| convert::entry(py, path, ino, &inode)).transpose()
}

/// The entries of a folder, sorted by name; with `recursive` everything below it, depth first.
#[pyfunction]
fn entries<'py>(
    py: Python<'py>,
    store: &Store,
    commit: &str,
    path: &[u8],
    recursive: bool,
) -> PyResult<Bound<'py, PyList>> {
    let id = hash(py, commit)?;
    let found = working(py, || {
        let view = TreeView::new(&store.inner, root_of(&store.inner, &id)?);
        let (top, inode) = find(&view, path)?;
        let mut out: Vec<Found> = Vec::new();
        if inode.kind != FileType::Dir {
            out.push((path.to_vec(), top, inode));
            return Ok(out);
        }
        // A damaged tree must not make this endless: no folder is entered from within itself.
        let mut stack = vec![(path.to_vec(), top, vec![top])];
        while let Some((dir_path, dir, above)) = stack.pop() {
            let mut below = Vec::new();
            for (name, dirent) in view.readdir(dir)? {
                let inode = inode_of(&view, dirent.ino)?;
                let path = join(&dir_path, &name);
                if recursive && inode.kind == FileType::Dir && !above.contains(&dirent.ino) {
                    let mut chain = above.clone();
                    chain.push(dirent.ino);
                    below.push((path.clone(), dirent.ino, chain));
                }
                out.push((path, dirent.ino, inode));
            }
            stack.extend(below.into_iter().rev());
        }
        if recursive {
            out.sort_by(|a, b| a.0.cmp(&b.0));
        }
        Ok(out)
    })?;
    list(py, found, |(path, ino, inode)| convert::entry(py, path, *ino, inode))
}

/// Bytes of a file (of a symbolic link: its target) from `offset`, at most `length`.
#[pyfunction]
fn read<'py>(
    py: Python<'py>,
    store: &Store,
    commit: &str,
    path: &[u8],
    offset: u64,
    length: u64,
) -> PyResult<Bound<'py, PyBytes>> {
    let id = hash(py, commit)?;
    let bytes = working(py, || {
        let view = TreeView::new(&store.inner, root_of(&store.inner, &id)?);
        let (ino, inode) = find(&view, path)?;
        match inode.kind {
            FileType::File => view.read(ino, inode.size, offset..offset.saturating_add(length)),
            FileType::Symlink => view.readlink(ino),
            _ => {
                let shown = String::from_utf8_lossy(path).into_owned();
                Err(Error::new(
                    Code::Usage,
                    format!("'{shown}' is no regular file; `atoll ls` shows what it is."),
                ))
            }
        }
    })?;
    Ok(PyBytes::new(py, &bytes))
}

/// The extended attributes of a path, sorted by name.
#[pyfunction]
fn xattrs<'py>(py: Python<'py>, store: &Store, commit: &str, path: &[u8]) -> PyResult<Bound<'py, PyDict>> {
    let id = hash(py, commit)?;
    let found = working(py, || {
        let view = TreeView::new(&store.inner, root_of(&store.inner, &id)?);
        let (ino, _) = find(&view, path)?;
        view.xattrs(ino)
    })?;
    let dict = PyDict::new(py);
    for (name, value) in found {
        dict.set_item(PyBytes::new(py, &name), PyBytes::new(py, &value))?;
    }
    Ok(dict)
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(stat, module)?)?;
    module.add_function(wrap_pyfunction!(entries, module)?)?;
    module.add_function(wrap_pyfunction!(read, module)?)?;
    module.add_function(wrap_pyfunction!(xattrs, module)?)
}
