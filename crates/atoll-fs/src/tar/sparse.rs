//! Where the bytes of a sparse member belong: GNU's four ways to say it.

use atoll_store::{Code, Error, Result};
use tar::{GnuExtSparseHeader, GnuSparseHeader, Header};

/// Regions (offset, length) in ascending order, and the whole size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// Regions with data; none is empty.
    pub regions: Vec<(u64, u64)>,
    /// The file's size.
    pub size: u64,
}

impl Map {
    fn new(regions: impl IntoIterator<Item = (u64, u64)>, size: u64) -> Map {
        Map { regions: regions.into_iter().filter(|(_, length)| *length > 0).collect(), size }
    }

    /// Whether the regions are in order, within the size, and exactly `stored` bytes.
    pub fn is_sound(&self, stored: u64) -> bool {
        let mut end = 0u64;
        let mut sum = 0u64;
        for &(offset, length) in &self.regions {
            let Some(next) = offset.checked_add(length).filter(|next| offset >= end && *next <= self.size)
            else {
                return false;
            };
            end = next;
            sum += length;
        }
        sum == stored && self.size <= i64::MAX as u64
    }
}

fn malformed() -> Error {
    Error::new(Code::Usage, "The tar archive holds a sparse file with a broken map. Nothing was imported.")
}

/// The old GNU form: in the header and in blocks after it.
pub fn old(header: &Header, block: &mut dyn FnMut() -> Result<[u8; 512]>) -> Result<Map> {
    let gnu = header.as_gnu().ok_or_else(malformed)?;
    let size = gnu.real_size().map_err(|_| malformed())?;
    let mut regions = Vec::new();
    let mut add = |one: &GnuSparseHeader| -> Result<()> {
        if !one.is_empty() {
            regions.push((one.offset().map_err(|_| malformed())?, one.length().map_err(|_| malformed())?));
        }
        Ok(())
    };
    gnu.sparse.iter().try_for_each(&mut add)?;
    let mut more = gnu.is_extended();
    while more {
        let mut extended = GnuExtSparseHeader::new();
        extended.as_mut_bytes().copy_from_slice(&block()?);
        extended.sparse().iter().try_for_each(&mut add)?;
        more = extended.is_extended();
    }
    Ok(Map::new(regions, size))
}

/// What the records of an extended header say.
#[derive(Default)]
pub struct Given {
    /// The file's real name.
    pub name: Option<Vec<u8>>,
    major: Option<u64>,
    size: Option<u64>,
    /// Versions 0.0 and 0.1: offsets and lengths by turns.
    numbers: Vec<u64>,
    broken: bool,
}

impl Given {
    /// Takes one record, its key without `GNU.sparse.`.
    pub fn record(&mut self, key: &[u8], value: &[u8]) {
        let mut number = || {
            let parsed = parse(value);
            self.broken |= parsed.is_none();
            parsed
        };
        match key {
            b"name" => self.name = Some(value.to_vec()),
            b"major" => self.major = number(),
            b"size" | b"realsize" => self.size = number(),
            b"offset" | b"numbytes" => {
                let number = number();
                self.numbers.extend(number);
            }
            b"map" => {
                let numbers: Option<Vec<u64>> = value.split(|&byte| byte == b',').map(parse).collect();
                self.broken |= numbers.is_none();
                self.numbers = numbers.unwrap_or_default();
            }
            _ => {}
        }
    }

    /// The map, if the member is sparse; `block` reads on in its contents (version 1.0).
    pub fn map(self, block: &mut dyn FnMut() -> Result<[u8; 512]>) -> Result<Option<Map>> {
        let Some(size) = self.size else { return Ok(None) };
        if self.broken {
            return Err(malformed());
        }
        let numbers = match self.major {
            Some(1) => in_contents(block)?,
            _ => self.numbers,
        };
        if numbers.len() % 2 != 0 {
            return Err(malformed());
        }
        Ok(Some(Map::new(numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])), size)))
    }
}

fn in_contents(block: &mut dyn FnMut() -> Result<[u8; 512]>) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    let mut wanted = 1u64;
    let mut digits = Vec::new();
    while (numbers.len() as u64) < wanted {
        for byte in block()? {
            if (numbers.len() as u64) >= wanted {
                break;
            }
            match byte {
                b'\n' => {
                    let number = parse(&digits).ok_or_else(malformed)?;
                    digits.clear();
                    if numbers.is_empty() {
                        wanted = number
                            .checked_mul(2)
                            .and_then(|count| count.checked_add(1))
                            .ok_or_else(malformed)?;
                    }
                    numbers.push(number);
                }
                byte if digits.len() < 20 => digits.push(byte),
                _ => return Err(malformed()),
            }
        }
    }
    numbers.remove(0);
    Ok(numbers)
}

fn parse(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
