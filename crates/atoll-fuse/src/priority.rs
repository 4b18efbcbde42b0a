//! Asks the scheduler to run a thread soon when it wakes, for as short as it needs to.
#![allow(unsafe_code)] // `sched_setattr` has no safe wrapper; the structure is the kernel's first version.

/// The kernel's `struct sched_attr`, first version.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// The shortest slice that the kernel knows: 0.1 ms.
const SLICE_NS: u64 = 100_000;

/// Gives the calling thread short time slices (kernel 6.12 and later; else nothing happens). It gets no more
/// of the processor than before, but when a request wakes it on a busy machine it runs at once, not after
/// the 3 ms of somebody's compiler: every caller waits for it.
pub(crate) fn answer_soon() {
    let mut attr = SchedAttr { size: size_of::<SchedAttr>() as u32, ..SchedAttr::default() };
    let size = attr.size;
    // SAFETY: the kernel writes at most `size` bytes, which `attr` has; 0 is this thread.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    // Only where the ordinary policy holds; nobody's real-time setting is touched.
    if got != 0 || attr.policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attr.runtime = SLICE_NS;
    // SAFETY: the kernel reads `attr.size` bytes.
    if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) } != 0 {
        log::debug!("Short time slices: {}", std::io::Error::last_os_error());
    }
}
