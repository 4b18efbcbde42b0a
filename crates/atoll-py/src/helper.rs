//! The entry of helper processes: the history server with its supervisor, the launcher of commands.

use pyo3::prelude::*;

/// Runs a helper (`supervisor STORE …`, `server …`, `launch …`) and returns its exit code.
#[pyfunction]
fn main(py: Python<'_>, args: Vec<String>) -> i32 {
    py.detach(|| atoll_mount::main(&args))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(main, module)?)
}
