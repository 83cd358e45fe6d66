//! The cookies that are kept: those by which Cloudflare recognises a visitor that it has checked, for the hosts of
//! ChatGPT. Without them, Cloudflare could challenge every request to these hosts. No other cookies are kept. The
//! names of these cookies and hosts are part of the protocol. Cookie jars of other crates are not used, because they
//! keep any number of cookies. This module does not read the clock: callers pass the current time. Start with
//! [`CookieJar`].

mod date;

use std::time::{Duration, SystemTime};

use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderValue};
use url::Url;

/// Hosts whose cookies are kept, by their whole names.
const HOSTS: &[&str] = &["chatgpt.com", "chat.openai.com", "chatgpt-staging.com"];
/// The cookies of all hosts below these domains are kept too.
const DOMAINS: &[&str] = &[".chatgpt.com", ".chatgpt-staging.com"];
/// Names of cookies that are kept.
const NAMES: &[&str] = &[
    "__cf_bm",
    "__cflb",
    "__cfruid",
    "__cfseq",
    "__cfwaitingroom",
    "_cfuvid",
    "cf_clearance",
    "cf_ob_info",
    "cf_use_ob",
];
/// Cookies whose names begin with this are kept too.
const NAME_PREFIX: &str = "cf_chl_";
/// Limit for the number of cookies. Beyond it, the oldest cookie is dropped. About ten names for a few hosts need far
/// fewer.
const MAX_COOKIES: usize = 128;
/// Limit for the value of a `set-cookie` header. If it is longer, the cookie is not kept. Browsers have a similar
/// limit.
const MAX_COOKIE_BYTES: usize = 4096;

/// The cookies that all requests of a fetcher share.
#[derive(Default)]
pub(crate) struct CookieJar {
    /// In the order in which they were received.
    cookies: Vec<Cookie>,
}

/// A cookie with the rules for sending it.
#[derive(Clone)]
struct Cookie {
    name: String,
    value: String,
    /// Value of the `Domain` attribute in lower case without a dot at its start, or the host that set the cookie.
    domain: String,
    /// There was no `Domain` attribute: the cookie is for this host only, and not for hosts below it.
    is_host_only: bool,
    /// The cookie is sent for this path and those below it.
    path: String,
    /// None: the cookie never expires.
    expires: Option<SystemTime>,
}

impl CookieJar {
    /// Keeps, replaces or deletes cookies as the response to a request for `url` says.
    pub(crate) fn store(&mut self, url: &Url, headers: &HeaderMap, now: SystemTime) {
        let Some(host) = host_with_kept_cookies(url) else { return };
        for value in headers.get_all(SET_COOKIE) {
            let Some(cookie) = value.to_str().ok().and_then(|text| Cookie::parse(text, host, url.path(), now)) else {
                continue;
            };
            self.cookies.retain(|known| !known.is_replaced_by(&cookie));
            if cookie.expires.is_none_or(|expires| expires > now) {
                if self.cookies.len() == MAX_COOKIES {
                    self.cookies.remove(0);
                }
                self.cookies.push(cookie);
            }
        }
    }

    /// The value of the `cookie` header of a request for `url`. `None` if no cookie is to be sent.
    pub(crate) fn header(&mut self, url: &Url, now: SystemTime) -> Option<HeaderValue> {
        let host = host_with_kept_cookies(url)?;
        self.cookies.retain(|cookie| cookie.expires.is_none_or(|expires| expires > now));
        let mut sent: Vec<&Cookie> = self.cookies.iter().filter(|cookie| cookie.is_for(host, url.path())).collect();
        // Cookies with a longer path come first. Of cookies with equally long paths, the older one comes first.
        sent.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        let pairs: Vec<String> = sent.iter().map(|cookie| format!("{}={}", cookie.name, cookie.value)).collect();
        let mut value = HeaderValue::try_from(pairs.join("; ")).ok().filter(|value| !value.is_empty())?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl Cookie {
    /// Reads the value of a `set-cookie` header. `host` and `path` are those of the URL that was requested. `None` if
    /// the cookie is not to be kept.
    fn parse(text: &str, host: &str, path: &str, now: SystemTime) -> Option<Self> {
        let mut parts = text.split(';');
        let (name, value) = parts.next()?.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        let is_kept = NAMES.contains(&name) || name.starts_with(NAME_PREFIX);
        if !is_kept || text.len() > MAX_COOKIE_BYTES {
            return None;
        }
        let mut cookie = Self {
            name: name.to_owned(),
            value: value.to_owned(),
            domain: host.to_owned(),
            is_host_only: true,
            path: default_path(path).to_owned(),
            expires: None,
        };
        let mut max_age = None;
        for attribute in parts {
            let (name, value) = attribute.split_once('=').unwrap_or((attribute, ""));
            let value = value.trim();
            match name.trim().to_ascii_lowercase().as_str() {
                "domain" if !value.is_empty() => {
                    let domain = value.strip_prefix('.').unwrap_or(value).to_ascii_lowercase();
                    // A domain above the hosts of ChatGPT, such as `com`, is refused. So is a domain to which the
                    // host does not belong.
                    if !keeps_cookies_of(&domain) || !is_host_within(host, &domain) {
                        return None;
                    }
                    (cookie.domain, cookie.is_host_only) = (domain, false);
                }
                "path" if value.starts_with('/') => value.clone_into(&mut cookie.path),
                "expires" => cookie.expires = date::parse(value).or(cookie.expires),
                "max-age" => max_age = value.parse::<i64>().ok().or(max_age),
                _ => {}
            }
        }
        if let Some(seconds) = max_age {
            let age = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
            // A cookie whose age is too long for the clock never expires.
            cookie.expires = now.checked_add(age);
        }
        Some(cookie)
    }

    fn is_replaced_by(&self, other: &Self) -> bool {
        (&self.name, &self.domain, &self.path) == (&other.name, &other.domain, &other.path)
            && self.is_host_only == other.is_host_only
    }

    fn is_for(&self, host: &str, path: &str) -> bool {
        let is_host = if self.is_host_only { host == self.domain } else { is_host_within(host, &self.domain) };
        is_host && is_path_within(path, &self.path)
    }
}

/// The host of a URL. `None` if no cookies are kept for the URL, because of its host or because it is not https.
fn host_with_kept_cookies(url: &Url) -> Option<&str> {
    let host = url.host_str()?;
    (url.scheme() == "https" && keeps_cookies_of(host)).then_some(host)
}

fn keeps_cookies_of(host: &str) -> bool {
    HOSTS.contains(&host) || DOMAINS.iter().any(|domain| host.ends_with(domain))
}

fn is_host_within(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn is_path_within(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || above.ends_with('/') || rest.starts_with('/'))
}

/// The path of a cookie without a `Path` attribute: the directory of the path in the URL.
fn default_path(path: &str) -> &str {
    match path.rfind('/') {
        Some(end) if end > 0 => &path[..end],
        _ => "/",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn jar_with(from: &str, cookies: &[&str]) -> CookieJar {
        let mut jar = CookieJar::default();
        store(&mut jar, from, cookies);
        jar
    }

    fn store(jar: &mut CookieJar, from: &str, cookies: &[&str]) {
        let headers = cookies.iter().map(|cookie| (SET_COOKIE, HeaderValue::from_str(cookie).unwrap())).collect();
        jar.store(&url(from), &headers, now());
    }

    fn header(jar: &mut CookieJar, to: &str) -> Option<String> {
        jar.header(&url(to), now()).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn only_cookies_of_cloudflare_for_hosts_of_chatgpt_are_kept_and_sent() {
        let mut jar =
            jar_with("https://chatgpt.com/a", &["__cf_bm=1", "session=2", "cf_chl_rc=3; Path=/", "cf_clearance=4"]);
        assert_eq!(header(&mut jar, "https://chatgpt.com/a").unwrap(), "__cf_bm=1; cf_chl_rc=3; cf_clearance=4");
        for other in
            ["http://chatgpt.com/a", "https://www.chatgpt.com/a", "https://openai.com/", "https://127.0.0.1/"]
        {
            assert_eq!(header(&mut jar, other), None, "{other}");
        }
        for host in
            ["https://example.com/", "http://chatgpt.com/", "https://notchatgpt.com/", "https://www.chat.openai.com/"]
        {
            assert!(jar_with(host, &["__cf_bm=1"]).cookies.is_empty(), "{host}");
        }
        for host in ["https://chat.openai.com/", "https://a.chatgpt-staging.com/", "https://x.y.chatgpt.com/"] {
            let mut jar = jar_with(host, &["_cfuvid=1"]);
            assert_eq!(header(&mut jar, host).unwrap(), "_cfuvid=1", "{host}");
        }
    }

    #[test]
    fn a_domain_attribute_covers_subdomains_and_must_be_a_domain_of_the_host_and_of_chatgpt() {
        let mut jar = jar_with(
            "https://ab.chatgpt.com/",
            &["__cf_bm=1; Domain=.ChatGPT.com; Path=/; Secure; HttpOnly; SameSite=None"],
        );
        for host in ["https://chatgpt.com/", "https://ab.chatgpt.com/x", "https://c.d.chatgpt.com/"] {
            assert_eq!(header(&mut jar, host).unwrap(), "__cf_bm=1", "{host}");
        }
        for domain in ["com", "openai.com", "other.chatgpt.com", "chatgpt-staging.com", "example.com"] {
            let jar = jar_with("https://ab.chatgpt.com/", &[&format!("__cf_bm=1; Domain={domain}")]);
            assert!(jar.cookies.is_empty(), "{domain}");
        }
    }

    #[test]
    fn paths_decide_whether_and_in_which_order_cookies_are_sent() {
        let cookies = ["__cf_bm=dir", "__cflb=root; Path=/", "_cfuvid=deep; Path=/a/b/c", "__cfseq=bad; Path=x"];
        let mut jar = jar_with("https://chatgpt.com/a/b", &cookies);
        assert_eq!(
            header(&mut jar, "https://chatgpt.com/a/b/c/d").unwrap(),
            "_cfuvid=deep; __cf_bm=dir; __cfseq=bad; __cflb=root"
        );
        assert_eq!(header(&mut jar, "https://chatgpt.com/ab").unwrap(), "__cflb=root");
    }

    #[test]
    fn a_cookie_is_removed_when_it_expires_and_when_a_newer_one_replaces_it() {
        let mut jar = jar_with(
            "https://chatgpt.com/",
            &["__cf_bm=1; Max-Age=60", "_cfuvid=2; expires=Thu, 01-Jan-70 00:00:01 GMT"],
        );
        assert_eq!(header(&mut jar, "https://chatgpt.com/").unwrap(), "__cf_bm=1");
        store(&mut jar, "https://chatgpt.com/", &["__cf_bm=3; expires=Thu, 01 Jan 1970 00:00:01 GMT; Max-Age=60"]);
        assert_eq!(header(&mut jar, "https://chatgpt.com/").unwrap(), "__cf_bm=3", "Max-Age wins over Expires");
        let later = now() + Duration::from_secs(61);
        assert_eq!(jar.header(&url("https://chatgpt.com/"), later), None);
        store(&mut jar, "https://chatgpt.com/", &["__cf_bm=4"]);
        store(&mut jar, "https://chatgpt.com/", &["__cf_bm=; Max-Age=0"]);
        assert!(jar.cookies.is_empty(), "deleted");
    }

    #[test]
    fn the_number_and_the_length_of_cookies_are_limited() {
        let mut jar = CookieJar::default();
        for number in 0..=MAX_COOKIES {
            store(&mut jar, "https://chatgpt.com/", &[&format!("cf_chl_{number}=x")]);
        }
        store(&mut jar, "https://chatgpt.com/", &[&format!("__cf_bm={}", "x".repeat(MAX_COOKIE_BYTES))]);
        assert_eq!((jar.cookies.len(), jar.cookies[0].name.as_str()), (MAX_COOKIES, "cf_chl_1"));
    }
}
