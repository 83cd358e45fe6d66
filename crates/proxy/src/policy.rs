//! The traits that the program around the proxy implements, [`Decider`], [`DecisionObserver`] and [`NameResolver`], and
//! the questions and decisions that it gets.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;

/// A future that can be sent to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How a program asked the proxy for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// A plain HTTP request with an absolute URL.
    Http,
    /// The HTTP method CONNECT, which HTTPS uses.
    HttpsConnect,
    /// The SOCKS5 command CONNECT.
    Socks5Tcp,
    /// The SOCKS5 command UDP ASSOCIATE.
    Socks5Udp,
}

/// A question to the decider: may this target, which no rule matches, be reached?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyQuestion {
    /// How the program asked.
    pub protocol: ProxyProtocol,
    /// The host in its normal spelling: lower case, no dot at the end, IPv6 without brackets.
    pub host: String,
    /// The TCP port of the target.
    pub port: u16,
}

/// The answer of a decider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeciderAnswer {
    /// This one request may go on.
    Allow,
    /// The request is refused, for this reason.
    Deny(String),
    /// The request is refused now, because somebody must be asked first. The program may try again later.
    Ask(String),
}

/// Decides about targets that the rules do not know. Dropping the future withdraws the question.
pub trait Decider: Send + Sync {
    /// Answers a question. The proxy keeps the program waiting meanwhile, without a time limit of its own.
    fn decide(&self, question: PolicyQuestion) -> BoxFuture<'_, DeciderAnswer>;
}

/// What was decided about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVerdict {
    /// The proxy connects to the target.
    Allow,
    /// The program got a refusal.
    Deny,
    /// The program got a refusal, because somebody must be asked first.
    Ask,
}

/// Which part of the policy decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionSource {
    /// The lists of hosts, or the rule about local targets.
    BaselinePolicy,
    /// The mode, which limits methods and protocols. On the wire this is `mode_guard`.
    ModeGuard,
    /// The proxy does not serve this protocol: SOCKS5 is disabled, or UDP. On the wire this is `proxy_state`.
    ProxyState,
    /// The decider, which is asked about hosts that the rules do not know.
    Decider,
}

/// Why the proxy decided as it did. A decider has reasons of its own.
pub mod reason {
    /// The request is allowed.
    pub const ALLOWED: &str = "allowed";
    /// A pattern denies the host.
    pub const DENIED: &str = "denied";
    /// No pattern allows the host.
    pub const NOT_ALLOWED: &str = "not_allowed";
    /// The target is this machine, or in one of its local networks.
    pub const NOT_ALLOWED_LOCAL: &str = "not_allowed_local";
    /// The mode does not allow the method, or tunnels.
    pub const METHOD_NOT_ALLOWED: &str = "method_not_allowed";
    /// SOCKS5 is switched off.
    pub const SOCKS5_DISABLED: &str = "socks5_disabled";
    /// The proxy cannot do this for any target.
    pub const UNSUPPORTED: &str = "unsupported";
}

/// A decision about one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyDecision {
    /// What was decided.
    pub verdict: ProxyVerdict,
    /// Which part of the policy decided.
    pub source: DecisionSource,
    /// One of [`reason`], or the reason of the decider.
    pub reason: String,
    /// How the program asked.
    pub protocol: ProxyProtocol,
    /// The host in its normal spelling, as in [`PolicyQuestion::host`].
    pub host: String,
    /// The TCP port of the target, or the UDP port of a program that asked for UDP.
    pub port: u16,
    /// The method of an HTTP request. None for SOCKS5.
    pub method: Option<String>,
    /// The address of the program's socket, without the port.
    pub client: String,
    /// True if the decider allowed a host that no pattern matches. On the wire this is `policyOverride`.
    pub overrides_baseline: bool,
}

/// Is told about each decision, before it has an effect.
pub trait DecisionObserver: Send + Sync {
    /// Notes a decision. The request waits until the future is ready, so a slow observer delays the program, and no
    /// decision is dropped.
    fn observe(&self, decision: ProxyDecision) -> BoxFuture<'_, ()>;
}

/// Resolves host names.
pub trait NameResolver: Send + Sync {
    /// The addresses of a name, in the order in which they are tried. Dropping the future gives up.
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}
