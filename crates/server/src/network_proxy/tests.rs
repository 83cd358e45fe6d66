//! Checks of the params of a proxy, and of the variables of its child. Proxies that run are tested in `connection_task`.

use protocol::ErrorCode;
use serde_json::{Value, json};

use super::*;

fn plan(process_id: &str, launch: Value) -> Result<ProxyPlan, WireError> {
    ProxyPlan::new(&serde_json::from_value(launch).unwrap(), &ProcessId::from(process_id))
}

#[track_caller]
fn assert_refused(process_id: &str, launch: Value, message: &str) {
    let error = plan(process_id, launch).unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (ErrorCode::InvalidParams.number(), message));
}

#[test]
fn params_are_checked_in_the_published_order() {
    let disabled = "invalid network proxy config: executor-local network proxy launch requires an enabled proxy";
    let zero = "network policy decision callback timeout must be nonzero";
    let id = "callback-enabled process ID must be non-empty and at most 256 bytes";
    let long = "p".repeat(257);
    assert_refused("", json!({"proxy": {}, "policyDecisionTimeoutMs": 0}), zero);
    assert_refused("", json!({"proxy": {}, "policyDecisionTimeoutMs": 1}), id);
    assert_refused(&long, json!({"proxy": {"enabled": true}, "policyDecisionTimeoutMs": 1}), id);
    assert_refused("p", json!({"proxy": {}, "policyDecisionTimeoutMs": 1}), disabled);
    assert_refused("", json!({"proxy": {"enabled": false}}), disabled);
    let pattern = plan("p", json!({"proxy": {"enabled": true, "domains": {"https://a": "allow"}}})).unwrap_err();
    assert!(
        pattern.message.starts_with("invalid network proxy config: the domain pattern `https://a` "),
        "{pattern:?}"
    );
    plan(&long, json!({"proxy": {"enabled": true}})).unwrap();
    plan(&"p".repeat(256), json!({"proxy": {"enabled": true}, "policyDecisionTimeoutMs": 1})).unwrap();
}

#[test]
fn too_many_domains_are_refused() {
    let proxy_with = |count: usize, length: usize| {
        let domains: serde_json::Map<String, Value> =
            (0..count).map(|number| (format!("{number:0>length$}.test"), json!("allow"))).collect();
        json!({"proxy": {"enabled": true, "domains": domains}})
    };
    let many = "invalid network proxy config: there are more than 4096 domain patterns; use patterns with `*.` for hosts of the same domain";
    let long = "invalid network proxy config: the domain patterns have more than 262144 bytes; use patterns with `*.` for hosts of the same domain";
    plan("p", proxy_with(4096, 20)).unwrap();
    assert_refused("p", proxy_with(4097, 20), many);
    assert_refused("p", proxy_with(4096, 60), long);
}

#[test]
fn the_answer_may_come_five_seconds_after_the_timeout_of_the_client() {
    let answer_timeout = |timeout: Option<u64>| {
        let launch = json!({"proxy": {"enabled": true}, "policyDecisionTimeoutMs": timeout});
        plan("p", launch).unwrap().decision_timeout
    };
    assert_eq!(answer_timeout(None), None);
    assert_eq!(answer_timeout(Some(1000)), Some(Duration::from_secs(6)));
    assert!(answer_timeout(Some(u64::MAX)).is_some());
}

#[test]
fn variables_of_other_proxies_are_replaced() {
    let mut env = Variables::new();
    for (name, value) in [("HTTPS_PROXY", "http://old"), ("Http_Proxy", "http://old"), ("PATH", "/bin")] {
        env.insert(name.into(), value.into());
    }
    set_variables(&mut env, "127.0.0.1:8080".parse().unwrap(), Socks5Support::Disabled);
    let value = |name: &str| env.get(std::ffi::OsStr::new(name)).map(|value| value.to_str().unwrap());
    assert_eq!(value("HTTPS_PROXY"), Some("http://127.0.0.1:8080"));
    assert_eq!((value("Http_Proxy"), value("PATH")), (None, Some("/bin")));
    assert_eq!(value("CODEX_NETWORK_PROXY_ACTIVE"), Some("1"));
}
