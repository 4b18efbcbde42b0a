//! The `overlay` driver's work: mount over the history, unmount, capture the upper.

use std::path::{Path, PathBuf};

use atoll_fs::import::{self, CommitRequest};
use atoll_fs::overlay::{
    self, Freezer, HistoryIds, Notes, OverlayCapture, UpperState, recover_upper, reset_upper,
};
use atoll_fs::progress::Progress;
use atoll_mount::overlay as mounting;
use atoll_mount::overlay::{Fitness, FsyncMode, Overlay};
use atoll_mount::{Helper, HistoryPaths, ensure_server, unpin};
use atoll_store::{Code, Error, Hash};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::commit::{committed, request};
use crate::convert::{self, hash, need, want};
use crate::errors::working;
use crate::progress::interruptible;
use crate::store::{Store, list};

/// Why no upper can live in `dir`, in one sentence; `None` when one can.
#[pyfunction]
fn overlay_probe(py: Python<'_>, dir: PathBuf) -> PyResult<Option<String>> {
    working(py, || mounting::probe_upper(&dir)).map(|fitness| match fitness {
        Fitness::Fit => None,
        Fitness::Unfit(reason) => Some(reason),
    })
}

/// Starts the history server if need be, mounts the overlay over commit `base` at `target`, and has the server
/// stay for it. `folder` holds `upper` and `work`.
#[pyfunction]
fn overlay_mount(
    py: Python<'_>,
    store: &Store,
    helper: Vec<String>,
    base: &str,
    workspace: &str,
    folder: PathBuf,
    fsync: &str,
    target: PathBuf,
) -> PyResult<()> {
    let base = hash(py, base)?;
    let fsync = match fsync {
        "full" => FsyncMode::Real,
        "commit" => FsyncMode::Commit,
        _ => return Err(PyValueError::new_err(format!("'{fsync}' is neither 'full' nor 'commit'."))),
    };
    working(py, || {
        let commit = store.inner.commit(&base)?;
        let server = ensure_server(&store.inner, &Helper { command: helper })?;
        let lower = server.paths.commit(&commit);
        let overlay = Overlay { lower, upper: folder.join("upper"), work: folder.join("work"), fsync };
        mounting::mount(&overlay, &target)?;
        server.pin(workspace, &target).inspect_err(|_| {
            // The first error is the one to tell; a mount that nothing pins must not stay.
            let _ = mounting::umount(&target);
        })
    })
}

/// Whether one of atoll's overlays is mounted at `target`.
#[pyfunction]
fn overlay_mounted(py: Python<'_>, target: PathBuf) -> PyResult<bool> {
    working(py, || Ok(mounting::find_mount(&target)?.is_some_and(|mount| mount.is_workspace())))
}

/// Unmounts, lets the history server go, and makes a volatile upper whole.
#[pyfunction]
fn overlay_umount(
    py: Python<'_>,
    store: &Store,
    workspace: &str,
    folder: PathBuf,
    target: PathBuf,
) -> PyResult<()> {
    working(py, || {
        mounting::umount(&target)?;
        unpin(&HistoryPaths::of(store.inner.id()), workspace)?;
        mounting::clear_volatile(&folder.join("upper"), &folder.join("work"))
    })
}

/// Whether a mount with `fsync=commit` was not unmounted cleanly: its upper is not to be trusted.
#[pyfunction]
fn overlay_was_volatile(folder: PathBuf) -> bool {
    mounting::is_volatile(&folder.join("work"))
}

/// Sets such an upper aside and returns where it is.
#[pyfunction]
fn overlay_set_aside(py: Python<'_>, folder: PathBuf) -> PyResult<PathBuf> {
    working(py, || mounting::set_aside(&folder.join("upper"), &folder.join("work")))
}

/// Puts an unmounted workspace's folders in order after a crash; whether an upper is there.
#[pyfunction]
fn overlay_recover(py: Python<'_>, folder: PathBuf, base: &str) -> PyResult<bool> {
    let base = hash(py, base)?;
    working(py, || Ok(recover_upper(&folder, &base)? == UpperState::Kept))
}

/// Lets go of an unmounted upper that equals its head; `record` is stored in between.
#[pyfunction]
fn overlay_reset(py: Python<'_>, store: &Store, folder: PathBuf, record: &Bound<'_, PyDict>) -> PyResult<()> {
    let record = convert::workspace_from(py, record)?;
    working(py, || reset_upper(&folder, &record.head, &mut || store.inner.put_workspace(&record)))
}

/// Mounts a tmpfs for an upper in memory.
#[pyfunction]
fn scratch_mount(py: Python<'_>, dir: PathBuf, size: Option<u64>) -> PyResult<()> {
    working(py, || mounting::mount_scratch(&dir, size))
}

/// Unmounts it; its contents are gone.
#[pyfunction]
fn scratch_umount(py: Python<'_>, dir: PathBuf) -> PyResult<()> {
    working(py, || mounting::umount_scratch(&dir))
}

/// Whether a scratch in memory is mounted at `dir`.
#[pyfunction]
fn scratch_mounted(py: Python<'_>, dir: PathBuf) -> PyResult<bool> {
    working(py, || Ok(mounting::find_mount(&dir)?.is_some_and(|mount| mount.fs_type == "tmpfs")))
}

/// Freezes by calling Python with True, thaws with False.
struct Callback(Py<PyAny>);

impl Callback {
    fn call(&self, freeze: bool) -> atoll_store::Result<()> {
        Python::attach(|py| self.0.call1(py, (freeze,)).map(drop)).map_err(|error| {
            Error::new(Code::Io, format!("The workspace's processes could not be frozen: {error}"))
        })
    }
}

impl Freezer for Callback {
    fn freeze(&self) -> atoll_store::Result<()> {
        self.call(true)
    }

    fn thaw(&self) -> atoll_store::Result<()> {
        self.call(false)
    }
}

/// What a capture needs, as Python has it.
struct Wanted {
    folder: PathBuf,
    index: PathBuf,
    workspace: String,
    base: Hash,
    head: Hash,
    mountpoint: Option<PathBuf>,
    freezer: Option<Callback>,
    trust_index: bool,
}

impl Wanted {
    fn from(py: Python<'_>, dict: &Bound<'_, PyDict>) -> PyResult<Self> {
        Ok(Wanted {
            folder: need(dict, "folder")?,
            index: need(dict, "index")?,
            workspace: need(dict, "workspace")?,
            base: hash(py, &need::<String>(dict, "base")?)?,
            head: hash(py, &need::<String>(dict, "head")?)?,
            mountpoint: want(dict, "mountpoint")?,
            freezer: want::<Py<PyAny>>(dict, "freeze")?.map(Callback),
            trust_index: need(dict, "trust_index")?,
        })
    }

    fn capture(
        &self,
        store: &atoll_store::Store,
        progress: &dyn Progress,
    ) -> atoll_store::Result<overlay::OverlayCaptured> {
        self.capture_with(store, None, progress)
    }

    fn capture_with(
        &self,
        store: &atoll_store::Store,
        looked: Option<PathBuf>,
        progress: &dyn Progress,
    ) -> atoll_store::Result<overlay::OverlayCaptured> {
        let lower = HistoryIds { slot: store.slot(&self.base)? };
        let options = OverlayCapture {
            upper: self.folder.join("upper"),
            work: self.folder.join("work"),
            index: self.index.clone(),
            workspace: self.workspace.clone(),
            base: self.base,
            head: self.head,
            lower: &lower,
            mountpoint: self.mountpoint.as_deref().map(Path::to_path_buf),
            freezer: self.freezer.as_ref().map(|freezer| freezer as &dyn Freezer),
            trust_index: self.trust_index,
            looked,
            threads: 0,
            seed: None,
        };
        overlay::capture(store, &options, progress)
    }
}

/// Captures an upper and commits it; `notes` beside the usual result.
#[pyfunction]
#[pyo3(signature = (store, request, capture, *, progress=None))]
fn overlay_commit<'py>(
    py: Python<'py>,
    store: &Store,
    request: &Bound<'py, PyDict>,
    capture: &Bound<'py, PyDict>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let request = CommitRequest { skip_renumbered: true, ..self::request(py, request)? };
    let wanted = Wanted::from(py, capture)?;
    let (done, notes) = interruptible(py, progress.as_ref(), |counts| {
        let (mut index, mut notes) = (None, Notes::default());
        let done = import::commit_captured(&store.inner, &request, &mut || {
            let captured = wanted.capture(&store.inner, counts)?;
            (index, notes) = (Some(captured.index), captured.notes);
            Ok(captured.captured)
        })?;
        if let Some(index) = index.filter(|_| done.is_exact()) {
            index.save(&done.commit)?;
        }
        Ok((done, notes))
    })?;
    let dict = committed(py, &done)?;
    let said = PyDict::new(py);
    said.set_item("passes", notes.passes)?;
    said.set_item("frozen", notes.frozen)?;
    said.set_item("mapped", notes.mapped)?;
    said.set_item("index_used", notes.index_used)?;
    dict.set_item("notes", said)?;
    Ok(dict)
}

/// What an upper changed since its last commit; nothing is stored.
#[pyfunction]
#[pyo3(signature = (store, capture, *, progress=None))]
fn overlay_changes<'py>(
    py: Python<'py>,
    store: &Store,
    capture: &Bound<'py, PyDict>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let wanted = Wanted::from(py, capture)?;
    let found = interruptible(py, progress.as_ref(), |counts| {
        let looked = Some(wanted.index.with_file_name("looked"));
        let captured = wanted.capture_with(&store.inner, looked, counts)?.captured;
        captured.changes(&store.inner, &wanted.head)
    })?;
    list(py, found, |change| convert::change(py, change))
}

/// How much of a quiet upper its head does not have: the number of changed paths, the same that `overlay_changes`
/// lists; 0 when the upper may go.
#[pyfunction]
#[pyo3(signature = (store, capture, *, progress=None))]
fn overlay_left(
    py: Python<'_>,
    store: &Store,
    capture: &Bound<'_, PyDict>,
    progress: Option<Py<PyAny>>,
) -> PyResult<usize> {
    let wanted = Wanted::from(py, capture)?;
    interruptible(py, progress.as_ref(), |counts| {
        let captured = wanted.capture(&store.inner, counts)?.captured;
        if captured.is_as_in(&store.inner, &wanted.head)? {
            return Ok(0);
        }
        Ok(captured.changes(&store.inner, &wanted.head)?.len().max(1))
    })
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(overlay_probe, module)?)?;
    module.add_function(wrap_pyfunction!(overlay_mount, module)?)?;
    module.add_function(wrap_pyfunction!(overlay_mounted, module)?)?;
    module.add_function(wrap_pyfunction!(overlay_umount, module)?)?;
    module.add_function(wrap_pyfunction!(overlay_was_volatile, module)?)?;
    module.add_function(wrap_pyfunction!(overlay_set_aside, module)?)?;
    module.add_function(wrap_pyfunction!(overlay_recover, module)?)?;
    module.add_function(wrap_pyfunction!(overlay_reset, module)?)?;
    module.add_function(wrap_pyfunction!(scratch_mount, module)?)?;
    module.add_function(wrap_pyfunction!(scratch_umount, module)?)?;
    module.add_function(wrap_pyfunction!(scratch_mounted, module)?)?;
    module.add_function(wrap_pyfunction!(overlay_commit, module)?)?;
    module.add_function(wrap_pyfunction!(overlay_left, module)?)?;
    module.add_function(wrap_pyfunction!(overlay_changes, module)?)
}
