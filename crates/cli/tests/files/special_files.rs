//! FIFOs, sockets and devices: the server neither reads nor writes them, and no request blocks on them.

use std::path::{Path, PathBuf};

use testkit::{Client, Value, base64, json};

use crate::folder::{Folder, set_up, uri_of};
use crate::{not_a_file, refusal};

/// Creates a FIFO, a socket, and links to a FIFO and to a device. Returns their paths and those of some devices.
fn special_paths(folder: &Folder) -> Vec<PathBuf> {
    folder.fifo("fifo");
    folder.socket("socket");
    folder.link("fifo", "to a fifo");
    folder.link("/dev/zero", "to a device");
    let mut paths: Vec<_> =
        ["fifo", "socket", "to a fifo", "to a device"].iter().map(|name| folder.path(name)).collect();
    paths.extend(["/dev/zero", "/dev/null", "/dev/tty"].map(PathBuf::from));
    paths
}

/// Requests that would read or write the file at `path`. Creates the file `file`, which is the source of a copy to
/// `path`.
fn requests(folder: &Folder, path: &Path) -> Vec<(&'static str, Value)> {
    let (uri, file) = (uri_of(path), folder.file("file", "x"));
    vec![
        ("fs/readFile", json!({"path": uri})),
        ("fs/open", json!({"handleId": "h", "path": uri})),
        ("fs/writeFile", json!({"path": uri, "dataBase64": base64("x")})),
        ("fs/create", json!({"handleId": "h", "path": uri})),
        ("fs/copy", json!({"sourcePath": file, "destinationPath": uri, "recursive": false})),
    ]
}

#[tokio::test]
async fn special_files_are_refused_with_one_text_and_recursive_copies_of_them_with_another() {
    let (folder, _server, mut client) = set_up().await;
    for path in special_paths(&folder) {
        for (method, params) in requests(&folder, &path) {
            let error = client.call_error(method, params).await;
            assert_eq!(error, not_a_file(&path), "{method} {}", path.display());
        }
        if !path.is_symlink() {
            let uri = uri_of(&path);
            let copy = json!({"sourcePath": uri, "destinationPath": folder.uri("copy"), "recursive": true});
            let expected = refusal("fs/copy only supports regular files, directories, and symlinks", &uri);
            assert_eq!(client.call_error("fs/copy", copy).await, expected, "{}", path.display());
        }
    }
    assert_eq!(folder.names(""), ["fifo", "file", "socket", "to a device", "to a fifo"]);
}

#[tokio::test]
async fn no_request_blocks_on_a_special_file() {
    let (folder, _server, mut client) = set_up().await;
    let paths = special_paths(&folder);
    let mut ids = Vec::new();
    for _ in 0..50 {
        for path in &paths {
            for (method, params) in requests(&folder, path) {
                ids.push(client.send(method, params).await);
            }
        }
    }
    // Meanwhile other requests are answered.
    assert_eq!(client.run("p", &["echo", "hello"]).await.stdout, b"hello\n");
    assert_eq!(crate::folder::read_file(&mut client, &folder.uri("file")).await, b"x");
    for id in ids {
        assert!(client.answer(id).await.get("error").is_some());
    }
}

#[tokio::test]
async fn a_write_never_reaches_the_reader_of_a_fifo() {
    let (folder, _server, mut client) = set_up().await;
    let uri = folder.fifo("fifo");
    client.start("reader", &["cat", folder.path("fifo").to_str().unwrap()]).await;
    let write = json!({"path": uri, "dataBase64": base64("x")});
    let error = write_repeatedly(&mut client, write).await;
    assert_eq!(error, not_a_file(&folder.path("fifo")));
    std::fs::write(folder.path("fifo"), "from its writer\n").unwrap();
    assert_eq!(client.outcome("reader").await.stdout, b"from its writer\n");
}

/// Tries to write 21 times, because the reader of the FIFO opens it at some moment. Returns the last error.
async fn write_repeatedly(client: &mut Client, params: Value) -> Value {
    for _ in 0..20 {
        client.call_error("fs/writeFile", params.clone()).await;
    }
    client.call_error("fs/writeFile", params).await
}
