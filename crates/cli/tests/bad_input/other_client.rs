//! A second client of a server that another client attacks. It checks that it is served as usual, and that the server frees its
//! memory.

use std::time::Duration;

use testkit::{Client, TestServer, eventually, json, resident_bytes};

/// How much more memory the server may have after an attack than before.
const ALLOWED_GROWTH_BYTES: usize = 8 << 20;

/// Limit for a short command. The command takes milliseconds. The limit is long enough for a loaded machine, but too short to
/// wait for another client.
const COMMAND_LIMIT: Duration = Duration::from_secs(5);

/// The second client.
pub(crate) struct OtherClient {
    client: Client,
    /// Pid of the server.
    server: u32,
    /// Memory of the server before the attack, in bytes.
    resident_before: usize,
    /// How many commands have run, for their process ids.
    runs: u32,
}

impl OtherClient {
    /// Connects and runs some commands. So memory that every server allocates once does not count as growth.
    pub(crate) async fn of(server: &TestServer) -> Self {
        let mut client = server.client().await;
        for n in 0..20 {
            client.run(&format!("warm-up-{n}"), &["true"]).await;
        }
        client.run("warm-up", &["head", "-c", "4194304", "/dev/zero"]).await;
        client.call("process/terminate", json!({"processId": "warm-up"})).await;
        Self { client, server: server.pid(), resident_before: resident_bytes(server.pid()), runs: 0 }
    }

    /// Runs a command, which must not have to wait for the attack.
    pub(crate) async fn assert_served(&mut self) {
        self.runs += 1;
        let name = format!("one-shot-{}", self.runs);
        let run = self.client.run(&name, &["echo", "hello"]);
        let outcome = tokio::time::timeout(COMMAND_LIMIT, run).await.expect("another client has to wait");
        assert_eq!((outcome.stdout.as_slice(), outcome.exit_code), (&b"hello\n"[..], 0));
    }

    /// After the attack: checks that this client is still served, and waits until the server has freed the memory of the
    /// attack.
    pub(crate) async fn assert_unaffected(mut self) {
        self.assert_served().await;
        let (server, allowed) = (self.server, self.resident_before + ALLOWED_GROWTH_BYTES);
        eventually(&format!("the server has at most {allowed} bytes of memory"), || {
            let now = resident_bytes(server);
            (now <= allowed).then_some(())
        })
        .await;
    }
}
