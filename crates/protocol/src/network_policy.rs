//! The network policy of a process: the proxy that a client asks for with `process/start`, the question that the
//! server asks the client about a host (`network/policyRequest`), and the report of each decision
//! (`network/policyDecision`).
//!
//! Start with [`NetworkProxyLaunch`]. This file has the shapes and the limits of the published protocol. It does not
//! decide anything.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ProcessId;
use crate::object_only::objects_only;

/// Longest process id of a process with policy questions, in bytes.
pub const MAX_POLICY_PROCESS_ID_BYTES: usize = 256;
/// Longest host in a question or report, in bytes.
pub const MAX_POLICY_HOST_BYTES: usize = 253;
/// Longest reason of a decision, in bytes.
pub const MAX_POLICY_REASON_BYTES: usize = 1024;
/// Longest HTTP method in a report, in bytes.
pub const MAX_POLICY_METHOD_BYTES: usize = 32;
/// Longest text about the program that asked, in bytes.
pub const MAX_POLICY_CLIENT_BYTES: usize = 256;
/// Longest time stamp of a report, in bytes.
pub const MAX_POLICY_TIMESTAMP_BYTES: usize = 64;

/// The member `networkProxy` of `process/start`: a proxy that the server launches for the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct NetworkProxyLaunch {
    /// What the proxy allows.
    pub proxy: NetworkProxyConfig,
    /// Facts about the client for its own records. The server does not use them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_metadata: Option<NetworkAuditMetadata>,
    /// The client's name for the environment. The server does not use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment_id: Option<String>,
    /// The client's name for this run of the command. The server does not use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<String>,
    /// Milliseconds within which the client decides about a host that the proxy does not know. Must not be 0. Absent:
    /// the client is not asked, and such hosts are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_decision_timeout_ms: Option<u64>,
}

/// What a proxy allows. An absent switch is false, and an absent mode is the stricter one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkProxyConfig {
    /// Must be true: a start with a proxy that is switched off is refused.
    pub enabled: bool,
    /// Whether programs may use SOCKS5.
    pub enable_socks5: bool,
    /// Whether programs may use UDP over SOCKS5. The server never serves UDP.
    pub enable_socks5_udp: bool,
    /// Whether all Unix sockets may be reached through the proxy. The server never serves Unix sockets.
    pub dangerously_allow_all_unix_sockets: bool,
    /// Which HTTP methods may be used.
    pub mode: NetworkMode,
    /// Hosts, as patterns. Null: no host is listed.
    pub domains: Option<BTreeMap<String, DomainPermission>>,
    /// Unix sockets, as paths. Null: none is listed. The server never serves Unix sockets.
    pub unix_sockets: Option<BTreeMap<String, UnixSocketPermission>>,
    /// Whether targets on the machine of the server and in its local networks may be reached.
    pub allow_local_binding: bool,
    /// Members that this version does not know. The server ignores them; a client can add members for other servers.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Which HTTP methods a proxy allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkMode {
    /// Every HTTP method, and tunnels.
    Full,
    /// Only GET, HEAD and OPTIONS, and no tunnels.
    #[default]
    Limited,
}

/// What a pattern says about the hosts that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DomainPermission {
    /// The hosts may be reached.
    Allow,
    /// The hosts must not be reached.
    Deny,
    /// The pattern says nothing, as if it were absent.
    None,
}

/// Whether a Unix socket may be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnixSocketPermission {
    /// The socket may be reached.
    Allow,
    /// The socket must not be reached.
    Deny,
}

/// Facts about the client, for the records of the client. Each can be null or absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the published protocol gives these members no meaning for the server")]
pub struct NetworkAuditMetadata {
    pub conversation_id: Option<String>,
    pub app_version: Option<String>,
    pub user_account_id: Option<String>,
    pub auth_mode: Option<String>,
    pub originator: Option<String>,
    pub user_email: Option<String>,
    pub terminal_type: Option<String>,
    pub model: Option<String>,
    pub slug: Option<String>,
}

/// The member `managedNetwork` of `process/start`: what the sandbox must know about the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase", default)]
pub struct ManagedNetwork {
    /// TCP ports on loopback that the process may reach.
    pub loopback_ports: Vec<u16>,
    /// Whether the process may listen on loopback.
    pub allow_local_binding: bool,
}

/// How a program asked for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkProtocol {
    /// A plain HTTP request.
    Http,
    /// The HTTP method CONNECT.
    HttpsConnect,
    /// The SOCKS5 command CONNECT.
    Socks5Tcp,
    /// UDP over SOCKS5.
    Socks5Udp,
}

/// Params of `network/policyRequest`, a request of the server to the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyParams {
    /// The process whose proxy asks.
    pub process_id: ProcessId,
    /// The target that the process wants to reach.
    pub request: NetworkPolicyRequest,
}

/// A target about which the client decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct NetworkPolicyRequest {
    /// How the program asked.
    pub protocol: NetworkProtocol,
    /// Host name or IP address, 1 to 253 bytes, without spaces and control characters.
    pub host: String,
    /// The TCP or UDP port of the target.
    pub port: u16,
}

impl NetworkPolicyRequest {
    /// Whether the host may be sent. A question about any other host is answered with no, without asking.
    pub fn is_within_limits(&self) -> bool {
        is_host(&self.host)
    }
}

impl NetworkPolicyParams {
    /// Whether a client may act on the question: process id and host are within their limits.
    pub fn is_within_limits(&self) -> bool {
        is_process_id(self.process_id.as_str()) && self.request.is_within_limits()
    }
}

/// Result of `network/policyRequest`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkPolicyResult {
    /// What the client has decided.
    pub decision: NetworkPolicyVerdict,
}

/// What a client decides about one request of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", tag = "type", rename_all = "snake_case")]
pub enum NetworkPolicyVerdict {
    /// The request may go on.
    Allow,
    /// The request is refused.
    Deny {
        /// At most 1024 bytes, without control characters.
        reason: String,
    },
    /// The request is refused until somebody has been asked.
    Ask {
        /// At most 1024 bytes, without control characters.
        reason: String,
    },
}

impl NetworkPolicyVerdict {
    /// The verdict of a client that cannot be asked, does not answer, or answers wrongly.
    pub fn not_allowed() -> Self {
        Self::Deny { reason: "not_allowed".to_owned() }
    }

    /// Whether the reason is within its limits. A verdict that is not counts as [`Self::not_allowed`].
    pub fn is_within_limits(&self) -> bool {
        match self {
            Self::Allow => true,
            Self::Deny { reason } | Self::Ask { reason } => is_reason(reason),
        }
    }
}

/// Params of the notification `network/policyDecision`: what was decided about one request of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkDecisionNotification {
    /// The process whose proxy has decided.
    pub process_id: ProcessId,
    /// When it was decided: RFC 3339 in UTC, with milliseconds.
    pub timestamp: String,
    /// Whether the host was judged.
    pub scope: NetworkDecisionScope,
    /// What was decided.
    pub decision: NetworkDecision,
    /// Which part of the policy decided.
    pub source: NetworkDecisionSource,
    /// Why it was decided, as a word of the proxy or a text of the decider.
    pub reason: String,
    /// How the program asked.
    pub protocol: NetworkProtocol,
    /// Host name or IP address.
    pub host: String,
    /// The port of the target.
    pub port: u16,
    /// The method of an HTTP request. Absent for SOCKS5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The address of the program. Absent if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Whether the client has allowed a host that the lists of the proxy do not allow.
    pub policy_override: bool,
}

impl NetworkDecisionNotification {
    /// Whether a client may keep the report: every text is within its limits.
    pub fn is_within_limits(&self) -> bool {
        let fits = |text: &Option<String>, limit| text.as_ref().is_none_or(|text| is_text(text, limit));
        is_process_id(self.process_id.as_str())
            && is_text(&self.timestamp, MAX_POLICY_TIMESTAMP_BYTES)
            && is_reason(&self.reason)
            && is_host(&self.host)
            && fits(&self.method, MAX_POLICY_METHOD_BYTES)
            && fits(&self.client, MAX_POLICY_CLIENT_BYTES)
    }
}

/// Whether a decision was about the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkDecisionScope {
    /// The host was judged, by the lists or by the decider.
    Domain,
    /// The decision would be the same for every host.
    NonDomain,
}

/// What was decided about a request of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkDecision {
    /// The proxy connects to the target.
    Allow,
    /// The program got a refusal.
    Deny,
    /// The program got a refusal, because somebody must be asked first.
    Ask,
}

/// Which part of the policy decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkDecisionSource {
    /// The configuration of the proxy: its lists, and the rule about local targets.
    BaselinePolicy,
    /// The mode of the proxy.
    ModeGuard,
    /// What the proxy serves at all.
    ProxyState,
    /// The client, in answer to a question.
    Decider,
}

fn is_process_id(text: &str) -> bool {
    (1..=MAX_POLICY_PROCESS_ID_BYTES).contains(&text.len())
}

fn is_host(text: &str) -> bool {
    let is_forbidden = |c: char| c.is_control() || c.is_whitespace();
    (1..=MAX_POLICY_HOST_BYTES).contains(&text.len()) && !text.contains(is_forbidden)
}

fn is_reason(text: &str) -> bool {
    is_text(text, MAX_POLICY_REASON_BYTES)
}

fn is_text(text: &str, limit: usize) -> bool {
    text.len() <= limit && !text.contains(char::is_control)
}

objects_only!(NetworkProxyLaunch, NetworkAuditMetadata, ManagedNetwork, NetworkPolicyRequest, NetworkPolicyVerdict);

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;

    use super::*;

    /// Checks that a JSON text decodes, and that the value is encoded as the same text.
    #[track_caller]
    fn assert_same_json<T: Serialize + DeserializeOwned>(json: &str) -> T {
        let value: T = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&value).unwrap(), json);
        value
    }

    #[test]
    fn a_question_and_its_answers_have_the_published_shape() {
        let params: NetworkPolicyParams = assert_same_json(
            r#"{"processId":"p1","request":{"protocol":"https_connect","host":"example.com","port":443}}"#,
        );
        assert_eq!(params.request.protocol, NetworkProtocol::HttpsConnect);
        for (json, verdict) in [
            (r#"{"decision":{"type":"allow"}}"#, NetworkPolicyVerdict::Allow),
            (r#"{"decision":{"type":"deny","reason":"not_allowed"}}"#, NetworkPolicyVerdict::not_allowed()),
            (
                r#"{"decision":{"type":"ask","reason":"needs approval"}}"#,
                NetworkPolicyVerdict::Ask { reason: "needs approval".to_owned() },
            ),
        ] {
            assert_eq!(assert_same_json::<NetworkPolicyResult>(json).decision, verdict);
        }
        for json in [r#"{"decision":{"type":"deny"}}"#, r#"{"decision":{"type":"maybe"}}"#, r#"{"decision":"allow"}"#]
        {
            serde_json::from_str::<NetworkPolicyResult>(json).unwrap_err();
        }
    }

    #[test]
    fn a_report_has_the_published_shape() {
        let json = r#"{"processId":"p","timestamp":"2026-08-01T10:20:30.400Z","scope":"domain","decision":"deny","source":"baseline_policy","reason":"not_allowed","protocol":"https_connect","host":"example.com","port":443,"method":"CONNECT","client":"127.0.0.1","policyOverride":false}"#;
        assert!(assert_same_json::<NetworkDecisionNotification>(json).is_within_limits());
        let without = r#"{"processId":"p","timestamp":"t","scope":"non_domain","decision":"ask","source":"mode_guard","reason":"r","protocol":"socks5_udp","host":"h","port":0,"policyOverride":true}"#;
        assert_same_json::<NetworkDecisionNotification>(without);
        for word in ["proxy_state", "decider"] {
            assert_same_json::<NetworkDecisionSource>(&format!("\"{word}\""));
        }
        for word in ["http", "https_connect", "socks5_tcp", "socks5_udp"] {
            assert_same_json::<NetworkProtocol>(&format!("\"{word}\""));
        }
    }

    #[test]
    fn a_launch_has_the_published_shape() {
        let json = r#"{"proxy":{"enabled":true,"enableSocks5":true,"enableSocks5Udp":false,"dangerouslyAllowAllUnixSockets":false,"mode":"full","domains":{"*.example.com":"allow","a.test":"deny","b.test":"none"},"unixSockets":{"/run/x":"allow","/run/y":"deny"},"allowLocalBinding":false,"allowSomeProxy":true},"auditMetadata":{"conversationId":"c","appVersion":null,"userAccountId":null,"authMode":null,"originator":null,"userEmail":null,"terminalType":null,"model":null,"slug":null},"environmentId":"e","executionId":"x","policyDecisionTimeoutMs":30000}"#;
        let launch: NetworkProxyLaunch = assert_same_json(json);
        assert_eq!(launch.proxy.other.get("allowSomeProxy"), Some(&Value::Bool(true)), "unknown members are kept");
    }

    #[test]
    fn absent_members_of_a_launch_are_strict() {
        let launch: NetworkProxyLaunch = serde_json::from_str(r#"{"proxy":{"domains":null},"unknown":1}"#).unwrap();
        assert_eq!(launch, NetworkProxyLaunch::default());
        assert_eq!((launch.proxy.enabled, launch.proxy.mode), (false, NetworkMode::Limited));
        serde_json::from_str::<NetworkProxyLaunch>("{}").unwrap_err();
        serde_json::from_str::<NetworkProxyLaunch>(r#"{"proxy":{"mode":"open"}}"#).unwrap_err();
        serde_json::from_str::<NetworkProxyLaunch>(r#"{"proxy":{"domains":{"a":"maybe"}}}"#).unwrap_err();
    }

    #[test]
    fn members_of_a_managed_network_have_defaults() {
        assert_same_json::<ManagedNetwork>(r#"{"loopbackPorts":[80,65535],"allowLocalBinding":true}"#);
        assert_eq!(serde_json::from_str::<ManagedNetwork>("{}").unwrap(), ManagedNetwork::default());
    }

    #[test]
    fn hosts_and_reasons_have_limits() {
        let asks = |host: &str| {
            let request = NetworkPolicyRequest { protocol: NetworkProtocol::Http, host: host.to_owned(), port: 80 };
            request.is_within_limits()
        };
        assert!(asks(&"h".repeat(253)) && asks("::1"));
        for host in ["", "a b", "a\tb", "a\n", "a\u{7f}", "\u{a0}", &"h".repeat(254)] {
            assert!(!asks(host), "{host:?}");
        }
        let denies = |reason: String| NetworkPolicyVerdict::Deny { reason }.is_within_limits();
        assert!(denies("r".repeat(1024)) && denies(String::new()) && denies("a reason".to_owned()));
        assert!(!denies("r".repeat(1025)) && !denies("a\nb".to_owned()) && !denies("\u{1b}[0m".to_owned()));
    }

    #[test]
    fn a_report_over_a_limit_is_recognised() {
        let report: NetworkDecisionNotification = serde_json::from_str(
            r#"{"processId":"p","timestamp":"t","scope":"domain","decision":"allow","source":"decider","reason":"r","protocol":"http","host":"h","port":1,"policyOverride":true}"#,
        )
        .unwrap();
        assert!(report.is_within_limits());
        let change = |change: fn(&mut NetworkDecisionNotification)| {
            let mut changed = report.clone();
            change(&mut changed);
            changed.is_within_limits()
        };
        assert!(!change(|report| report.process_id = "p".repeat(257).into()));
        assert!(!change(|report| report.timestamp = "t".repeat(65)));
        assert!(!change(|report| report.host = "h".repeat(254)));
        assert!(!change(|report| report.reason = "r".repeat(1025)));
        assert!(!change(|report| report.method = Some("M".repeat(33))));
        assert!(!change(|report| report.client = Some("c".repeat(257))));
    }
}
