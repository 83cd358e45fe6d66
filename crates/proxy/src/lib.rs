//! The network proxy of one process. It accepts connections on one socket, recognises HTTP and SOCKS5 by the first
//! byte, asks rules (and, if the rules do not know a host, a decider) whether the target may be reached, and then
//! connects to the target from the network of this program. The socket may belong to another network namespace: then
//! the proxy is the only way out of that namespace.
//!
//! The crate knows nothing of processes, sandboxes and JSON-RPC. Start with [`NetworkProxy::run`]. [`NetworkRules`]
//! are a value without I/O. [`child_variables`] are the environment variables that make programs use the proxy.
//!
//! The proxy does not look into tunnels (CONNECT and SOCKS5). A program can therefore name an allowed host to the proxy
//! and another host inside TLS, if one address serves both (domain fronting).

#![forbid(unsafe_code)]

mod activity;
mod connect_failure;
mod dial;
mod host;
mod http_requests;
mod interfaces;
mod joined_body;
pub mod limits;
mod local_address;
mod local_networks;
mod patterns;
mod policy;
mod program_stream;
mod proxy_body;
mod request_gate;
mod rules;
mod serve;
mod socks5;
mod target_stream;
mod tunnel;
mod upstream;
mod variables;

pub use host::{InvalidHost, TargetHost};
pub use patterns::{DomainPatterns, DomainRule, PatternError};
pub use policy::{
    BoxFuture, Decider, DeciderAnswer, DecisionObserver, DecisionSource, NameResolver, PolicyQuestion, ProxyDecision,
    ProxyProtocol, ProxyVerdict, reason,
};
pub use rules::{LocalTargets, NetworkRules, ProxyMode, Socks5Support};
pub use serve::{NetworkProxy, ProxyConfig};
pub use variables::{child_variables, is_proxy_variable};
