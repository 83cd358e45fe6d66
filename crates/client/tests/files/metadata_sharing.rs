//! Several calls for the metadata of the same file at the same time send one request. A scripted server counts the requests.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use client::{
    Connecting, ExecServerClient, ExecServerClientConnectOptions, ExecutorFileSystem as _, FileFuture, FileMetadata,
    FileOptions, PathUri, RemoteFileSystem, ServerConnector,
};
use testkit::scripted::ScriptedReply;
use testkit::{ScriptedServer, Value, json};

/// Connects to a scripted server.
struct OneServerDialler(ScriptedServer);

impl ServerConnector for OneServerDialler {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async { Ok(self.0.dial().into()) })
    }

    fn can_reconnect(&self) -> bool {
        true
    }

    fn address(&self) -> String {
        "a scripted server".to_owned()
    }
}

pub(crate) async fn connect(server: &ScriptedServer) -> ExecServerClient {
    let options = ExecServerClientConnectOptions::default();
    ExecServerClient::connect(OneServerDialler(server.clone()), options).await.unwrap()
}

fn metadata(size: u64) -> Value {
    json!({"isDirectory": false, "isFile": true, "isSymlink": false, "size": size, "createdAtMs": 0, "modifiedAtMs": 0})
}

fn uri(name: &str) -> PathUri {
    format!("file:///{name}").parse().unwrap()
}

/// Polls all calls, so that they send their requests.
async fn begin(calls: &mut [FileFuture<'_, FileMetadata>]) {
    poll_fn(|cx| {
        calls.iter_mut().for_each(|call| assert!(call.as_mut().poll(cx).is_pending()));
        Poll::Ready(())
    })
    .await;
}

/// A server that answers requests for metadata only when the test says so, and its files.
async fn server_that_does_not_answer() -> (ScriptedServer, RemoteFileSystem) {
    let server = ScriptedServer::new();
    server.on("fs/getMetadata", |_| ScriptedReply::Silence);
    let files = connect(&server).await.file_system();
    (server, files)
}

#[tokio::test]
async fn metadata_requests_at_the_same_time_are_sent_once() {
    let (server, files) = server_that_does_not_answer().await;
    let (a, options) = (uri("a"), FileOptions::default());
    let mut calls: Vec<_> = (0..5).map(|_| files.metadata(&a, &options)).collect();
    begin(&mut calls).await;
    let asked = server.wait_for("fs/getMetadata", 1).await;
    asked.answer(ScriptedReply::Result(metadata(7)));
    for call in calls {
        assert_eq!(call.await.unwrap().size, 7);
    }
    assert_eq!(server.count("fs/getMetadata"), 1);
    server.on("fs/getMetadata", |_| ScriptedReply::Result(metadata(8)));
    assert_eq!(files.metadata(&a, &options).await.unwrap().size, 8, "no result is remembered");
    assert_eq!(server.count("fs/getMetadata"), 2);
}

#[tokio::test]
async fn an_error_is_shared_and_then_forgotten() {
    let (server, files) = server_that_does_not_answer().await;
    let (a, options) = (uri("a"), FileOptions::default());
    let mut calls: Vec<_> = (0..2).map(|_| files.metadata(&a, &options)).collect();
    begin(&mut calls).await;
    server.wait_for("fs/getMetadata", 1).await.answer(ScriptedReply::Error(-32004, "not there".into()));
    for call in calls {
        assert_eq!(call.await.unwrap_err().kind, std::io::ErrorKind::NotFound);
    }
    server.on("fs/getMetadata", |_| ScriptedReply::Result(metadata(1)));
    assert!(files.metadata(&a, &options).await.is_ok());
    assert_eq!(server.count("fs/getMetadata"), 2);
}

#[tokio::test]
async fn a_change_between_two_calls_causes_a_new_request() {
    let (server, files) = server_that_does_not_answer().await;
    let (a, options) = (uri("a"), FileOptions::default());
    let mut calls = vec![files.metadata(&a, &options)];
    begin(&mut calls).await;
    let first = server.wait_for("fs/getMetadata", 1).await;
    files.write_file(&uri("b"), Bytes::new(), &options).await.unwrap();
    calls.push(files.metadata(&a, &options));
    begin(&mut calls).await;
    let second = server.wait_for("fs/getMetadata", 2).await;
    first.answer(ScriptedReply::Result(metadata(1)));
    second.answer(ScriptedReply::Result(metadata(2)));
    assert_eq!(calls.remove(0).await.unwrap().size, 1);
    assert_eq!(calls.remove(0).await.unwrap().size, 2);
}

#[tokio::test]
async fn requests_with_other_paths_sandboxes_or_options_are_not_shared() {
    let (server, files) = server_that_does_not_answer().await;
    let (a, b) = (uri("a"), uri("b"));
    let plain = FileOptions::default();
    let sandbox = r#"{"permissions":{"type":"disabled"},"cwd":"file:///w","windowsSandboxLevel":"disabled"}"#;
    let sandboxed = FileOptions { sandbox: Some(serde_json::from_str(sandbox).unwrap()), ..FileOptions::default() };
    let strict = FileOptions::no_follow();
    let mut calls = Vec::new();
    for options in [&plain, &strict, &sandboxed] {
        calls.extend([files.metadata(&a, options), files.metadata(&a, options), files.metadata(&b, options)]);
    }
    begin(&mut calls).await;
    // One request for each plain path, and one for each of the other calls.
    server.wait_for("fs/getMetadata", 2 + 3 + 3).await;
    let asked = server.received();
    let asked: Vec<_> = asked.iter().filter(|asked| asked.method == "fs/getMetadata").collect();
    assert_eq!(asked.len(), 8);
    asked.iter().for_each(|asked| asked.answer(ScriptedReply::Result(metadata(3))));
    for call in calls {
        assert_eq!(call.await.unwrap().size, 3);
    }
    // The sandbox has no relative path, so the working directory is not sent.
    assert!(asked.iter().all(|asked| asked.params["sandbox"].get("cwd").is_none()));
    assert!(asked.iter().any(|asked| asked.params["sandbox"]["permissions"]["type"] == "disabled"));
}

#[tokio::test]
async fn if_the_caller_that_sent_the_request_is_dropped_another_caller_sends_one() {
    let (server, files) = server_that_does_not_answer().await;
    let (a, options) = (uri("a"), FileOptions::default());
    let mut calls: Vec<_> = (0..3).map(|_| files.metadata(&a, &options)).collect();
    begin(&mut calls).await;
    server.wait_for("fs/getMetadata", 1).await;
    server.on("fs/getMetadata", |_| ScriptedReply::Result(metadata(9)));
    drop(calls.remove(0));
    for call in calls {
        assert_eq!(call.await.unwrap().size, 9);
    }
    assert_eq!(server.count("fs/getMetadata"), 2);
}
