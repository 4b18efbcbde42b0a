//! Files that look like secrets, so that a person hears once that history has them now.

/// Whether a file with this name and these first bytes looks like a secret. A hint, not a guard.
pub fn looks_secret(name: &[u8], head: &[u8]) -> bool {
    let harmless = [&b".example"[..], b".sample", b".template", b".dist"];
    let env =
        name == b".env" || (name.starts_with(b".env.") && !harmless.iter().any(|end| name.ends_with(end)));
    env || private_key(head) || (name == b".npmrc" && contains(head, b"_authToken"))
}

fn private_key(head: &[u8]) -> bool {
    let line = &head[..head.len().min(80)];
    (line.starts_with(b"-----BEGIN ") && contains(line, b"PRIVATE KEY"))
        || line.starts_with(b"PuTTY-User-Key-File-")
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_headers_tell() {
        assert!(looks_secret(b".env", b""));
        assert!(looks_secret(b".env.production", b"A=1"));
        assert!(!looks_secret(b".env.example", b"A="));
        assert!(!looks_secret(b".envrc", b"use flake"));
        assert!(looks_secret(b"id_ed25519", b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blb"));
        assert!(looks_secret(b"k.pem", b"-----BEGIN RSA PRIVATE KEY-----\n"));
        assert!(!looks_secret(b"k.pub", b"-----BEGIN PUBLIC KEY-----\n"));
        assert!(looks_secret(b".npmrc", b"//registry/:_authToken=abc"));
        assert!(!looks_secret(b".npmrc", b"save-exact=true"));
    }
}
