//! Finds and rewrites `core.worktree` in a git configuration file; everything else stays byte for byte.

/// The value is there, but it is not certain what it is.
#[derive(Debug, PartialEq, Eq)]
pub struct Unclear;

/// Calls `map` with each value of `core.worktree`; where it gives another, that is written instead. `None` when
/// nothing changes.
pub fn map_worktree(
    text: &[u8],
    map: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>,
) -> Result<Option<Vec<u8>>, Unclear> {
    let mut out = Vec::with_capacity(text.len());
    let mut changed = false;
    let mut in_core = false;
    let mut continued = false;
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let body = line.trim_ascii();
        let was_continued = std::mem::replace(&mut continued, body.ends_with(b"\\") && !is_comment(body));
        if was_continued || is_comment(body) {
            out.extend_from_slice(line);
            continue;
        }
        let mut rest = body;
        if let Some(section) = body.strip_prefix(b"[") {
            let end = header_end(section).ok_or(Unclear)?;
            in_core = section[..end].trim_ascii().eq_ignore_ascii_case(b"core");
            rest = section[end + 1..].trim_ascii();
        }
        let Some(value) = in_core.then(|| worktree_value(rest)).flatten() else {
            out.extend_from_slice(line);
            continue;
        };
        if continued {
            return Err(Unclear);
        }
        match map(&unquote(value)?) {
            None => out.extend_from_slice(line),
            Some(new) => {
                let kept = line.len() - line.trim_ascii_start().len() + (body.len() - value.len());
                out.extend_from_slice(&line[..kept]);
                out.extend_from_slice(&quote(&new));
                out.push(b'\n');
                changed = true;
            }
        }
    }
    Ok(changed.then_some(out))
}

fn is_comment(body: &[u8]) -> bool {
    body.starts_with(b"#") || body.starts_with(b";")
}

/// Where a section's name ends; a subsection's name is quoted and may hold a bracket.
fn header_end(section: &[u8]) -> Option<usize> {
    let mut quoted = false;
    let mut escaped = false;
    for (at, &byte) in section.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b']' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// The value of `worktree = VALUE` as it is written, to the end of the line.
fn worktree_value(rest: &[u8]) -> Option<&[u8]> {
    let equals = rest.iter().position(|&byte| byte == b'=')?;
    let name = rest[..equals].trim_ascii();
    name.eq_ignore_ascii_case(b"worktree").then(|| rest[equals + 1..].trim_ascii_start())
}

fn unquote(value: &[u8]) -> Result<Vec<u8>, Unclear> {
    let mut out = Vec::new();
    let mut quoted = false;
    let mut bytes = value.iter();
    // Blanks at the end do not count unless they are quoted.
    let mut solid = 0;
    while let Some(&byte) = bytes.next() {
        match byte {
            b'"' => quoted = !quoted,
            b'#' | b';' if !quoted => break,
            b'\\' => match bytes.next() {
                Some(&escaped @ (b'"' | b'\\')) => out.push(escaped),
                _ => return Err(Unclear),
            },
            byte => out.push(byte),
        }
        if quoted || !byte.is_ascii_whitespace() {
            solid = out.len();
        }
    }
    if quoted {
        return Err(Unclear);
    }
    out.truncate(solid);
    Ok(out)
}

fn quote(value: &[u8]) -> Vec<u8> {
    let mut out = vec![b'"'];
    for &byte in value {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Vec<String>, Unclear> {
        let mut seen = Vec::new();
        map_worktree(text.as_bytes(), &mut |value| {
            seen.push(String::from_utf8_lossy(value).into_owned());
            None
        })?;
        Ok(seen)
    }

    #[test]
    fn finds_the_value_however_it_is_written() {
        assert_eq!(all("[core]\n\tbare = false\n\tworktree = ../../../sub\n").unwrap(), ["../../../sub"]);
        assert_eq!(all("[CORE] WorkTree=/a b # why\n").unwrap(), ["/a b"]);
        assert_eq!(all("[core]\nworktree = \"/a \\\"b\\\" \" ; x\n").unwrap(), ["/a \"b\" "]);
        assert_eq!(
            all("[remote \"core]\"]\nworktree = /x\n[core \"sub\"]\nworktree = /y\n").unwrap(),
            [""; 0]
        );
        assert_eq!(all("# worktree = /x\n[core]\n; worktree = /y\nbare = true\n").unwrap(), [""; 0]);
        assert_eq!(all("[alias]\nx = a \\\n[core]\\\nworktree = /x\n").unwrap(), [""; 0]);
        assert_eq!(all("[core]\nworktree = /a\\\nb\n"), Err(Unclear));
    }

    #[test]
    fn rewrites_that_line_alone() {
        let text = b"[core]\n\tbare = false\n\tworktree = /old # here\n[user]\n\tname = x\n";
        let new = map_worktree(text, &mut |_| Some(b"..".to_vec())).unwrap().unwrap();
        assert_eq!(new, b"[core]\n\tbare = false\n\tworktree = \"..\"\n[user]\n\tname = x\n");
    }
}
