//! Python bindings: translation only. One verb, one file; every function that works releases the interpreter.
//!
//! Nothing here decides anything: arguments become the core's types, results become plain dicts (their shapes
//! are the `TypedDict`s of `python/atoll/_native.pyi`), errors become the classes of `atoll.errors`.

#![allow(clippy::too_many_arguments)] // Keyword arguments of Python are what they are.

use pyo3::prelude::*;

mod apply;
mod browse;
mod commit;
mod convert;
mod copy;
mod diff;
mod errors;
mod export;
mod helper;
mod history;
mod live;
mod overlay;
mod progress;
mod publish;
mod servers;
mod store;

/// The native module `atoll._native`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<store::Store>()?;
    apply::register(module)?;
    browse::register(module)?;
    commit::register(module)?;
    copy::register(module)?;
    diff::register(module)?;
    export::register(module)?;
    helper::register(module)?;
    history::register(module)?;
    live::register(module)?;
    overlay::register(module)?;
    publish::register(module)?;
    servers::register(module)?;
    Ok(())
}
