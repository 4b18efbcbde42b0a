//! An idle session sleeps. Alone in its process, so that every other thread is the session's.

mod common;

use std::fs;

use atoll_fuse::Config;
use common::{Mounted, sample};

/// Nanoseconds that the process's threads other than this one have run, from the scheduler.
fn ran() -> u64 {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| task.unwrap())
        .filter(|task| *task.file_name() != *own)
        .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
        .map(|stat| stat.split(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

/// The longest that any process lets a processor take to wake, in µs; `None` where it cannot be asked.
fn wake_limit() -> Option<i32> {
    use std::io::Read;
    let mut value = [0; 4];
    fs::File::open("/dev/cpu_dma_latency").and_then(|mut device| device.read_exact(&mut value)).ok()?;
    Some(i32::from_ne_bytes(value))
}

#[test]
fn idle_session_uses_no_cpu() {
    let limit = wake_limit();
    let Some(mounted) = Mounted::new(sample(false), Config::default()) else { return };
    assert_eq!(fs::read_dir(mounted.join("dir1")).unwrap().count(), 25);
    let mut last = ran();
    let settled = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        std::mem::replace(&mut last, ran()) == last
    });
    assert!(settled, "the session's threads never slept for 10 ms");
    assert!(wake_limit() >= limit, "processors are kept awake though nothing is asked");
}
