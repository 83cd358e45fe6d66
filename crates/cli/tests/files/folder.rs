//! A temporary directory for one test, a server with a client, and helpers for requests to methods `fs/*`.

use std::path::{Path, PathBuf};

use protocol::PathUri;
use tempfile::TempDir;
use testkit::{Client, TestServer, Value, base64, json, unbase64};

/// The file URI of a path.
pub(crate) fn uri_of(path: impl AsRef<Path>) -> String {
    PathUri::from_native(path.as_ref()).unwrap().as_str().to_owned()
}

/// A temporary directory. No part of its path is a symbolic link.
pub(crate) struct Folder {
    _directory: TempDir,
    root: PathBuf,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        Self { _directory: directory, root }
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn uri(&self, name: impl AsRef<Path>) -> String {
        uri_of(self.path(name))
    }

    /// Writes a file and creates its parents. Returns its URI.
    pub(crate) fn file(&self, name: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, contents).unwrap();
        uri_of(path)
    }

    /// Creates a directory with its parents. Returns its URI.
    pub(crate) fn directory(&self, name: &str) -> String {
        std::fs::create_dir_all(self.path(name)).unwrap();
        self.uri(name)
    }

    /// Creates a symbolic link. Returns its URI.
    pub(crate) fn link(&self, target: impl AsRef<Path>, name: &str) -> String {
        std::os::unix::fs::symlink(target, self.path(name)).unwrap();
        self.uri(name)
    }

    /// Creates a FIFO that no process has open. Returns its URI.
    pub(crate) fn fifo(&self, name: &str) -> String {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, self.path(name), mode).unwrap();
        self.uri(name)
    }

    /// Creates a socket on which no process listens. Returns its URI.
    pub(crate) fn socket(&self, name: &str) -> String {
        drop(std::os::unix::net::UnixListener::bind(self.path(name)).unwrap());
        self.uri(name)
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// The names in a directory, sorted.
    pub(crate) fn names(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(directory)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// A new folder, a new server, and a client of the server with a new session.
pub(crate) async fn set_up() -> (Folder, TestServer, Client) {
    let server = TestServer::start().await;
    let client = server.client().await;
    (Folder::new(), server, client)
}

/// Reads a whole file through the server.
pub(crate) async fn read_file(client: &mut Client, uri: &str) -> Vec<u8> {
    unbase64(&client.call("fs/readFile", json!({"path": uri})).await["dataBase64"])
}

/// Writes a whole file through the server.
pub(crate) async fn write_file(client: &mut Client, uri: &str, bytes: impl AsRef<[u8]>) {
    let written = client.call("fs/writeFile", json!({"path": uri, "dataBase64": base64(bytes)})).await;
    assert_eq!(written, json!({}));
}

/// Opens a file for reads in blocks.
pub(crate) async fn open(client: &mut Client, handle: &str, uri: &str) {
    let opened = client.call("fs/open", json!({"handleId": handle, "path": uri})).await;
    assert_eq!(opened["handleId"], handle);
}

/// Reads a block. Returns its bytes and `eof`, which is true if the block is shorter than `len`.
pub(crate) async fn read_block(client: &mut Client, handle: &str, offset: u64, len: u64) -> (Vec<u8>, bool) {
    let block = client.call("fs/readBlock", block(handle, offset, len)).await;
    (unbase64(&block["chunk"]), block["eof"].as_bool().unwrap())
}

/// Params of `fs/readBlock`.
pub(crate) fn block(handle: &str, offset: u64, len: u64) -> Value {
    json!({"handleId": handle, "offset": offset, "len": len})
}

/// Params of `fs/writeBlock`.
pub(crate) fn chunk(handle: &str, offset: u64, bytes: impl AsRef<[u8]>) -> Value {
    json!({"handleId": handle, "offset": offset, "chunk": base64(bytes)})
}
