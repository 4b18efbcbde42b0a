//! Which names branches and tags can have.

use super::RefName;
use crate::{Code, Error, Result};

/// Checks the name of a branch or tag. The rules are git's where they matter (such names can be folders, command
/// line arguments and parts of references), and each refusal says which one was broken.
///
/// # Errors
/// `InvalidName`.
pub fn check_name(name: &str) -> Result<()> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name.len() > 200 {
        "it is longer than 200 bytes"
    } else if name.starts_with('-') {
        "it begins with '-', as an option does"
    } else if name.starts_with('/') || name.ends_with('/') || name.contains("//") {
        "a part between its slashes is empty"
    } else if name.split('/').any(|part| part.starts_with('.')) {
        "a part of it begins with '.'"
    } else if name.contains("..") {
        "it contains '..'"
    } else if name.ends_with('.') || name.split('/').any(|part| part.ends_with(".lock")) {
        "it or a part of it ends with '.' or '.lock'"
    } else if name == "@" || name.contains("@{") {
        "'@' has a meaning of its own in references"
    } else if name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        "it contains white space or a control character"
    } else if let Some(c) = name.chars().find(|c| "~^:?*[\\".contains(*c)) {
        return Err(refuse(
            name,
            &format!("it contains '{c}', which has a meaning of its own in references"),
        ));
    } else if name.starts_with("branch/") || name.starts_with("tag/") {
        "it begins with 'branch/' or 'tag/', which tell branches and tags apart"
    } else if name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        "it looks like a commit's id"
    } else {
        return Ok(());
    };
    Err(refuse(name, why))
}

fn refuse(name: &str, why: &str) -> Error {
    let shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
    Error::new(Code::InvalidName, format!("'{shown}' cannot be a name: {why}. Choose another name."))
}

/// What of `name` is in the way of `other` (or the other way round), since both would be one path: `a` and `a/b`.
pub(super) fn clash(name: &RefName, other: &RefName) -> bool {
    let same_kind = matches!(
        (name, other),
        (RefName::Branch(_), RefName::Branch(_)) | (RefName::Tag(_), RefName::Tag(_))
    );
    let below = |path: &str, dir: &str| path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'));
    same_kind && (below(name.short(), other.short()) || below(other.short(), name.short()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        for good in ["main", "try-1", "feature/x", "ä", "v1.0", "a.b/c", "run-12", "@home"] {
            check_name(good).unwrap();
        }
        let bad = [
            "", "-x", "/a", "a/", "a//b", ".a", "a/.b", "a..b", "a.", "a.lock", "a.lock/b", "@", "a@{1}",
            "a b", "a\n", "a~1", "a^", "a:b", "a*", "branch/x", "tag/x", "a\\b",
        ];
        for bad in bad {
            assert_eq!(check_name(bad).unwrap_err().code, Code::InvalidName, "{bad:?}");
        }
        assert!(check_name(&"0".repeat(64)).is_err());
        assert!(check_name(&"a".repeat(201)).is_err());
    }

    #[test]
    fn a_name_and_a_folder_of_names_clash() {
        let branch = |name: &str| RefName::Branch(name.to_owned());
        assert!(clash(&branch("a"), &branch("a/b")));
        assert!(clash(&branch("a/b/c"), &branch("a")));
        assert!(!clash(&branch("a"), &branch("ab")));
        assert!(!clash(&branch("a"), &RefName::Tag("a/b".to_owned())));
    }
}
