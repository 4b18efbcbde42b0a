//! What serves a mount: the history server with its supervisor, the overlay mounts above it, the launcher of
//! commands. The one crate that knows both the store and FUSE.
//!
//! The history mount of a store (one for each user) is a folder, HISTORY, with two read-only FUSE mounts:
//! `plain` shows the trees without extended attributes, `xattr` those with. A tree asked for in the wrong one
//! is a symbolic link to the other. [`ensure_server`] starts what is missing and returns the places.

pub mod history;
pub mod launch;
pub mod leftovers;
pub mod live;
pub mod overlay;
pub mod server;
pub mod server_client;
mod server_control;
mod server_log;
pub mod server_paths;
mod server_pins;
mod server_wire;
mod stat;
pub mod supervisor;

pub use server_client::{Helper, HistoryServer, ServerInfo, ensure_server, servers, stop_server, unpin};
pub use server_paths::HistoryPaths;

/// The entry of long-lived helper processes: `supervisor STORE …`, `server …`, `live-supervisor …`, `launch …`.
/// Returns the exit
/// code; what went wrong is said on stderr.
pub fn main(args: &[String]) -> i32 {
    let (verb, rest) = match args.split_first() {
        Some((verb, rest)) => (verb.as_str(), rest),
        None => ("", args),
    };
    match verb {
        "supervisor" => supervisor::main(rest),
        "server" => server::main(rest),
        "launch" => launch::main(rest),
        "live-supervisor" => live::supervisor::main(rest),
        "live-server" => live::server::main(rest),
        _ => {
            eprintln!("atoll: there is no helper process called '{verb}'; this entry is for atoll itself.");
            2
        }
    }
}
