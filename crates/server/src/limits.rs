//! Limits that no flag changes, and the text form of limit values.
//!
//! The constants are in `limits/fixed.rs`, and [`FIXED_LIMITS`] describes them for `docs/limits.md`. Limits that a user can change are in
//! `config.rs`. This module knows nothing of how the limits are enforced.

mod fixed;
mod fixed_list;
mod value;

pub use fixed::FIXED_LIMITS;
pub(crate) use fixed::*;
pub(crate) use value::milliseconds;
pub use value::{LimitUnit, LimitValue};

/// A limit that cannot be changed.
#[derive(Debug)]
pub struct FixedLimit {
    /// Heading of the table in which the documentation shows the limit.
    pub group: &'static str,
    /// A phrase that says what is limited.
    pub what: &'static str,
    /// Sentences about what happens when the limit is reached.
    pub at_limit: &'static str,
    /// Why there is no flag for this limit.
    pub reason: &'static str,
    /// The value of the constant.
    pub value: LimitValue,
}
