//! New commits: from a folder, an archive, a `copy` workspace, or a tree that is stored already.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use atoll_fs::import::{self, Captured, CommitRequest, Committed, ImportOptions, Report};
use atoll_fs::tar::{self, ImportTarOptions};
use atoll_store::store::NewOperation;
use atoll_store::{Code, Error};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::convert::{self, hash, need, want};
use crate::progress::interruptible;
use crate::store::Store;

/// A copy of a descriptor of the caller's.
pub fn duplicate(fd: i32) -> PyResult<OwnedFd> {
    #[allow(unsafe_code)]
    // SAFETY: the caller holds the descriptor open for the length of this call, as `os.fdopen` would demand.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    borrowed.as_fd().try_clone_to_owned().map_err(|error| PyOSError::new_err(error.to_string()))
}

pub fn request(py: Python<'_>, dict: &Bound<'_, PyDict>) -> PyResult<CommitRequest> {
    Ok(CommitRequest {
        branch: need(dict, "branch")?,
        head: want::<String>(dict, "head")?.map(|id| hash(py, &id)).transpose()?,
        author: need(dict, "author")?,
        time: convert::time(need(dict, "time_ns")?),
        utc_offset: need(dict, "utc_offset")?,
        message: need(dict, "message")?,
        meta: need::<BTreeMap<String, String>>(dict, "meta")?,
        folder: want(dict, "folder")?,
        operation: NewOperation {
            kind: need(dict, "kind")?,
            note: need(dict, "note")?,
            workspace: want(dict, "workspace")?,
            ..NewOperation::default()
        },
        allow_empty: need(dict, "allow_empty")?,
        skip_renumbered: false,
    })
}

fn paths<'py>(py: Python<'py>, paths: &[Vec<u8>]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, paths.iter().map(|path| PyBytes::new(py, path)))
}

pub fn report<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("files", report.files)?;
    dict.set_item("dirs", report.dirs)?;
    dict.set_item("read_files", report.read_files)?;
    dict.set_item("read_bytes", report.read_bytes)?;
    dict.set_item("unchanged", report.unchanged)?;
    let skipped = PyList::empty(py);
    for (path, reason) in &report.skipped {
        skipped.append((PyBytes::new(py, path), reason.name()))?;
    }
    dict.set_item("skipped", skipped)?;
    dict.set_item("ignored", report.ignored)?;
    dict.set_item("secrets", paths(py, &report.secrets)?)?;
    dict.set_item("rewritten", paths(py, &report.rewritten)?)?;
    dict.set_item("changed", report.changed)?;
    Ok(dict)
}

pub fn committed<'py>(py: Python<'py>, committed: &Committed) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("commit", committed.commit.hex())?;
    dict.set_item("published", committed.published.as_ref().map(|p| convert::published(py, p)).transpose()?)?;
    dict.set_item("report", report(py, &committed.report)?)?;
    Ok(dict)
}

/// Imports a folder as a commit on a branch. `base` is the folder's last import.
#[pyfunction]
#[pyo3(signature = (store, request, folder, *, base=None, excludes, skip_unreadable, progress=None))]
fn import_folder<'py>(
    py: Python<'py>,
    store: &Store,
    request: &Bound<'py, PyDict>,
    folder: PathBuf,
    base: Option<&str>,
    excludes: Vec<String>,
    skip_unreadable: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let request = self::request(py, request)?;
    let base = base.map(|id| hash(py, id)).transpose()?;
    let options = ImportOptions { folder, base, excludes, skip_unreadable, ..ImportOptions::default() };
    let done = interruptible(py, progress.as_ref(), |counts| {
        import::commit_captured(&store.inner, &request, &mut || {
            import::import_folder(&store.inner, &options, counts)
        })
    })?;
    committed(py, &done)
}

/// The newest import of a folder on the first-parent line from `head`.
#[pyfunction]
fn last_import(py: Python<'_>, store: &Store, head: &str, folder: Vec<u8>) -> PyResult<Option<String>> {
    let head = hash(py, head)?;
    let found = interruptible(py, None, |_| import::last_import(&store.inner, &head, &folder))?;
    Ok(found.map(|id| id.hex()))
}

/// Imports a tar archive from a descriptor as a commit on a branch.
#[pyfunction]
#[pyo3(signature = (store, request, fd, *, base=None, progress=None))]
fn import_tar<'py>(
    py: Python<'py>,
    store: &Store,
    request: &Bound<'py, PyDict>,
    fd: i32,
    base: Option<&str>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let request = self::request(py, request)?;
    let options = ImportTarOptions { base: base.map(|id| hash(py, id)).transpose()?, ..Default::default() };
    let mut input = std::io::BufReader::with_capacity(1 << 20, std::fs::File::from(duplicate(fd)?));
    let mut read = false;
    let done = interruptible(py, progress.as_ref(), |counts| {
        import::commit_captured(&store.inner, &request, &mut || {
            // An archive can be read once: what gc took meanwhile is not read again.
            if std::mem::replace(&mut read, true) {
                let message = "The store was cleaned while the archive was read; import it again.";
                return Err(Error::new(Code::Changed, message));
            }
            tar::import_tar(&store.inner, &mut input, &options, counts)
        })
    })?;
    committed(py, &done)
}

/// Makes a commit with the tree of another commit.
#[pyfunction]
fn commit_tree<'py>(
    py: Python<'py>,
    store: &Store,
    request: &Bound<'py, PyDict>,
    tree_of: &str,
) -> PyResult<Bound<'py, PyDict>> {
    let request = self::request(py, request)?;
    let tree_of = hash(py, tree_of)?;
    let done = interruptible(py, None, |_| {
        import::commit_captured(&store.inner, &request, &mut || {
            let record = store.inner.commit(&tree_of)?.record;
            Ok(Captured {
                root: record.root,
                content: record.content,
                summary: record.summary,
                writer: store.inner.writer()?,
                report: Report { changed: true, ..Report::default() },
                meta: BTreeMap::new(),
            })
        })
    })?;
    committed(py, &done)
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(import_folder, module)?)?;
    module.add_function(wrap_pyfunction!(last_import, module)?)?;
    module.add_function(wrap_pyfunction!(import_tar, module)?)?;
    module.add_function(wrap_pyfunction!(commit_tree, module)?)
}
