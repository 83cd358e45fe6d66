//! A server that was started with a low soft limit of open files, as most are.

use testkit::{TestServer, binary, open_fds};
use tokio::process::Command;

const SOFT: usize = 128;
const HARD: usize = 4096;

/// Each of them holds more than one descriptor of the server.
const PROCESSES: usize = SOFT;

#[tokio::test]
async fn the_soft_limit_of_descriptors_is_for_the_processes_and_not_for_the_server() {
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={SOFT}:{HARD}")).arg(binary());
    let server = TestServer::launch(command, &[]).await;
    let mut client = server.client().await;
    for number in 0..PROCESSES {
        client.start(&format!("p{number}"), &["sleep", "1000"]).await;
    }
    assert!(open_fds(server.pid()) > SOFT);
    for number in 0..10 {
        let said = client.run(&format!("limits{number}"), &["sh", "-c", "ulimit -Sn; ulimit -Hn"]).await;
        assert_eq!(String::from_utf8_lossy(&said.stdout), format!("{SOFT}\n{HARD}\n"));
    }
}
