//! For which host a request was meant. A web page can make its own host name point to 127.0.0.1 (DNS rebinding); its browser then
//! sends requests here that carry no `Origin`, and lets the page read the answers. They still name the page's host.

use std::net::IpAddr;

use http::Request;
use http::header::HOST;
use http::uri::Authority;

/// Whether every host that a request names is `localhost`, a loopback address, or one that `is_served` knows. A request that names
/// none comes from no browser.
pub(super) fn is_for_this_machine<B>(request: &Request<B>, is_served: impl Fn(&str) -> bool) -> bool {
    let is_ours = |host: &str| is_loopback(host) || is_served(host);
    let in_target = request.uri().authority().is_none_or(|authority| is_ours(without_brackets(authority.host())));
    in_target
        && request.headers().get_all(HOST).iter().all(|value| {
            let authority = Authority::try_from(value.as_bytes());
            authority.is_ok_and(|authority| is_ours(without_brackets(authority.host())))
        })
}

fn is_loopback(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host);
    name.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|ip: IpAddr| ip.to_canonical().is_loopback())
}

/// An IPv6 address stands in brackets.
fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_answered(target: &str, hosts: &[&str]) -> bool {
        let mut request = Request::builder().uri(target);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        is_for_this_machine(&request.body(()).unwrap(), |host| host == "build.example")
    }

    #[test]
    fn names_and_addresses_of_this_machine_are_answered() {
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
            assert!(is_answered("/metrics", &[host]), "{host}");
        }
        assert!(is_answered("/metrics", &[]), "no browser leaves the header out");
    }

    #[test]
    fn other_hosts_are_not() {
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
            assert!(!is_answered("/metrics", &[host]), "{host:?}");
        }
        assert!(!is_answered("/metrics", &["localhost", "evil.example"]), "one of two");
        assert!(!is_answered("http://evil.example/metrics", &["localhost"]), "in the target");
    }
}
