//! Writes that a server refuses because its input queues are full, or because the message is too large.

use client::{ExecProcess, WriteStatus};
use testkit::scripted::{ClientMessage, ScriptedReply};
use testkit::{ScriptedServer, Value, json, unbase64};

use crate::support::{connect, error_text, params};

/// The input in a `process/write` request.
fn bytes(request: &ClientMessage) -> Vec<u8> {
    unbase64(&request.params["chunk"])
}

fn refusal(kind: &str) -> ScriptedReply {
    ScriptedReply::ErrorWithData(-32600, json!({"kind": kind}), "refused".into())
}

/// Starts a process on a server that refuses each write for which `refuse` returns an error. The receiver gets the
/// input of the accepted writes.
async fn start_with_refusals(
    server: &ScriptedServer,
    mut refuse: impl FnMut(&ClientMessage) -> Option<ScriptedReply> + Send + 'static,
) -> (client::ExecServerClient, ExecProcess, std::sync::mpsc::Receiver<Vec<u8>>) {
    let (accept, accepted) = std::sync::mpsc::channel();
    // Without this capability, the client would send small writes from the beginning.
    let capabilities = json!({"processWriteQuery": true});
    let info: Value = json!({"shell": {"name": "sh", "path": "/bin/sh"}, "capabilities": capabilities});
    server.on("environment/info", move |_| ScriptedReply::Result(info.clone()));
    server.on("process/write", move |request| {
        refuse(request).unwrap_or_else(|| {
            accept.send(bytes(request)).unwrap();
            ScriptedReply::Result(json!({"status": "accepted"}))
        })
    });
    let client = connect(server).await;
    let process = client.start(params("p")).await.unwrap();
    (client, process, accepted)
}

fn input() -> Vec<u8> {
    (0..200_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[tokio::test]
async fn a_write_is_repeated_in_smaller_pieces_until_full_queues_accept_it() {
    let server = ScriptedServer::new();
    let mut number = 0;
    let (_client, process, accepted) = start_with_refusals(&server, move |request| {
        number += 1;
        // The server refuses all writes over 64 KiB, and also the third to fifth write.
        (bytes(request).len() > 64 * 1024 || (3..6).contains(&number)).then(|| refusal("inputCrowded"))
    })
    .await;
    assert_eq!(process.write(input()).await.unwrap(), WriteStatus::Accepted);
    let pieces: Vec<_> = accepted.try_iter().collect();
    assert!(pieces.concat() == input(), "{} pieces", pieces.len());
    // After the first refusal, each piece has at most 64 KiB. Four writes are refused: the first, and the third to
    // fifth.
    assert_eq!((pieces.len(), server.count("process/write")), (4, 4 + 4));
}

#[tokio::test]
async fn a_write_that_is_too_large_for_a_message_is_divided_and_later_writes_use_the_smaller_size() {
    let server = ScriptedServer::new();
    let (_client, process, accepted) =
        start_with_refusals(&server, |request| (bytes(request).len() > 30_000).then(|| refusal("messageTooLarge")))
            .await;
    for _ in 0..2 {
        assert_eq!(process.write(input()).await.unwrap(), WriteStatus::Accepted);
        let pieces: Vec<_> = accepted.try_iter().collect();
        assert!(pieces.concat() == input(), "{} pieces", pieces.len());
    }
    // Three requests are refused, and each time the client halves the size. Each write then takes eight requests, and
    // the second write uses the smaller size from the beginning.
    assert_eq!(server.count("process/write"), 3 + 8 + 8);
}

#[tokio::test]
async fn a_write_that_is_refused_at_every_size_fails() {
    let server = ScriptedServer::new();
    let (_client, process, _accepted) = start_with_refusals(&server, |_| Some(refusal("messageTooLarge"))).await;
    assert_eq!(error_text(process.write(input()).await), "refused");
}
