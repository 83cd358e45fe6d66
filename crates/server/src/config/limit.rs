//! The description of one limit that a user can change, and the macro that turns the list in `config.rs` into such descriptions.

use std::time::Duration;

use super::Config;
use crate::limits::{LimitUnit, LimitValue, milliseconds};

/// A limit that a flag and an environment variable can change.
#[derive(Debug)]
pub struct Limit {
    /// Name of the field of [`Config`], for example `max_wait`. The flag is `--max-wait`, the variable `EXEC_SERVER_MAX_WAIT`.
    pub name: &'static str,
    /// One sentence about what is limited: the help text of the flag.
    pub help: &'static str,
    /// Sentences about what happens when the limit is reached.
    pub at_limit: &'static str,
    /// The unit of all numbers of this limit.
    pub unit: LimitUnit,
    /// The smallest value that takes effect, and what happens if a user gives a smaller one.
    pub minimum: Minimum,
    pub(crate) read: fn(&Config) -> Option<u64>,
    pub(crate) write: fn(&mut Config, u64),
}

/// The smallest value of a limit, and what happens if a user gives a smaller value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Minimum {
    /// The unit alone decides: at least 1 for a count, at least 0 for bytes and times. The parser of the flag checks
    /// it.
    OfUnit,
    /// A smaller value is refused.
    Refused {
        /// The smallest value that is accepted, in the unit of the limit.
        below: u64,
        /// The error text of a refusal.
        because: &'static str,
    },
    /// A smaller value is replaced by this value, which is in the unit of the limit.
    Raised(u64),
}

impl Limit {
    /// The value that applies if a user gives none. None means that there is no limit.
    pub fn default_value(&self) -> Option<LimitValue> {
        (self.read)(&Config::default()).map(|number| LimitValue { number, unit: self.unit })
    }

    /// Checks a number that is in the unit of the limit. If [`Minimum::Refused`] refuses it, fails with an error text
    /// for users.
    pub fn check(&self, number: u64) -> Result<(), &'static str> {
        match self.minimum {
            Minimum::Refused { below, because } if number < below => Err(because),
            _ => Ok(()),
        }
    }

    /// Sets the field of `config` to a number that is in the unit of the limit. A number below [`Minimum::Raised`] is
    /// raised.
    pub fn apply(&self, config: &mut Config, number: u64) {
        let least = if let Minimum::Raised(least) = self.minimum { least } else { 0 };
        (self.write)(config, number.max(least));
    }
}

/// A type that a field of [`Config`] may have. Numbers are in the unit of the limit.
pub(crate) trait LimitField {
    fn from_number(number: u64) -> Self;
    /// None: there is no limit.
    fn number(&self) -> Option<u64>;
}

impl LimitField for usize {
    fn from_number(number: u64) -> Self {
        Self::try_from(number).unwrap_or(Self::MAX)
    }

    fn number(&self) -> Option<u64> {
        Some(*self as u64)
    }
}

impl LimitField for Duration {
    fn from_number(number: u64) -> Self {
        Self::from_millis(number)
    }

    fn number(&self) -> Option<u64> {
        Some(milliseconds(*self))
    }
}

impl LimitField for Option<Duration> {
    fn from_number(number: u64) -> Self {
        Some(Duration::from_millis(number))
    }

    fn number(&self) -> Option<u64> {
        self.map(milliseconds)
    }
}

/// Makes `Config` with its defaults, and `ADJUSTABLE_LIMITS`, from entries of the form
/// `/// help sentence`, `/// sentences about what happens at the limit`, `field: type = default, unit, minimum;`. The
/// minimum may be left out.
macro_rules! adjustable_limits {
    ($(
        #[doc = $help:literal]
        $(#[doc = $at_limit:literal])+
        $name:ident: $type:ty = $default:expr, $unit:ident $(, $minimum:expr)?;
    )+) => {
        /// The settings of a server: a field for each limit that a user can change, and the programs of guard and launcher.
        #[derive(Clone, Debug)]
        pub struct Config {
            $(
                #[doc = $help]
                $(#[doc = $at_limit])+
                pub $name: $type,
            )+
            /// Program and arguments of the guard, a separate process that kills the processes of clients if the
            /// server is killed. None: no guard runs, and those processes go on running.
            pub guard: Option<(PathBuf, Vec<String>)>,
            /// Program and arguments of the launcher, a separate process that makes a sandbox and starts commands in
            /// it. None: requests that need a sandbox are refused.
            pub sandbox_launcher: Option<(PathBuf, Vec<String>)>,
            /// Whether clients may open streams to TCP ports that the server can reach (`tcp/connect`).
            pub forwards_ports: bool,
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($name: $default,)+ guard: None, sandbox_launcher: None, forwards_ports: true }
            }
        }

        /// Every limit that a user can change, in the order in which `--help-limits` shows them.
        pub const ADJUSTABLE_LIMITS: &[$crate::config::Limit] = &[$(
            $crate::config::Limit {
                name: stringify!($name),
                help: $help.trim_ascii(),
                at_limit: concat!($($at_limit),+).trim_ascii(),
                unit: $crate::limits::LimitUnit::$unit,
                minimum: $crate::config::limit::minimum_or_default!($($minimum)?),
                read: |config| $crate::config::limit::LimitField::number(&config.$name),
                write: |config, number| config.$name = $crate::config::limit::LimitField::from_number(number),
            },
        )+];
    };
}

macro_rules! minimum_or_default {
    () => {
        $crate::config::Minimum::OfUnit
    };
    ($minimum:expr) => {
        $minimum
    };
}

pub(crate) use {adjustable_limits, minimum_or_default};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ADJUSTABLE_LIMITS;
    use crate::limits::FIXED_LIMITS;

    #[test]
    fn a_value_is_written_to_the_field_of_its_name() {
        let mut config = Config::default();
        for limit in ADJUSTABLE_LIMITS {
            limit.apply(&mut config, 7);
            assert_eq!((limit.read)(&config), Some(7), "{}", limit.name);
        }
        assert_eq!((config.max_requests, config.max_wait), (7, Duration::from_millis(7)));
        assert_eq!(config.exit_when_idle, Some(Duration::from_millis(7)));
    }

    #[test]
    fn a_value_below_the_minimum_is_refused_or_raised() {
        let limit_named = |name| ADJUSTABLE_LIMITS.iter().find(|limit| limit.name == name).unwrap();
        assert!(limit_named("retain_bytes").check(0).unwrap_err().ends_with("give at least 1"));
        assert_eq!((limit_named("retain_bytes").check(1), limit_named("ping_interval").check(0)), (Ok(()), Ok(())));
        let mut config = Config::default();
        limit_named("ping_interval").apply(&mut config, 0);
        limit_named("session_ttl").apply(&mut config, 0);
        assert_eq!((config.ping_interval, config.session_ttl), (Duration::from_millis(1), Duration::ZERO));
    }

    #[test]
    fn names_are_unique_and_texts_end_with_a_period() {
        let names: std::collections::HashSet<_> = ADJUSTABLE_LIMITS.iter().map(|limit| limit.name).collect();
        assert_eq!(names.len(), ADJUSTABLE_LIMITS.len());
        let adjustable = ADJUSTABLE_LIMITS.iter().flat_map(|limit| [limit.help, limit.at_limit]);
        let fixed =
            FIXED_LIMITS.iter().copied().flatten().flat_map(|limit| [limit.what, limit.at_limit, limit.reason]);
        assert_eq!(adjustable.chain(fixed).find(|text| !text.ends_with('.')), None);
    }
}
