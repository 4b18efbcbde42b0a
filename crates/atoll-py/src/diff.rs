//! What differs between two commits: paths, numbers, a patch.

use atoll_fs::patch::{PatchOptions, stat, write_patch};
use atoll_store::tree::{self, Change};
use atoll_store::{Hash, Num, Result};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::convert::{self, hash};
use crate::errors::working;
use crate::store::{Store, list};

/// The changed paths from one commit to another, sorted; `old` of `None` is the empty tree.
#[pyfunction]
fn changes<'py>(
    py: Python<'py>,
    store: &Store,
    old: Option<&str>,
    new: &str,
) -> PyResult<Bound<'py, PyList>> {
    let old = old.map(|id| hash(py, id)).transpose()?;
    let new = hash(py, new)?;
    let found = working(py, || between(store, old, new, &[]).map(|(_, _, changes)| changes))?;
    list(py, found, |change| convert::change(py, change))
}

/// Both roots and the changes that touch one of `paths` (none: all).
fn between(
    store: &Store,
    old: Option<Hash>,
    new: Hash,
    paths: &[Vec<u8>],
) -> Result<(Option<Num>, Num, Vec<Change>)> {
    let old = old.map(|id| store.inner.commit(&id)).transpose()?.map(|commit| commit.record.root);
    let new = store.inner.commit(&new)?.record.root;
    let mut changes = tree::changes(&store.inner, old, Some(new))?;
    if !paths.is_empty() {
        changes.retain(|change| {
            within(&change.path, paths) || change.old_path.as_ref().is_some_and(|path| within(path, paths))
        });
    }
    Ok((old, new, changes))
}

/// Whether `path` is one of `paths` or in one of them.
fn within(path: &[u8], paths: &[Vec<u8>]) -> bool {
    paths.iter().any(|top| {
        let rest = path.strip_prefix(top.as_slice());
        top.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    })
}

/// A patch that `git apply --binary` accepts, and the changed paths that it cannot tell.
#[pyfunction]
fn patch<'py>(
    py: Python<'py>,
    store: &Store,
    old: Option<&str>,
    new: &str,
    paths: Vec<Vec<u8>>,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyList>)> {
    let old = old.map(|id| hash(py, id)).transpose()?;
    let new = hash(py, new)?;
    let (text, report) = working(py, || {
        let (old, new, changes) = between(store, old, new, &paths)?;
        let mut text = Vec::new();
        let options = PatchOptions::default();
        let report = write_patch(&store.inner, old, Some(new), &changes, options, &mut text)?;
        Ok((text, report))
    })?;
    let left_out = PyList::new(py, report.left_out.iter().map(|path| PyBytes::new(py, path)))?;
    Ok((PyBytes::new(py, &text), left_out))
}

/// The numbers of `diff --stat`, by path.
#[pyfunction]
fn diff_stat<'py>(
    py: Python<'py>,
    store: &Store,
    old: Option<&str>,
    new: &str,
    paths: Vec<Vec<u8>>,
) -> PyResult<Bound<'py, PyList>> {
    let old = old.map(|id| hash(py, id)).transpose()?;
    let new = hash(py, new)?;
    let found = working(py, || {
        let (old, new, changes) = between(store, old, new, &paths)?;
        stat(&store.inner, old, Some(new), &changes)
    })?;
    list(py, found, |stat| {
        let dict = PyDict::new(py);
        dict.set_item("path", PyBytes::new(py, &stat.path))?;
        dict.set_item("old_path", stat.old_path.as_ref().map(|path| PyBytes::new(py, path)))?;
        dict.set_item("added", stat.added)?;
        dict.set_item("deleted", stat.deleted)?;
        dict.set_item("binary", stat.binary)?;
        dict.set_item("old_size", stat.old_size)?;
        dict.set_item("new_size", stat.new_size)?;
        Ok(dict)
    })
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(changes, module)?)?;
    module.add_function(wrap_pyfunction!(patch, module)?)?;
    module.add_function(wrap_pyfunction!(diff_stat, module)?)
}
