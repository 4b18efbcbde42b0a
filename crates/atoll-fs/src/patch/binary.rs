//! Contents that are no text, as git's `GIT binary patch`: each side whole, deflated, in git's base 85. A patch
//! holds both sides, so that it can be taken back.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;

const ALPHABET: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// Bytes on one line.
const LINE: usize = 52;

pub(super) fn write(before: &[u8], after: &[u8], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"GIT binary patch\n")?;
    literal(after, out)?;
    literal(before, out)
}

fn literal(bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "literal {}", bytes.len())?;
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    for line in encoder.finish()?.chunks(LINE) {
        let length = line.len() as u8;
        let mut text = vec![if length <= 26 { b'A' + length - 1 } else { b'a' + length - 27 }];
        for group in line.chunks(4) {
            let mut padded = [0; 4];
            padded[..group.len()].copy_from_slice(group);
            let mut number = u32::from_be_bytes(padded);
            let mut digits = [0; 5];
            for digit in digits.iter_mut().rev() {
                *digit = ALPHABET[(number % 85) as usize];
                number /= 85;
            }
            text.extend(digits);
        }
        text.push(b'\n');
        out.write_all(&text)?;
    }
    out.write_all(b"\n")
}
