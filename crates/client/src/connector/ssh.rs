//! A server on another machine that is started over ssh. The client runs `ssh` as a child process and terminates it
//! when the connection ends. The server then ends too, because its stdin is closed.

use std::ffi::OsString;

use super::child::ChildConnector;
use super::{Connecting, ServerConnector};
use crate::path_map::PathMap;

/// Starts a server on another machine with the program `ssh`, and maps paths between the two machines.
#[derive(Clone, Debug)]
pub struct SshConnector {
    host: String,
    paths: PathMap,
    child: ChildConnector,
}

impl SshConnector {
    /// `host` is a destination as `ssh` takes it. `program` is the server program on that machine: a path, or a name
    /// that the login shell on that machine looks up.
    pub fn new(host: &str, program: &str, paths: PathMap) -> Self {
        Self::with_ssh(host, program, paths, Vec::new())
    }

    /// As [`new`](Self::new), with options for `ssh` itself, for example `-F FILE`.
    pub fn with_ssh(host: &str, program: &str, paths: PathMap, options: Vec<OsString>) -> Self {
        let mut args = options;
        // `-T`: a terminal on the other machine would change the bytes of messages. `BatchMode`: `ssh` fails instead
        // of asking the user a question. `ServerAliveInterval`: `ssh` notices that the other machine no longer
        // answers.
        args.extend(["-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=10"].map(OsString::from));
        args.extend(["--".into(), host.into(), format!("{} --listen stdio", quoted(program)).into()]);
        let child = ChildConnector { program: "ssh".into(), args, ..ChildConnector::default() };
        Self { host: host.to_owned(), paths, child }
    }
}

/// Quotes the program for the remote shell. The shell still expands a `~/` at the beginning.
fn quoted(program: &str) -> String {
    let (home, rest) = match program.strip_prefix("~/") {
        Some(rest) => ("~/", rest),
        None => ("", program),
    };
    format!("{home}'{}'", rest.replace('\'', r"'\''"))
}

impl ServerConnector for SshConnector {
    fn connect(&self) -> Connecting<'_> {
        self.child.connect()
    }

    fn can_reconnect(&self) -> bool {
        self.child.can_reconnect()
    }

    fn address(&self) -> String {
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
    fn quoting_makes_the_program_one_word_and_lets_the_remote_shell_expand_a_leading_tilde() {
        assert_eq!(quoted("exec-server"), "'exec-server'");
        assert_eq!(quoted("~/my bin/it's"), r"~/'my bin/it'\''s'");
    }
}
