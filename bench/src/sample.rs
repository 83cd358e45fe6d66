//! Percentiles of many timings.

use std::time::Duration;

use crate::table::Quantity;

/// The median of the samples.
pub(crate) fn p50(samples: Vec<Duration>) -> Quantity {
    percentile(samples, 50)
}

/// The time that 95 of 100 samples do not exceed.
pub(crate) fn p95(samples: Vec<Duration>) -> Quantity {
    percentile(samples, 95)
}

fn percentile(mut samples: Vec<Duration>, percent: usize) -> Quantity {
    samples.sort_unstable();
    Quantity::Seconds(samples.get(samples.len() * percent / 100).copied().unwrap_or_default().as_secs_f64())
}
