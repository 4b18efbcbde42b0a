//! The `copy` driver's work: write a folder, capture it, compare it.

use std::path::PathBuf;

use atoll_fs::copy::{self, CopyCapture};
use atoll_fs::import::{self, CommitRequest};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::commit::{committed, request};
use crate::convert::{self, hash};
use crate::errors::working;
use crate::export::export_report;
use crate::progress::interruptible;
use crate::store::{Store, list};

/// Writes a commit's tree to an empty folder and records the index beside.
#[pyfunction]
#[pyo3(signature = (store, commit, dir, index, *, progress=None))]
fn copy_materialise<'py>(
    py: Python<'py>,
    store: &Store,
    commit: &str,
    dir: PathBuf,
    index: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let commit = hash(py, commit)?;
    let report = interruptible(py, progress.as_ref(), |counts| {
        copy::materialise(&store.inner, &commit, &dir, &index, counts)
    })?;
    export_report(py, &report)
}

fn options(
    py: Python<'_>,
    dir: PathBuf,
    index: PathBuf,
    head: &str,
    trust_index: bool,
) -> PyResult<CopyCapture> {
    Ok(CopyCapture { dir, index, trust_index, head: hash(py, head)?, threads: 0, seed: None })
}

/// Captures a folder and commits it.
#[pyfunction]
#[pyo3(signature = (store, request, dir, index, head, *, trust_index=true, progress=None))]
fn copy_commit<'py>(
    py: Python<'py>,
    store: &Store,
    request: &Bound<'py, PyDict>,
    dir: PathBuf,
    index: PathBuf,
    head: &str,
    trust_index: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let request = CommitRequest { skip_renumbered: true, ..self::request(py, request)? };
    let options = options(py, dir, index, head, trust_index)?;
    let done = interruptible(py, progress.as_ref(), |counts| {
        let mut pending = None;
        let done = import::commit_captured(&store.inner, &request, &mut || {
            let (captured, index) = copy::capture(&store.inner, &options, counts)?;
            pending = Some(index);
            Ok(captured)
        })?;
        if let Some(index) = pending.filter(|_| done.is_exact()) {
            index.save(&done.commit)?;
        }
        Ok(done)
    })?;
    committed(py, &done)
}

/// What changed in a folder since its last commit; nothing is stored.
#[pyfunction]
#[pyo3(signature = (store, dir, index, head, *, trust_index=true, progress=None))]
fn copy_changes<'py>(
    py: Python<'py>,
    store: &Store,
    dir: PathBuf,
    index: PathBuf,
    head: &str,
    trust_index: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let options = options(py, dir, index, head, trust_index)?;
    let found = interruptible(py, progress.as_ref(), |counts| {
        let (captured, _) = copy::capture(&store.inner, &options, counts)?;
        captured.changes(&store.inner, &options.head)
    })?;
    list(py, found, |change| convert::change(py, change))
}

/// Returns when all that is in the folder would survive a power cut.
#[pyfunction]
fn copy_sync(py: Python<'_>, dir: PathBuf) -> PyResult<()> {
    working(py, || copy::sync(&dir))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(copy_materialise, module)?)?;
    module.add_function(wrap_pyfunction!(copy_commit, module)?)?;
    module.add_function(wrap_pyfunction!(copy_changes, module)?)?;
    module.add_function(wrap_pyfunction!(copy_sync, module)?)
}
