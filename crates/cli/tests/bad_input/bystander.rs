//! A second client of the attacked server, which must not notice the attack, and a check of the server's memory.

use std::time::Duration;

use testkit::{Client, TestServer, eventually, json, resident_bytes};

/// Memory that the server may have grown by after an attack.
const ALLOWED_GROWTH_BYTES: usize = 8 << 20;

/// A one-shot takes milliseconds. This leaves room for a loaded machine, but not for waiting behind another client.
const PROMPTLY: Duration = Duration::from_secs(5);

pub(crate) struct Bystander {
    client: Client,
    server: u32,
    resident_before: usize,
    runs: u32,
}

impl Bystander {
    /// Connects and runs some commands, so that memory which every server needs once does not count as growth.
    pub(crate) async fn of(server: &TestServer) -> Self {
        let mut client = server.client().await;
        for n in 0..20 {
            client.run(&format!("warm-up-{n}"), &["true"]).await;
        }
        client.run("warm-up", &["head", "-c", "4194304", "/dev/zero"]).await;
        client.call("process/terminate", json!({"processId": "warm-up"})).await;
        Self { client, server: server.pid(), resident_before: resident_bytes(server.pid()), runs: 0 }
    }

    /// Runs a command while other clients attack the server.
    pub(crate) async fn is_served(&mut self) {
        self.runs += 1;
        let name = format!("one-shot-{}", self.runs);
        let run = self.client.run(&name, &["echo", "hello"]);
        let outcome = tokio::time::timeout(PROMPTLY, run).await.expect("another client has to wait");
        assert_eq!((outcome.stdout.as_slice(), outcome.exit_code), (&b"hello\n"[..], 0));
    }

    /// After the attack, this client is still served, and the server is as small as before.
    pub(crate) async fn notices_nothing(mut self) {
        self.is_served().await;
        let (server, allowed) = (self.server, self.resident_before + ALLOWED_GROWTH_BYTES);
        eventually(&format!("the server gives memory back until it has at most {allowed} bytes"), || {
            let now = resident_bytes(server);
            (now <= allowed).then_some(())
        })
        .await;
    }
}
