//! From what people write to a commit's id.

use rusqlite::Connection;

use super::{RefName, Store, refs};
use crate::{Code, Error, Hash, Result};

/// Fewer digits of an id are not taken for one.
const PREFIX_MIN: usize = 4;

impl Store {
    /// The id that a reference means: a branch, a tag, `branch/NAME`, `tag/NAME`, a full id or a unique prefix of 4
    /// or more digits; each with any number of `~N` (N first parents back) and `^N` (the N-th parent) behind it. A
    /// branch comes before a tag, a name before a prefix.
    ///
    /// # Errors
    /// `NotFound` (with the nearest names), `Ambiguous` (with the candidates).
    pub fn resolve(&self, reference: &str) -> Result<Hash> {
        let end = reference.find(['~', '^']).unwrap_or(reference.len());
        let (name, steps) = reference.split_at(end);
        self.read(|db| {
            let mut id = named(db, name)?;
            let mut rest = steps;
            while let Some(kind) = rest.chars().next() {
                let digits = rest[1..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |at| at + 1);
                let count = match &rest[1..digits] {
                    "" => 1,
                    number => number.parse::<u32>().map_err(|_| malformed(reference))?,
                };
                match kind {
                    '~' => {
                        for _ in 0..count {
                            id = parent(db, &id, 1, reference)?;
                        }
                    }
                    '^' if count > 0 => id = parent(db, &id, count as usize, reference)?,
                    '^' => {}
                    _ => return Err(malformed(reference)),
                }
                rest = &rest[digits..];
            }
            Ok(id)
        })
    }
}

fn malformed(reference: &str) -> Error {
    Error::new(
        Code::Usage,
        format!(
            "'{reference}' is not a reference; write a branch, a tag or an id, perhaps with ~N or ^ behind it."
        ),
    )
}

fn parent(db: &Connection, id: &Hash, number: usize, reference: &str) -> Result<Hash> {
    let commit = refs::commit(db, id)?.ok_or_else(|| {
        Error::damaged(format!("Commit {id}, which '{reference}' leads to, is missing from the store."))
    })?;
    commit.record.parents.get(number - 1).copied().ok_or_else(|| {
        let why = match commit.record.parents.len() {
            0 => "is the first one and has no parent".to_owned(),
            1 => "has only one parent".to_owned(),
            count => format!("has only {count} parents"),
        };
        Error::new(
            Code::NotFound,
            format!(
                "'{reference}' goes back too far: commit {} {why}. `atoll log` lists what there is.",
                &id.hex()[..12]
            ),
        )
    })
}

fn named(db: &Connection, name: &str) -> Result<Hash> {
    if let Some(exact) = RefName::from_stored(name) {
        return match refs::get(db, &exact)? {
            Some(state) => Ok(state.commit),
            None => Err(not_found(db, name, exact.short())?),
        };
    }
    for exact in [RefName::Branch(name.to_owned()), RefName::Tag(name.to_owned())] {
        if let Some(state) = refs::get(db, &exact)? {
            return Ok(state.commit);
        }
    }
    let digits =
        name.len() >= PREFIX_MIN && name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !digits {
        return Err(not_found(db, name, name)?);
    }
    let ids = by_prefix(db, name)?;
    match ids[..] {
        [id] => Ok(id),
        [] => Err(not_found(db, name, name)?),
        _ => {
            let shown: Vec<String> =
                ids.iter().map(|id| id.hex()[..(name.len() + 4).clamp(12, 64)].to_owned()).collect();
            Err(Error::new(
                Code::Ambiguous,
                format!(
                    "'{name}' is the beginning of more than one commit: {}. Write more digits.",
                    shown.join(", ")
                ),
            ))
        }
    }
}

/// At most eight commits whose id begins with these digits.
fn by_prefix(db: &Connection, digits: &str) -> Result<Vec<Hash>> {
    let bound = |fill: &str| Hash::from_hex(&format!("{digits}{}", fill.repeat(64 - digits.len())));
    let (from, to) = (bound("0")?, bound("f")?);
    let mut statement =
        db.prepare_cached("SELECT id FROM commits WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT 8")?;
    let rows = statement.query_map([from.0, to.0], |row| Ok(Hash(row.get(0)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn not_found(db: &Connection, written: &str, name: &str) -> Result<Error> {
    let mut near: Vec<(usize, String)> = refs::all(db)?
        .into_iter()
        .map(|(other, _)| (distance(name, other.short()), other.short().to_owned()))
        .filter(|(distance, other)| *distance <= 1 + name.chars().count().max(other.chars().count()) / 3)
        .collect();
    near.sort();
    near.dedup_by(|a, b| a.1 == b.1);
    let hint = if near.is_empty() {
        "`atoll branch` lists the branches, `atoll log` the commits".to_owned()
    } else {
        let names: Vec<String> = near.into_iter().take(3).map(|(_, name)| format!("'{name}'")).collect();
        format!("did you mean {}?", names.join(" or "))
    };
    let end = if hint.ends_with('?') { "" } else { "." };
    Ok(Error::new(Code::NotFound, format!("There is no branch, tag or commit '{written}'; {hint}{end}")))
}

/// How many letters must be added, removed, changed or swapped to get from one name to the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = change.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn near_names_are_near() {
        assert_eq!(distance("main", "main"), 0);
        assert_eq!(distance("mian", "main"), 1);
        assert_eq!(distance("mai", "main"), 1);
        assert_eq!(distance("", "main"), 4);
        assert_eq!(distance("try-1", "try-2"), 1);
    }
}
