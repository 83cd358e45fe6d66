//! The shortest tests of the whole product: a client starts a process and gets its output and exit code.

use testkit::{TestServer, json};

#[tokio::test]
async fn a_process_runs_and_its_events_arrive() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    // The test repeats the command so that it finds a race between the pipes of stdout and stderr.
    for round in 0..100 {
        let outcome = client.run(&format!("p{round}"), &["sh", "-c", "echo out; echo err >&2; exit 7"]).await;
        assert_eq!(
            (outcome.stdout.as_slice(), outcome.stderr.as_slice(), outcome.exit_code),
            (&b"out\n"[..], &b"err\n"[..], 7)
        );
        assert_eq!(outcome.streams, ["stdout", "stderr"]);
        assert_eq!(outcome.seqs, [1, 2, 3, 4]);
    }
    // The server still answers other requests.
    assert_eq!(client.call("environment/status", json!(null)).await, json!({"status": "ready"}));
}

#[tokio::test]
async fn large_output_arrives_whole() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let outcome = client.run("p", &["head", "-c", "67108864", "/dev/zero"]).await;
    assert_eq!(outcome.stdout.len(), 64 << 20);
}
