//! The methods `fs/readFile` and `fs/getMetadata`.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use testkit::{base64, json};

use crate::folder::{read_file, set_up};
use crate::{INVALID_REQUEST, not_a_file, os_error};

#[tokio::test]
async fn a_file_is_read_whole() {
    let (folder, _server, mut client) = set_up().await;
    let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n * 7) as u8).collect();
    for (name, size) in [("empty", 0), ("one", 1), ("small", 100), ("cached", 65_536), ("large", 3_000_000)] {
        let uri = folder.file(name, &bytes[..size]);
        // After a first read the server knows that the disk is local. Then it reads small files in another way,
        // without a thread, if they are in the cache of the kernel.
        for _ in 0..2 {
            let answer = client.call("fs/readFile", json!({"path": uri})).await;
            assert_eq!(answer, json!({"dataBase64": base64(&bytes[..size])}), "{name}");
        }
        let answer = client.call("fs/readFile", json!({"path": uri, "followSymlinks": false})).await;
        assert_eq!(answer, json!({"dataBase64": base64(&bytes[..size])}), "{name} with followSymlinks false");
    }
    let link = folder.link("small", "link");
    assert_eq!(read_file(&mut client, &link).await, &bytes[..100]);
}

#[tokio::test]
async fn files_without_a_size_such_as_those_in_proc_are_read_whole() {
    let (_folder, server, mut client) = set_up().await;
    let status = read_file(&mut client, &format!("file:///proc/{}/status", server.pid())).await;
    assert!(String::from_utf8(status).unwrap().contains(&format!("Pid:\t{}\n", server.pid())));
}

#[tokio::test]
async fn files_that_cannot_be_read_report_the_reason() {
    let (folder, _server, mut client) = set_up().await;
    folder.file("file", "x");
    for (name, errno) in [("none", 2), ("no/such/folder", 2), ("file/below", 20)] {
        for follow in [true, false] {
            let uri = folder.uri(name);
            let params = json!({"path": uri, "followSymlinks": follow});
            assert_eq!(client.call_error("fs/readFile", params.clone()).await, os_error(errno, &uri), "{name}");
            assert_eq!(client.call_error("fs/getMetadata", params).await, os_error(errno, &uri), "{name}");
        }
    }
    let directory = folder.directory("directory");
    let error = client.call_error("fs/readFile", json!({"path": directory})).await;
    assert_eq!(error, not_a_file(&folder.path("directory")));
}

#[tokio::test]
async fn invalid_params_are_refused_with_a_reason() {
    let (_folder, _server, mut client) = set_up().await;
    for (params, message) in [
        (json!({}), "missing field `path`"),
        (json!({"path": 7}), "invalid type: number, expected a string"),
        (json!({"path": "file:///", "followSymlinks": "no"}), "invalid type: string \"no\", expected a boolean"),
        (json!({"followSymlinks": true}), "missing field `path`"),
    ] {
        let error = client.call_error("fs/readFile", params.clone()).await;
        assert_eq!(error["code"], -32602, "{params}");
        assert!(error["message"].as_str().unwrap().starts_with(message), "{params}: {error}");
    }
}

#[tokio::test]
async fn a_file_is_not_written_before_the_handshake() {
    let (folder, server, _client) = set_up().await;
    let uri = folder.uri("file");
    let mut new_client = server.connect_without_handshake().await;
    let write = json!({"path": uri, "dataBase64": ""});
    let error = new_client.call_error("fs/writeFile", write.clone()).await;
    let message = "client must call initialize before using filesystem methods";
    assert_eq!(error, json!({"code": INVALID_REQUEST, "message": message}));
    new_client.call("initialize", json!({"clientName": "new"})).await;
    let error = new_client.call_error("fs/writeFile", write).await;
    let message = "client must send initialized before using filesystem methods";
    assert_eq!(error, json!({"code": INVALID_REQUEST, "message": message}));
    assert!(folder.names("").is_empty());
}

#[tokio::test]
async fn metadata_is_the_same_as_that_of_the_operating_system() {
    let (folder, _server, mut client) = set_up().await;
    folder.file("file", "hello");
    folder.directory("directory");
    folder.link("file", "link");
    folder.link("directory", "link to a directory");
    folder.fifo("fifo");
    folder.socket("socket");
    std::fs::set_permissions(folder.path("file"), std::fs::Permissions::from_mode(0o4751)).unwrap();
    for (name, is_directory, is_file, is_symlink) in [
        ("file", false, true, false),
        ("directory", true, false, false),
        ("link", false, true, true),
        ("link to a directory", true, false, true),
        ("fifo", false, false, false),
        ("socket", false, false, false),
    ] {
        let found = std::fs::metadata(folder.path(name)).unwrap();
        let created =
            found.created().map_or(0, |time| time.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64);
        let expected = json!({
            "isDirectory": is_directory, "isFile": is_file, "isSymlink": is_symlink, "size": found.len(),
            "createdAtMs": created, "modifiedAtMs": found.mtime() * 1000 + found.mtime_nsec() / 1_000_000,
            "mode": found.mode() & 0o7777, "mtime": {"secs": found.mtime(), "nanos": found.mtime_nsec()},
        });
        let path = folder.uri(name);
        // After the first request the server may take the metadata from the cache of the kernel.
        for _ in 0..2 {
            assert_eq!(client.call("fs/getMetadata", json!({"path": path})).await, expected, "{name}");
        }
        if !is_symlink {
            let params = json!({"path": path, "followSymlinks": false});
            assert_eq!(client.call("fs/getMetadata", params).await, expected, "{name} with followSymlinks false");
        }
    }
    let root = client.call("fs/getMetadata", json!({"path": "file:///", "followSymlinks": false})).await;
    assert_eq!(root["isDirectory"], true);
}

#[tokio::test]
async fn files_whose_names_are_not_utf_8_are_read_listed_walked_and_canonicalized() {
    let (folder, _server, mut client) = set_up().await;
    let name = std::ffi::OsStr::from_bytes(b"\xff name\xfe");
    let uri = folder.file(name, "odd");
    assert!(uri.ends_with("/%FF%20name%FE"), "{uri}");
    assert_eq!(read_file(&mut client, &uri).await, b"odd");
    let parent = folder.uri("");
    let listed = client.call("fs/readDirectory", json!({"path": parent})).await;
    let entry = json!({"fileName": "\u{fffd} name\u{fffd}", "isDirectory": false, "isFile": true, "path": uri});
    assert_eq!(listed, json!({"entries": [entry]}));
    let options = json!({"maxDepth": 1, "maxDirectories": 1, "maxEntries": 10, "followDirectorySymlinks": false});
    let walked = client.call("fs/walk", json!({"path": parent, "options": options})).await;
    assert_eq!(walked, json!({"entries": [{"path": uri, "kind": "file"}], "errors": [], "truncated": false}));
    let canonical = client.call("fs/canonicalize", json!({"path": uri})).await;
    assert_eq!(canonical, json!({"path": uri}));
}
