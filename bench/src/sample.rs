//! Computes percentiles of measured times.

use std::time::Duration;

use crate::table::Measurement;

/// The median of the samples.
pub(crate) fn p50(samples: Vec<Duration>) -> Measurement {
    percentile(samples, 50)
}

/// The time that at least 95 % of the samples do not exceed.
pub(crate) fn p95(samples: Vec<Duration>) -> Measurement {
    percentile(samples, 95)
}

fn percentile(mut samples: Vec<Duration>, percent: usize) -> Measurement {
    samples.sort_unstable();
    Measurement::Seconds(samples.get(samples.len() * percent / 100).copied().unwrap_or_default().as_secs_f64())
}
