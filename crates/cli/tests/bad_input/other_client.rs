//! A second client of a server that another client attacks. It checks that the server still serves it as usual, and
//! that the server frees the memory that the attack took.

use std::time::Duration;

use testkit::{Client, TestServer, eventually, json, resident_bytes};

/// How much more memory the server may have after an attack than before the attack.
const ALLOWED_GROWTH_BYTES: usize = 8 << 20;

/// Timeout of a short command. The command takes milliseconds. The timeout is long enough for a loaded machine, and
/// too short for a command that has to wait for the attacking client.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);

/// The client that does not attack.
pub(crate) struct OtherClient {
    client: Client,
    server_pid: u32,
    /// Memory of the server before the attack, in bytes.
    resident_bytes_before: usize,
    /// Number of commands so far. It is a part of each process id, so that no two commands have the same id.
    runs: u32,
}

impl OtherClient {
    /// Connects, runs some commands and terminates one, before the memory is measured. So memory that the server
    /// allocates only once does not count as growth.
    pub(crate) async fn connect(server: &TestServer) -> Self {
        let mut client = server.client().await;
        for n in 0..20 {
            client.run(&format!("warm-up-{n}"), &["true"]).await;
        }
        client.run("warm-up", &["head", "-c", "4194304", "/dev/zero"]).await;
        client.call("process/terminate", json!({"processId": "warm-up"})).await;
        let resident_bytes_before = resident_bytes(server.pid());
        Self { client, server_pid: server.pid(), resident_bytes_before, runs: 0 }
    }

    /// Runs a command, which must end within [`COMMAND_TIMEOUT`] although the attack goes on.
    pub(crate) async fn assert_served(&mut self) {
        self.runs += 1;
        let name = format!("one-shot-{}", self.runs);
        let run = self.client.run(&name, &["echo", "hello"]);
        let outcome = tokio::time::timeout(COMMAND_TIMEOUT, run).await.expect("the other client has to wait");
        assert_eq!((outcome.stdout.as_slice(), outcome.exit_code), (&b"hello\n"[..], 0));
    }

    /// Called after the attack. Checks that this client is still served, and waits until the server has freed the
    /// memory that the attack took.
    pub(crate) async fn assert_served_and_memory_freed(mut self) {
        self.assert_served().await;
        let (server_pid, allowed) = (self.server_pid, self.resident_bytes_before + ALLOWED_GROWTH_BYTES);
        eventually(&format!("the server has at most {allowed} bytes of memory"), || {
            let now = resident_bytes(server_pid);
            (now <= allowed).then_some(())
        })
        .await;
    }
}
