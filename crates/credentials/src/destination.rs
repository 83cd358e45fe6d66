//! The services to which a credential may be sent. A credential goes to one service only, over https, or over plain
//! http if the service is on this machine. This module knows URLs, but no credentials. Start with [`PermittedServices`].

use std::fmt;

use url::{Host, Url};

use crate::error::CredentialError;

/// Scheme, host and port of a service. Its text is in a canonical form, for example `https://example.com` and
/// `http://127.0.0.1:8080`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServiceOrigin(String);

impl ServiceOrigin {
    /// The origin of an http or https URL. White space around the URL is ignored. User, path and query do not count.
    pub(crate) fn of(url: &str) -> Result<Self, CredentialError> {
        parse(url).map(|url| Self::of_parsed(&url))
    }

    /// As [`Self::of`], but refuses a URL with a user or a password. Such a URL leads people to believe that both are
    /// sent.
    pub(crate) fn without_user(url: &str) -> Result<Self, CredentialError> {
        let url = parse(url)?;
        if !url.username().is_empty() || url.password().is_some() {
            let problem =
                "must not contain a user or a password, because exec-server does not send them; leave them out";
            return Err(CredentialError::InvalidUrl { problem: problem.to_owned() });
        }
        Ok(Self::of_parsed(&url))
    }

    fn of_parsed(url: &Url) -> Self {
        Self(url.origin().ascii_serialization())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServiceOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// To which services a credential may be sent.
#[derive(Clone, Debug)]
pub(crate) struct PermittedServices {
    /// The only service that gets it. `None` if the caller decides.
    pub(crate) service: Option<ServiceOrigin>,
    pub(crate) hosts: AllowedHosts,
}

/// A rule about hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllowedHosts {
    Any,
    /// openai.com, openai.org, their subdomains, and this machine. For OpenAI API keys.
    OpenAi,
    /// The hosts of [`Self::OpenAi`], and chatgpt.com with its subdomains. For the credentials of a ChatGPT user: the
    /// tokens of a sign-in, personal tokens and agent identities.
    ChatGpt,
}

impl AllowedHosts {
    /// Where a token of this issuer may be sent. Tokens of OpenAI are for OpenAI's own services. Any other issuer, also
    /// one on this machine, may issue tokens for any service.
    pub(crate) fn for_tokens_of(issuer: &Url) -> Self {
        let is_openai = is_within(issuer, &OPENAI_DOMAINS) || is_within(issuer, &[CHATGPT_DOMAIN]);
        if is_openai { Self::ChatGpt } else { Self::Any }
    }

    /// Whether the rule allows this URL.
    pub(crate) fn allow(self, url: &Url) -> bool {
        let is_among = |domains: &[&str]| is_loopback(url) || is_within(url, domains);
        match self {
            Self::Any => true,
            Self::OpenAi => is_among(&OPENAI_DOMAINS),
            Self::ChatGpt => is_among(&OPENAI_DOMAINS) || is_among(&[CHATGPT_DOMAIN]),
        }
    }

    /// The allowed hosts, as a part of an error message. `None` if all hosts are allowed.
    fn names(self) -> Option<&'static str> {
        match self {
            Self::Any => None,
            Self::OpenAi => Some("openai.com, openai.org and this machine"),
            Self::ChatGpt => Some("openai.com, openai.org, chatgpt.com and this machine"),
        }
    }
}

const OPENAI_DOMAINS: [&str; 2] = ["openai.com", "openai.org"];
const CHATGPT_DOMAIN: &str = "chatgpt.com";

impl PermittedServices {
    /// Checks that `credential`, which is named in the error, may be sent to this URL.
    pub(crate) fn check(&self, credential: &str, url: &str) -> Result<(), CredentialError> {
        let url = parse(url)?;
        let origin = ServiceOrigin::of_parsed(&url);
        let refuse = |rule: String| {
            let (credential, service) = (credential.to_owned(), origin.to_string());
            Err(CredentialError::Destination { credential, service, rule })
        };
        if let Some(service) = self.service.as_ref().filter(|service| **service != origin) {
            return refuse(format!("it was chosen for {service} only"));
        }
        if !is_secure(&url) {
            return refuse("others could read it on the way; use an https:// address".to_owned());
        }
        match self.hosts.names().filter(|_| !self.hosts.allow(&url)) {
            Some(names) => refuse(format!(
                "it goes only to {names}; store a key of this service with `exec-server login {origin}`"
            )),
            None => Ok(()),
        }
    }

    /// The rule in words, as the end of the sentence "It may be sent to".
    pub(crate) fn in_words(&self) -> String {
        match (&self.service, self.hosts.names()) {
            (Some(service), None) => service.to_string(),
            (Some(service), Some(names)) => format!("{service}, if that is one of {names}"),
            (None, None) => "the service that is used, over https or on this machine".to_owned(),
            (None, Some(names)) => names.to_owned(),
        }
    }
}

/// Checks the address of a service that issues tokens, which gets secrets too. `setting` is the variable that holds
/// the address.
pub(crate) fn check_issuer(setting: &str, url: &str) -> Result<Url, CredentialError> {
    let url = parse(url).map_err(|_| CredentialError::variable(setting, "is no http:// or https:// address"))?;
    if !is_secure(&url) {
        let problem =
            "is a plain http:// address of another machine, where others could read secrets on the way; use https://";
        return Err(CredentialError::variable(setting, problem));
    }
    Ok(url)
}

fn parse(url: &str) -> Result<Url, CredentialError> {
    let invalid = |problem: &str| CredentialError::InvalidUrl { problem: problem.to_owned() };
    let url = Url::parse(url.trim()).map_err(|_| invalid("is not a URL; write it like https://example.com"))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        _ => Err(invalid("must begin with https://, or with http:// for this machine")),
    }
}

fn is_secure(url: &Url) -> bool {
    url.scheme() == "https" || is_loopback(url)
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Whether the URL uses encryption, and its host is one of these domains or a subdomain of one.
fn is_within(url: &Url, domains: &[&str]) -> bool {
    let Some(Host::Domain(name)) = url.host() else { return false };
    let is_within =
        |domain: &&str| name.strip_suffix(*domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    url.scheme() == "https" && domains.iter().any(is_within)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(service: Option<&str>, hosts: AllowedHosts, url: &str) -> bool {
        let service = service.map(|service| ServiceOrigin::of(service).unwrap());
        PermittedServices { service, hosts }.check("the key", url).is_ok()
    }

    #[test]
    fn a_key_of_openai_goes_to_openai_over_https_and_to_this_machine() {
        for url in [
            "https://openai.com",
            "https://api.openai.com/v1",
            "https://a.b.openai.org:8443/x",
            "https://API.OpenAI.com",
            "http://localhost:1",
            "https://localhost",
            "http://127.0.0.1",
            "http://127.255.0.9:80/x",
            "http://[::1]:3",
        ] {
            assert!(allows(None, AllowedHosts::OpenAi, url), "{url}");
        }
        for url in [
            "http://api.openai.com",
            "https://openai.com.example.org",
            "https://notopenai.com",
            "https://openai.com@example.org",
            "https://example.org/openai.com",
            "https://example.org?openai.com",
            "https://openai.com.",
            "https://[::ffff:127.0.0.1]",
            "http://10.0.0.1",
            "http://128.0.0.1",
            "http://localhost.example.org",
            "ws://localhost",
            "file:///etc/passwd",
            "openai.com",
            "",
        ] {
            assert!(!allows(None, AllowedHosts::OpenAi, url), "{url}");
        }
    }

    #[test]
    fn what_a_user_of_chatgpt_has_goes_to_chatgpt_too() {
        for url in
            ["https://chatgpt.com/backend-api", "https://a.chatgpt.com", "https://api.openai.com", "http://[::1]"]
        {
            assert!(allows(None, AllowedHosts::ChatGpt, url), "{url}");
        }
        for url in
            ["http://chatgpt.com", "https://notchatgpt.com", "https://chatgpt.com.example.org", "https://example.org"]
        {
            assert!(!allows(None, AllowedHosts::ChatGpt, url), "{url}");
        }
        assert!(!allows(None, AllowedHosts::OpenAi, "https://chatgpt.com"));
    }

    #[test]
    fn plain_http_is_for_this_machine_only() {
        for url in ["https://example.org", "http://localhost", "http://127.1.2.3", "http://0x7f.1"] {
            assert!(allows(None, AllowedHosts::Any, url), "{url}");
        }
        for url in ["http://example.org", "http://10.0.0.1", "http://[::2]", "http://0.0.0.0"] {
            assert!(!allows(None, AllowedHosts::Any, url), "{url}");
        }
    }

    #[test]
    fn a_credential_goes_to_its_service_only() {
        let service = Some("https://example.org/base");
        for url in ["https://example.org/other?q", "https://EXAMPLE.org:443", "https://me:secret@example.org"] {
            assert!(allows(service, AllowedHosts::Any, url), "{url}");
        }
        for url in ["https://example.org:444", "http://example.org", "https://www.example.org", "https://localhost"] {
            assert!(!allows(service, AllowedHosts::Any, url), "{url}");
        }
    }

    #[test]
    fn an_error_names_the_origin_and_nothing_else_of_the_url() {
        let reach = PermittedServices { service: None, hosts: AllowedHosts::Any };
        let error = reach.check("the key", "http://me:password@example.org/path?query").unwrap_err();
        let expected =
            "the key is not sent to http://example.org: others could read it on the way; use an https:// address";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn an_issuer_is_asked_over_https_or_on_this_machine() {
        assert!(check_issuer("V", "https://example.org/token").is_ok());
        assert!(check_issuer("V", "http://127.0.0.1:1/token").is_ok());
        for url in ["http://example.org/token", "ftp://localhost", "token"] {
            assert!(check_issuer("V", url).unwrap_err().to_string().starts_with("V is "), "{url}");
        }
    }
}
