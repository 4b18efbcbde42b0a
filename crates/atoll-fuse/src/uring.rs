//! FUSE over io_uring.

use std::io;

/// Whether the kernel offers FUSE over io_uring.
///
/// # Errors
/// A sentence that says why not.
pub fn available() -> io::Result<()> {
    let path = "/sys/module/fuse/parameters/enable_uring";
    match std::fs::read_to_string(path) {
        Ok(value) if value.trim() == "Y" || value.trim() == "1" => Ok(()),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("It is turned off; root turns it on for the machine with `echo 1 > {path}`."),
        )),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "The kernel has no FUSE over io_uring (6.14 and later).",
        )),
    }
}
