//! Checks which host a request is meant for. A web page can make its own host name resolve to 127.0.0.1 (DNS
//! rebinding). The browser that shows the page then sends requests to this server without an `Origin` header and lets
//! the page read the answers. But these requests still name the host of the page.

use std::net::IpAddr;

use http::Request;
use http::header::HOST;
use http::uri::Authority;

/// Whether every host that the request names, in its target or in a `Host` header, is `localhost`, a loopback address
/// or a host that `is_served` accepts. A malformed `Host` header is none of these. A request that names no host is
/// accepted, because it cannot come from a browser: browsers always name the host.
pub(super) fn is_for_this_machine<B>(request: &Request<B>, is_served: impl Fn(&str) -> bool) -> bool {
    let is_ours = |host: &str| is_loopback(host) || is_served(host);
    let target_is_ours =
        request.uri().authority().is_none_or(|authority| is_ours(without_brackets(authority.host())));
    target_is_ours
        && request.headers().get_all(HOST).iter().all(|value| {
            let authority = Authority::try_from(value.as_bytes());
            authority.is_ok_and(|authority| is_ours(without_brackets(authority.host())))
        })
}

fn is_loopback(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host);
    name.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|ip: IpAddr| ip.to_canonical().is_loopback())
}

/// Removes the brackets around an IPv6 address.
fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_accepted(target: &str, hosts: &[&str]) -> bool {
        let mut request = Request::builder().uri(target);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        is_for_this_machine(&request.body(()).unwrap(), |host| host == "build.example")
    }

    #[test]
    fn local_hosts_served_hosts_and_requests_without_a_host_are_accepted() {
        for host in [
            "localhost",
            "LocalHost:8080",
            "localhost.",
            "127.0.0.1",
            "127.0.0.1:7000",
            "127.8.9.10",
            "[::1]",
            "[::1]:7000",
            "[::ffff:127.0.0.1]:80",
            "build.example",
            "build.example:443",
        ] {
            assert!(is_accepted("/metrics", &[host]), "{host}");
        }
        assert!(is_accepted("/metrics", &[]), "a request without a host does not come from a browser");
    }

    #[test]
    fn requests_for_other_or_malformed_hosts_are_refused() {
        for host in [
            "evil.example",
            "evil.example:80",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "0.0.0.0",
            "[::]",
            "[2001:db8::1]:80",
            "",
            "a b",
            "[::1",
            "build.example.evil",
        ] {
            assert!(!is_accepted("/metrics", &[host]), "{host:?}");
        }
        assert!(!is_accepted("/metrics", &["localhost", "evil.example"]), "one of two headers names another host");
        assert!(!is_accepted("http://evil.example/metrics", &["localhost"]), "the request target names another host");
    }
}
