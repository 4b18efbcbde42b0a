//! The core's records as dicts and back.

use atoll_store::store::{Operation, Published, RefChange, RefName, RefState, Workspace};
use atoll_store::tree::{Change, ChangeKind, FileType, Inode, Time};
use atoll_store::{Commit, Hash, Ino, Summary};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::errors::raise;

/// Nanoseconds since 1970.
pub fn ns(time: Time) -> i128 {
    i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec)
}

/// From nanoseconds since 1970.
pub fn time(ns: i128) -> Time {
    Time { sec: ns.div_euclid(1_000_000_000) as i64, nsec: ns.rem_euclid(1_000_000_000) as u32 }
}

/// A full hash from its digits.
pub fn hash(py: Python<'_>, text: &str) -> PyResult<Hash> {
    Hash::from_hex(text).map_err(|error| raise(py, &error))
}

/// `("branch" | "tag", name)` as a ref's name.
pub fn ref_name(kind: &str, name: String) -> PyResult<RefName> {
    match kind {
        "branch" => Ok(RefName::Branch(name)),
        "tag" => Ok(RefName::Tag(name)),
        _ => Err(PyValueError::new_err(format!("'{kind}' is neither 'branch' nor 'tag'."))),
    }
}

fn name_parts(name: &RefName) -> (&'static str, &str) {
    match name {
        RefName::Branch(name) => ("branch", name),
        RefName::Tag(name) => ("tag", name),
    }
}

pub fn summary<'py>(py: Python<'py>, summary: &Summary) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("files", summary.files)?;
    dict.set_item("dirs", summary.dirs)?;
    dict.set_item("others", summary.others)?;
    dict.set_item("bytes", summary.bytes)?;
    dict.set_item("xattrs", summary.xattrs)?;
    Ok(dict)
}

pub fn commit<'py>(py: Python<'py>, commit: &Commit) -> PyResult<Bound<'py, PyDict>> {
    let record = &commit.record;
    let dict = PyDict::new(py);
    let lanes: Vec<u8> = record.content.0.iter().flat_map(|lane| lane.to_le_bytes()).collect();
    dict.set_item("id", commit.id.hex())?;
    dict.set_item("tree", commit.tree.hex())?;
    dict.set_item("content", Hash::of(&lanes).hex())?;
    dict.set_item("parents", record.parents.iter().map(Hash::hex).collect::<Vec<_>>())?;
    dict.set_item("author", &record.author)?;
    dict.set_item("time_ns", ns(record.time))?;
    dict.set_item("utc_offset", record.utc_offset)?;
    dict.set_item("message", &record.message)?;
    dict.set_item("meta", &record.meta)?;
    dict.set_item("summary", summary(py, &record.summary)?)?;
    Ok(dict)
}

pub fn ref_state<'py>(py: Python<'py>, state: &RefState) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("commit", state.commit.hex())?;
    dict.set_item("base", state.base.hex())?;
    dict.set_item("folder", state.folder.as_ref().map(|folder| PyBytes::new(py, folder)))?;
    Ok(dict)
}

pub fn named_ref<'py>(py: Python<'py>, name: &RefName, state: &RefState) -> PyResult<Bound<'py, PyDict>> {
    let dict = ref_state(py, state)?;
    let (kind, name) = name_parts(name);
    dict.set_item("kind", kind)?;
    dict.set_item("name", name)?;
    Ok(dict)
}

fn state_from(py: Python<'_>, dict: &Bound<'_, PyDict>) -> PyResult<RefState> {
    Ok(RefState {
        commit: hash(py, &need::<String>(dict, "commit")?)?,
        base: hash(py, &need::<String>(dict, "base")?)?,
        folder: want::<Vec<u8>>(dict, "folder")?,
    })
}

/// `{"kind", "name", "old": state | None, "new": state | None}` as a ref's move.
pub fn ref_change(py: Python<'_>, dict: &Bound<'_, PyDict>) -> PyResult<RefChange> {
    let side = |key: &str| -> PyResult<Option<RefState>> {
        want::<Bound<'_, PyDict>>(dict, key)?.map(|state| state_from(py, &state)).transpose()
    };
    Ok(RefChange {
        name: ref_name(&need::<String>(dict, "kind")?, need(dict, "name")?)?,
        old: side("old")?,
        new: side("new")?,
    })
}

fn change_dict<'py>(py: Python<'py>, change: &RefChange) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let (kind, name) = name_parts(&change.name);
    dict.set_item("kind", kind)?;
    dict.set_item("name", name)?;
    dict.set_item("old", change.old.as_ref().map(|state| ref_state(py, state)).transpose()?)?;
    dict.set_item("new", change.new.as_ref().map(|state| ref_state(py, state)).transpose()?)?;
    Ok(dict)
}

pub fn operation<'py>(py: Python<'py>, operation: &Operation) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("seq", operation.seq)?;
    dict.set_item("time_ns", ns(operation.time))?;
    dict.set_item("user", &operation.user)?;
    dict.set_item("kind", &operation.kind)?;
    dict.set_item("note", &operation.note)?;
    dict.set_item("workspace", &operation.workspace)?;
    dict.set_item("undoes", operation.undoes)?;
    let changes = PyList::empty(py);
    for change in &operation.changes {
        changes.append(change_dict(py, change)?)?;
    }
    dict.set_item("changes", changes)?;
    Ok(dict)
}

pub fn published<'py>(py: Python<'py>, published: &Published) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("seq", published.seq)?;
    dict.set_item("commits", published.commits.iter().map(Hash::hex).collect::<Vec<_>>())?;
    dict.set_item("stored_bytes", published.stored_bytes)?;
    Ok(dict)
}

pub fn workspace<'py>(py: Python<'py>, workspace: &Workspace) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("id", &workspace.id)?;
    dict.set_item("branch", &workspace.branch)?;
    dict.set_item("driver", &workspace.driver)?;
    dict.set_item("base", workspace.base.hex())?;
    dict.set_item("head", workspace.head.hex())?;
    dict.set_item("mountpoint", workspace.mountpoint.as_ref().map(|path| path.as_os_str()))?;
    dict.set_item("settings", &workspace.settings)?;
    dict.set_item("created_ns", ns(workspace.created))?;
    Ok(dict)
}

pub fn workspace_from(py: Python<'_>, dict: &Bound<'_, PyDict>) -> PyResult<Workspace> {
    Ok(Workspace {
        id: need(dict, "id")?,
        branch: need(dict, "branch")?,
        driver: need(dict, "driver")?,
        base: hash(py, &need::<String>(dict, "base")?)?,
        head: hash(py, &need::<String>(dict, "head")?)?,
        mountpoint: want(dict, "mountpoint")?,
        settings: need(dict, "settings")?,
        created: time(need(dict, "created_ns")?),
    })
}

fn type_name(kind: FileType) -> &'static str {
    match kind {
        FileType::File => "file",
        FileType::Dir => "dir",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::Char => "char",
        FileType::Block => "block",
    }
}

/// One file of a tree at `path`.
pub fn entry<'py>(py: Python<'py>, path: &[u8], ino: Ino, inode: &Inode) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("path", PyBytes::new(py, path))?;
    dict.set_item("type", type_name(inode.kind))?;
    dict.set_item("ino", ino.shown())?;
    dict.set_item("birth", inode.birth.0)?;
    dict.set_item("mode", inode.mode)?;
    dict.set_item("uid", inode.uid)?;
    dict.set_item("gid", inode.gid)?;
    dict.set_item("size", inode.size)?;
    dict.set_item("nlink", inode.nlink)?;
    dict.set_item("rdev", inode.rdev)?;
    dict.set_item("mtime_ns", ns(inode.mtime))?;
    dict.set_item("ctime_ns", ns(inode.ctime))?;
    dict.set_item("btime_ns", ns(inode.btime))?;
    Ok(dict)
}

fn kind_name(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Added => "added",
        ChangeKind::Deleted => "deleted",
        ChangeKind::Modified => "modified",
        ChangeKind::Metadata => "metadata",
        ChangeKind::Renamed => "renamed",
        ChangeKind::TypeChanged => "type_changed",
    }
}

pub fn change<'py>(py: Python<'py>, change: &Change) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("kind", kind_name(change.kind))?;
    dict.set_item("path", PyBytes::new(py, &change.path))?;
    dict.set_item("old_path", change.old_path.as_ref().map(|path| PyBytes::new(py, path)))?;
    let side = |path: &[u8], side: &Option<(Ino, Inode)>| -> PyResult<Option<Bound<'py, PyDict>>> {
        side.as_ref().map(|(ino, inode)| entry(py, path, *ino, inode)).transpose()
    };
    dict.set_item("old", side(change.old_path.as_ref().unwrap_or(&change.path), &change.old)?)?;
    dict.set_item("new", side(&change.path, &change.new)?)?;
    dict.set_item("content_changed", change.content_changed)?;
    Ok(dict)
}

/// A required item of a dict.
pub fn need<'py, T>(dict: &Bound<'py, PyDict>, key: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    want(dict, key)?.ok_or_else(|| PyValueError::new_err(format!("'{key}' is missing.")))
}

/// An item of a dict that may be absent or `None`.
pub fn want<'py, T>(dict: &Bound<'py, PyDict>, key: &str) -> PyResult<Option<T>>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    match dict.get_item(key)? {
        Some(value) if !value.is_none() => Ok(Some(value.extract::<T>().map_err(Into::into)?)),
        _ => Ok(None),
    }
}
