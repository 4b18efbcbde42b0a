//! Removes files that nothing durable names.

use std::io::ErrorKind;
use std::path::Path;

use crate::fault::{self, Point};
use crate::oplog::PackId;
use crate::pack;
use crate::store::{Store, db};
use crate::{Error, Result};

/// Removes a pack that the database does not name any more; says how long it was.
pub(super) fn remove_pack(store: &Store, id: u64) -> Result<u64> {
    remove(&store.packs_dir().join(pack::file_name(id)))
}

fn remove(path: &Path) -> Result<u64> {
    let len = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let removed = fault::hit(Point::PackRemove).and_then(|()| std::fs::remove_file(path));
    match removed {
        Ok(()) => Ok(len),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(source) => Err(Error::io("remove", path, source)),
    }
}

/// Removes what writers that died left in `packs/`; says how many bytes.
pub(super) fn leftovers(store: &Store) -> Result<u64> {
    let dir = store.packs_dir();
    let failed = |source| Error::io("read the folder", &dir, source);
    let mut freed = 0;
    for entry in std::fs::read_dir(&dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some((id, unfinished)) = parse(&path) else { continue };
        if !unfinished && is_named(store, id)? {
            continue;
        }
        // Whoever writes it holds its lock until the log names it.
        let Some(_lock) = pack::lock_if_free(&path)? else { continue };
        if unfinished || !is_named(store, id)? {
            freed += remove(&path)?;
        }
    }
    Ok(freed)
}

fn is_named(store: &Store, id: u64) -> Result<bool> {
    Ok(store.read(|db| db::pack_row(db, PackId::File(id)))?.is_some())
}

/// A pack's id, and whether it is unfinished; `None` for a file that is no pack.
fn parse(path: &Path) -> Option<(u64, bool)> {
    let (stem, unfinished) = match path.extension()?.to_str()? {
        "pack" => (path.file_stem()?, false),
        "unfinished" => (path.file_stem()?, true),
        _ => return None,
    };
    let stem = stem.to_str().filter(|stem| stem.len() == 16)?;
    Some((u64::from_str_radix(stem, 16).ok()?, unfinished))
}
