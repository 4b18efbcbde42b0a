//! Requests of any bytes: whatever comes, there is an answer, and nothing reaches a file system that was not there.

use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proptest::prelude::*;

use crate::abi::{Attr, StatFs, Statx};
use crate::filesystem::{Call, Data, DirSink, Entry, Errno, FileSystem, Reply};
use crate::reply::ReplyBuffer;
use crate::session::{Config, Parts, Session};
use crate::writable::{NewNode, SetAttr, Writable};

/// Remembers the longest run of bytes that it was given.
#[derive(Default)]
struct Listener(Mutex<usize>);

impl Listener {
    fn hear(&self, lengths: &[usize]) -> Reply<()> {
        let mut longest = self.0.lock();
        *longest = (*longest).max(lengths.iter().sum());
        Ok(())
    }

    fn entry(&self, lengths: &[usize]) -> Reply<Entry> {
        self.hear(lengths).map(|()| Entry::none(Duration::ZERO))
    }
}

impl FileSystem for Listener {
    fn writable(&self) -> Option<&dyn Writable> {
        Some(self)
    }
    fn lookup(&self, _: &Call<'_>, _: u64, name: &[u8]) -> Reply<Entry> {
        self.entry(&[name.len()])
    }
    fn getattr(&self, _: &Call<'_>, _: u64) -> Reply<(Attr, Duration)> {
        Ok((Attr::default(), Duration::ZERO))
    }
    fn readdir(&self, _: &Call<'_>, _: u64, _: u64, sink: &mut DirSink<'_>) -> Reply<()> {
        // As much as is asked for.
        while sink.add(1, 1, 1, b"name", None) {}
        Ok(())
    }
    fn read(&self, _: &Call<'_>, _: u64, _: u64, _: u64, _: u32, _: &mut Data) -> Reply<()> {
        Ok(())
    }
    fn readlink(&self, _: &Call<'_>, _: u64) -> Reply<Bytes> {
        Err(Errno::EINVAL)
    }
    fn getxattr(&self, _: &Call<'_>, _: u64, name: &[u8]) -> Reply<Bytes> {
        self.hear(&[name.len()]).map(|()| Bytes::from_static(b"value"))
    }
    fn statfs(&self, _: &Call<'_>) -> Reply<StatFs> {
        Ok(StatFs::default())
    }
}

impl Writable for Listener {
    fn make(&self, _: &Call<'_>, _: u64, name: Option<&[u8]>, new: NewNode<'_>) -> Reply<Entry> {
        self.entry(&[name.map_or(0, <[u8]>::len), new.target.len()])
    }
    fn link(&self, _: &Call<'_>, _: u64, _: u64, name: &[u8]) -> Reply<Entry> {
        self.entry(&[name.len()])
    }
    fn remove(&self, _: &Call<'_>, _: u64, name: &[u8], _: bool) -> Reply<()> {
        self.hear(&[name.len()])
    }
    fn rename(&self, _: &Call<'_>, from: (u64, &[u8]), to: (u64, &[u8]), _: u32) -> Reply<()> {
        self.hear(&[from.1.len(), to.1.len()])
    }
    fn setattr(&self, _: &Call<'_>, _: u64, _: SetAttr) -> Reply<(Attr, Duration)> {
        Ok((Attr::default(), Duration::ZERO))
    }
    fn statx(&self, _: &Call<'_>, _: u64) -> Reply<(Statx, Duration)> {
        Ok((Statx::default(), Duration::ZERO))
    }
    fn write(&self, _: &Call<'_>, _: u64, _: u64, bytes: &[u8], _: bool) -> Reply<u32> {
        self.hear(&[bytes.len()]).map(|()| bytes.len() as u32)
    }
    fn fallocate(&self, _: &Call<'_>, _: u64, _: u64, _: u64, _: u32) -> Reply<()> {
        Ok(())
    }
    fn fsync(&self, _: &Call<'_>, _: u64) -> Reply<()> {
        Ok(())
    }
    fn setxattr(&self, _: &Call<'_>, _: u64, name: &[u8], value: &[u8], _: u32) -> Reply<()> {
        self.hear(&[name.len(), value.len()])
    }
    fn removexattr(&self, _: &Call<'_>, _: u64, name: &[u8]) -> Reply<()> {
        self.hear(&[name.len()])
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_answered(
        opcode in 0u32..60,
        unique in any::<u64>(),
        node in any::<u64>(),
        mut body in proptest::collection::vec(prop_oneof![2 => Just(0u8), 1 => any::<u8>()], 0..300),
        size in prop_oneof![Just(0u32), 1u32..300, any::<u32>()],
    ) {
        // Where most kinds have a length, so that it is believable now and then.
        for at in [0, 16] {
            if body.len() >= at + 4 {
                body[at..at + 4].copy_from_slice(&size.to_le_bytes());
            }
        }
        let mut message = vec![0; 40];
        message[..4].copy_from_slice(&(40 + body.len() as u32).to_le_bytes());
        message[4..8].copy_from_slice(&opcode.to_le_bytes());
        message[8..16].copy_from_slice(&unique.to_le_bytes());
        message[16..24].copy_from_slice(&node.to_le_bytes());
        message.extend_from_slice(&body);
        let session = Session::new(Listener::default(), Config::default());
        let mut reply = ReplyBuffer::default();
        // A message that is too short to have the arguments of its kind is no request.
        if let Some(request) = Parts::split(&message) {
            let call = Call {
                uid: 0,
                gid: 0,
                pid: 0,
                request: unique,
                resent: false,
                hand_off: None,
                handed: false.into(),
            };
            reply.clear();
            // Not through `answer`, which would turn a panic into EIO.
            let _ = session.dispatch(&request, &call, &mut reply);
            let _ = session.forget(&request);
            prop_assert!(*session.fs().0.lock() <= body.len());
            prop_assert!(reply.body().0.len() < 4 << 20);
        }
    }
}
