//! The environment variables that make programs use the proxy. There is no common name: each kind of program has its
//! own, and some read only the upper-case or only the lower-case form.

use std::net::SocketAddr;

use crate::rules::Socks5Support;

/// Variables with the proxy for `http` and `https` URLs.
const HTTP_VARIABLES: &[&str] = &[
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "WS_PROXY",
    "ws_proxy",
    "WSS_PROXY",
    "wss_proxy",
    "YARN_HTTP_PROXY",
    "YARN_HTTPS_PROXY",
    "NPM_CONFIG_PROXY",
    "npm_config_proxy",
    "NPM_CONFIG_HTTP_PROXY",
    "npm_config_http_proxy",
    "NPM_CONFIG_HTTPS_PROXY",
    "npm_config_https_proxy",
    "BUNDLE_HTTP_PROXY",
    "BUNDLE_HTTPS_PROXY",
    "PIP_PROXY",
    "DOCKER_HTTP_PROXY",
    "DOCKER_HTTPS_PROXY",
];

/// Variables for all other protocols, which SOCKS5 can carry.
const OTHER_VARIABLES: &[&str] = &["ALL_PROXY", "all_proxy", "FTP_PROXY", "ftp_proxy"];

/// Variables with the hosts that programs reach without the proxy.
const NO_PROXY_VARIABLES: &[&str] =
    &["NO_PROXY", "no_proxy", "NPM_CONFIG_NOPROXY", "npm_config_noproxy", "YARN_NO_PROXY", "DOCKER_NO_PROXY"];

/// Hosts that are not reached through the proxy, so that a process reaches its own servers. Inside a sandbox these names
/// mean the sandbox's own loopback.
const NO_PROXY_HOSTS: &str = "localhost,127.0.0.1,::1";

/// Tells programs that a proxy is in effect.
const ACTIVE_VARIABLE: &str = "CODEX_NETWORK_PROXY_ACTIVE";

/// The variables of a process that uses the proxy at `proxy`. The caller first removes all variables for which
/// [`is_proxy_variable`] is true: one that is left over from another proxy, perhaps in another case, could win.
pub fn child_variables(proxy: SocketAddr, socks5: Socks5Support) -> Vec<(&'static str, String)> {
    let http = format!("http://{proxy}");
    let other = match socks5 {
        // The `h` says that the proxy resolves names. The process itself may be unable to.
        Socks5Support::Enabled => format!("socks5h://{proxy}"),
        Socks5Support::Disabled => http.clone(),
    };
    let values =
        [(HTTP_VARIABLES, http.as_str()), (OTHER_VARIABLES, other.as_str()), (NO_PROXY_VARIABLES, NO_PROXY_HOSTS)];
    let mut variables: Vec<(&'static str, String)> =
        values.iter().flat_map(|(names, value)| names.iter().map(|name| (*name, (*value).to_owned()))).collect();
    variables.push((ACTIVE_VARIABLE, "1".to_owned()));
    variables
}

/// Whether a variable is about a proxy, in whatever case.
pub fn is_proxy_variable(name: &str) -> bool {
    let mut known = [HTTP_VARIABLES, OTHER_VARIABLES, NO_PROXY_VARIABLES].into_iter().flatten();
    name.eq_ignore_ascii_case(ACTIVE_VARIABLE) || known.any(|known| name.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value<'a>(variables: &'a [(&'static str, String)], name: &str) -> &'a str {
        &variables.iter().find(|(known, _)| *known == name).unwrap().1
    }

    #[test]
    fn every_kind_of_program_gets_its_variables() {
        let variables = child_variables("127.0.0.1:3128".parse().unwrap(), Socks5Support::Enabled);
        for name in ["HTTP_PROXY", "https_proxy", "WSS_PROXY", "YARN_HTTPS_PROXY", "npm_config_proxy", "PIP_PROXY"] {
            assert_eq!(value(&variables, name), "http://127.0.0.1:3128", "{name}");
        }
        for name in ["ALL_PROXY", "all_proxy", "FTP_PROXY"] {
            assert_eq!(value(&variables, name), "socks5h://127.0.0.1:3128", "{name}");
        }
        assert_eq!(value(&variables, "NO_PROXY"), "localhost,127.0.0.1,::1");
        assert_eq!(value(&variables, "CODEX_NETWORK_PROXY_ACTIVE"), "1");
        let without = child_variables("[::1]:80".parse().unwrap(), Socks5Support::Disabled);
        assert_eq!(value(&without, "ALL_PROXY"), "http://[::1]:80");
    }

    #[test]
    fn stale_variables_are_recognised_in_every_case() {
        let variables = child_variables("127.0.0.1:1".parse().unwrap(), Socks5Support::Enabled);
        assert!(variables.iter().all(|(name, _)| is_proxy_variable(name)));
        for name in ["Http_Proxy", "no_PROXY", "codex_network_proxy_active"] {
            assert!(is_proxy_variable(name), "{name}");
        }
        for name in ["PATH", "HTTP_PROXY_X", "PROXY", ""] {
            assert!(!is_proxy_variable(name), "{name}");
        }
    }

    #[test]
    fn no_variable_is_set_twice() {
        let variables = child_variables("127.0.0.1:1".parse().unwrap(), Socks5Support::Enabled);
        let mut names: Vec<_> = variables.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), variables.len());
    }
}
