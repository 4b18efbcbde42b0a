//! The core's errors as the exception classes of `atoll.errors`.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// The exception for an error of the core: `atoll.errors.from_code(code, message, errno)`.
pub fn raise(py: Python<'_>, error: &atoll_store::Error) -> PyErr {
    let errno = error.source.as_ref().and_then(std::io::Error::raw_os_error);
    let made = py.import("atoll.errors").and_then(|module| {
        module.call_method1("from_code", (error.code.name(), error.message.as_str(), errno))
    });
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(_) => PyRuntimeError::new_err(error.message.clone()),
    }
}

/// Runs `work` without the interpreter and translates its error.
pub fn working<T: Send>(py: Python<'_>, work: impl FnOnce() -> atoll_store::Result<T> + Send) -> PyResult<T> {
    py.detach(work).map_err(|error| raise(py, &error))
}
