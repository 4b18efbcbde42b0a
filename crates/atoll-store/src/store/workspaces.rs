//! What the store remembers about workspaces: in the log, in the database, and as a file in their folder.

use std::io::Write;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Row};

use super::{Store, Workspace};
use crate::fault::{self, Point};
use crate::oplog::Record;
use crate::tree::Time;
use crate::{Code, Error, Hash, Result};

fn workspace(row: &Row) -> rusqlite::Result<Workspace> {
    use std::os::unix::ffi::OsStringExt;
    Ok(Workspace {
        id: row.get(0)?,
        branch: row.get(1)?,
        driver: row.get(2)?,
        base: Hash(row.get(3)?),
        head: Hash(row.get(4)?),
        mountpoint: row.get::<_, Option<Vec<u8>>>(5)?.map(|path| std::ffi::OsString::from_vec(path).into()),
        settings: row.get(6)?,
        created: Time { sec: row.get(7)?, nsec: row.get(8)? },
    })
}

const COLUMNS: &str = "id, branch, driver, base, head, mountpoint, settings, sec, nsec";

/// All workspaces, by branch.
pub(super) fn all(db: &Connection) -> Result<Vec<Workspace>> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} FROM workspaces ORDER BY branch"))?;
    let rows = statement.query_map([], workspace)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

impl Store {
    /// All workspaces, by branch.
    pub fn workspaces(&self) -> Result<Vec<Workspace>> {
        self.read(all)
    }

    /// The workspace that commits to a branch.
    pub fn workspace_of(&self, branch: &str) -> Result<Option<Workspace>> {
        self.read(|db| {
            let mut statement =
                db.prepare_cached(&format!("SELECT {COLUMNS} FROM workspaces WHERE branch = ?1"))?;
            Ok(statement.query_row([branch], workspace).optional()?)
        })
    }

    /// Stores or replaces a workspace's record, in the log, the database and `workspaces/ID/workspace.json`,
    /// durably. Their bases and heads are gc roots.
    ///
    /// # Errors
    /// `Exists` when another workspace has the branch, `NotFound` when its base or head is not in the store,
    /// `Usage` when its id is not 16 hexadecimal digits.
    pub fn put_workspace(&self, workspace: &Workspace) -> Result<()> {
        if workspace.id.len() != 16 || !workspace.id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Error::new(
                Code::Usage,
                format!("'{}' is not a workspace's id: those are 16 hexadecimal digits.", workspace.id),
            ));
        }
        self.write(|tx| {
            let holder: Option<String> = tx
                .db
                .prepare_cached("SELECT id FROM workspaces WHERE branch = ?1 AND id <> ?2")?
                .query_row((&workspace.branch, &workspace.id), |row| row.get(0))
                .optional()?;
            if let Some(holder) = holder {
                return Err(Error::new(
                    Code::Exists,
                    format!(
                        "The branch '{}' has a workspace already ({holder}); use it, or fork the branch.",
                        workspace.branch
                    ),
                ));
            }
            for commit in [&workspace.base, &workspace.head] {
                if super::refs::commit(&tx.db, commit)?.is_none() {
                    return Err(Error::new(
                        Code::NotFound,
                        format!("The workspace's commit {} is not in the store.", &commit.hex()[..12]),
                    ));
                }
            }
            tx.make_durable();
            tx.record(self, &Record::Workspace(Box::new(workspace.clone())), None)?;
            let dir = self.inner.dir.join("workspaces").join(&workspace.id);
            write_json(&dir, workspace)
                .map_err(|source| Error::io("write the record of the workspace in", &dir, source))
        })
    }

    /// Forgets a workspace (its folder is the caller's to remove).
    pub fn remove_workspace(&self, id: &str) -> Result<()> {
        self.write(|tx| {
            let known = tx.db.prepare_cached("SELECT 1 FROM workspaces WHERE id = ?1")?.exists([id])?;
            if known {
                tx.make_durable();
                tx.record(self, &Record::WorkspaceGone(id.to_owned()), None)?;
            }
            Ok(())
        })
    }
}

/// The same as a file for people and for programs that find the folder without its store.
fn write_json(dir: &Path, workspace: &Workspace) -> std::io::Result<()> {
    let text = |text: &str| {
        let mut out = String::from("\"");
        for c in text.chars() {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                c if u32::from(c) < 0x20 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
                c => out.push(c),
            }
        }
        out.push('"');
        out
    };
    // A path need not be text; the exact bytes are in the log.
    let mountpoint =
        workspace.mountpoint.as_ref().map_or("null".to_owned(), |path| text(&path.to_string_lossy()));
    let settings = if workspace.settings.is_empty() { "{}" } else { &workspace.settings };
    let json = format!(
        "{{\"schema\": 1, \"id\": {}, \"branch\": {}, \"driver\": {}, \"base\": \"{}\", \"head\": \"{}\", \"mountpoint\": {}, \
         \"settings\": {}, \"created\": {}}}\n",
        text(&workspace.id),
        text(&workspace.branch),
        text(&workspace.driver),
        workspace.base,
        workspace.head,
        mountpoint,
        text(settings),
        workspace.created.sec,
    );
    std::fs::create_dir_all(dir)?;
    let new = dir.join("workspace.json.new");
    fault::hit(Point::WorkspaceFile)?;
    let mut file = std::fs::File::create(&new)?;
    file.write_all(json.as_bytes())?;
    file.sync_data()?;
    std::fs::rename(&new, dir.join("workspace.json"))
}
