//! The `fuse` driver's work: have a workspace served, capture it, end it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use atoll_fs::import::{self, Captured, CommitRequest};
use atoll_mount::Helper;
use atoll_mount::live::client::{self, View};
use atoll_mount::overlay as mounting;
use atoll_store::{Hash, Result};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::commit::{committed, request};
use crate::convert::{self, hash};
use crate::errors::working;
use crate::progress::interruptible;
use crate::store::{Store, list};

/// Starts a server for a workspace with its data in `folder` and mounts it at `target`. A new one begins at `commit`;
/// `durable`: the data are on a disk.
#[pyfunction]
fn live_mount(
    py: Python<'_>,
    store: &Store,
    helper: Vec<String>,
    workspace: PathBuf,
    folder: PathBuf,
    target: PathBuf,
    commit: &str,
    durable: bool,
) -> PyResult<()> {
    let commit = hash(py, commit)?;
    let helper = Helper { command: helper };
    working(py, || client::mount(&store.inner, &helper, &workspace, &folder, &target, &commit, durable))
}

/// Whether a workspace of the `fuse` driver is mounted at `target`.
#[pyfunction]
fn live_mounted(py: Python<'_>, target: PathBuf) -> PyResult<bool> {
    working(py, || Ok(mounting::find_mount(&target)?.is_some_and(|mount| mount.is_live())))
}

/// Unmounts it and waits until its server has ended. `dead`: nobody serves it any more, and it only has to go away.
#[pyfunction]
fn live_umount(py: Python<'_>, workspace: PathBuf, target: PathBuf, dead: bool) -> PyResult<()> {
    working(py, || {
        if dead {
            client::detach(&target)?
        } else {
            mounting::umount(&target)?
        }
        client::wait_until_ended(&workspace)
    })
}

/// The process that serves it; `None` when there is none.
#[pyfunction]
fn live_server(py: Python<'_>, workspace: PathBuf) -> PyResult<Option<u32>> {
    working(py, || client::server(&workspace))
}

fn captured(store: &Store, view: &View, head: &Hash) -> Result<Captured> {
    view.frozen().capture(&store.inner, head)
}

fn view(store: &Store, workspace: &Path, folder: &Path, target: Option<&Path>) -> Result<View> {
    View::take(&Arc::new(store.inner.clone()), workspace, folder, target)
}

/// Captures a workspace at one moment and commits that; `target`: where it is mounted.
#[pyfunction]
#[pyo3(signature = (store, request, workspace, folder, target, head, *, progress=None))]
fn live_commit<'py>(
    py: Python<'py>,
    store: &Store,
    request: &Bound<'py, PyDict>,
    workspace: PathBuf,
    folder: PathBuf,
    target: Option<PathBuf>,
    head: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let request = CommitRequest { skip_renumbered: true, ..self::request(py, request)? };
    let head = hash(py, head)?;
    let done = interruptible(py, progress.as_ref(), |_| {
        let view = view(store, &workspace, &folder, target.as_deref())?;
        let done = import::commit_captured(&store.inner, &request, &mut || captured(store, &view, &head))?;
        if done.is_exact() {
            view.rebase(&Arc::new(store.inner.clone()), &done.commit)?;
        }
        Ok(done)
    })?;
    committed(py, &done)
}

/// What a workspace changed since its last commit; nothing is stored.
#[pyfunction]
#[pyo3(signature = (store, workspace, folder, target, head, *, progress=None))]
fn live_changes<'py>(
    py: Python<'py>,
    store: &Store,
    workspace: PathBuf,
    folder: PathBuf,
    target: Option<PathBuf>,
    head: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let head = hash(py, head)?;
    let found = interruptible(py, progress.as_ref(), |_| {
        let view = view(store, &workspace, &folder, target.as_deref())?;
        captured(store, &view, &head)?.changes(&store.inner, &head)
    })?;
    list(py, found, |change| convert::change(py, change))
}

/// How much of an unmounted workspace its head does not have: the number of changed paths; 0 when it may go.
#[pyfunction]
fn live_left(
    py: Python<'_>,
    store: &Store,
    workspace: PathBuf,
    folder: PathBuf,
    head: &str,
) -> PyResult<usize> {
    let head = hash(py, head)?;
    interruptible(py, None, |_| {
        let view = view(store, &workspace, &folder, None)?;
        let captured = captured(store, &view, &head)?;
        if captured.is_as_in(&store.inner, &head)? {
            return Ok(0);
        }
        Ok(captured.changes(&store.inner, &head)?.len().max(1))
    })
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(live_mount, module)?)?;
    module.add_function(wrap_pyfunction!(live_mounted, module)?)?;
    module.add_function(wrap_pyfunction!(live_umount, module)?)?;
    module.add_function(wrap_pyfunction!(live_server, module)?)?;
    module.add_function(wrap_pyfunction!(live_commit, module)?)?;
    module.add_function(wrap_pyfunction!(live_changes, module)?)?;
    module.add_function(wrap_pyfunction!(live_left, module)?)
}
