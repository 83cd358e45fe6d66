//! The host name of this machine.

use std::path::Path;
use std::sync::OnceLock;

use crate::limits::MAX_HOSTS_FILE_BYTES;
use files::{FileRoot, Follow};

/// The file that may contain the domain of this machine.
const HOSTS: &str = "/etc/hosts";

/// The name of this machine, with its domain if `/etc/hosts` contains the domain. None if the machine has no name.
/// The name is determined once. Name servers are not asked, because a look-up can hang and is visible to others.
pub(super) fn of_machine() -> Option<String> {
    static NAME: OnceLock<Option<String>> = OnceLock::new();
    NAME.get_or_init(|| {
        let name = normalized(&rustix::system::uname().nodename().to_string_lossy())?;
        let hosts = files::read_file(FileRoot::host(), Path::new(HOSTS), Follow::Yes, MAX_HOSTS_FILE_BYTES)
            .unwrap_or_default();
        Some(with_domain(&String::from_utf8_lossy(&hosts), &name).unwrap_or(name))
    })
    .clone()
}

fn normalized(name: &str) -> Option<String> {
    let name = name.trim().trim_end_matches('.').to_lowercase();
    (!name.is_empty()).then_some(name)
}

/// The canonical name of the host `name`: the first name in a line of `hosts` that contains `name`. Lines whose first
/// name has no domain do not count. None if no line is left.
fn with_domain(hosts: &str, name: &str) -> Option<String> {
    hosts.lines().find_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let mut names = line.split_whitespace().skip(1);
        let canonical = normalized(names.clone().next()?)?;
        let has_name = names.any(|other| normalized(other).as_deref() == Some(name));
        (has_name && canonical.contains('.')).then_some(canonical)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_trimmed_and_in_lower_case() {
        assert_eq!(normalized(" Build-7.. \n"), Some("build-7".into()));
        assert_eq!(normalized(" . "), None);
    }

    #[test]
    fn the_domain_comes_from_the_list_of_hosts() {
        let hosts =
            "127.0.0.1 localhost\n#127.0.1.1 no.example vm\n::1 vm\n127.0.1.1\tVM.Example.org. other VM # vm\n";
        assert_eq!(with_domain(hosts, "vm"), Some("vm.example.org".into()));
        assert_eq!(with_domain(hosts, "other"), Some("vm.example.org".into()));
        assert_eq!(with_domain(hosts, "localhost"), None);
        assert_eq!(with_domain("", "vm"), None);
    }
}
