//! The network proxy of a process: makes it from the params of `process/start`, and joins it with the client, who is
//! asked about unknown hosts (`client_decider`) and told about each decision (`client_observer`). The proxy itself is in
//! the crate `proxy`. This module does not know sandboxes: it is given the descriptor of a listening socket.
//!
//! A start has two steps: [`ProxyPlan::new`] checks the params. When the sandbox has made the socket,
//! [`ProxyPlan::launch`] starts the proxy and changes the environment of the child. The handle that it returns goes
//! into the process (`ProcessParts::network_proxy`), whose task stops the proxy when the process is closed.

mod client_decider;
mod client_observer;
mod session_resolver;
mod timestamp;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use protocol::{
    DomainPermission, MAX_POLICY_PROCESS_ID_BYTES, NetworkMode, NetworkProtocol, NetworkProxyLaunch, ProcessId,
    WireError,
};
use proxy::limits::ProxyLimits;
use proxy::{
    Decider, DomainPatterns, DomainRule, LocalTargets, NetworkProxy, NetworkRules, ProxyConfig, ProxyMode,
    ProxyProtocol, Socks5Support, child_variables, is_proxy_variable,
};
use tokio_util::sync::CancellationToken;

use self::client_decider::ClientDecider;
use self::client_observer::ClientObserver;
use self::session_resolver::SessionResolver;
use crate::environment::Variables;
use crate::limits::POLICY_ANSWER_GRACE;
use crate::process::ProxyHandle;
use crate::proxy_connections;
use crate::server_state::ServerState;
use crate::session::Session;
use crate::survive::survive;

/// The checked params of a proxy that a client has asked for. [`Self::launch`] starts the proxy.
#[derive(Debug)]
pub(crate) struct ProxyPlan {
    process_id: ProcessId,
    rules: NetworkRules,
    /// Time after which the client's answer is too late. None: the client is not asked.
    decision_timeout: Option<Duration>,
}

impl ProxyPlan {
    /// Checks the params, in the order and with the texts of the published protocol.
    pub(crate) fn new(launch: &NetworkProxyLaunch, process_id: &ProcessId) -> Result<Self, WireError> {
        if launch.policy_decision_timeout_ms == Some(0) {
            return Err(WireError::invalid_params("network policy decision callback timeout must be nonzero"));
        }
        let has_valid_id = (1..=MAX_POLICY_PROCESS_ID_BYTES).contains(&process_id.as_str().len());
        if launch.policy_decision_timeout_ms.is_some() && !has_valid_id {
            return Err(WireError::invalid_params(format!(
                "callback-enabled process ID must be non-empty and at most {MAX_POLICY_PROCESS_ID_BYTES} bytes"
            )));
        }
        if !launch.proxy.enabled {
            return Err(invalid_config("executor-local network proxy launch requires an enabled proxy"));
        }
        let rules = rules_of(launch)?;
        let decision_timeout = launch
            .policy_decision_timeout_ms
            .map(|timeout| Duration::from_millis(timeout).saturating_add(POLICY_ANSWER_GRACE));
        Ok(Self { process_id: process_id.clone(), rules, decision_timeout })
    }

    /// Starts the proxy, and sets the variables in `env` that make the programs of the child use it. `listener` is a
    /// TCP socket that listens, possibly in another network namespace; targets are reached from the network of the
    /// server. Dropping the handle, for example because the start fails, stops the proxy. Must be called in a tokio
    /// runtime.
    pub(crate) fn launch(
        self,
        shared: &Arc<ServerState>,
        session: &Arc<Session>,
        listener: OwnedFd,
        env: &mut Variables,
    ) -> io::Result<ProxyHandle> {
        let questions_over = CancellationToken::new();
        let decider = self.decision_timeout.map(|timeout| -> Arc<dyn Decider> {
            Arc::new(ClientDecider {
                session: Arc::downgrade(session),
                process_id: self.process_id.clone(),
                timeout,
                questions_over: questions_over.clone(),
            })
        });
        let socks5 = self.rules.socks5;
        let config = ProxyConfig {
            rules: self.rules,
            decider,
            observer: Arc::new(ClientObserver::new(Arc::downgrade(session), self.process_id)),
            resolver: Arc::new(SessionResolver {
                lookups: Arc::clone(&shared.lookups),
                owner: session.http_owner.clone(),
            }),
            connection_permits: vec![Arc::clone(&session.proxy_connections), proxy_connections::of_all_sessions()],
            limits: ProxyLimits { connections: proxy_connections::of_a_process(), ..ProxyLimits::default() },
        };
        let proxy = NetworkProxy::from_descriptor(listener, config)?;
        set_variables(env, proxy.local_addr()?, socks5);
        let stop = CancellationToken::new();
        let running = proxy.run(stop.clone());
        let task = shared.tasks.spawn(async move {
            // If the proxy panics, its connections are closed, and further ones are refused.
            let _none_if_panicked = survive(running).await;
        });
        Ok(ProxyHandle::new(questions_over, stop, task))
    }
}

/// Makes the programs of a child use this proxy. Variables about other proxies are removed.
fn set_variables(env: &mut Variables, proxy: SocketAddr, socks5: Socks5Support) {
    env.retain(|name, _| !name.to_str().is_some_and(is_proxy_variable));
    let variables = child_variables(proxy, socks5);
    env.extend(variables.into_iter().map(|(name, value)| (name.into(), value.into())));
}

fn rules_of(launch: &NetworkProxyLaunch) -> Result<NetworkRules, WireError> {
    let config = &launch.proxy;
    let listed = config.domains.iter().flatten().filter_map(|(pattern, permission)| {
        let rule = match permission {
            DomainPermission::Allow => DomainRule::Allow,
            DomainPermission::Deny => DomainRule::Deny,
            DomainPermission::None => return None,
        };
        Some((pattern.as_str(), rule))
    });
    Ok(NetworkRules {
        mode: match config.mode {
            NetworkMode::Full => ProxyMode::Full,
            NetworkMode::Limited => ProxyMode::Limited,
        },
        local_targets: if config.allow_local_binding { LocalTargets::Allowed } else { LocalTargets::Refused },
        socks5: if config.enable_socks5 { Socks5Support::Enabled } else { Socks5Support::Disabled },
        domains: DomainPatterns::new(listed).map_err(|error| invalid_config(&error.to_string()))?,
    })
}

fn invalid_config(reason: &str) -> WireError {
    WireError::invalid_params(format!("invalid network proxy config: {reason}"))
}

fn wire_protocol(protocol: ProxyProtocol) -> NetworkProtocol {
    match protocol {
        ProxyProtocol::Http => NetworkProtocol::Http,
        ProxyProtocol::HttpsConnect => NetworkProtocol::HttpsConnect,
        ProxyProtocol::Socks5Tcp => NetworkProtocol::Socks5Tcp,
        ProxyProtocol::Socks5Udp => NetworkProtocol::Socks5Udp,
    }
}

#[cfg(test)]
mod tests;
