//! The shape of history: ancestors, undo, figures.

use std::time::Duration;

use atoll_mount::leftovers::remove_leftovers;
use atoll_store::store::{GcOptions, Profile};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::convert::{self, hash};
use crate::errors::working;
use crate::progress::interruptible;
use crate::store::{Store, list};

/// A commit and its ancestors, newest first, at most `limit`.
#[pyfunction]
fn ancestors<'py>(
    py: Python<'py>,
    store: &Store,
    commit: &str,
    limit: Option<usize>,
) -> PyResult<Bound<'py, PyList>> {
    let commit = hash(py, commit)?;
    let found = working(py, || {
        store
            .inner
            .ancestors(&commit)
            .take(limit.unwrap_or(usize::MAX))
            .collect::<atoll_store::Result<Vec<_>>>()
    })?;
    list(py, found, |commit| convert::commit(py, commit))
}

/// Whether `ancestor` is `of` or one of its ancestors.
#[pyfunction]
fn is_ancestor(py: Python<'_>, store: &Store, ancestor: &str, of: &str) -> PyResult<bool> {
    let (ancestor, of) = (hash(py, ancestor)?, hash(py, of)?);
    working(py, || store.inner.is_ancestor(&ancestor, &of))
}

/// Takes an operation back and returns the one that was taken back.
#[pyfunction]
fn undo<'py>(py: Python<'py>, store: &Store, seq: Option<u64>) -> PyResult<Bound<'py, PyDict>> {
    let (operation, _) = working(py, || store.inner.undo(seq))?;
    convert::operation(py, &operation)
}

/// Counts and sizes.
#[pyfunction]
fn stats<'py>(py: Python<'py>, store: &Store) -> PyResult<Bound<'py, PyDict>> {
    let stats = working(py, || store.inner.stats())?;
    let dict = PyDict::new(py);
    dict.set_item("store", store.inner.dir().as_os_str())?;
    dict.set_item("id", store.inner.id())?;
    dict.set_item("profile", profile_name(store.inner.profile()))?;
    dict.set_item("commits", stats.commits)?;
    dict.set_item("branches", stats.branches)?;
    dict.set_item("tags", stats.tags)?;
    dict.set_item("operations", stats.operations)?;
    dict.set_item("workspaces", stats.workspaces)?;
    dict.set_item("objects", stats.objects)?;
    dict.set_item("packs", stats.packs)?;
    dict.set_item("embedded_packs", stats.embedded_packs)?;
    dict.set_item("pack_bytes", stats.pack_bytes)?;
    dict.set_item("log_bytes", stats.log_bytes)?;
    dict.set_item("database_bytes", stats.database_bytes)?;
    Ok(dict)
}

/// Frees what nothing needs that younger operations than `expire_seconds` do not keep.
#[pyfunction]
fn gc<'py>(
    py: Python<'py>,
    store: &Store,
    expire_seconds: f64,
    dry_run: bool,
    thorough: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let expire = Duration::try_from_secs_f64(expire_seconds)
        .map_err(|_| PyValueError::new_err(format!("{expire_seconds} is no length of time.")))?;
    let (report, workspaces) = interruptible(py, None, |_| {
        let report = store.inner.gc_with(&GcOptions { expire, dry_run, thorough })?;
        Ok((report, remove_leftovers(&store.inner, dry_run)?))
    })?;
    let dict = PyDict::new(py);
    dict.set_item("commits_kept", report.commits_kept)?;
    dict.set_item("commits_removed", report.commits_removed)?;
    dict.set_item("objects_kept", report.objects_kept)?;
    dict.set_item("objects_removed", report.objects_removed)?;
    dict.set_item("packs_removed", report.packs_removed)?;
    dict.set_item("packs_added", report.packs_added)?;
    dict.set_item("workspaces_removed", workspaces)?;
    dict.set_item("operations_expired", report.operations_expired)?;
    dict.set_item("bytes_freed", report.bytes_freed)?;
    dict.set_item("log_rewritten", report.log_rewritten)?;
    Ok(dict)
}

/// Reads everything that is stored and compares it with its names.
#[pyfunction]
fn check<'py>(py: Python<'py>, store: &Store) -> PyResult<Bound<'py, PyDict>> {
    let report = interruptible(py, None, |_| store.inner.check(&mut |_| ()))?;
    let dict = PyDict::new(py);
    dict.set_item("packs", report.packs)?;
    dict.set_item("objects", report.objects)?;
    dict.set_item("commits", report.commits)?;
    dict.set_item("bytes", report.bytes)?;
    dict.set_item(
        "problems",
        list(py, report.problems, |problem| {
            let dict = PyDict::new(py);
            dict.set_item("pack", &problem.pack)?;
            dict.set_item("object", problem.object.map(|hash| hash.hex()))?;
            dict.set_item("commit", problem.commit.map(|hash| hash.hex()))?;
            dict.set_item("message", &problem.message)?;
            Ok(dict)
        })?,
    )?;
    Ok(dict)
}

fn profile_name(profile: Profile) -> &'static str {
    match profile {
        Profile::Full => "full",
        Profile::Normal => "normal",
        Profile::Off => "off",
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(ancestors, module)?)?;
    module.add_function(wrap_pyfunction!(is_ancestor, module)?)?;
    module.add_function(wrap_pyfunction!(undo, module)?)?;
    module.add_function(wrap_pyfunction!(stats, module)?)?;
    module.add_function(wrap_pyfunction!(gc, module)?)?;
    module.add_function(wrap_pyfunction!(check, module)?)
}
