//! Trees and tar archives (POSIX pax), streaming both ways. Names, targets and attributes are bytes there too:
//! values of pax records are written raw, and read by their lengths.

mod build;
mod pax;
mod reader;
mod sparse;
mod write;

pub use build::{ImportTarOptions, import_tar};
pub use write::{TarReport, export_tar};
