//! Extended headers: `LENGTH KEY=VALUE\n`, where only the length says where a value ends (it may hold newlines,
//! which is why the `tar` crate's reader, which splits at them, is not used).

use atoll_store::tree::Time;

/// The largest extended header that is read: two attributes of 64 KiB and long names fit many times.
pub const MAX: u64 = 32 << 20;

/// Appends a record.
pub fn put(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let body = key.len() + value.len() + 3;
    let mut length = body + 1;
    while length != body + digits(length) {
        length = body + digits(length);
    }
    out.extend_from_slice(length.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

fn digits(number: usize) -> usize {
    number.to_string().len()
}

/// The records in their order; `None` when they are malformed.
pub fn records(mut bytes: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut found = Vec::new();
    // Some writers fill the last block with zeros and count them.
    while !bytes.is_empty() && bytes[0] != 0 {
        let space = bytes.iter().position(|&byte| byte == b' ')?;
        let length: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
        let (record, rest) = bytes.split_at_checked(length)?;
        let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|&byte| byte == b'=')?;
        found.push((&record[..equals], &record[equals + 1..]));
        bytes = rest;
    }
    Some(found)
}

/// An attribute's name as a key: `=` would end it.
pub fn escape(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'=' => out.extend_from_slice(b"%3D"),
            b'%' => out.extend_from_slice(b"%25"),
            byte => out.push(byte),
        }
    }
    out
}

/// The other way round.
pub fn unescape(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len());
    let mut rest = key;
    while let Some((&byte, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"%3D") {
            out.push(b'=');
            rest = after;
        } else if let Some(after) = rest.strip_prefix(b"%25") {
            out.push(b'%');
            rest = after;
        } else {
            out.push(byte);
            rest = after;
        }
    }
    out
}

/// `SECONDS.NANOSECONDS`, before 1970 with a minus before all of it.
pub fn time_text(time: Time) -> String {
    let (negative, sec, nsec) = match time.sec < 0 && time.nsec > 0 {
        true => (true, -(time.sec + 1), 1_000_000_000 - time.nsec),
        false => (time.sec < 0, time.sec.abs(), time.nsec),
    };
    let sign = if negative { "-" } else { "" };
    match nsec {
        0 => format!("{sign}{sec}"),
        nsec => format!("{sign}{sec}.{nsec:09}"),
    }
}

/// The other way round; digits beyond nanoseconds are cut off.
pub fn time(text: &[u8]) -> Option<Time> {
    let text = std::str::from_utf8(text).ok()?;
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (sec, fraction) = text.split_once('.').unwrap_or((text, ""));
    let sec: i64 = sec.parse().ok()?;
    let fraction = format!("{:0<9}", fraction.get(..9.min(fraction.len()))?);
    let nsec: u32 = fraction.parse().ok()?;
    Some(match (negative, nsec) {
        (true, 0) => Time { sec: -sec, nsec: 0 },
        (true, nsec) => Time { sec: -sec - 1, nsec: 1_000_000_000 - nsec },
        (false, nsec) => Time { sec, nsec },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_come_back(all in proptest::collection::vec(("[a-zA-Z.%]{1,20}", any::<Vec<u8>>()), 0..8)) {
            let mut bytes = Vec::new();
            all.iter().for_each(|(key, value)| put(&mut bytes, key.as_bytes(), value));
            let back = records(&bytes).unwrap();
            let expected: Vec<_> = all.iter().map(|(key, value)| (key.as_bytes(), &value[..])).collect();
            prop_assert_eq!(back, expected);
        }

        #[test]
        fn times_come_back(sec in -10_000_000_000i64..10_000_000_000, nsec in 0u32..1_000_000_000) {
            let stamp = Time { sec, nsec };
            prop_assert_eq!(time(time_text(stamp).as_bytes()), Some(stamp));
        }

        #[test]
        fn names_come_back(name in any::<Vec<u8>>()) {
            prop_assert!(!escape(&name).contains(&b'='));
            prop_assert_eq!(unescape(&escape(&name)), name);
        }

        #[test]
        fn any_bytes_are_no_panic(bytes in any::<Vec<u8>>()) {
            let _ = records(&bytes);
            let _ = time(&bytes);
        }
    }

    #[test]
    fn a_record_counts_its_own_length() {
        let mut bytes = Vec::new();
        put(&mut bytes, b"path", &[b'x'; 90]);
        assert!(bytes.starts_with(b"99 path="));
        assert_eq!(bytes.len(), 99);
        bytes.clear();
        put(&mut bytes, b"path", &[b'x'; 91]);
        assert!(bytes.starts_with(b"101 path="));
        assert_eq!(bytes.len(), 101);
    }
}
