//! Limits that no flag changes, and how values of limits are written.
//!
//! The constants are in `limits/fixed.rs`, and [`FIXED_LIMITS`] describes them for `docs/limits.md`. Limits that a user can change are in
//! `config.rs`. This module knows nothing of how the limits are enforced.

mod fixed;
mod quantity;

pub use fixed::FIXED_LIMITS;
pub(crate) use fixed::*;
pub(crate) use quantity::milliseconds;
pub use quantity::{LimitUnit, Quantity};

/// A limit that cannot be changed.
#[derive(Debug)]
pub struct FixedLimit {
    /// Heading of the table in which the documentation shows the limit.
    pub group: &'static str,
    /// One sentence about what is limited.
    pub what: &'static str,
    /// Sentences about what happens when the limit is reached.
    pub at_limit: &'static str,
    /// Why no flag changes it.
    pub reason: &'static str,
    /// The value of the constant.
    pub value: Quantity,
}
