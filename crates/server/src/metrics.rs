//! Counters, gauges and histograms for the HTTP page `/metrics`, which a Prometheus server reads. Their names and
//! labels are an interface: dashboards depend on them. This module knows nothing of how the values come about; other
//! modules report each change by a method call.

mod remote;

use std::fmt::Write as _;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use transport::Principal;

use self::remote::RemoteMetrics;

/// Value of the label `transport`: how a client is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the names are the label's values")]
pub(crate) enum Transport {
    websocket,
    unix,
    stdio,
    relay,
    /// A connection of a harness that uses a direct path instead of the relay.
    direct,
}

/// Value of the label `result` of finished processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the names are the label's values")]
pub(crate) enum ProcessOutcome {
    /// Exit code 0.
    success,
    /// Any other exit code, also after a signal or a timeout.
    error,
    /// Whatever the exit code: a client had sent `process/terminate`, or the session had ended.
    terminated,
}

/// Value of the label `result` of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the names are the label's values")]
pub(crate) enum RequestOutcome {
    success,
    error,
    /// The connection ended before the request was answered.
    disconnected,
}

/// Value of the label `reason`: why a connection or a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the names are the label's values")]
pub(crate) enum AuthenticationFailure {
    /// There was no token.
    missing,
    /// The `Authorization` header was not `Bearer TOKEN`.
    malformed,
    /// The token is not in the token file.
    wrong,
    /// A Unix socket was opened by another user than the server runs as.
    other_user,
    /// The client asked for a session that another principal (user or token) has made.
    other_session,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabel {
    reason: AuthenticationFailure,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TransportLabel {
    transport: Transport,
}

/// The [`Principal`] as a text. The number of values stays small: names of tokens, a user, `anybody`, or `harness` for all harnesses.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PrincipalLabel {
    principal: String,
}

impl PrincipalLabel {
    fn of(principal: &Principal) -> Self {
        let principal = match principal {
            Principal::Harness(_) => "harness".to_owned(),
            Principal::Anybody | Principal::User(_) | Principal::Token(_) => principal.to_string(),
        };
        Self { principal }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    result: RequestOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProcessLabel {
    result: ProcessOutcome,
}

/// All metrics of a server.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    connections_active: Family<TransportLabel, Gauge>,
    connections_total: Family<TransportLabel, Counter>,
    principal_connections_active: Family<PrincipalLabel, Gauge>,
    principal_connections_total: Family<PrincipalLabel, Counter>,
    connections_waiting: Gauge,
    authentication_failures: Family<FailureLabel, Counter>,
    requests_total: Family<RequestLabels, Counter>,
    request_duration: Histogram,
    processes_active: Gauge,
    processes_finished: Family<ProcessLabel, Counter>,
    process_duration: Histogram,
    sessions_active: Gauge,
    output_bytes: Counter<u64, AtomicU64>,
    output_dropped_bytes: Counter<u64, AtomicU64>,
    /// What happens in remote mode. Without remote mode all values stay 0.
    pub(crate) remote: RemoteMetrics,
}

/// Counts one client in `connections_waiting` until this value is dropped.
pub(crate) struct WaitingConnection(Gauge);

impl Drop for WaitingConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("exec_server");
        let request_duration = Histogram::new([0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0]);
        let process_duration = Histogram::new([0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0]);
        let metrics = Self {
            connections_active: Family::default(),
            connections_total: Family::default(),
            principal_connections_active: Family::default(),
            principal_connections_total: Family::default(),
            connections_waiting: Gauge::default(),
            authentication_failures: Family::default(),
            requests_total: Family::default(),
            request_duration,
            processes_active: Gauge::default(),
            processes_finished: Family::default(),
            process_duration,
            sessions_active: Gauge::default(),
            output_bytes: Counter::default(),
            output_dropped_bytes: Counter::default(),
            remote: RemoteMetrics::register(&mut registry),
            registry: Registry::default(),
        };
        registry.register("connections_active", "Open connections", metrics.connections_active.clone());
        registry.register("connections", "Connections accepted", metrics.connections_total.clone());
        registry.register(
            "principal_connections_active",
            "Open connections, by user or token",
            metrics.principal_connections_active.clone(),
        );
        registry.register(
            "principal_connections",
            "Connections accepted, by user or token",
            metrics.principal_connections_total.clone(),
        );
        registry.register(
            "connections_waiting",
            "Clients that wait because --max-connections are open",
            metrics.connections_waiting.clone(),
        );
        registry.register(
            "authentication_failures",
            "Requests for a connection or for metrics without an accepted token, connections of another user, and requests for a \
             session of another user or token",
            metrics.authentication_failures.clone(),
        );
        registry.register("requests", "Requests, by method and result", metrics.requests_total.clone());
        registry.register("request_duration_seconds", "From request to answer", metrics.request_duration.clone());
        registry.register("processes_active", "Processes that have not exited", metrics.processes_active.clone());
        registry.register("processes_finished", "Processes that have exited", metrics.processes_finished.clone());
        registry.register("process_duration_seconds", "From start to exit", metrics.process_duration.clone());
        registry.register("sessions_active", "Sessions, attached or not", metrics.sessions_active.clone());
        registry.register("output_bytes", "Output read from processes", metrics.output_bytes.clone());
        registry.register(
            "output_dropped_bytes",
            "Dropped output that the client may not have received",
            metrics.output_dropped_bytes.clone(),
        );
        Self { registry, ..metrics }
    }

    pub(crate) fn connection_opened(&self, transport: Transport, principal: &Principal) {
        let by_principal = PrincipalLabel::of(principal);
        self.principal_connections_active.get_or_create(&by_principal).inc();
        self.principal_connections_total.get_or_create(&by_principal).inc();
        let label = TransportLabel { transport };
        self.connections_active.get_or_create(&label).inc();
        self.connections_total.get_or_create(&label).inc();
    }

    /// Counts a client that waits because `--max-connections` are open, until the returned value is dropped.
    pub(crate) fn connection_waits(&self) -> WaitingConnection {
        self.connections_waiting.inc();
        WaitingConnection(self.connections_waiting.clone())
    }

    pub(crate) fn authentication_failed(&self, reason: AuthenticationFailure) {
        self.authentication_failures.get_or_create(&FailureLabel { reason }).inc();
    }

    pub(crate) fn connection_closed(&self, transport: Transport, principal: &Principal) {
        let by_principal = PrincipalLabel::of(principal);
        self.principal_connections_active.get_or_create(&by_principal).dec();
        self.connections_active.get_or_create(&TransportLabel { transport }).dec();
    }

    /// The connection of a harness has moved from the relay to a direct path.
    pub(crate) fn direct_path_used(&self) {
        self.connections_active.get_or_create(&TransportLabel { transport: Transport::relay }).dec();
        let label = TransportLabel { transport: Transport::direct };
        self.connections_active.get_or_create(&label).inc();
        self.connections_total.get_or_create(&label).inc();
    }

    /// The connection of a harness has moved from a direct path back to the relay, or has ended.
    pub(crate) fn direct_path_left(&self) {
        self.connections_active.get_or_create(&TransportLabel { transport: Transport::direct }).dec();
        self.connections_active.get_or_create(&TransportLabel { transport: Transport::relay }).inc();
    }

    pub(crate) fn request_finished(&self, method: &'static str, result: RequestOutcome, took: Duration) {
        self.requests_total.get_or_create(&RequestLabels { method, result }).inc();
        self.request_duration.observe(took.as_secs_f64());
    }

    pub(crate) fn process_started(&self) {
        self.processes_active.inc();
    }

    pub(crate) fn process_finished(&self, result: ProcessOutcome, ran: Duration) {
        self.processes_active.dec();
        self.processes_finished.get_or_create(&ProcessLabel { result }).inc();
        self.process_duration.observe(ran.as_secs_f64());
    }

    pub(crate) fn set_session_count(&self, count: usize) {
        self.sessions_active.set(count as i64);
    }

    pub(crate) fn output_read(&self, bytes: usize) {
        self.output_bytes.inc_by(bytes as u64);
    }

    pub(crate) fn output_dropped(&self, bytes: u64) {
        self.output_dropped_bytes.inc_by(bytes);
    }

    /// All metrics in the text format of Prometheus.
    pub(crate) fn render(&self) -> String {
        let mut out = String::new();
        if let Err(error) = text::encode(&mut out, &self.registry) {
            let _ = write!(out, "# {error}");
        }
        out
    }
}
