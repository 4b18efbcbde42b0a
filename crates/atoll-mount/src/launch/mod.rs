//! The launcher: a small process that shows a workspace at the path its folder was imported from, runs one
//! command there with its own standard streams, and leaves nothing of it behind.
//!
//! It is one process on purpose. It enters the cgroup and the mount namespace itself, starts the command (which
//! inherits both), leaves the cgroup again, and from then on only waits: as the subreaper of all that the command
//! starts, so that a daemon cannot slip away. It must be single-threaded, as `unshare(CLONE_NEWUSER)` asks for.
//!
//! The caller (`python/atoll/run/launcher.py`) hands over a JSON text in an inherited file and reads events, one
//! JSON line each, from an inherited pipe. The launcher's exit code is the command's own.

mod cgroup;
mod namespace;
mod procs;
mod report;
mod running;
mod spawn;
mod spec;
mod supervise;

pub use spec::{Limits, Pass, Spec};

use std::fs::File;
use std::io::Read;

use atoll_store::{Code, Error, Result};

use report::Report;

/// The launcher's own failure, as in `docker run`.
pub const EXIT_LAUNCHER: i32 = 125;
/// The command was found and could not be started.
pub const EXIT_NOT_EXECUTABLE: i32 = 126;
/// The command was not found.
pub const EXIT_NOT_FOUND: i32 = 127;
/// The command ran into its timeout.
pub const EXIT_TIMEOUT: i32 = 124;

/// Runs the launcher: `args[0]` is the number of the inherited file that holds the [`Spec`] as JSON. Returns the
/// exit code.
pub fn main(args: &[String]) -> i32 {
    let (spec, mut report) = match start(args) {
        Ok(started) => started,
        Err(error) => {
            eprintln!("atoll launch: {error}");
            return EXIT_LAUNCHER;
        }
    };
    match supervise::run(&spec, &mut report) {
        Ok(code) => code,
        Err(failure) => {
            report.failed(&failure);
            EXIT_LAUNCHER
        }
    }
}

fn start(args: &[String]) -> Result<(Spec, Report)> {
    let number = args.first().and_then(|arg| arg.parse::<i32>().ok()).ok_or_else(|| {
        Error::new(Code::Usage, "The launcher is started by 'atoll run' and 'atoll exec', not by hand.")
    })?;
    let mut text = String::new();
    let path = format!("/proc/self/fd/{number}");
    File::open(&path).and_then(|mut file| file.read_to_string(&mut text))?;
    // The command must not inherit either file.
    nix::unistd::close(number).map_err(std::io::Error::from)?;
    let spec: Spec = serde_json::from_str(&text).map_err(|error| {
        Error::new(Code::Usage, format!("The launcher's settings cannot be read: {error}."))
    })?;
    let report = Report::take(spec.report_fd)?;
    Ok((spec, report))
}
