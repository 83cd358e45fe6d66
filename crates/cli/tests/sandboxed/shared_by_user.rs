//! What the kernel counts for all processes of a user: a hostile command must not use it up.

use testkit::{TestServer, binary_for_all_users, json, unbase64};

use crate::{policy, run, start_params};

/// Sends descriptors over sockets from which nobody receives, until the kernel refuses to take more.
const FILL: &str = r"
import array, os, resource, socket
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
null = os.open('/dev/null', os.O_RDONLY)
kept = []
try:
    while True:
        pair = socket.socketpair()
        kept.append(pair)
        pair[0].sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [null] * 250))])
except OSError as error:
    print(error.errno, flush=True)
import time
time.sleep(600)
";

#[tokio::test]
async fn descriptors_that_a_command_has_sent_and_nobody_received_stop_no_other_session() {
    // The kernel counts such descriptors for each user, so the server runs as a user that no other test has.
    let mut command = tokio::process::Command::new("prlimit");
    command.args(["--nofile=1024:1024", "--"]);
    if rustix::process::geteuid().is_root() {
        command.args(["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "--"]);
    }
    let folder = tempfile::tempdir().unwrap();
    command.arg(binary_for_all_users(folder.path()));
    let server = TestServer::launch(command, &[]).await;
    let (mut hostile, mut other) = (server.client().await, server.client().await);
    let everything = policy(Vec::new(), "restricted");
    let mut params = start_params("fill", "", &everything);
    params["argv"] = json!(["/usr/bin/python3", "-c", FILL]);
    hostile.call("process/start", params).await;
    // ETOOMANYREFS: no process of the user with the limits of the command can send more.
    let event = hostile.event("fill").await;
    assert_eq!(unbase64(&event["params"]["chunk"]), b"109\n", "{event}");
    for (process, sandbox) in [("same", everything), ("another", policy(Vec::new(), "enabled"))] {
        assert_eq!(run(&mut other, start_params(process, "echo on", &sandbox)).await.output, "on\n");
    }
}
