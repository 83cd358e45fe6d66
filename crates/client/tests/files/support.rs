//! Shared by the file tests: file systems under test, connections to a server, and functions that make contents, read
//! streams and examine errors.

use std::path::PathBuf;

use client::{
    ExecServerClient, ExecServerClientConnectOptions, ExecutorFileSystem, FileReader, FileSystemError,
    LocalFileSystem, PathUri, RemoteFileSystem, UrlConnector,
};
use testkit::TestServer;

/// A file system under test, with a temporary folder for the files of one test.
pub(crate) struct TestedFiles {
    pub(crate) files: Box<dyn ExecutorFileSystem>,
    folder: tempfile::TempDir,
    _server: Option<TestServer>,
}

impl TestedFiles {
    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The URI of a path in the folder.
    pub(crate) fn uri(&self, name: &str) -> PathUri {
        PathUri::from_native(&self.path(name)).unwrap()
    }
}

pub(crate) async fn local_files() -> TestedFiles {
    TestedFiles { files: Box::new(LocalFileSystem), folder: tempfile::tempdir().unwrap(), _server: None }
}

pub(crate) async fn remote_files() -> TestedFiles {
    let server = TestServer::start().await;
    let files = Box::new(connect_to(server.url()).await.file_system());
    TestedFiles { files, folder: tempfile::tempdir().unwrap(), _server: Some(server) }
}

pub(crate) async fn connect_to(url: &str) -> ExecServerClient {
    let options = ExecServerClientConnectOptions { client_name: "test".into(), ..Default::default() };
    ExecServerClient::connect(UrlConnector::new(url, Default::default()), options).await.unwrap()
}

/// The files of the server at `url`.
pub(crate) async fn files_at(url: &str) -> RemoteFileSystem {
    connect_to(url).await.file_system()
}

/// Makes two tests of each scenario: one with local access to the files, and one with access through a server.
macro_rules! on_local_and_remote {
    ($($scenario:ident)*) => {
        mod local {
            $(
                #[tokio::test]
                async fn $scenario() {
                    super::$scenario(&crate::support::local_files().await).await;
                }
            )*
        }
        mod remote {
            $(
                #[tokio::test]
                async fn $scenario() {
                    super::$scenario(&crate::support::remote_files().await).await;
                }
            )*
        }
    };
}
pub(crate) use on_local_and_remote;

/// Bytes whose blocks all differ, so that a test notices a block at a wrong offset.
pub(crate) fn noise(count: usize) -> Vec<u8> {
    (0..count as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect()
}

/// All bytes of a stream, and the lengths of its pieces.
pub(crate) async fn collect(mut reader: FileReader) -> (Vec<u8>, Vec<usize>) {
    let (mut all, mut lengths) = (Vec::new(), Vec::new());
    while let Some(piece) = reader.next().await {
        let piece = piece.unwrap();
        lengths.push(piece.len());
        all.extend_from_slice(&piece);
    }
    (all, lengths)
}

/// The error of a call that must fail.
pub(crate) fn error_of<T>(result: Result<T, FileSystemError>) -> FileSystemError {
    result.err().expect("the call should have failed")
}

/// Kind, error number and text of the error of a call that must fail.
pub(crate) fn error_parts<T>(result: Result<T, FileSystemError>) -> (std::io::ErrorKind, Option<i32>, String) {
    let error = error_of(result);
    (error.kind, error.errno, error.message)
}
