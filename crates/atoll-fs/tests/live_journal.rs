//! What a damaged journal becomes, and what a commit cuts contents into.

mod live_support;

use atoll_fs::ingest::contents::Ingest;
use atoll_fs::live::{Attrs, New, Who};
use atoll_store::Ino;
use atoll_store::tree::{Extent, FileType, TreeView};
use live_support::{Model, Pair, Trees, step};
use proptest::prelude::*;

/// The newest segment's path.
fn last_segment(folder: &std::path::Path) -> std::path::PathBuf {
    let named = |path: &std::path::PathBuf| {
        path.file_name().is_some_and(|name| {
            name.len() == 8 && name.to_str().is_some_and(|name| name.parse::<u32>().is_ok())
        })
    };
    let mut found: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(named).collect();
    found.sort();
    found.pop().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// A flipped bit costs the changes behind it and nothing before; what was cut off is kept aside and said.
    #[test]
    fn a_flipped_bit_ends_the_journal_there(
        steps in proptest::collection::vec(step(), 1..40),
        place in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let trees = Trees::default();
        let folder = tempfile::tempdir().unwrap();
        let base = trees.empty();
        let mut pair = Pair::new(trees.open(folder.path(), &base, 1).0);
        let path = last_segment(folder.path());
        let begun = std::fs::metadata(&path).unwrap().len();
        // The model after each step, and how long the journal is then.
        let mut after: Vec<(u64, Model)> = vec![(begun, pair.model.clone())];
        for step in &steps {
            pair.step(step);
            after.push((std::fs::metadata(&path).unwrap().len(), pair.model.clone()));
        }
        drop(pair);
        let mut bytes = std::fs::read(&path).unwrap();
        if bytes.len() as u64 == begun {
            return Ok(());
        }
        let at = begun as usize + place.index(bytes.len() - begun as usize);
        bytes[at] ^= 1 << bit;
        std::fs::write(&path, &bytes).unwrap();
        let (live, lost) = trees.open(folder.path(), &base, 1);
        let lost = lost.expect("something is cut off");
        let aside = lost.aside.expect("and kept");
        prop_assert!(std::fs::read(&aside).unwrap().len() <= bytes.len());
        let mut pair = Pair::new(live);
        let (_, kept) = after.iter().rev().find(|(end, _)| *end as usize <= at).unwrap();
        pair.model = kept.clone();
        pair.compare();
        // It goes on, and the cut stays cut.
        pair.find_inos();
        for step in &steps {
            pair.step(step);
        }
        let model = pair.model.clone();
        drop(pair);
        let (live, lost) = trees.open(folder.path(), &base, 1);
        prop_assert!(lost.is_none());
        Pair::new(live).compare_with(&model);
    }

    /// Whatever was written where: a commit has the chunks that an import of the same bytes has, and reads only some.
    #[test]
    fn contents_are_cut_as_an_import_cuts_them(
        size in 100_000usize..2_500_000,
        writes in proptest::collection::vec((any::<prop::sample::Index>(), 1usize..150_000), 1..5),
        end in 1usize..3_000_000,
        seed in any::<u64>(),
    ) {
        let trees = Trees::default();
        let folder = tempfile::tempdir().unwrap();
        let base = trees.empty();
        let (live, _) = trees.open(folder.path(), &base, 1);
        let who = Who::default();
        let new = New { kind: FileType::File, mode: 0o644, rdev: 0, target: b"" };
        let ino = live.create(who, Ino::ROOT, Some(b"f"), new).unwrap().ino;
        let mut random = seed | 1;
        let mut next = |len: usize| -> Vec<u8> {
            (0..len).map(|_| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random as u8
            }).collect()
        };
        let mut bytes = next(size);
        prop_assert_eq!(live.write(who, ino, 0, &bytes, false).unwrap(), size);
        let frozen = live.freeze();
        let (first, _) = trees.commit(&base, &frozen);
        live.rebase(frozen, trees.base(&first), first.0).unwrap();
        for (at, len) in &writes {
            let at = at.index(size);
            let new = next(*len);
            live.write(who, ino, at as u64, &new, false).unwrap();
            if bytes.len() < at + len {
                bytes.resize(at + len, 0);
            }
            bytes[at..at + len].copy_from_slice(&new);
        }
        if end < bytes.len() {
            live.set(who, ino, Attrs { size: Some(end as u64), ..Attrs::default() }, false).unwrap();
            bytes.truncate(end);
        }
        let (second, read) = trees.commit(&first, &live.freeze());
        let view = trees.base(&second);
        let found = TreeView::new(&*view.objects, view.root).extents(ino, 0..u64::MAX).unwrap();
        let mut ingest = Ingest::into_sink(&*trees.objects);
        let expected = ingest.bytes(&bytes).unwrap();
        let lengths = |extents: &[(u64, Extent)]| extents.iter().map(|(at, extent)| (*at, extent.len())).collect::<Vec<_>>();
        prop_assert_eq!(lengths(&found), lengths(&expected));
        prop_assert_eq!(&found, &expected);
        prop_assert!(read <= bytes.len() as u64 * (writes.len() as u64 + 1));
    }
}

/// Ten bytes in the middle of a large file: what is kept beside the base is small, and the commit reads what is
/// around them.
#[test]
fn a_small_edit_of_a_large_file_reads_little() {
    let trees = Trees::default();
    let folder = tempfile::tempdir().unwrap();
    let base = trees.empty();
    let (live, _) = trees.open(folder.path(), &base, 1);
    let who = Who::default();
    let new = New { kind: FileType::File, mode: 0o644, rdev: 0, target: b"" };
    let ino = live.create(who, Ino::ROOT, Some(b"f"), new).unwrap().ino;
    let block: Vec<u8> =
        (0..1u32 << 18).flat_map(|word| (word.wrapping_mul(2_654_435_761)).to_le_bytes()).collect();
    for at in 0u64..32 {
        let mut block = block.clone();
        block[..8].copy_from_slice(&at.to_le_bytes());
        live.write(who, ino, at << 20, &block, false).unwrap();
    }
    let frozen = live.freeze();
    let (made, _) = trees.commit(&base, &frozen);
    live.rebase(frozen, trees.base(&made), made.0).unwrap();
    live.write(who, ino, 17 << 20, b"ten bytes.", false).unwrap();
    live.sync().unwrap();
    let kept: u64 = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| std::os::unix::fs::MetadataExt::blocks(&entry.unwrap().metadata().unwrap()) * 512)
        .sum();
    // The journal's head start and the spare.
    assert!(kept < 8 << 20, "{kept} bytes are kept");
    let mut ingest = Ingest::into_sink(&*trees.objects);
    let edits = live.freeze().edits(&mut ingest).unwrap();
    assert!(ingest.bytes <= 4 << 20, "{} bytes were read", ingest.bytes);
    assert!(edits.len() <= 8, "{} edits", edits.len());
}
