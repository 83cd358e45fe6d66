//! Machines that lack what sandboxes are made of. They are this machine, in a user namespace that may have no further
//! ones, or behind a filter of system calls that hides Landlock.

use std::process::Stdio;

use testkit::{TestServer, Value, binary};
use tokio::process::Command;

/// Whether a machine has something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Present {
    Yes,
    No,
}

/// A machine with or without user namespaces, and with or without Landlock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) namespaces: Present,
    pub(crate) landlock: Present,
}

/// Runs a command in a user namespace in which no further user namespace can be made.
const WITHOUT_NAMESPACES: [&str; 6] = [
    "unshare",
    "--user",
    "--map-root-user",
    "sh",
    "-c",
    r#"echo 0 > /proc/sys/user/max_user_namespaces && exec "$@""#,
];

/// The text of a program that executes its arguments. The program is passed as text, because another user may have no
/// access to its file.
const HIDE_LANDLOCK: &str = include_str!("hide_landlock.py");

impl Machine {
    /// Panics if this machine lacks what a test wants to use or to take away.
    pub(crate) async fn imitate(namespaces: Present, landlock: Present) -> Self {
        let mut ordinary = Command::new("unshare");
        ordinary.args(["--user", "--map-root-user", "true"]).stderr(Stdio::null());
        let has_namespaces = ordinary.status().await.is_ok_and(|status| status.success());
        let has_both = has_namespaces && sandbox::landlock_version().is_ok();
        assert!(has_both, "run this test on a machine with user namespaces and Landlock");
        Self { namespaces, landlock }
    }

    /// The command that executes the binary with these arguments on the machine.
    pub(crate) fn command(self, args: &[&str]) -> Command {
        let mut words: Vec<String> = Vec::new();
        if self.namespaces == Present::No {
            words.extend(WITHOUT_NAMESPACES.map(String::from));
            words.push("sh".to_owned());
        }
        if self.landlock == Present::No {
            words.extend(["python3", "-c", HIDE_LANDLOCK].map(String::from));
        }
        words.push(binary().to_str().unwrap().to_owned());
        words.extend(args.iter().map(|word| (*word).to_owned()));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).kill_on_drop(true);
        command
    }

    /// What `exec-server doctor` says on the machine: the lines for people, the object, and the exit code.
    pub(crate) async fn doctor(self) -> (String, Value, Option<i32>) {
        let lines = self.command(&["doctor"]).output().await.unwrap();
        let object = self.command(&["doctor", "--json"]).output().await.unwrap();
        assert_eq!(lines.status.code(), object.status.code());
        assert!(lines.stderr.is_empty() && object.stderr.is_empty(), "{lines:?} {object:?}");
        let object = serde_json::from_slice(&object.stdout).unwrap();
        (String::from_utf8(lines.stdout).unwrap(), object, lines.status.code())
    }

    /// A server on the machine.
    pub(crate) async fn server(self) -> TestServer {
        TestServer::launch(self.command(&[]), &[]).await
    }
}
