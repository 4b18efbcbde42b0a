//! Starts the command, passes signals on, keeps its timeout, and ends what it leaves behind.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use atoll_store::{Code, Error, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::json;

use super::cgroup::Group;
use super::namespace::{self, Kind};
use super::report::{Failure, Report};
use super::running::Record;
use super::spawn::{NotStarted, spawn};
use super::spec::{Limits, Spec};
use super::{EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, EXIT_TIMEOUT, procs};

/// Passed on to the command when the caller sends them to the launcher.
const PASSED_ON: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];
/// How long processes that outlive the command may take to end by themselves.
const LEFTOVER_GRACE: Duration = Duration::from_secs(2);
/// How long the kernel may take to end killed processes (one may sit in a system call).
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    code: i32,
    signal: Option<i32>,
}

struct Supervisor<'a> {
    spec: &'a Spec,
    report: &'a mut Report,
    group: Group,
    signals: SignalFd,
    caller: i32,
    seen: Seen,
    main: i32,
    ended: Option<End>,
}

/// Signals that came from elsewhere than the caller: from the terminal or from somebody who sent them to the whole
/// process group, so that the command and the caller have them too. When the caller then sends its own on, that one
/// is not for the command: two interrupts mean something else to many programs than one.
#[derive(Debug, Default)]
struct Seen(Vec<(Signal, Instant)>);

impl Seen {
    const MEMORY: Duration = Duration::from_secs(1);

    fn add(&mut self, signal: Signal, now: Instant) {
        self.0.push((signal, now));
    }

    fn take(&mut self, signal: Signal, now: Instant) -> bool {
        self.0.retain(|(_, when)| now.duration_since(*when) < Self::MEMORY);
        let found = self.0.iter().position(|(seen, _)| *seen == signal);
        found.map(|index| self.0.swap_remove(index)).is_some()
    }
}

pub(super) fn run(spec: &Spec, report: &mut Report) -> Result<i32, Failure> {
    if spec.command.is_empty() {
        return Err(Failure::new(Code::Usage, "There is no command to run: name one after '--'."));
    }
    // A caller that dies takes the command with it: nothing would commit what it does from then on.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM)).map_err(system)?;
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1)).map_err(system)?;
    let signals = block_signals().map_err(|errno| Failure::from(Error::from(io::Error::from(errno))))?;
    let mut group = Group::create(&spec.limits)?;
    let (kind, placeholders) = match namespace::enter(spec) {
        Ok(entered) => entered,
        Err(failure) => {
            group.remove();
            return Err(failure);
        }
    };
    let mut supervisor = Supervisor {
        spec,
        report,
        group,
        signals,
        caller: nix::unistd::getppid().as_raw(),
        seen: Seen::default(),
        main: 0,
        ended: None,
    };
    let code = supervisor.whole_life(kind);
    // The mounts over the placeholders are only in this namespace, which would refuse their removal.
    if kind != Kind::None {
        for pass in spec.passes.iter().rev() {
            let _ = rustix::mount::unmount(&pass.target, rustix::mount::UnmountFlags::DETACH);
        }
    }
    placeholders.remove();
    code
}

fn system(errno: rustix::io::Errno) -> Failure {
    Failure::from(Error::from(io::Error::from(errno)))
}

fn block_signals() -> nix::Result<SignalFd> {
    let mut set = SigSet::empty();
    PASSED_ON.into_iter().for_each(|signal| set.add(signal));
    set.add(Signal::SIGCHLD);
    set.thread_block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}

impl Supervisor<'_> {
    fn whole_life(&mut self, kind: Kind) -> Result<i32, Failure> {
        let mut record = match &self.spec.state_dir {
            Some(dir) => Some(Record::create(dir)?),
            None => None,
        };
        let started = Instant::now();
        let spawned = self.spawn();
        if !matches!(spawned, Ok(Ok(()))) {
            self.group.remove();
            if let Some(record) = record {
                record.end();
            }
            return spawned.map(|why| why.map_or_else(|why| self.not_started(&why), |()| 0));
        }
        if let Some(record) = &mut record {
            let program = procs::lookup(self.main).map(|process| process.name).unwrap_or_default();
            record.write(self.main, &program, &self.group)?;
        }
        self.report.send(&json!({
            "event": "started",
            "pid": self.main,
            "namespace": kind.name(),
            "cgroup": self.group.path().map(|path| path.display().to_string()),
        }));
        let timed_out = self.wait(started);
        let duration = started.elapsed();
        let end = self.ended.unwrap_or(End { code: EXIT_TIMEOUT, signal: None });
        let left = if self.spec.detach_children { self.left_behind() } else { self.end_leftovers() };
        self.report_end(end, timed_out, duration, &left);
        let empty = self.group.remove();
        if let Some(record) = record.filter(|_| empty && (left.is_empty() || !self.spec.detach_children)) {
            record.end();
        }
        Ok(if timed_out { EXIT_TIMEOUT } else { end.code })
    }

    fn spawn(&mut self) -> Result<Result<(), NotStarted>, Failure> {
        // The command begins in the launcher's own folder. A relative program name is meant from there, too.
        std::env::set_current_dir(&self.spec.cwd).map_err(|error| {
            let shown = self.spec.cwd.display();
            Failure::new(Code::NotFound, format!("The command cannot start in {shown}: {error}."))
        })?;
        let mut env: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        for (name, value) in &self.spec.env {
            env.retain(|(have, _)| have != name);
            env.push((name.clone(), value.clone()));
        }
        if let Err(error) = self.group.enter() {
            self.group.leave(&self.spec.limits);
            self.group.remove();
            if self.spec.limits != Limits::default() {
                return Err(Failure::new(
                    Code::Unsupported,
                    format!("The cgroup cannot be entered: {error}."),
                ));
            }
        }
        let started = spawn(&self.spec.command, &env);
        self.group.leave(&self.spec.limits);
        Ok(started.map(|pid| self.main = pid))
    }

    /// As shells have it: 127 not found, 126 found but not to be started.
    fn not_started(&mut self, why: &NotStarted) -> i32 {
        let name = self.spec.command[0].to_string_lossy();
        let (code, message) = match why {
            NotStarted::NotFound => (EXIT_NOT_FOUND, format!("The command '{name}' was not found.")),
            NotStarted::NotExecutable(error) => {
                (EXIT_NOT_EXECUTABLE, format!("The command '{name}' cannot be started: {error}."))
            }
        };
        self.report.send(&json!({"event": "not_started", "exit_code": code, "message": message}));
        code
    }

    /// Returns when the command has ended; `true` when its timeout ended it.
    fn wait(&mut self, started: Instant) -> bool {
        let grace = Duration::from_secs_f64(self.spec.grace_s.clamp(0.0, 1e9));
        let timeout = self.spec.timeout_s.map(|s| started + Duration::from_secs_f64(s.clamp(0.0, 1e9)));
        let mut timed_out = false;
        let mut deadline: Option<Instant> = None;
        while self.ended.is_none() {
            let next = deadline.or(timeout.filter(|_| !timed_out));
            let signal = self.next_signal(next);
            let now = Instant::now();
            self.reap();
            if self.ended.is_some() {
                break;
            }
            if let Some(signal) = signal {
                self.send(signal);
                if signal == Signal::SIGTERM {
                    deadline.get_or_insert(now + grace);
                }
            }
            if deadline.is_some_and(|at| now >= at) {
                self.send(Signal::SIGKILL);
                deadline = Some(now + KILL_PATIENCE);
            } else if !timed_out && timeout.is_some_and(|at| now >= at) {
                timed_out = true;
                self.send(Signal::SIGTERM);
                // A stopped process does not see the signal before it goes on.
                self.send(Signal::SIGCONT);
                deadline.get_or_insert(now + grace);
            }
        }
        timed_out
    }

    fn send(&self, signal: Signal) {
        // The process is not reaped yet, so its number is still its own.
        let _ = kill(Pid::from_raw(self.main), signal);
    }

    /// Waits for a signal that is to be passed on; `None` for a child's end, a deadline, or a signal that the
    /// command has already.
    fn next_signal(&mut self, deadline: Option<Instant>) -> Option<Signal> {
        let timeout = match deadline {
            None => PollTimeout::NONE,
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
        };
        let mut fds = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, timeout).ok()?;
        let info = self.signals.read_signal().ok().flatten()?;
        let signal = Signal::try_from(info.ssi_signo as i32).ok()?;
        if signal == Signal::SIGCHLD {
            return None;
        }
        let now = Instant::now();
        let orphaned = nix::unistd::getppid().as_raw() != self.caller;
        if info.ssi_pid as i32 == self.caller || orphaned {
            return (!self.seen.take(signal, now)).then_some(signal);
        }
        self.seen.add(signal, now);
        None
    }

    /// Takes every ended child, also those that fell to this subreaper.
    fn reap(&mut self) {
        loop {
            let (pid, end) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, End { code, signal: None }),
                Ok(WaitStatus::Signaled(pid, signal, _)) => {
                    (pid, End { code: 128 + signal as i32, signal: Some(signal as i32) })
                }
                Ok(WaitStatus::StillAlive) | Err(_) => return,
                Ok(_) => continue,
            };
            if pid.as_raw() == self.main {
                self.ended = Some(end);
            }
        }
    }

    /// What the command started and did not end: in its cgroup, or below this subreaper.
    fn left_behind(&mut self) -> Vec<procs::Process> {
        self.reap();
        let mut found = procs::descendants(std::process::id() as i32);
        for pid in self.group.processes() {
            if !found.iter().any(|process| process.pid == pid) {
                found.extend(procs::lookup(pid));
            }
        }
        found
    }

    /// Asks them to end, then ends them. Returns those that were still there.
    fn end_leftovers(&mut self) -> Vec<procs::Process> {
        let first = self.left_behind();
        if first.is_empty() {
            return first;
        }
        let signal_all = |left: &[procs::Process], signal| {
            for process in left {
                let _ = kill(Pid::from_raw(process.pid), signal);
            }
        };
        signal_all(&first, Signal::SIGTERM);
        signal_all(&first, Signal::SIGCONT);
        let mut left = self.wait_for_none(LEFTOVER_GRACE);
        let patience = Instant::now() + KILL_PATIENCE;
        // More than once: a process may start another between the look and the kill.
        while !left.is_empty() && Instant::now() < patience {
            self.group.kill();
            signal_all(&left, Signal::SIGKILL);
            left = self.wait_for_none(Duration::from_millis(20));
        }
        if !left.is_empty() {
            let names: Vec<String> = left.iter().map(|p| format!("{} ({})", p.name, p.pid)).collect();
            self.report
                .note(&format!("These processes of the command could not be ended: {}.", names.join(", ")));
        }
        first
    }

    fn wait_for_none(&mut self, patience: Duration) -> Vec<procs::Process> {
        let until = Instant::now() + patience;
        let mut pause = Duration::from_millis(1);
        loop {
            let left = self.left_behind();
            if left.is_empty() || Instant::now() >= until {
                return left;
            }
            // A child's end interrupts the pause; grandchildren do not, hence the short steps.
            let _ = self.next_signal(Some(Instant::now() + pause));
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    fn report_end(&mut self, end: End, timed_out: bool, duration: Duration, left: &[procs::Process]) {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok();
        let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        let cpu = self.group.cpu_seconds().or_else(|| {
            usage.as_ref().map(|usage| seconds(usage.user_time()) + seconds(usage.system_time()))
        });
        let together = self.group.peak_memory();
        let largest = usage.as_ref().map(|usage| usage.max_rss() as u64 * 1024);
        self.report.send(&json!({
            "event": "ended",
            "exit_code": if timed_out { EXIT_TIMEOUT } else { end.code },
            "signal": end.signal,
            "timed_out": timed_out,
            "duration_s": duration.as_secs_f64(),
            "cpu_s": cpu,
            "peak_memory_bytes": together.or(largest),
            "peak_memory_of": if together.is_some() { "all" } else { "largest_process" },
            "oom_kills": self.group.oom_kills(),
            "left_behind": left.iter().map(|p| json!({"pid": p.pid, "name": p.name})).collect::<Vec<_>>(),
            "detached": self.spec.detach_children && !left.is_empty(),
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_interrupt_of_the_group_is_one_for_the_command() {
        let mut seen = Seen::default();
        let start = Instant::now();
        assert!(!seen.take(Signal::SIGINT, start), "the caller's own");
        seen.add(Signal::SIGINT, start);
        assert!(!seen.take(Signal::SIGTERM, start));
        assert!(seen.take(Signal::SIGINT, start), "the group's, sent on by the caller");
        assert!(!seen.take(Signal::SIGINT, start), "a second one of the caller's");
        seen.add(Signal::SIGINT, start);
        assert!(!seen.take(Signal::SIGINT, start + Seen::MEMORY));
    }
}
