//! What may become of an upper after its last capture.

use std::path::Path;

use atoll_store::Result;

/// Whether the upper holds nothing at all: the workspace shows exactly its base.
pub fn upper_is_empty(upper: &Path) -> Result<bool> {
    let _ = upper;
    todo!()
}

/// Empties an unmounted upper whose state is a commit (the caller captured it, unmounted, and published or found
/// nothing changed). The order is crash-safe: `before_delete` (the caller's `put_workspace` with base = head)
/// runs between the moment the old upper is out of the way and the moment its bytes are deleted; see the
/// module's text. Returns with a new, empty upper and work folder.
pub fn reset_upper(
    upper: &Path,
    work: &Path,
    index: &Path,
    before_delete: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let _ = (upper, work, index, before_delete);
    todo!()
}
