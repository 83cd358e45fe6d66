//! `NO_PROXY`: the hosts to which requests go without a proxy. The matcher of hyper-util decides whether an entry
//! covers a host. This module translates the forms of entries that other programs support and the matcher does not:
//! ports, `*.example.com`, `[::1]`, and `*` for IP addresses. Start with [`NoProxyList::parse`].

/// The entries of a `NO_PROXY` list.
pub(crate) struct NoProxyList(Vec<NoProxyEntry>);

struct NoProxyEntry {
    /// The entry in the form that the matcher takes.
    pattern: String,
    /// The entry covers only this port of its hosts. None: all ports.
    port: Option<u16>,
}

impl NoProxyList {
    pub(crate) fn parse(list: &str) -> Self {
        Self(list.split(',').filter_map(|entry| NoProxyEntry::parse(entry.trim())).collect())
    }

    /// The ports that entries name. All other ports have the same patterns: [`Self::patterns`] of `None`.
    pub(crate) fn ports(&self) -> impl Iterator<Item = u16> {
        self.0.iter().filter_map(|entry| entry.port)
    }

    /// The entries that cover a port, as a list for the matcher. `None` stands for a port that no entry names.
    pub(crate) fn patterns(&self, port: Option<u16>) -> String {
        let covering = self.0.iter().filter(|entry| entry.port.is_none() || entry.port == port);
        covering.map(|entry| entry.pattern.as_str()).collect::<Vec<_>>().join(",")
    }
}

impl NoProxyEntry {
    fn parse(entry: &str) -> Option<Self> {
        let (host, port) = match entry.rsplit_once(':') {
            // An IPv6 address contains colons. Its last colon begins a port only right after a closing bracket.
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => match port.parse() {
                Ok(port) => (host, Some(port)),
                Err(_) => (entry, None),
            },
            _ => (entry, None),
        };
        let host = host.replace(['[', ']'], "");
        let pattern = match host.as_str() {
            "*" => "*,0.0.0.0/0,::/0",
            host => host.trim_start_matches('*').trim_end_matches('.'),
        };
        (!pattern.is_empty()).then(|| Self { pattern: pattern.to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_translated_for_the_matcher() {
        let list = NoProxyList::parse(" example.com., .dotted.org,*.star.net,10.0.0.0/8,[::1],fd00::/8,*");
        assert_eq!(list.patterns(None), "example.com,.dotted.org,.star.net,10.0.0.0/8,::1,fd00::/8,*,0.0.0.0/0,::/0");
        assert_eq!(list.ports().count(), 0);
    }

    #[test]
    fn an_entry_with_a_port_covers_only_that_port() {
        let list = NoProxyList::parse("everywhere,only.port:8080,127.0.0.1:99,[::1]:99");
        assert_eq!(list.ports().collect::<Vec<_>>(), [8080, 99, 99]);
        assert_eq!(list.patterns(None), "everywhere");
        assert_eq!(list.patterns(Some(8080)), "everywhere,only.port");
        assert_eq!(list.patterns(Some(99)), "everywhere,127.0.0.1,::1");
    }

    #[test]
    fn entries_without_a_host_are_left_out() {
        for empty in ["", ",,", " , .,", "..", ":80", "[]"] {
            assert_eq!(NoProxyList::parse(empty).patterns(Some(80)), "", "{empty}");
        }
    }
}
