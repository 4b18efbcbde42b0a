//! From a captured tree to a commit on its branch.

use std::collections::BTreeMap;

use atoll_store::store::{NewOperation, Published, RefChange, RefName, RefState};
use atoll_store::tree::Time;
use atoll_store::{Code, Hash, NewCommit, Objects, Result, Store};

use super::{Captured, ImportRecord, Report};

/// The commit that a captured tree becomes, and the branch that it moves.
#[derive(Debug, Clone, Default)]
pub struct CommitRequest {
    /// The branch.
    pub branch: String,
    /// What the branch must hold (`None`: it must not exist); it is also the new commit's first parent.
    pub head: Option<Hash>,
    /// See [`atoll_store::NewCommit`].
    pub author: String,
    /// See [`atoll_store::NewCommit`].
    pub time: Time,
    /// See [`atoll_store::NewCommit`].
    pub utc_offset: i16,
    /// See [`atoll_store::NewCommit`].
    pub message: String,
    /// More metadata; the capture's own is added.
    pub meta: BTreeMap<String, String>,
    /// Makes the branch remember this host folder (an import).
    pub folder: Option<Vec<u8>>,
    /// Kind, note, workspace; commits and changes are filled in.
    pub operation: NewOperation,
    /// Publish a commit also when the tree equals the head's.
    pub allow_empty: bool,
    /// Publish nothing either when the tree differs from the head's in nothing that anybody can set: a workspace's
    /// status shows nothing then, and its unmount keeps nothing.
    pub skip_renumbered: bool,
}

/// What [`commit_captured`] did.
#[derive(Debug, Clone)]
pub struct Committed {
    /// The branch's commit now: the new one, or the head when nothing changed.
    pub commit: Hash,
    /// `None` when nothing changed and nothing was published.
    pub published: Option<Published>,
    /// The capture's report.
    pub report: Report,
}

impl Committed {
    /// Whether the branch's commit has exactly the tree that was captured, numbers and ctimes included.
    pub fn is_exact(&self) -> bool {
        self.published.is_some() || !self.report.changed
    }
}

/// How often a capture is made again because gc took away what it had found.
const ATTEMPTS: u32 = 5;

/// Captures and publishes; captures again when gc took away what the capture had found (`Changed` of publish).
///
/// # Errors
/// Those of `capture` and of [`Store::publish`]; `Moved` when the branch does not hold `head`.
pub fn commit_captured(
    store: &Store,
    request: &CommitRequest,
    capture: &mut dyn FnMut() -> Result<Captured>,
) -> Result<Committed> {
    let name = RefName::Branch(request.branch.clone());
    let mut attempt = 0;
    loop {
        attempt += 1;
        let captured = capture()?;
        let old = match request.head {
            None => None,
            Some(head) => match store.get_ref(&name)? {
                Some(state) if state.commit == head => Some(state),
                // What the branch holds now is for publish to say: it refuses, and names the way out.
                other => other.map(|state| RefState { commit: head, ..state }),
            },
        };
        if let (Some(head), false) = (request.head, request.allow_empty)
            && let commit = store.commit(&head)?
            && commit.tree == captured.writer.hash(captured.root)?
        {
            if let Some(record) = captured.meta.get(ImportRecord::KEY)
                && captured.report.read_files > 0
            {
                ImportRecord::remember(store, &commit, record)?;
            }
            return Ok(Committed { commit: head, published: None, report: captured.report });
        }
        if let (Some(head), false) = (request.head, request.allow_empty)
            && request.skip_renumbered
            && captured.is_as_in(store, &head)?
        {
            return Ok(Committed { commit: head, published: None, report: captured.report });
        }
        let mut meta = request.meta.clone();
        meta.extend(captured.meta);
        let commit = NewCommit {
            root: captured.root,
            content: captured.content,
            summary: captured.summary,
            parents: request.head.into_iter().collect(),
            author: request.author.clone(),
            time: request.time,
            utc_offset: request.utc_offset,
            message: request.message.clone(),
            meta,
        };
        let id = Hash::of_commit(&commit.encode(&captured.writer.hash(commit.root)?));
        let folder = request.folder.clone().or_else(|| old.as_ref().and_then(|old| old.folder.clone()));
        let base = old.as_ref().map_or(id, |old| old.base);
        let change = RefChange { name: name.clone(), old, new: Some(RefState { commit: id, base, folder }) };
        let mut operation = request.operation.clone();
        operation.commits.push(commit);
        operation.changes.push(change);
        match store.publish(captured.writer, operation) {
            Err(error) if error.code == Code::Changed && attempt < ATTEMPTS => {}
            Err(error) => return Err(error),
            Ok(published) => {
                return Ok(Committed { commit: id, published: Some(published), report: captured.report });
            }
        }
    }
}
