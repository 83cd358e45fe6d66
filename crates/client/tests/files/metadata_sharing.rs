//! Several calls for the metadata of the same file at the same time share one request, unless they have a sandbox or
//! do not follow links. A scripted server, whose answers the test defines, counts the requests.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use client::{
    Connecting, ExecServerClient, ExecServerClientConnectOptions, ExecutorFileSystem as _, FileFuture, FileMetadata,
    FileOptions, PathUri, RemoteFileSystem, ServerConnector,
};
use testkit::scripted::ScriptedReply;
use testkit::{ScriptedServer, Value, json};

/// Makes all connections of a client to the same scripted server.
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

/// Options with a sandbox that has a working directory, and no path that is relative to it.
fn sandboxed() -> FileOptions {
    let sandbox = r#"{"permissions":{"type":"disabled"},"cwd":"file:///w","windowsSandboxLevel":"disabled"}"#;
    FileOptions { sandbox: Some(serde_json::from_str(sandbox).unwrap()), ..FileOptions::default() }
}

/// Polls all calls once, so that they send their requests. No call is answered yet.
async fn begin(calls: &mut [FileFuture<'_, FileMetadata>]) {
    poll_fn(|cx| {
        calls.iter_mut().for_each(|call| assert!(call.as_mut().poll(cx).is_pending()));
        Poll::Ready(())
    })
    .await;
}

/// A server that answers requests for metadata only when the test says so, and the file system of that server.
async fn server_with_held_back_metadata() -> (ScriptedServer, RemoteFileSystem) {
    let server = ScriptedServer::new();
    server.on("fs/getMetadata", |_| ScriptedReply::Silence);
    let files = connect(&server).await.file_system();
    (server, files)
}

#[tokio::test]
async fn metadata_calls_at_the_same_time_share_one_request_and_later_calls_do_not() {
    let (server, files) = server_with_held_back_metadata().await;
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
    let (server, files) = server_with_held_back_metadata().await;
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
    let (server, files) = server_with_held_back_metadata().await;
    let (a, options) = (uri("a"), FileOptions::default());
    let mut calls = vec![files.metadata(&a, &options)];
    begin(&mut calls).await;
    let first = server.wait_for("fs/getMetadata", 1).await;
    // A change of any file counts, not only of the file whose metadata was requested.
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
async fn calls_for_another_path_or_with_a_sandbox_or_without_following_links_share_no_request() {
    let (server, files) = server_with_held_back_metadata().await;
    let (a, b) = (uri("a"), uri("b"));
    let (default, no_follow, sandboxed) = (FileOptions::default(), FileOptions::no_follow(), sandboxed());
    let mut calls = Vec::new();
    for options in [&default, &no_follow, &sandboxed] {
        calls.extend([files.metadata(&a, options), files.metadata(&a, options), files.metadata(&b, options)]);
    }
    begin(&mut calls).await;
    // The calls with default options send one request for each path. Each of the other calls sends its own request.
    server.wait_for("fs/getMetadata", 2 + 3 + 3).await;
    let asked = server.received();
    let asked: Vec<_> = asked.iter().filter(|asked| asked.method == "fs/getMetadata").collect();
    assert_eq!(asked.len(), 8);
    asked.iter().for_each(|asked| asked.answer(ScriptedReply::Result(metadata(3))));
    for call in calls {
        assert_eq!(call.await.unwrap().size, 3);
    }
}

#[tokio::test]
async fn a_metadata_request_has_the_sandbox_without_a_cwd_that_no_path_needs() {
    let server = ScriptedServer::new();
    server.on("fs/getMetadata", |_| ScriptedReply::Result(metadata(3)));
    let files = connect(&server).await.file_system();
    files.metadata(&uri("a"), &sandboxed()).await.unwrap();
    let asked = server.wait_for("fs/getMetadata", 1).await;
    assert_eq!(asked.params["sandbox"]["permissions"]["type"], "disabled");
    assert!(asked.params["sandbox"].get("cwd").is_none());
}

#[tokio::test]
async fn if_the_caller_that_sent_the_request_is_dropped_another_caller_sends_one() {
    let (server, files) = server_with_held_back_metadata().await;
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
