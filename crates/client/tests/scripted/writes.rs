//! Writes that a server refuses because its input queues are full, or because the message is too large.

use client::{ExecProcess, WriteStatus};
use testkit::scripted::{ClientMessage, ScriptedReply};
use testkit::{ScriptedServer, Value, json, unbase64};

use crate::support::{connect, error_text, params};

/// The bytes of a write.
fn bytes(asked: &ClientMessage) -> Vec<u8> {
    unbase64(&asked.params["chunk"])
}

fn refusal(kind: &str) -> ScriptedReply {
    ScriptedReply::ErrorWithData(-32600, json!({"kind": kind}), "refused".into())
}

/// Starts a process on a server that refuses writes as `refuse` says. Also returns the input that the server accepts.
async fn start_with_refusals(
    server: &ScriptedServer,
    mut refuse: impl FnMut(&ClientMessage) -> Option<ScriptedReply> + Send + 'static,
) -> (client::ExecServerClient, ExecProcess, std::sync::mpsc::Receiver<Vec<u8>>) {
    let (take, taken) = std::sync::mpsc::channel();
    let capabilities = json!({"processWriteQuery": true});
    let info: Value = json!({"shell": {"name": "sh", "path": "/bin/sh"}, "capabilities": capabilities});
    server.on("environment/info", move |_| ScriptedReply::Result(info.clone()));
    server.on("process/write", move |asked| {
        refuse(asked).unwrap_or_else(|| {
            take.send(bytes(asked)).unwrap();
            ScriptedReply::Result(json!({"status": "accepted"}))
        })
    });
    let client = connect(server).await;
    let process = client.start(params("p")).await.unwrap();
    (client, process, taken)
}

fn input() -> Vec<u8> {
    (0..200_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[tokio::test]
async fn a_write_that_finds_full_queues_is_repeated_in_smaller_parts() {
    let server = ScriptedServer::new();
    let mut number = 0;
    let (_client, process, taken) = start_with_refusals(&server, move |asked| {
        number += 1;
        // The server refuses writes over 64 KiB, and for a while all writes.
        (bytes(asked).len() > 64 * 1024 || (3..6).contains(&number)).then(|| refusal("inputCrowded"))
    })
    .await;
    assert_eq!(process.write(input()).await.unwrap(), WriteStatus::Accepted);
    let pieces: Vec<_> = taken.try_iter().collect();
    assert!(pieces.concat() == input(), "{} pieces", pieces.len());
    assert_eq!((pieces.len(), server.count("process/write")), (4, 8));
}

#[tokio::test]
async fn a_write_that_is_too_large_for_a_message_is_divided() {
    let server = ScriptedServer::new();
    let (_client, process, taken) =
        start_with_refusals(&server, |asked| (bytes(asked).len() > 30_000).then(|| refusal("messageTooLarge"))).await;
    for _ in 0..2 {
        assert_eq!(process.write(input()).await.unwrap(), WriteStatus::Accepted);
        let pieces: Vec<_> = taken.try_iter().collect();
        assert!(pieces.concat() == input(), "{} pieces", pieces.len());
    }
    // The first write is halved three times. The second write has the smaller size from the beginning.
    assert_eq!(server.count("process/write"), 3 + 8 + 8);
}

#[tokio::test]
async fn a_write_that_is_always_too_large_fails() {
    let server = ScriptedServer::new();
    let (_client, process, _taken) = start_with_refusals(&server, |_| Some(refusal("messageTooLarge"))).await;
    assert_eq!(error_text(process.write(input()).await), "refused");
}
