//! The Unix listener: its socket file, its timeout, and its two protocols, lines and HTTP.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use crate::support::{TestSurface, accept_one, echo, send};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use transport::{
    AcceptError, AcceptedStream, BindError, ConnectOptions, Framing, ListenUrl, Listener, PeerLabel, Principal,
    ReadEvent, connect,
};

async fn bind(path: &Path) -> Result<Listener, BindError> {
    Listener::bind(&ListenUrl::Unix(path.into()), None).await
}

/// A temporary directory and the path of a socket in it.
fn socket_path() -> (TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("exec.sock");
    (directory, path)
}

#[tokio::test]
async fn the_socket_file_is_private_and_removed_with_the_listener() {
    let (_directory, path) = socket_path();
    let listener = bind(&path).await.unwrap();
    assert_eq!(listener.url(), format!("unix://{}", path.display()));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    drop(listener);
    assert!(!path.exists());
}

#[tokio::test]
async fn the_socket_file_of_a_server_that_has_ended_is_replaced() {
    let (_directory, path) = socket_path();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let listener = bind(&path).await.unwrap();
    let accepted = accept_one(listener, TestSurface::default());
    let mut client = connect(&format!("unix://{}", path.display()), ConnectOptions::default()).await.unwrap();
    send(&mut client, b"{}").await;
    assert!(accepted.await.unwrap().unwrap().is_some());
}

#[tokio::test]
async fn the_path_of_a_running_server_is_refused() {
    let (_directory, path) = socket_path();
    let first = bind(&path).await.unwrap();
    let refused = bind(&path).await.unwrap_err();
    assert!(matches!(refused, BindError::UnixInUse(_)));
    assert!(refused.to_string().contains("another server is listening there"), "{refused}");
    assert!(path.exists());
    drop(first);
}

#[tokio::test]
async fn a_file_that_is_not_a_socket_is_not_replaced() {
    let (directory, path) = socket_path();
    fs::write(&path, "user data").unwrap();
    assert!(matches!(bind(&path).await, Err(BindError::NotASocket(_))));
    assert_eq!(fs::read_to_string(&path).unwrap(), "user data");

    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(matches!(bind(&link).await, Err(BindError::NotASocket(_))));
}

#[tokio::test]
async fn a_missing_directory_is_an_error_with_the_path() {
    let refused = bind(Path::new("/nowhere/at/all.sock")).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot listen on unix:///nowhere/at/all.sock: No such file or directory (os error 2)"
    );
}

#[tokio::test]
async fn a_socket_of_another_program_at_the_path_is_not_removed() {
    let (_directory, path) = socket_path();
    let first = bind(&path).await.unwrap();
    // The file is moved and not removed, so its inode stays in use and the new socket cannot get the same inode
    // number.
    fs::rename(&path, path.with_extension("old")).unwrap();
    let _other_program = std::os::unix::net::UnixListener::bind(&path).unwrap();
    drop(first);
    assert!(path.exists());
}

#[tokio::test]
async fn lines_need_no_upgrade_and_no_token() {
    let (_directory, path) = socket_path();
    let accepted = accept_one(bind(&path).await.unwrap(), TestSurface { token: Some("secret") });
    let mut client = connect(&format!("unix://{}", path.display()), ConnectOptions::default()).await.unwrap();
    send(&mut client, b"{\"id\":1}").await;
    let AcceptedStream { stream, principal } = accepted.await.unwrap().unwrap().unwrap();
    assert_eq!((stream.framing, stream.peer.to_string()), (Framing::Lines, "unix".to_owned()));
    assert_eq!(principal, Principal::User(rustix::process::geteuid().as_raw()));
    let server = tokio::spawn(echo(stream));
    assert_eq!(client.reader.next().await.unwrap(), ReadEvent::Message(b"{\"id\":1}"[..].into()));
    client.writer.shutdown().await;
    assert_eq!(server.await.unwrap(), ReadEvent::Closed(None));
    assert_eq!(client.reader.next().await.unwrap(), ReadEvent::Closed(None));
}

#[tokio::test]
async fn a_first_byte_that_is_a_letter_means_http_which_needs_no_token() {
    let (_directory, path) = socket_path();
    let accepted = accept_one(bind(&path).await.unwrap(), TestSurface { token: Some("secret") });
    let mut client = UnixStream::connect(&path).await.unwrap();
    client.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("sessions 3\n"), "{response}");
    assert!(accepted.await.unwrap().unwrap().is_none());
}

#[tokio::test]
async fn a_websocket_over_a_unix_socket_needs_no_token() {
    let (_directory, path) = socket_path();
    let accepted = accept_one(bind(&path).await.unwrap(), TestSurface { token: Some("secret") });
    let stream = UnixStream::connect(&path).await.unwrap();
    let mut client =
        transport::upgrade_client(stream, "localhost", PeerLabel::new("unix"), ConnectOptions::default())
            .await
            .unwrap();
    let AcceptedStream { mut stream, principal } = accepted.await.unwrap().unwrap().unwrap();
    assert_eq!(stream.framing, Framing::WebSocketServer);
    assert_eq!(principal, Principal::User(rustix::process::geteuid().as_raw()));
    send(&mut client, b"{}").await;
    assert_eq!(stream.reader.next().await.unwrap(), ReadEvent::Message(b"{}"[..].into()));
}

#[tokio::test]
async fn a_peer_that_leaves_at_once_is_not_an_error() {
    let (_directory, path) = socket_path();
    let accepted = accept_one(bind(&path).await.unwrap(), TestSurface::default());
    drop(UnixStream::connect(&path).await.unwrap());
    assert!(accepted.await.unwrap().unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_times_out() {
    let (_directory, path) = socket_path();
    let accepted = accept_one(bind(&path).await.unwrap(), TestSurface::default());
    let started = tokio::time::Instant::now();
    let _client = UnixStream::connect(&path).await.unwrap();
    assert!(matches!(accepted.await.unwrap(), Err(AcceptError::Deadline)));
    assert!(started.elapsed() < Duration::from_secs(11));
}
