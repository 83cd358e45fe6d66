//! Which way a request goes: straight, or by a proxy that the environment names.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use percent_encoding::percent_decode_str;
use url::Url;

use crate::endpoint::Endpoint;
use crate::environment::Environment;
use crate::error::{FailureKind, RequestFailure};
use crate::no_proxy::NoProxy;

/// What a connection is for. Requests with the same route can share one.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// To the server itself.
    Direct(Endpoint),
    /// To a proxy that passes requests on.
    Forward(Proxy),
    /// Through a proxy that sees only that there is a connection.
    Tunnel(Proxy, Endpoint),
}

/// Somebody who makes requests for us.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Proxy {
    pub(crate) endpoint: Endpoint,
    pub(crate) authorization: Option<HeaderValue>,
}

/// The proxies of an environment.
pub(crate) struct Proxies {
    http: Option<Named>,
    https: Option<Named>,
    except: NoProxy,
}

/// A proxy and the variable that names it. One that we cannot use fails the requests it is for: going around it could send
/// them where they must not go.
struct Named {
    variable: &'static str,
    proxy: Option<Proxy>,
}

impl Proxies {
    pub(crate) fn from_environment(environment: &Environment) -> Self {
        let first = |variables: &[&'static str]| {
            variables.iter().find_map(|variable| {
                let value = environment.non_empty(variable)?;
                Some(Named { variable, proxy: parse(value) })
            })
        };
        let except = environment.non_empty("NO_PROXY").or_else(|| environment.non_empty("no_proxy"));
        Self {
            http: first(&["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]),
            https: first(&["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]),
            except: NoProxy::parse(except.unwrap_or_default()),
        }
    }

    pub(crate) fn route(&self, url: &Url) -> Result<Route, RequestFailure> {
        let Some(target) = Endpoint::of(url) else {
            return Err(RequestFailure::new(FailureKind::Other, "the URL has no host"));
        };
        let named = if target.is_secure { &self.https } else { &self.http };
        let Some(named) = named.as_ref().filter(|_| !self.except.covers(&target.host, target.port)) else {
            return Ok(Route::Direct(target));
        };
        let Some(proxy) = named.proxy.clone() else {
            let text =
                format!("the proxy that {} names is none we can use; expected http://HOST:PORT", named.variable);
            return Err(RequestFailure::new(FailureKind::Other, text));
        };
        Ok(if target.is_secure { Route::Tunnel(proxy, target) } else { Route::Forward(proxy) })
    }
}

/// `None` for what is no http or https URL. Without a scheme it is http, as everywhere.
fn parse(value: &str) -> Option<Proxy> {
    let value = value.trim();
    let url = if value.contains("://") { Url::parse(value) } else { Url::parse(&format!("http://{value}")) }.ok()?;
    if !matches!(url.scheme(), "http" | "https") {
        return None;
    }
    Some(Proxy { endpoint: Endpoint::of(&url)?, authorization: basic_credentials(&url) })
}

/// User and password in the URL of a proxy, as the value of a header.
fn basic_credentials(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let mut pair: Vec<u8> = percent_decode_str(url.username()).collect();
    pair.push(b':');
    pair.extend(percent_decode_str(url.password().unwrap_or_default()));
    let mut value = HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(pair))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(variables: &[(&str, &str)], url: &str) -> String {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let proxies = Proxies::from_environment(&Environment::new(variables.collect()));
        match proxies.route(&Url::parse(url).unwrap()) {
            Ok(Route::Direct(target)) => format!("direct {target}"),
            Ok(Route::Forward(proxy)) => format!("forward {}", proxy.endpoint),
            Ok(Route::Tunnel(proxy, target)) => format!("tunnel {} {target}", proxy.endpoint),
            Err(failure) => failure.text,
        }
    }

    #[test]
    fn each_scheme_has_its_variable_and_one_is_for_all() {
        let both = [("HTTP_PROXY", "http://a:1"), ("https_proxy", "b:2"), ("ALL_PROXY", "https://c:3")];
        assert_eq!(way(&both, "http://h/"), "forward a:1");
        assert_eq!(way(&both, "https://h/"), "tunnel b:2 h:443");
        assert_eq!(way(&both[2..], "https://[::1]:8443/"), "tunnel c:3 [::1]:8443");
        assert_eq!(way(&[("HTTP_PROXY", ""), ("all_proxy", "c")], "http://h/"), "forward c:80");
        assert_eq!(way(&[], "http://h/"), "direct h:80");
        assert_eq!(way(&[("HTTP_PROXY", "a:1"), ("no_proxy", "h")], "http://x.h/"), "direct x.h:80");
    }

    #[test]
    fn a_proxy_we_cannot_use_is_not_gone_around() {
        let text = "the proxy that ALL_PROXY names is none we can use; expected http://HOST:PORT";
        for unusable in ["socks5://user:secret@p:1080", "http://", "http://p:99999"] {
            assert_eq!(way(&[("ALL_PROXY", unusable)], "http://h/"), text);
        }
        assert_eq!(way(&[("ALL_PROXY", "socks5://p"), ("NO_PROXY", "h")], "http://h/"), "direct h:80");
    }
}
