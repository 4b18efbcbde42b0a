//! Makes and opens a store.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::db::{Database, Reading};
use super::write::Side;
use super::{Inner, Profile, Store, cache, db, reserve};
use crate::fault::{self, Point};
use crate::oplog::{HEADER_LEN, Log};
use crate::{Code, Error, Result};

/// The version of the store as a whole. Packs, log and database have their own.
const FORMAT: u64 = 1;

#[derive(Serialize, Deserialize)]
struct Config {
    format: u64,
    id: String,
    durability: String,
}

fn random() -> Result<u64> {
    getrandom::u64()
        .map_err(|error| Error::new(Code::Io, format!("The system gives no random numbers: {error}.")))
}

impl Store {
    /// Makes a store in `dir`, which must not exist or be empty.
    ///
    /// # Errors
    /// `StoreExists` when there is a store or something else.
    pub fn create(dir: &Path, profile: Profile) -> Result<Store> {
        std::fs::create_dir_all(dir).map_err(|source| Error::io("create the folder", dir, source))?;
        let dir = &dir.canonicalize().map_err(|source| Error::io("find", dir, source))?;
        let folder = File::open(dir).map_err(|source| Error::io("open", dir, source))?;
        // Two can be told to make it at the same time.
        flock(&folder, FlockOperation::LockExclusive)
            .map_err(|error| Error::io("lock", dir, error.into()))?;
        clear_unfinished(dir)?;
        for name in ["packs", "workspaces"] {
            let path = dir.join(name);
            let made = fault::hit(Point::Create).and_then(|()| std::fs::create_dir(&path));
            made.map_err(|source| Error::io("create the folder", &path, source))?;
        }
        Log::create(&dir.join("oplog"), random()?)?.sync()?;
        let config = Config {
            format: FORMAT,
            id: format!("{:016x}{:016x}", random()?, random()?),
            durability: profile.name().to_owned(),
        };
        let text = toml::to_string(&config)
            .map_err(|error| Error::new(Code::Io, format!("atoll.toml could not be written: {error}.")))?;
        // The name appears last: with it, this is a store.
        let (path, new) = (dir.join("atoll.toml"), dir.join("atoll.toml.new"));
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            folder.sync_all()?;
            fault::hit(Point::Create)?;
            std::fs::rename(&new, &path)?;
            fault::hit(Point::Create)?;
            folder.sync_all()?;
            dir.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
        };
        write().map_err(|source| Error::io("write", &path, source))?;
        reserve::refill(dir);
        drop(folder);
        Store::open(dir)
    }

    /// Opens the store in `dir`; replays what the operation log has and the database lacks.
    ///
    /// # Errors
    /// `NoStore`, `NewerFormat`.
    pub fn open(dir: &Path) -> Result<Store> {
        let dir = dir.canonicalize().map_err(|source| match source.kind() {
            ErrorKind::NotFound => no_store(dir),
            _ => Error::io("open the store", dir, source),
        })?;
        let config = read_config(&dir)?;
        let profile = Profile::from_name(&config.durability).ok_or_else(|| {
            Error::new(
                Code::Usage,
                format!(
                    "{} has the durability '{}'; it must be full, normal or off.",
                    dir.join("atoll.toml").display(),
                    config.durability
                ),
            )
        })?;
        let folder = File::open(&dir).map_err(|source| Error::io("open the store", &dir, source))?;
        reserve::make_room(&dir);
        let reading = match Database::open(&dir, profile) {
            Err(error) if error.code == Code::Damaged => {
                set_aside(&dir, &folder)?;
                Database::open(&dir, profile)?
            }
            opened => opened?,
        };
        let store = Store {
            inner: Arc::new(Inner {
                id: config.id,
                profile,
                user: user(),
                pid: std::process::id(),
                read: Mutex::new(Reading::new(reading)),
                write: Mutex::new(Side::new(folder)),
                cache: cache::Caches::default(),
                numbers: Mutex::new(0..0),
                uncertain: Default::default(),
                dir,
            }),
        };
        store.replay()?;
        Ok(store)
    }

    /// Brings the database up to the log, if it is behind.
    fn replay(&self) -> Result<()> {
        let (generation, end) =
            self.read(|db| Ok((db::meta(db, "log_generation")?, db::meta(db, "log_end")?)))?;
        if let Ok(log) = Log::open(&self.log_path())
            && log.generation() == generation
            && log.len()? == end.max(HEADER_LEN)
        {
            return Ok(());
        }
        self.write(|_| Ok(()))
    }
}

fn no_store(dir: &Path) -> Error {
    Error::new(
        Code::NoStore,
        format!("There is no store in {}; `atoll init --store {}` makes one.", dir.display(), dir.display()),
    )
}

fn read_config(dir: &Path) -> Result<Config> {
    let path = dir.join("atoll.toml");
    let text = std::fs::read_to_string(&path).map_err(|source| match source.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => no_store(dir),
        _ => Error::io("read", &path, source),
    })?;
    let table: toml::Table = text.parse().map_err(|error| {
        Error::damaged(format!("{} is not valid TOML; put back a copy of it. ({error})", path.display()))
    })?;
    // Looked at first: what else a newer version writes there is its own business.
    match table.get("format").and_then(toml::Value::as_integer) {
        Some(format) if format > FORMAT as i64 => Err(Error::new(
            Code::NewerFormat,
            format!(
                "The store {} has format {format}, this program knows formats up to {FORMAT}; update atoll to open it.",
                dir.display()
            ),
        )),
        _ => table.try_into().map_err(|error| {
            Error::damaged(format!(
                "{} lacks what a store needs; put back a copy of it. ({error})",
                path.display()
            ))
        }),
    }
}

/// Takes away what a `create` that was killed left; refuses a folder with anything else in it.
fn clear_unfinished(dir: &Path) -> Result<()> {
    let failed = |source| Error::io("read the folder", dir, source);
    let mut ours = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        match name.to_str() {
            Some("packs" | "workspaces" | "oplog" | "atoll.toml.new" | "reserve") => ours.push(name),
            Some("atoll.toml") => {
                return Err(Error::new(
                    Code::StoreExists,
                    format!(
                        "There is a store in {} already; use it, or choose another folder.",
                        dir.display()
                    ),
                ));
            }
            _ => {
                return Err(Error::new(
                    Code::StoreExists,
                    format!("The folder {} is not empty; choose another one for the store.", dir.display()),
                ));
            }
        }
    }
    for name in ours {
        let path = dir.join(name);
        let removed = if path.is_dir() { std::fs::remove_dir(&path) } else { std::fs::remove_file(&path) };
        removed.map_err(|source| Error::io("clear what an interrupted `init` left:", &path, source))?;
    }
    Ok(())
}

/// Moves a database that SQLite cannot read out of the way, to be rebuilt from the log.
fn set_aside(dir: &Path, folder: &File) -> Result<()> {
    flock(folder, FlockOperation::LockExclusive).map_err(|error| Error::io("lock", dir, error.into()))?;
    let path = dir.join("meta.db");
    let aside = (1..).map(|number| dir.join(format!("meta.db.damaged-{number}"))).find(|path| !path.exists());
    let moved = std::fs::rename(&path, aside.expect("one number is free"));
    for name in ["meta.db-wal", "meta.db-shm"] {
        let _ = std::fs::remove_file(dir.join(name));
    }
    let _ = flock(folder, FlockOperation::Unlock);
    moved.map_err(|source| Error::io("move the damaged database away:", &path, source))
}

/// `user@host`, for the operation log. The variable USER would name who logged in, not who acts.
fn user() -> String {
    let uid = nix::unistd::geteuid();
    let known = nix::unistd::User::from_uid(uid).ok().flatten();
    let name = known.map_or_else(|| format!("uid{uid}"), |user| user.name);
    format!("{name}@{}", rustix::system::uname().nodename().to_string_lossy())
}
