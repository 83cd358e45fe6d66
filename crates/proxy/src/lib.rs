//! The network proxy of one process. It accepts connections on one socket, recognises HTTP and SOCKS5 by the first
//! byte, asks rules (and, if the rules do not know a host, a decider) whether the target may be reached, and then
//! connects to the target from the network of this program. The socket may belong to another network namespace: then
//! the proxy is the only way out of that namespace.
//!
//! The crate knows nothing of processes, sandboxes and JSON-RPC. Start with [`NetworkProxy::run`]. [`NetworkRules`]
//! are a value without I/O. [`child_variables`] are the environment variables that make programs use the proxy.
//!
//! The proxy does not look into tunnels (CONNECT and SOCKS5). So a program can name one host to the proxy and another
//! one inside TLS; both must then be served by the same address.

#![forbid(unsafe_code)]

mod activity;

mod dial;
mod host;
mod http_requests;
pub mod limits;
mod local_address;
mod patterns;
mod policy;
mod refusal;
mod rules;
mod serve;
mod socks5;
mod target_policy;
mod tunnel;
mod upstream;
mod variables;

pub use host::{InvalidHost, TargetHost};
pub use patterns::{DomainPatterns, DomainRule, InvalidPattern};
pub use policy::{
    BoxFuture, Decider, DeciderVerdict, DecisionObserver, DecisionSource, NameResolver, PolicyQuestion,
    ProxyDecision, ProxyProtocol, ProxyVerdict, reason,
};
pub use rules::{LocalTargets, NetworkRules, ProxyMode, Socks5Support};
pub use serve::{NetworkProxy, ProxyParts};
pub use variables::{child_variables, is_proxy_variable};
