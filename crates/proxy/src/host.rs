//! The host of a target in one spelling, so that rules about a host hold for each way to write it. Names are lower
//! case, in their ASCII form and without dots at the end. An address that is written as a name, such as `127.1` or
//! `0x7f000001`, is an address.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use url::Host;

use crate::limits::MAX_HOST_BYTES;

/// A host name or an IP address. The text form of an IPv6 address has no brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TargetHost {
    /// A name that is not an IP address, in lower case.
    Name(String),
    /// An address. An IPv4 address that is mapped into IPv6 is an IPv4 address here.
    Address(IpAddr),
}

/// The text is not a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the host is not a valid host name or IP address")]
pub struct InvalidHost;

impl TargetHost {
    /// Reads a host as it stands in a URL or in a SOCKS5 request. An IPv6 address may have brackets.
    pub fn parse(text: &str) -> Result<Self, InvalidHost> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::from(address));
        }
        // Percent escapes are refused: after decoding, the name could contain characters that the resolver interprets.
        if text.contains('%') {
            return Err(InvalidHost);
        }
        match Host::parse(text.trim_end_matches('.')).map_err(|_| InvalidHost)? {
            Host::Ipv4(address) => Ok(Self::Address(address.into())),
            Host::Ipv6(address) => Ok(Self::from(IpAddr::V6(address))),
            Host::Domain(name) => {
                let name = name.trim_end_matches('.');
                let is_name = !name.is_empty() && name.len() <= MAX_HOST_BYTES && !name.contains("..");
                if is_name && !name.starts_with('.') { Ok(Self::Name(name.to_owned())) } else { Err(InvalidHost) }
            }
        }
    }

    /// The host as it stands in a URL: an IPv6 address has brackets.
    pub(crate) fn in_url(&self) -> String {
        match self {
            Self::Address(IpAddr::V6(address)) => format!("[{address}]"),
            other => other.to_string(),
        }
    }
}

impl From<IpAddr> for TargetHost {
    fn from(address: IpAddr) -> Self {
        Self::Address(match address {
            IpAddr::V6(mapped) => without_ipv4_mapping(mapped),
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

fn without_ipv4_mapping(address: Ipv6Addr) -> IpAddr {
    address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
}

impl fmt::Display for TargetHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(text: &str) -> Option<String> {
        TargetHost::parse(text).ok().map(|host| host.to_string())
    }

    #[test]
    fn every_spelling_of_a_host_becomes_the_same_text() {
        for (text, host) in [
            ("Example.COM", "example.com"),
            ("example.com.", "example.com"),
            ("example.com...", "example.com"),
            ("BÜCHER.example", "xn--bcher-kva.example"),
            ("exa\u{ad}mple.com", "example.com"),
            ("127.1", "127.0.0.1"),
            ("0x7f000001", "127.0.0.1"),
            ("2130706433", "127.0.0.1"),
            ("0177.0.0.1", "127.0.0.1"),
            ("127.0.0.1.", "127.0.0.1"),
            ("[::1]", "::1"),
            ("::1", "::1"),
            ("[0:0:0:0:0:0:0:1]", "::1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("[::FFFF:7f00:1]", "127.0.0.1"),
            ("under_score.example", "under_score.example"),
        ] {
            assert_eq!(spelled(text).as_deref(), Some(host), "{text}");
        }
    }

    #[test]
    fn texts_that_are_no_host_are_refused() {
        let too_long = format!("{}.example", "a.".repeat(130));
        let texts = [
            "",
            ".",
            "..",
            "a b",
            "a\nb",
            "a/b",
            "a@b",
            "a:80",
            "[::1",
            "[fe80::1%eth0]",
            "fe80::1%eth0",
            "ex%61mple",
            "1.2.3.4.5",
            "1.2.3.256",
            "a..b",
            ".a",
            "\0",
            &too_long,
        ];
        for text in texts {
            assert_eq!(spelled(text), None, "{text:?}");
        }
    }

    #[test]
    fn an_ipv6_address_has_brackets_in_a_url() {
        assert_eq!(TargetHost::parse("::1").unwrap().in_url(), "[::1]");
        assert_eq!(TargetHost::parse("a.example").unwrap().in_url(), "a.example");
    }
}
