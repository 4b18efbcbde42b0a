//! The history server.

use std::path::PathBuf;

use atoll_mount::{Helper, HistoryPaths, ensure_server};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::convert::hash;
use crate::errors::working;
use crate::store::{Store, list};

/// The history servers of this user that answer.
#[pyfunction]
fn servers(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let found = working(py, atoll_mount::servers)?;
    list(py, found, |server| {
        let dict = PyDict::new(py);
        dict.set_item("pid", server.pid)?;
        dict.set_item("supervisor_pid", server.supervisor_pid)?;
        dict.set_item("store", server.store.as_os_str())?;
        dict.set_item("store_id", &server.store_id)?;
        dict.set_item("history", server.history.as_os_str())?;
        dict.set_item("transport", &server.transport)?;
        dict.set_item("rss_bytes", server.rss_bytes)?;
        dict.set_item("requests", &server.requests)?;
        dict.set_item("uptime_s", server.uptime_s)?;
        dict.set_item("restarts", server.restarts)?;
        dict.set_item("pins", &server.pins)?;
        Ok(dict)
    })
}

/// A commit's folder in the history mount, which is started if need be.
#[pyfunction]
fn history_path(py: Python<'_>, store: &Store, helper: Vec<String>, commit: &str) -> PyResult<PathBuf> {
    let commit = hash(py, commit)?;
    working(py, || {
        let commit = store.inner.commit(&commit)?;
        Ok(ensure_server(&store.inner, &Helper { command: helper })?.paths.commit(&commit))
    })
}

/// Ends a store's history server, if nothing uses it; whether there was one.
#[pyfunction]
fn stop_server(py: Python<'_>, store: &Store) -> PyResult<bool> {
    working(py, || atoll_mount::stop_server(&HistoryPaths::of(store.inner.id())))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(servers, module)?)?;
    module.add_function(wrap_pyfunction!(history_path, module)?)?;
    module.add_function(wrap_pyfunction!(stop_server, module)?)
}
