//! Progress out of the core, and Ctrl-C into it.
//!
//! The core works on threads of its own and never calls Python. The calling thread waits for it, wakes a few
//! times a second to tell the caller's callback how far it is, and lets Python handle signals; when either raises,
//! the core is asked to stop and the exception goes on.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use atoll_fs::progress::{Phase, Progress};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::errors::raise;

/// How often signals are looked at and the callback is called.
const TICK: Duration = Duration::from_millis(50);

/// Counts that the core's threads add to and the calling thread reads.
#[derive(Default)]
pub struct Counts {
    phase: AtomicU8,
    files: AtomicU64,
    bytes: AtomicU64,
    stop: AtomicBool,
}

const PHASES: [Phase; 5] = [Phase::Scan, Phase::Read, Phase::Tree, Phase::Write, Phase::Compare];

impl Progress for Counts {
    fn advance(&self, phase: Phase, files: u64, bytes: u64) {
        let number = PHASES.iter().position(|known| *known == phase).unwrap_or(0) as u8;
        if self.phase.swap(number, Ordering::Relaxed) != number {
            self.files.store(0, Ordering::Relaxed);
            self.bytes.store(0, Ordering::Relaxed);
        }
        self.files.fetch_add(files, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Runs `work` on another thread without the interpreter. `callback(phase, files, bytes)` is called meanwhile.
pub fn interruptible<T: Send>(
    py: Python<'_>,
    callback: Option<&Py<PyAny>>,
    work: impl FnOnce(&Counts) -> atoll_store::Result<T> + Send,
) -> PyResult<T> {
    let counts = Counts::default();
    let (sender, receiver) = mpsc::channel();
    // Waiting without the interpreter wants something that may be shared; nobody else waits.
    let receiver = Mutex::new(receiver);
    let mut raised = None;
    let result = std::thread::scope(|scope| {
        let counts = &counts;
        let worker = scope.spawn(move || {
            // The receiver lives longer than this thread; a failed send could only mean that nobody waits.
            let _ = sender.send(work(counts));
        });
        loop {
            match py.detach(|| wait(&receiver)) {
                Ok(result) => return Some(result),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    // It panicked; joined here, so that the panic does not go on in this thread.
                    let _ = worker.join();
                    return None;
                }
                Err(mpsc::RecvTimeoutError::Timeout) if raised.is_none() => {
                    if let Err(error) = tick(py, callback, counts) {
                        counts.stop.store(true, Ordering::Relaxed);
                        raised = Some(error);
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
        }
    });
    match (result, raised) {
        (Some(Ok(value)), None) => Ok(value),
        (_, Some(error)) => Err(error),
        (Some(Err(error)), None) => Err(raise(py, &error)),
        (None, None) => {
            Err(PyRuntimeError::new_err("A thread of the core ended unexpectedly; please report it."))
        }
    }
}

fn wait<T>(receiver: &Mutex<mpsc::Receiver<T>>) -> Result<T, mpsc::RecvTimeoutError> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(TICK)
}

fn tick(py: Python<'_>, callback: Option<&Py<PyAny>>, counts: &Counts) -> PyResult<()> {
    py.check_signals()?;
    if let Some(callback) = callback {
        let phase = PHASES[usize::from(counts.phase.load(Ordering::Relaxed)) % PHASES.len()];
        let files = counts.files.load(Ordering::Relaxed);
        let bytes = counts.bytes.load(Ordering::Relaxed);
        callback.call1(py, (phase.name(), files, bytes))?;
    }
    Ok(())
}
