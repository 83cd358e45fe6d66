//! A server on another machine, started there over ssh. Like any child it ends with its connection.

use std::ffi::OsString;

use super::child::ChildConnector;
use super::{Connecting, Connector};
use crate::path_map::PathMap;

/// Starts a server on another machine by `ssh` and maps paths between the two.
#[derive(Clone, Debug)]
pub struct SshConnector {
    host: String,
    paths: PathMap,
    child: ChildConnector,
}

impl SshConnector {
    /// `host` is what one would type after `ssh`; `program` is the server there, found by the shell there.
    pub fn new(host: &str, program: &str, paths: PathMap) -> Self {
        Self::with_ssh(host, program, paths, Vec::new())
    }

    /// With options for ssh itself, such as `-F FILE`.
    pub fn with_ssh(host: &str, program: &str, paths: PathMap, options: Vec<OsString>) -> Self {
        let mut args = options;
        // Nobody can answer a question of ssh: its terminal is not ours to use. A machine that vanished is noticed.
        args.extend(["-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=10"].map(OsString::from));
        args.extend(["--".into(), host.into(), format!("{} --listen stdio", quoted(program)).into()]);
        let child = ChildConnector { program: "ssh".into(), args, ..ChildConnector::default() };
        Self { host: host.to_owned(), paths, child }
    }
}

/// For the shell over there. A tilde at the beginning is left to it.
fn quoted(program: &str) -> String {
    let (home, rest) = match program.strip_prefix("~/") {
        Some(rest) => ("~/", rest),
        None => ("", program),
    };
    format!("{home}'{}'", rest.replace('\'', r"'\''"))
}

impl Connector for SshConnector {
    fn connect(&self) -> Connecting<'_> {
        self.child.connect()
    }

    fn can_reconnect(&self) -> bool {
        self.child.can_reconnect()
    }

    fn place(&self) -> String {
        format!("ssh {}", self.host)
    }

    fn paths(&self) -> Option<&PathMap> {
        Some(&self.paths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_one_word_for_the_shell_over_there() {
        assert_eq!(quoted("exec-server"), "'exec-server'");
        assert_eq!(quoted("~/my bin/it's"), r"~/'my bin/it'\''s'");
    }
}
