//! The store: open, names, commits, operations, workspaces.

use std::path::PathBuf;

use atoll_store::store::Profile;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::convert::{self, hash, ref_name};
use crate::errors::working;

/// An open store; several threads may use it.
#[pyclass(frozen)]
pub struct Store {
    pub inner: atoll_store::Store,
}

/// A list of dicts.
pub fn list<'py, T>(
    py: Python<'py>,
    items: impl IntoIterator<Item = T>,
    to_dict: impl Fn(&T) -> PyResult<Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyList>> {
    let out = PyList::empty(py);
    for item in items {
        out.append(to_dict(&item)?)?;
    }
    Ok(out)
}

#[pymethods]
impl Store {
    #[staticmethod]
    fn create(py: Python<'_>, dir: PathBuf, profile: &str) -> PyResult<Store> {
        let profile = match profile {
            "full" => Profile::Full,
            "normal" => Profile::Normal,
            "off" => Profile::Off,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "'{profile}' is no profile: full, normal or off."
                )));
            }
        };
        working(py, || atoll_store::Store::create(&dir, profile)).map(|inner| Store { inner })
    }

    #[staticmethod]
    fn open(py: Python<'_>, dir: PathBuf) -> PyResult<Store> {
        working(py, || atoll_store::Store::open(&dir)).map(|inner| Store { inner })
    }

    #[getter]
    fn dir(&self) -> PathBuf {
        self.inner.dir().to_path_buf()
    }

    #[getter]
    fn id(&self) -> String {
        self.inner.id().to_owned()
    }

    fn resolve(&self, py: Python<'_>, reference: &str) -> PyResult<String> {
        working(py, || self.inner.resolve(reference)).map(|id| id.hex())
    }

    fn commit<'py>(&self, py: Python<'py>, id: &str) -> PyResult<Bound<'py, PyDict>> {
        let id = hash(py, id)?;
        let commit = working(py, || self.inner.commit(&id))?;
        convert::commit(py, &commit)
    }

    fn get_ref<'py>(
        &self,
        py: Python<'py>,
        kind: &str,
        name: String,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let name = ref_name(kind, name)?;
        let state = working(py, || self.inner.get_ref(&name))?;
        state.map(|state| convert::named_ref(py, &name, &state)).transpose()
    }

    fn refs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let refs = working(py, || self.inner.refs())?;
        list(py, refs, |(name, state)| convert::named_ref(py, name, state))
    }

    fn operations<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Bound<'py, PyList>> {
        let operations = working(py, || self.inner.operations(limit))?;
        list(py, operations, |operation| convert::operation(py, operation))
    }

    fn workspaces<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let workspaces = working(py, || self.inner.workspaces())?;
        list(py, workspaces, |workspace| convert::workspace(py, workspace))
    }

    fn put_workspace(&self, py: Python<'_>, workspace: &Bound<'_, PyDict>) -> PyResult<()> {
        let workspace = convert::workspace_from(py, workspace)?;
        working(py, || self.inner.put_workspace(&workspace))
    }

    fn remove_workspace(&self, py: Python<'_>, id: &str) -> PyResult<()> {
        working(py, || self.inner.remove_workspace(id))
    }
}
