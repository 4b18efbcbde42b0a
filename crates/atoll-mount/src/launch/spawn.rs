//! Starts the command as a shell would: looked up in `PATH`, with no signal blocked, scripts without a `#!` line by
//! `sh`.
//!
//! Not by `std::process::Command`: its child keeps the launcher's blocked signals, and unblocking them in the launcher
//! while it starts the child would lose a Ctrl-C that comes just then.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::{SigSet, Signal};

/// Why a command was not started.
#[derive(Debug)]
pub(super) enum NotStarted {
    NotFound,
    NotExecutable(io::Error),
}

const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// Starts `command` in the launcher's own working folder and returns its process number. `env` is all of its
/// environment.
pub(super) fn spawn(command: &[OsString], env: &[(OsString, OsString)]) -> Result<i32, NotStarted> {
    let search = env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    let program = find(&command[0], search.unwrap_or(OsStr::new(DEFAULT_PATH)))?;
    let arguments =
        command.iter().map(|argument| c_string(argument.clone())).collect::<Result<Vec<_>, _>>()?;
    let env = env
        .iter()
        .map(|(name, value)| {
            let mut text = name.clone();
            text.push("=");
            text.push(value);
            c_string(text)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let program = c_string(program.into_os_string())?;
    match exec(&program, &arguments, &env) {
        Err(Errno::ENOEXEC) => {
            let shell = c"/bin/sh".to_owned();
            let mut through_shell = vec![shell.clone(), program];
            through_shell.extend(arguments.into_iter().skip(1));
            exec(&shell, &through_shell, &env)
        }
        done => done,
    }
    .map_err(|errno| match errno {
        // The file is there: its interpreter is not.
        Errno::ENOENT => {
            NotStarted::NotExecutable(io::Error::other("the interpreter that it names is missing"))
        }
        errno => NotStarted::NotExecutable(io::Error::from(errno)),
    })
}

fn exec(program: &CString, arguments: &[CString], env: &[CString]) -> nix::Result<i32> {
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_flags(PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF)?;
    attributes.set_sigmask(&SigSet::empty())?;
    // Python ignores these two, and an ignored signal stays ignored in a new program.
    let mut defaults = SigSet::empty();
    defaults.add(Signal::SIGPIPE);
    defaults.add(Signal::SIGXFSZ);
    attributes.set_sigdefault(&defaults)?;
    let files = PosixSpawnFileActions::init()?;
    posix_spawn(program.as_c_str(), &files, &attributes, arguments, env).map(|pid| pid.as_raw())
}

fn c_string(text: OsString) -> Result<CString, NotStarted> {
    CString::new(text.into_vec())
        .map_err(|_| NotStarted::NotExecutable(io::Error::other("an argument holds a zero byte")))
}

/// A name with a slash is a path; any other is looked for in each folder of `PATH`.
fn find(name: &OsStr, search: &OsStr) -> Result<PathBuf, NotStarted> {
    if name.is_empty() {
        return Err(NotStarted::NotFound);
    }
    if name.as_bytes().contains(&b'/') {
        return match fs::metadata(name) {
            Ok(_) => Ok(PathBuf::from(name)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(NotStarted::NotFound),
            Err(error) => Err(NotStarted::NotExecutable(error)),
        };
    }
    let mut present = false;
    for folder in search.as_bytes().split(|byte| *byte == b':') {
        // An empty entry is the working folder.
        let folder = if folder.is_empty() { b"." } else { folder };
        let path = Path::new(OsStr::from_bytes(folder)).join(name);
        if let Ok(stat) = fs::metadata(&path)
            && stat.is_file()
        {
            if stat.permissions().mode() & 0o111 != 0
                && rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).is_ok()
            {
                return Ok(path);
            }
            present = true;
        }
    }
    match present {
        true => Err(NotStarted::NotExecutable(io::Error::from(Errno::EACCES))),
        false => Err(NotStarted::NotFound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_in_each_folder_and_passes_over_what_cannot_be_run() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("a"), dir.path().join("b"));
        for folder in [&first, &second] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("tool"), "x").unwrap();
        }
        let mut search = first.clone().into_os_string();
        search.push(":");
        search.push(&second);
        assert!(matches!(find(OsStr::new("tool"), &search), Err(NotStarted::NotExecutable(_))));
        fs::set_permissions(second.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find(OsStr::new("tool"), &search).unwrap(), second.join("tool"));
        assert!(matches!(find(OsStr::new("none"), &search), Err(NotStarted::NotFound)));
    }

    #[test]
    fn a_script_without_an_interpreter_line_is_the_shells() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        fs::write(&script, "exit $1\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let pid = spawn(&[script.into_os_string(), "23".into()], &[]).unwrap();
        let status = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(pid), None).unwrap();
        assert_eq!(status, nix::sys::wait::WaitStatus::Exited(nix::unistd::Pid::from_raw(pid), 23));
    }
}
