//! Variable-length integers and byte strings: how records in the operation log and commits are written.

use crate::{Error, Hash, Num, Result};

/// Appends a number, seven bits a byte, the lowest first.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number (zigzag).
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends a length and bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends 0, or 1 and what `put` appends.
pub(crate) fn put_option<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    match value {
        None => out.push(0),
        Some(value) => {
            out.push(1);
            put(out, value);
        }
    }
}

/// Reads what the functions above wrote; any bytes are safe to read.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// `what` completes "is damaged: …" in errors.
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Reader { rest: bytes, what }
    }

    pub(crate) fn bad(&self) -> Error {
        Error::damaged(format!(
            "The store holds a malformed {}; run `atoll doctor` to list what is damaged.",
            self.what
        ))
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        if len > self.rest.len() {
            return Err(self.bad());
        }
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.bad())
    }

    pub(crate) fn signed(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Result<T> {
        let value = self.varint()?;
        T::try_from(value).map_err(|_| self.bad())
    }

    /// A count of things that take at least one byte each.
    pub(crate) fn count(&mut self) -> Result<usize> {
        let count = self.small::<usize>()?;
        if count > self.rest.len() {
            return Err(self.bad());
        }
        Ok(count)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.small::<usize>()?;
        self.take(len)
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.bad())
    }

    pub(crate) fn hash(&mut self) -> Result<Hash> {
        Ok(Hash(self.take(32)?.try_into().expect("32 bytes were taken")))
    }

    pub(crate) fn num(&mut self) -> Result<Num> {
        Ok(Num(self.varint()?))
    }

    pub(crate) fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        match self.byte()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            _ => Err(self.bad()),
        }
    }

    /// Fails unless everything was read.
    pub(crate) fn end(&self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.bad()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(number in any::<u64>(), signed in any::<i64>(), bytes in any::<Vec<u8>>(), some in any::<Option<u64>>()) {
            let mut out = Vec::new();
            put_varint(&mut out, number);
            put_signed(&mut out, signed);
            put_bytes(&mut out, &bytes);
            put_option(&mut out, some, put_varint);
            let mut reader = Reader::new(&out, "test");
            prop_assert_eq!(reader.varint().unwrap(), number);
            prop_assert_eq!(reader.signed().unwrap(), signed);
            prop_assert_eq!(reader.bytes().unwrap(), &bytes[..]);
            prop_assert_eq!(reader.option(Reader::varint).unwrap(), some);
            reader.end().unwrap();
        }

        #[test]
        fn any_bytes_are_safe(bytes in any::<Vec<u8>>()) {
            let mut reader = Reader::new(&bytes, "test");
            let _ = reader.varint().and_then(|_| reader.text()).and_then(|_| reader.hash()).and_then(|_| reader.end());
        }
    }
}
