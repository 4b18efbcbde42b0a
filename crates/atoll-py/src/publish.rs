//! Moves refs: fork, drop, branch, tag.

use atoll_store::store::NewOperation;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::{self, need, ref_change, want};
use crate::errors::working;
use crate::store::Store;

/// Publishes one operation that moves refs and makes no commit; all or none of them move.
#[pyfunction]
fn move_refs<'py>(
    py: Python<'py>,
    store: &Store,
    operation: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    let mut new = NewOperation {
        kind: need(operation, "kind")?,
        note: need(operation, "note")?,
        workspace: want(operation, "workspace")?,
        undoes: want(operation, "undoes")?,
        ..NewOperation::default()
    };
    for change in need::<Vec<Bound<'_, PyDict>>>(operation, "changes")? {
        new.changes.push(ref_change(py, &change)?);
    }
    let published = working(py, || store.inner.publish(store.inner.writer()?, new))?;
    convert::published(py, &published)
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(move_refs, module)?)
}
