//! A commit's tree back out: to a folder, to a tar archive; and the comparison of both.

use std::io::Write;
use std::path::PathBuf;

use atoll_fs::export::{self, CompareOptions, ExportOptions, ExportReport};
use atoll_fs::tar;
use atoll_store::Error;
use atoll_store::tree::TreeView;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::commit::duplicate;
use crate::convert::hash;
use crate::progress::interruptible;
use crate::store::Store;

pub fn export_report<'py>(py: Python<'py>, report: &ExportReport) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("files", report.files)?;
    dict.set_item("dirs", report.dirs)?;
    dict.set_item("bytes", report.bytes)?;
    let lost = PyList::empty(py);
    for (path, what) in &report.lost {
        lost.append((PyBytes::new(py, path), what))?;
    }
    dict.set_item("lost", lost)?;
    Ok(dict)
}

/// Writes the folder at `path` of a commit to `dir`.
#[pyfunction]
#[pyo3(signature = (store, commit, path, dir, *, durable, into_existing, progress=None))]
fn export_folder<'py>(
    py: Python<'py>,
    store: &Store,
    commit: &str,
    path: Vec<u8>,
    dir: PathBuf,
    durable: bool,
    into_existing: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let commit = hash(py, commit)?;
    let options = ExportOptions { durable, into_existing, threads: 0 };
    let report = interruptible(py, progress.as_ref(), |counts| {
        let root = store.inner.commit(&commit)?.record.root;
        export::export_folder(TreeView::new(&store.inner, root), &path, &dir, &options, counts)
    })?;
    export_report(py, &report)
}

/// Writes the folder at `path` of a commit to a descriptor as a tar archive.
#[pyfunction]
#[pyo3(signature = (store, commit, path, fd, *, progress=None))]
fn export_tar<'py>(
    py: Python<'py>,
    store: &Store,
    commit: &str,
    path: Vec<u8>,
    fd: i32,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let commit = hash(py, commit)?;
    let mut out = std::io::BufWriter::with_capacity(1 << 20, std::fs::File::from(duplicate(fd)?));
    let report = interruptible(py, progress.as_ref(), |counts| {
        let root = store.inner.commit(&commit)?.record.root;
        let report = tar::export_tar(TreeView::new(&store.inner, root), &path, &mut out, counts)?;
        out.flush().map_err(Error::from)?;
        Ok(report)
    })?;
    let dict = PyDict::new(py);
    dict.set_item("entries", report.entries)?;
    dict.set_item("bytes", report.bytes)?;
    dict.set_item("skipped", PyList::new(py, report.skipped.iter().map(|path| PyBytes::new(py, path)))?)?;
    Ok(dict)
}

/// Compares a folder with the folder at `path` of a commit, every byte: `[(path, what differs)]`.
#[pyfunction]
#[pyo3(signature = (store, commit, path, dir, *, owner, mtime, limit, progress=None))]
fn compare_folder<'py>(
    py: Python<'py>,
    store: &Store,
    commit: &str,
    path: Vec<u8>,
    dir: PathBuf,
    owner: bool,
    mtime: bool,
    limit: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let commit = hash(py, commit)?;
    let options = CompareOptions { owner, mtime, dir_times: mtime, limit, ..CompareOptions::default() };
    let found = interruptible(py, progress.as_ref(), |counts| {
        let root = store.inner.commit(&commit)?.record.root;
        export::compare_folder(TreeView::new(&store.inner, root), &path, &dir, &options, counts)
    })?;
    PyList::new(py, found.iter().map(|mismatch| (PyBytes::new(py, &mismatch.path), &mismatch.what)))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(export_folder, module)?)?;
    module.add_function(wrap_pyfunction!(export_tar, module)?)?;
    module.add_function(wrap_pyfunction!(compare_folder, module)?)
}
