//! Which of the changes are to be applied.

use atoll_store::Result;
use atoll_store::tree::{Change, FileType};

use super::ignored::Ignored;
use super::{ApplyOptions, LeftOut};

/// The wanted changes, and the paths that are left out.
pub(super) type Selected = (Vec<Change>, Vec<(Vec<u8>, LeftOut)>);

/// Sorts changes into those that are wanted and those that are left out.
pub(super) fn select(
    changes: Vec<Change>,
    options: &ApplyOptions,
    mut ignored: Ignored<'_>,
) -> Result<Selected> {
    let (mut wanted, mut left_out) = (Vec::new(), Vec::new());
    for change in changes {
        // The folder itself is the user's.
        if change.path.is_empty() {
            continue;
        }
        let places = || std::iter::once(&change.path).chain(&change.old_path);
        let asked = options.paths.is_empty()
            || places().any(|path| options.paths.iter().any(|of| is_below(path, of)));
        let in_git = |path: &Vec<u8>| path.split(|byte| *byte == b'/').any(|name| name == b".git");
        let is_dir = change.new.or(change.old).is_some_and(|(_, inode)| inode.kind == FileType::Dir);
        let reason = if !asked {
            Some(LeftOut::Outside)
        } else if options.all {
            None
        } else if places().any(in_git) {
            Some(LeftOut::Git)
        } else {
            ignored.leaves_out(&change.path, is_dir)?.then_some(LeftOut::Ignored)
        };
        match reason {
            Some(reason) => left_out.push((change.path, reason)),
            None => wanted.push(change),
        }
    }
    Ok((wanted, left_out))
}

/// Whether a path is `of` or below it.
pub(super) fn is_below(path: &[u8], of: &[u8]) -> bool {
    of.is_empty() || path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}
