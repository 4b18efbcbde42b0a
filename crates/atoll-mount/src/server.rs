//! The server.

/// Entry of the process.
pub fn main(args: &[String]) -> i32 {
    let _ = args;
    todo!()
}
