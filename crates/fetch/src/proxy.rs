//! Decides which way a request goes: directly, or through the proxy that an environment variable names for it. The
//! matcher of hyper-util reads the credentials of proxies and applies `NO_PROXY`. This module adds what the matcher
//! does not do: it fails requests whose proxy cannot be used, and it supports ports in `NO_PROXY`. Start with
//! [`ProxyRules::route`].

use http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use url::{Position, Url};

use crate::endpoint::Endpoint;
use crate::environment::Environment;
use crate::error::{FailureKind, RequestFailure};
use crate::no_proxy::NoProxyList;

/// Given to the matcher instead of a proxy that cannot be used, so that the matcher still applies `NO_PROXY`. Nothing
/// ever connects to this URL.
const UNUSABLE_PROXY: &str = "http://unusable.invalid";

/// The way to a server. Requests with the same route can share a connection.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// Directly to the server.
    Direct(Endpoint),
    /// To an HTTP proxy that passes requests on.
    Forward(HttpProxy),
    /// Through an HTTP proxy, which connects to the server after a CONNECT request.
    Tunnel(HttpProxy, Endpoint),
    /// Through a SOCKS proxy.
    Socks(SocksProxy, Endpoint),
}

/// An HTTP proxy.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct HttpProxy {
    pub(crate) endpoint: Endpoint,
    /// Value of the `proxy-authorization` header.
    pub(crate) authorization: Option<HeaderValue>,
}

/// A SOCKS5 proxy.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SocksProxy {
    pub(crate) endpoint: Endpoint,
    /// User and password.
    pub(crate) credentials: Option<(String, String)>,
    /// The proxy gets the name of the server (`socks5h`), and not its address (`socks5`).
    pub(crate) resolves_names: bool,
}

/// The proxies that environment variables name, and the hosts that need none.
pub(crate) struct ProxyRules {
    /// One matcher for each port that `NO_PROXY` names. The last one, without a port, is for all other ports.
    matchers: Vec<(Option<u16>, Matcher)>,
    /// The name of the variable with the proxy for http, if that proxy cannot be used.
    unusable_for_http: Option<&'static str>,
    /// The same for https.
    unusable_for_https: Option<&'static str>,
}

/// The value of the variable that names the proxy for a scheme.
struct ProxySetting {
    /// A URL that the matcher takes. Empty if no proxy is named.
    url: String,
    /// The name of the variable, if its value is not the URL of a proxy that can be used.
    unusable: Option<&'static str>,
}

impl ProxyRules {
    pub(crate) fn from_environment(environment: &Environment) -> Self {
        let no_proxy = environment.non_empty("NO_PROXY").or_else(|| environment.non_empty("no_proxy"));
        let no_proxy = NoProxyList::parse(no_proxy.unwrap_or_default());
        let http = ProxySetting::find(environment, ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]);
        let https = ProxySetting::find(environment, ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]);
        let matcher = |port| Matcher::builder().http(&http.url).https(&https.url).no(no_proxy.patterns(port)).build();
        let ports = no_proxy.ports().map(Some).chain([None]);
        let matchers = ports.map(|port| (port, matcher(port))).collect();
        Self { matchers, unusable_for_http: http.unusable, unusable_for_https: https.unusable }
    }

    /// The way to the server of a URL. Fails if the proxy for the URL cannot be used: without the proxy, the request
    /// could get to a network that it must not reach.
    pub(crate) fn route(&self, url: &Url) -> Result<Route, RequestFailure> {
        let Some(target) = Endpoint::from_url(url) else {
            return Err(RequestFailure::new(FailureKind::Other, "the URL has no host"));
        };
        let Some(proxy) = self.proxy_for(url, target.port) else { return Ok(Route::Direct(target)) };
        let unusable = if target.is_secure { self.unusable_for_https } else { self.unusable_for_http };
        let route = if unusable.is_none() { route_through(&proxy, target) } else { None };
        route.ok_or_else(|| {
            let variable = unusable.unwrap_or("the environment");
            let text = format!(
                "the proxy that {variable} names cannot be used; expected http://HOST:PORT, https://HOST:PORT, socks5://HOST:PORT or socks5h://HOST:PORT"
            );
            RequestFailure::new(FailureKind::Other, text)
        })
    }

    /// The proxy for a URL. `None` if the request goes directly to the server.
    fn proxy_for(&self, url: &Url, port: u16) -> Option<Intercept> {
        let (_, matcher) = self.matchers.iter().find(|(named, _)| named.is_none_or(|named| named == port))?;
        // A dot at the end of a host name does not make it another host.
        let host = url[Position::BeforeHost..Position::AfterHost].trim_end_matches('.');
        matcher.intercept(&Uri::try_from(format!("{}://{host}/", url.scheme())).ok()?)
    }
}

impl ProxySetting {
    /// Reads the first of these variables that is set and not empty.
    fn find(environment: &Environment, variables: [&'static str; 4]) -> Self {
        let named = variables.iter().find_map(|variable| Some((*variable, environment.non_empty(variable)?)));
        match named.map(|(variable, value)| (variable, usable_url(value))) {
            None => Self { url: String::new(), unusable: None },
            Some((_, Some(url))) => Self { url, unusable: None },
            Some((variable, None)) => Self { url: UNUSABLE_PROXY.to_owned(), unusable: Some(variable) },
        }
    }
}

/// The URL of a proxy in the form that the matcher takes. A value without a scheme means http. `None` if the proxy
/// cannot be used: the matcher would ignore such a proxy, and the request would go directly to the server.
fn usable_url(value: &str) -> Option<String> {
    let value = value.trim();
    let url = if value.contains("://") { Url::parse(value) } else { Url::parse(&format!("http://{value}")) }.ok()?;
    let is_known = matches!(url.scheme(), "http" | "https" | "socks5" | "socks5h");
    if !is_known || url.host_str().is_none_or(str::is_empty) {
        return None;
    }
    let url = String::from(url);
    let proxy = Matcher::builder().all(&url).build().intercept(&Uri::from_static("http://any.invalid/"))?;
    Endpoint::from_proxy_uri(proxy.uri())?;
    Some(url)
}

fn route_through(proxy: &Intercept, target: Endpoint) -> Option<Route> {
    let endpoint = Endpoint::from_proxy_uri(proxy.uri())?;
    Some(match proxy.uri().scheme_str()? {
        scheme @ ("socks5" | "socks5h") => {
            let credentials = proxy.raw_auth().map(|(user, password)| (user.to_owned(), password.to_owned()));
            Route::Socks(SocksProxy { endpoint, credentials, resolves_names: scheme == "socks5h" }, target)
        }
        _ => {
            let proxy = HttpProxy { endpoint, authorization: proxy.basic_auth().cloned() };
            if target.is_secure { Route::Tunnel(proxy, target) } else { Route::Forward(proxy) }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The route to a URL in words, or the text of the failure.
    fn route(variables: &[(&str, &str)], url: &str) -> String {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let rules = ProxyRules::from_environment(&Environment::new(variables.collect()));
        match rules.route(&Url::parse(url).unwrap()) {
            Ok(Route::Direct(target)) => format!("direct {target}"),
            Ok(Route::Forward(proxy)) => format!("forward {}", proxy.endpoint),
            Ok(Route::Tunnel(proxy, target)) => format!("tunnel {} {target}", proxy.endpoint),
            Ok(Route::Socks(proxy, target)) => {
                let names = if proxy.resolves_names { "names" } else { "addresses" };
                format!("socks {} {names} {:?} {target}", proxy.endpoint, proxy.credentials)
            }
            Err(failure) => failure.text,
        }
    }

    #[test]
    fn http_and_https_have_variables_of_their_own_and_all_proxy_is_for_both() {
        let proxies = [("HTTP_PROXY", "http://a:1"), ("https_proxy", "b:2"), ("ALL_PROXY", "https://c:3")];
        assert_eq!(route(&proxies, "http://h/"), "forward a:1");
        assert_eq!(route(&proxies, "https://h/"), "tunnel b:2 h:443");
        assert_eq!(route(&proxies[2..], "https://[::1]:8443/"), "tunnel c:3 [::1]:8443");
        assert_eq!(route(&[("HTTP_PROXY", ""), ("all_proxy", "c")], "http://h/"), "forward c:80");
        assert_eq!(route(&[("ALL_PROXY", "http://[::1]:3128")], "http://h/"), "forward [::1]:3128");
        assert_eq!(route(&[], "http://h/"), "direct h:80");
    }

    #[test]
    fn the_scheme_of_a_socks_proxy_decides_whether_it_gets_names_or_addresses() {
        let secret = [("HTTPS_PROXY", "socks5h://us%40er:p%3Ass@p")];
        assert_eq!(route(&secret, "https://h/"), r#"socks p:1080 names Some(("us@er", "p:ss")) h:443"#);
        assert_eq!(route(&secret, "http://h/"), "direct h:80");
        assert_eq!(route(&[("ALL_PROXY", "socks5://[::1]:9")], "http://h/"), "socks [::1]:9 addresses None h:80");
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_not_bypassed() {
        let text = "the proxy that ALL_PROXY names cannot be used; expected http://HOST:PORT, https://HOST:PORT, socks5://HOST:PORT or socks5h://HOST:PORT";
        for unusable in
            ["socks4://user:secret@p:1080", "ftp://p", "http://", "socks5://", "http://p:99999", "socks5://p:x"]
        {
            assert_eq!(route(&[("ALL_PROXY", unusable)], "http://h/"), text, "{unusable}");
            assert_eq!(route(&[("ALL_PROXY", unusable), ("NO_PROXY", "h")], "http://h/"), "direct h:80");
        }
        let other = [("HTTP_PROXY", "ftp://p"), ("HTTPS_PROXY", "http://p:1")];
        assert_eq!(route(&other, "https://h/"), "tunnel p:1 h:443");
    }

    #[test]
    fn no_proxy_covers_subdomains_addresses_networks_and_ports() {
        let list =
            "example.com, .dotted.org,*.star.net,10.0.0.0/8,192.168.1.7,fd00::/8,[::1],only.port:8080,127.0.0.1:99";
        let route_to = |url: &str| route(&[("ALL_PROXY", "p:1"), ("no_proxy", list)], url);
        for direct in [
            "http://example.com/",
            "http://a.b.EXAMPLE.com/",
            "https://example.com./",
            "http://dotted.org:81/",
            "http://a.dotted.org/",
            "http://a.star.net/",
            "http://10.200.3.4/",
            "http://192.168.1.7/",
            "http://[fd12::3]/",
            "http://[::1]/",
            "http://only.port:8080/",
            "http://127.0.0.1:99/",
        ] {
            assert!(route_to(direct).starts_with("direct "), "{direct}");
        }
        for proxied in [
            "http://badexample.com/",
            "http://example.org/",
            "http://11.0.0.1/",
            "http://192.168.1.8/",
            "http://[fe80::1]/",
            "http://only.port/",
            "http://127.0.0.1:98/",
        ] {
            assert_eq!(route_to(proxied), "forward p:1", "{proxied}");
        }
    }

    #[test]
    fn a_star_in_no_proxy_covers_names_and_addresses_and_invalid_entries_cover_nothing() {
        for url in ["http://any.test/", "http://1.2.3.4/", "http://[::1]/"] {
            assert!(route(&[("ALL_PROXY", "p:1"), ("NO_PROXY", " * ")], url).starts_with("direct "), "{url}");
            for invalid in ["", ",,", " , .,", "10.0.0.0/33"] {
                assert_eq!(route(&[("ALL_PROXY", "p:1"), ("NO_PROXY", invalid)], url), "forward p:1", "{invalid}");
            }
        }
    }
}
