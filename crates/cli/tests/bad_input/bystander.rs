//! The one who must not notice: a second client of the attacked server, and a look at the server's memory.

use std::time::Duration;

use testkit::{Client, TestServer, eventually, json, resident_bytes};

/// What an attack may leave behind in the server.
const ALLOWED_GROWTH_BYTES: usize = 8 << 20;

/// A one-shot takes milliseconds; this leaves room for a loaded machine, and none for waiting behind somebody else.
const PROMPTLY: Duration = Duration::from_secs(5);

pub(crate) struct Bystander {
    client: Client,
    server: u32,
    resident_before: usize,
    runs: u32,
}

impl Bystander {
    /// Connects and warms the server up, so that what every server needs once is not blamed on the attack.
    pub(crate) async fn of(server: &TestServer) -> Self {
        let mut client = server.client().await;
        for n in 0..20 {
            client.run(&format!("warm-up-{n}"), &["true"]).await;
        }
        client.run("warm-up", &["head", "-c", "4194304", "/dev/zero"]).await;
        client.call("process/terminate", json!({"processId": "warm-up"})).await;
        Self { client, server: server.pid(), resident_before: resident_bytes(server.pid()), runs: 0 }
    }

    /// Runs something while others misbehave.
    pub(crate) async fn is_served(&mut self) {
        self.runs += 1;
        let name = format!("one-shot-{}", self.runs);
        let run = self.client.run(&name, &["echo", "hello"]);
        let outcome = tokio::time::timeout(PROMPTLY, run).await.expect("another client has to wait");
        assert_eq!((outcome.stdout.as_slice(), outcome.exit_code), (&b"hello\n"[..], 0));
    }

    /// After the attack: still served, and the server is as small as before.
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
