//! The metrics of an executor: its registrations, its connections to the relay, and the harnesses that it has refused.

use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Value of the label `result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the names are the label's values")]
enum ServiceAnswer {
    success,
    error,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabel {
    result: ServiceAnswer,
}

impl AnswerLabel {
    fn new(has_failed: bool) -> Self {
        Self { result: if has_failed { ServiceAnswer::error } else { ServiceAnswer::success } }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// The metrics of an executor.
#[derive(Debug)]
pub(crate) struct RemoteMetrics {
    registrations: Family<AnswerLabel, Counter>,
    registration_duration: Histogram,
    relay_connects: Family<AnswerLabel, Counter>,
    relay_connect_duration: Histogram,
    reconnects: Family<ReasonLabel, Counter>,
    refused_harnesses: Family<ReasonLabel, Counter>,
}

impl RemoteMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let durations = || Histogram::new([0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0]);
        let metrics = Self {
            registrations: Family::default(),
            registration_duration: durations(),
            relay_connects: Family::default(),
            relay_connect_duration: durations(),
            reconnects: Family::default(),
            refused_harnesses: Family::default(),
        };
        registry.register(
            "remote_registration",
            "Attempts to register as an executor",
            metrics.registrations.clone(),
        );
        registry.register(
            "remote_registration_duration_seconds",
            "From the request to register to its answer",
            metrics.registration_duration.clone(),
        );
        registry.register(
            "remote_rendezvous_connect",
            "Attempts to connect to the relay",
            metrics.relay_connects.clone(),
        );
        registry.register(
            "remote_rendezvous_connect_duration_seconds",
            "From an attempt to connect to the relay to its end",
            metrics.relay_connect_duration.clone(),
        );
        registry.register(
            "remote_reconnects",
            "Lost or failed connections to the relay, by reason",
            metrics.reconnects.clone(),
        );
        registry.register(
            "remote_refused_harnesses",
            "Handshakes of harnesses that were refused, by reason",
            metrics.refused_harnesses.clone(),
        );
        metrics
    }

    pub(crate) fn registration_ended(&self, has_failed: bool, took: Duration) {
        self.registrations.get_or_create(&AnswerLabel::new(has_failed)).inc();
        self.registration_duration.observe(took.as_secs_f64());
    }

    pub(crate) fn relay_connect_ended(&self, has_failed: bool, took: Duration) {
        self.relay_connects.get_or_create(&AnswerLabel::new(has_failed)).inc();
        self.relay_connect_duration.observe(took.as_secs_f64());
    }

    pub(crate) fn reconnects(&self, reason: &'static str) {
        self.reconnects.get_or_create(&ReasonLabel { reason }).inc();
    }

    pub(crate) fn harness_refused(&self, reason: &'static str) {
        self.refused_harnesses.get_or_create(&ReasonLabel { reason }).inc();
    }
}
