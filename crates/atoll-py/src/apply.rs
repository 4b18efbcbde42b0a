//! Brings the changes between two commits into a real folder.

use std::path::{Path, PathBuf};

use atoll_fs::apply::{self, ApplyOptions, LeftOut, Plan};
use atoll_fs::progress::Progress;
use atoll_store::{Hash, Num, Result};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::convert::{self, hash};
use crate::progress::interruptible;
use crate::store::{Store, list};

fn why(left_out: LeftOut) -> &'static str {
    match left_out {
        LeftOut::Git => "git",
        LeftOut::Ignored => "ignored",
        LeftOut::Outside => "outside",
    }
}

fn plan_dict<'py>(py: Python<'py>, plan: &Plan) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("changes", list(py, &plan.changes, |change| convert::change(py, change))?)?;
    let left_out = PyList::empty(py);
    for (path, reason) in &plan.left_out {
        left_out.append((PyBytes::new(py, path), why(*reason)))?;
    }
    dict.set_item("left_out", left_out)?;
    let conflicts = PyList::empty(py);
    for conflict in &plan.conflicts {
        conflicts.append((PyBytes::new(py, &conflict.path), conflict.why, conflict.always))?;
    }
    dict.set_item("conflicts", conflicts)?;
    dict.set_item("overwrites", PyList::new(py, plan.overwrites.iter().map(|path| PyBytes::new(py, path)))?)?;
    Ok(dict)
}

fn roots(store: &atoll_store::Store, base: &Hash, result: &Hash) -> Result<(Num, Num)> {
    Ok((store.commit(base)?.record.root, store.commit(result)?.record.root))
}

/// What an apply would do, and what stands against it; nothing is written, conflicts are no error.
#[pyfunction]
#[pyo3(signature = (store, base, result, target, *, journal, paths, all, force, progress=None))]
fn plan_apply<'py>(
    py: Python<'py>,
    store: &Store,
    base: &str,
    result: &str,
    target: PathBuf,
    journal: PathBuf,
    paths: Vec<Vec<u8>>,
    all: bool,
    force: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let (base, result) = (hash(py, base)?, hash(py, result)?);
    let options = ApplyOptions { target, paths, all, force, times: false, journal };
    let plan = interruptible(py, progress.as_ref(), |counts| {
        let (base, result) = roots(&store.inner, &base, &result)?;
        apply::plan(&store.inner, Some(base), result, &options, counts as &dyn Progress)
    })?;
    plan_dict(py, &plan)
}

/// Applies what differs between two commits to a folder; an unfinished apply of the journal is finished first.
#[pyfunction]
#[pyo3(signature = (store, base, result, target, *, journal, paths, all, force, times=false, progress=None))]
fn apply_changes<'py>(
    py: Python<'py>,
    store: &Store,
    base: &str,
    result: &str,
    target: PathBuf,
    journal: PathBuf,
    paths: Vec<Vec<u8>>,
    all: bool,
    force: bool,
    times: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let (base, result) = (hash(py, base)?, hash(py, result)?);
    let options = ApplyOptions { target, paths, all, force, times, journal };
    let (plan, report) = interruptible(py, progress.as_ref(), |counts| {
        let (base, result) = roots(&store.inner, &base, &result)?;
        apply::apply(&store.inner, Some(base), result, &options, &mut |_| Ok(()), counts as &dyn Progress)
    })?;
    let dict = plan_dict(py, &plan)?;
    let lost = PyList::empty(py);
    for (path, what) in &report.lost {
        lost.append((PyBytes::new(py, path), what))?;
    }
    dict.set_item("lost", lost)?;
    dict.set_item(
        "kept_folders",
        PyList::new(py, report.kept_folders.iter().map(|path| PyBytes::new(py, path)))?,
    )?;
    dict.set_item("kept_aside", report.kept_aside.as_deref().map(Path::as_os_str))?;
    Ok(dict)
}

/// Finishes an apply that was cut off; whether there was one.
#[pyfunction]
fn resume_apply(py: Python<'_>, journal: PathBuf) -> PyResult<bool> {
    interruptible(py, None, |_| apply::resume(&journal)).map(|report| report.is_some())
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(plan_apply, module)?)?;
    module.add_function(wrap_pyfunction!(apply_changes, module)?)?;
    module.add_function(wrap_pyfunction!(resume_apply, module)?)
}
