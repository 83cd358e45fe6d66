//! Turning many timings into one figure.

use std::time::Duration;

use crate::table::Quantity;

/// The median.
pub(crate) fn p50(mut samples: Vec<Duration>) -> Quantity {
    samples.sort_unstable();
    Quantity::Seconds(samples.get(samples.len() / 2).copied().unwrap_or_default().as_secs_f64())
}
