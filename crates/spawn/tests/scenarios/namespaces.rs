//! A server whose kernel session (`setsid`) was created outside of its PID namespace, as with `docker exec`. The
//! number of that session is 0 inside the namespace.

use std::process::Command;

use crate::roles::{ROLE, is_role_process, role_arguments};
use crate::support::{World, is_alive, read_pids, sh, stat_field};

const SERVER: &str = "namespaces::role_server";

#[tokio::test]
#[ignore = "run by the test below in a process of its own"]
async fn role_server() {
    if !is_role_process() {
        return;
    }
    assert_eq!(
        stat_field(std::process::id(), 4).as_deref(),
        Some("0"),
        "the session of this process was created outside of the namespace"
    );
    let world = World::new();
    let tree = world.start(&sh("setsid sh -c 'echo $$; sleep 1000' & echo $$; wait"));
    let pids = read_pids(&tree.stdout, 2).await;
    world.kill_tree(&tree);
    assert!(!pids.into_iter().any(is_alive));
    println!("the tree is gone");
}

/// A command that runs its arguments in a new PID namespace, with the rights of this user or in a new user namespace. None if this machine
/// allows neither.
fn unshare() -> Option<Command> {
    let namespace = ["--pid", "--fork", "--mount-proc"];
    [&[][..], &["--user", "--map-root-user"]].into_iter().find_map(|user: &[&str]| {
        let command = || {
            let mut command = Command::new("unshare");
            command.args(user).args(namespace);
            command
        };
        command().arg("true").output().is_ok_and(|run| run.status.success()).then(command)
    })
}

#[test]
fn a_tree_is_killed_by_a_server_in_session_0() {
    let Some(mut server) = unshare() else {
        eprintln!("skipped: PID namespaces cannot be made here");
        return;
    };
    server.arg(std::env::current_exe().unwrap()).args(role_arguments(SERVER)).env(ROLE, "server");
    let run = server.output().unwrap();
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(output.contains("the tree is gone"), "{output}{}", String::from_utf8_lossy(&run.stderr));
}
