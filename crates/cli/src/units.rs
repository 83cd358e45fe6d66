//! Parses sizes, durations and counts as people write them: `1MiB`, `500KB`, `30s`, `5m`, `250ms`, `64`.

use std::str::FromStr;
use std::time::Duration;

/// A size in bytes, as the value of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeArg(pub(crate) usize);

/// A duration, as the value of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeArg(pub(crate) Duration);

/// Units of a size in lower case, each with its number of bytes. A size may have no unit.
const SIZE_UNITS: &[(&str, u64)] = &[
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("", 1),
];

/// Units of a duration in lower case, each with its number of milliseconds. A duration must have a unit.
const TIME_UNITS_MS: &[(&str, u64)] =
    &[("ms", 1), ("s", 1_000), ("m", 60_000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

impl FromStr for SizeArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = parse(text, SIZE_UNITS)
            .ok_or_else(|| format!("`{text}` is no size; write it like 1MiB, 64KiB or 1000"))?;
        usize::try_from(bytes).map(Self).map_err(|_| format!("`{text}` is more than this machine can address"))
    }
}

impl FromStr for TimeArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text, TIME_UNITS_MS)
            .map(|ms| Self(Duration::from_millis(ms)))
            .ok_or_else(|| format!("`{text}` is no duration; write it like 30s, 5m or 250ms"))
    }
}

/// Parses a whole number from 1 to `u32::MAX`.
pub(crate) fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse::<u32>() {
        Ok(count) if count > 0 => Ok(count as usize),
        _ => Err(format!("`{text}` is no number from 1 to {}", u32::MAX)),
    }
}

/// Parses a number, which may have up to nine decimals, with one of these units. The result is in bytes or
/// milliseconds, as the list of units is; a fraction of them is dropped.
fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (text.get(..split)?, text.get(split..)?.trim().to_ascii_lowercase());
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if fraction.is_empty() || fraction.len() > 9 || fraction.contains('.') {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let decimals: u64 = fraction.parse().ok()?;
    let scale = 10u64.pow(fraction.len() as u32);
    let fraction = u128::from(decimals) * u128::from(*factor) / u128::from(scale);
    whole.checked_mul(*factor)?.checked_add(u64::try_from(fraction).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_and_other_texts_refused() {
        for (text, bytes) in
            [("1MiB", 1 << 20), ("64 KiB", 65536), ("1000", 1000), ("1.5k", 1536), ("2GB", 2_000_000_000), ("0", 0)]
        {
            assert_eq!(text.parse(), Ok(SizeArg(bytes)), "{text}");
        }
        for text in ["", "MiB", "-1", "1XB", "1..5k", "99999999999999999999", "1e3", "30s"] {
            assert!(text.parse::<SizeArg>().is_err(), "{text}");
        }
    }

    #[test]
    fn counts_are_parsed_and_other_texts_refused() {
        assert_eq!((parse_count("1"), parse_count("4294967295")), (Ok(1), Ok(4_294_967_295)));
        for text in ["", "0", "-1", "1.5", "many", "4294967296"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_parsed_and_other_texts_refused() {
        for (text, ms) in [("30s", 30_000), ("5m", 300_000), ("250ms", 250), ("1.5h", 5_400_000), ("0s", 0)] {
            assert_eq!(text.parse(), Ok(TimeArg(Duration::from_millis(ms))), "{text}");
        }
        for text in ["30", "s", "1MiB", "-5s", "1.s"] {
            assert!(text.parse::<TimeArg>().is_err(), "{text}");
        }
    }
}
