//! Names as git writes them in a patch.

/// A path behind a prefix: as it is, or in double quotes with C escapes when it has bytes that are not printable
/// ASCII, a quote or a backslash.
pub(super) fn quoted(prefix: &[u8], path: &[u8]) -> Vec<u8> {
    if !path.iter().any(|byte| needs_escape(*byte)) {
        return [prefix, path].concat();
    }
    let mut out = vec![b'"'];
    out.extend_from_slice(prefix);
    for &byte in path {
        match byte {
            _ if !needs_escape(byte) => out.push(byte),
            b'"' | b'\\' => out.extend([b'\\', byte]),
            7..=13 => out.extend([b'\\', b"abtnvfr"[usize::from(byte - 7)]]),
            _ => out.extend(format!("\\{byte:03o}").bytes()),
        }
    }
    out.push(b'"');
    out
}

fn needs_escape(byte: u8) -> bool {
    !(0x20..0x7f).contains(&byte) || byte == b'"' || byte == b'\\'
}

/// What follows a name in a `---` or `+++` line: a tab when there is a space in it, so that the name's end is clear.
pub(super) fn tab_if_spaced(path: &[u8]) -> &'static [u8] {
    if path.contains(&b' ') { b"\t" } else { b"" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_git_does() {
        assert_eq!(quoted(b"a/", b"plain name.txt"), b"a/plain name.txt");
        assert_eq!(quoted(b"b/", "na\u{ef}ve".as_bytes()), br#""b/na\303\257ve""#);
        assert_eq!(quoted(b"", b"a\tb\n\"\\\x01\x7f"), br#""a\tb\n\"\\\001\177""#);
        assert_eq!(tab_if_spaced(b"a b"), b"\t");
    }
}
