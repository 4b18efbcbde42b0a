//! What differs between two commits.

use atoll_store::tree;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::convert::{self, hash};
use crate::errors::working;
use crate::store::{Store, list};

/// The changed paths from one commit to another, sorted; `old` of `None` is the empty tree.
#[pyfunction]
fn changes<'py>(py: Python<'py>, store: &Store, old: Option<&str>, new: &str) -> PyResult<Bound<'py, PyList>> {
    let old = old.map(|id| hash(py, id)).transpose()?;
    let new = hash(py, new)?;
    let found = working(py, || {
        let old = old.map(|id| store.inner.commit(&id)).transpose()?.map(|commit| commit.record.root);
        let new = store.inner.commit(&new)?.record.root;
        tree::changes(&store.inner, old, Some(new))
    })?;
    list(py, found, |change| convert::change(py, change))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(changes, module)?)
}
