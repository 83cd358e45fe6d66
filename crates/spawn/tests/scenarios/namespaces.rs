//! In a PID namespace that its session does not belong to, as a container's runtime makes one for a command it adds: the session's number
//! is 0 there.

use std::process::Command;

use crate::roles::{ROLE, is_played, role_arguments};
use crate::support::{World, is_alive, read_pids, sh, stat_field};

const SERVER: &str = "namespaces::role_server";

#[tokio::test]
#[ignore = "a role for the scenario below"]
async fn role_server() {
    if !is_played() {
        return;
    }
    assert_eq!(stat_field(std::process::id(), 4).as_deref(), Some("0"), "our session is of elsewhere");
    let world = World::new();
    let tree = world.start(&sh("setsid sh -c 'echo $$; sleep 1000' & echo $$; wait"));
    let pids = read_pids(&tree.stdout, 2).await;
    world.kill_tree(&tree);
    assert!(!pids.into_iter().any(is_alive));
    println!("the tree is gone");
}

/// A namespace by our own right, or where only some user namespace gives it. None if this machine allows neither.
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
fn a_tree_ends_where_the_session_has_no_number() {
    let Some(mut server) = unshare() else {
        eprintln!("skipped: PID namespaces cannot be made here");
        return;
    };
    server.arg(std::env::current_exe().unwrap()).args(role_arguments(SERVER)).env(ROLE, "server");
    let run = server.output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(said.contains("the tree is gone"), "{said}{}", String::from_utf8_lossy(&run.stderr));
}
