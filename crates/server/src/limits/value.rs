//! The value of a limit: a number with its unit. Its text form is the one that the flags accept: `1024`, `64MiB`, `30s`.

use std::fmt;
use std::time::Duration;

/// The unit in which a limit is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitUnit {
    /// A number of things, from 1 to 4294967295.
    Count,
    /// A number of bytes.
    Bytes,
    /// A time, in milliseconds.
    Milliseconds,
}

/// The value of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitValue {
    /// Number of things, bytes or milliseconds, depending on `unit`.
    pub number: u64,
    /// The unit of `number`.
    pub unit: LimitUnit,
}

const SIZES: &[(&str, u64)] = &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
const TIMES: &[(&str, u64)] = &[("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl fmt::Display for LimitValue {
    /// Writes the value in the largest unit that gives a whole number: 1048576 bytes are `1MiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = match self.unit {
            LimitUnit::Count => &[],
            LimitUnit::Bytes => SIZES,
            LimitUnit::Milliseconds => TIMES,
        };
        match names.iter().find(|(_, size)| self.number != 0 && self.number.is_multiple_of(*size)) {
            Some((name, size)) => f.pad(&format!("{}{name}", self.number / size)),
            None if self.unit == LimitUnit::Milliseconds => f.pad(&format!("{}ms", self.number)),
            None => f.pad(&self.number.to_string()),
        }
    }
}

/// Converts a duration to whole milliseconds, the number of a [`LimitValue`].
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_in_the_form_that_flags_accept() {
        let shown = |number, unit| LimitValue { number, unit }.to_string();
        assert_eq!(shown(1024, LimitUnit::Count), "1024");
        assert_eq!(
            (shown(64 << 20, LimitUnit::Bytes), shown(1536, LimitUnit::Bytes)),
            ("64MiB".into(), "1536".into())
        );
        assert_eq!(
            (shown(600_000, LimitUnit::Milliseconds), shown(25_000, LimitUnit::Milliseconds)),
            ("10m".into(), "25s".into())
        );
        assert_eq!((shown(0, LimitUnit::Milliseconds), shown(0, LimitUnit::Bytes)), ("0ms".into(), "0".into()));
    }
}
