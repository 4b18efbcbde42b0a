//! Keeps idle processors from halting while requests come fast.
//!
//! A caller sleeps while its request is answered, and on a machine with little else to do its processor halts.
//! To wake a halted processor costs more than to answer: in a virtual machine without halt polling it was half of
//! the time of cold reads (docs/notes/history-mount.md). The kernel's answer is power management's quality
//! of service: while somebody holds `/dev/cpu_dma_latency` at 0, an idle processor polls, and is woken by a write
//! to memory. It is held only in a burst of requests, and the kernel takes it back when the holder dies.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::io::Errno;

/// Tells the kernel how long a processor may take to wake.
const DEVICE: &str = "/dev/cpu_dma_latency";
/// The kernel's own default, in µs: as long as it likes.
const ANY: i32 = 2_000_000_000;
/// So many requests with no pause between them are a burst: fewer are not worth the two writes.
const BURST: u32 = 8;
/// A burst is over when nothing came for so long.
const PAUSE: Duration = Duration::from_millis(2);

/// One session's wish that processors stay awake. Only root may ask; for others, and where the kernel has no such
/// device, nothing happens.
pub(crate) struct Awake {
    device: Option<File>,
    held: AtomicBool,
    /// Requests since the last pause.
    burst: AtomicU32,
}

impl Awake {
    /// Asks for nothing yet; `wanted` false: nor ever.
    pub(crate) fn new(wanted: bool) -> Self {
        let device = wanted.then(|| File::options().write(true).open(DEVICE)).and_then(|opened| {
            opened.inspect_err(|error| log::debug!("{DEVICE}: {error}; idle processors may halt.")).ok()
        });
        Awake { device, ..Awake::never() }
    }

    /// One that asks for nothing.
    pub(crate) const fn never() -> Self {
        Awake { device: None, held: AtomicBool::new(false), burst: AtomicU32::new(0) }
    }

    /// A request came, `waited` after there had been nothing left to do.
    pub(crate) fn request(&self, waited: Duration) {
        if self.device.is_none() {
            return;
        }
        if waited >= PAUSE {
            self.burst.store(0, Ordering::Relaxed);
        } else if self.burst.fetch_add(1, Ordering::Relaxed) >= BURST
            && !self.held.swap(true, Ordering::Relaxed)
        {
            self.say(0);
        }
    }

    /// How long to wait for a request before [`Awake::pause`]; `None` is for ever.
    pub(crate) fn patience(&self) -> Option<(Timespec, u32)> {
        let pause = Timespec { tv_sec: 0, tv_nsec: PAUSE.subsec_nanos().into() };
        self.held.load(Ordering::Relaxed).then(|| (pause, self.burst.load(Ordering::Relaxed)))
    }

    /// Nothing came here for as long as [`Awake::patience`] said. The burst is over, unless another thread had
    /// requests meanwhile.
    pub(crate) fn pause(&self, burst: u32) {
        if self.burst.compare_exchange(burst, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            && self.held.swap(false, Ordering::Relaxed)
        {
            self.say(ANY);
        }
    }

    fn say(&self, micros: i32) {
        let Some(device) = &self.device else { return };
        match rustix::io::write(device, &micros.to_ne_bytes()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => log::debug!("{DEVICE}: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use super::*;

    /// What was written to the device since the last look.
    fn said(device: &mut File, from: &mut u64) -> Vec<i32> {
        device.seek(std::io::SeekFrom::Start(*from)).unwrap();
        let mut bytes = Vec::new();
        *from += device.read_to_end(&mut bytes).unwrap() as u64;
        bytes.chunks(4).map(|value| i32::from_ne_bytes(value.try_into().unwrap())).collect()
    }

    #[test]
    fn a_burst_is_held_and_its_end_let_go() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (mut device, mut from) = (file.reopen().unwrap(), 0);
        let awake = Awake { device: Some(file.reopen().unwrap()), ..Awake::never() };

        (0..100).for_each(|_| awake.request(PAUSE));
        assert!(awake.patience().is_none(), "seldom requests are no burst");
        (0..BURST).for_each(|_| awake.request(Duration::ZERO));
        assert!(awake.patience().is_none());
        assert_eq!(said(&mut device, &mut from), []);
        (0..100).for_each(|_| awake.request(Duration::ZERO));
        assert_eq!(said(&mut device, &mut from), [0]);

        let (_, before) = awake.patience().unwrap();
        awake.request(Duration::ZERO);
        awake.pause(before);
        assert_eq!(said(&mut device, &mut from), [], "another thread had a request meanwhile");
        let (_, before) = awake.patience().unwrap();
        awake.pause(before);
        assert_eq!(said(&mut device, &mut from), [ANY]);
        assert!(awake.patience().is_none());
    }
}
