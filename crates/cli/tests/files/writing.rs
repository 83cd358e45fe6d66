//! The methods `fs/writeFile`, `fs/setMetadata` and `fs/rename`.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use testkit::{base64, json};

use crate::folder::{set_up, write_file};
use crate::{INVALID_REQUEST, os_error, refusal};

#[tokio::test]
async fn a_file_is_created_or_overwritten_in_place() {
    let (folder, _server, mut client) = set_up().await;
    let uri = folder.uri("file");
    for contents in ["first and long", "second", "", "third"] {
        write_file(&mut client, &uri, contents).await;
        assert_eq!(folder.read("file"), contents.as_bytes());
    }
    std::fs::hard_link(folder.path("file"), folder.path("other name")).unwrap();
    std::fs::set_permissions(folder.path("file"), std::fs::Permissions::from_mode(0o640)).unwrap();
    folder.link("file", "link");
    let before = std::fs::metadata(folder.path("file")).unwrap();
    write_file(&mut client, &folder.uri("link"), "through the link").await;
    let after = std::fs::metadata(folder.path("other name")).unwrap();
    assert_eq!((after.ino(), after.mode()), (before.ino(), before.mode()));
    assert_eq!(folder.read("other name"), b"through the link");
    let large = vec![7; 4_000_000];
    write_file(&mut client, &folder.uri("large"), &large).await;
    assert_eq!(folder.read("large"), large);
}

#[tokio::test]
async fn writes_that_fail_report_the_reason_and_create_nothing() {
    let (folder, _server, mut client) = set_up().await;
    folder.file("file", "kept");
    let directory = folder.directory("directory");
    for follow in [true, false] {
        for (uri, errno) in [
            (folder.uri("none/file"), 2),
            (folder.uri("file/below"), 20),
            (directory.clone(), 21),
            ("file:///".to_owned(), 21),
        ] {
            let params = json!({"path": uri, "dataBase64": "eA==", "followSymlinks": follow});
            assert_eq!(client.call_error("fs/writeFile", params).await, os_error(errno, &uri), "follow {follow}");
        }
    }
    assert_eq!(folder.names(""), ["directory", "file"]);
    assert_eq!(folder.read("file"), b"kept");
}

#[tokio::test]
async fn invalid_base64_is_refused_and_the_file_is_unchanged() {
    let (folder, _server, mut client) = set_up().await;
    let uri = folder.file("file", "kept");
    for bad in ["aGk", "aGk=\n", "-_-_", "a", "ä", "aGk=aGk="] {
        let error = client.call_error("fs/writeFile", json!({"path": uri, "dataBase64": bad})).await;
        assert_eq!(error["code"], INVALID_REQUEST, "{bad:?}");
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with("fs/writeFile requires valid base64 dataBase64: "), "{bad:?}: {message}");
        let block = json!({"handleId": "none", "offset": 0, "chunk": bad});
        assert_eq!(client.call_error("fs/writeBlock", block).await["code"], -32602, "{bad:?}");
    }
    let error = client.call_error("fs/writeFile", json!({"path": uri, "dataBase64": 7})).await;
    assert_eq!(error["code"], -32602);
    assert_eq!(folder.read("file"), b"kept");
}

#[tokio::test]
async fn mode_and_time_can_be_set_and_invalid_changes_are_refused() {
    let (folder, _server, mut client) = set_up().await;
    let uri = folder.file("file", "x");
    let mtime = json!({"secs": -1, "nanos": 999_999_999});
    let set = client.call("fs/setMetadata", json!({"path": uri, "mode": 0o604, "mtime": mtime})).await;
    assert_eq!(set, json!({}));
    let found = client.call("fs/getMetadata", json!({"path": uri, "followSymlinks": false})).await;
    assert_eq!((&found["mode"], &found["mtime"]), (&json!(0o604), &mtime));
    client.call("fs/setMetadata", json!({"path": uri, "mtime": {"secs": 5, "nanos": 0}})).await;
    let found = client.call("fs/getMetadata", json!({"path": uri})).await;
    assert_eq!((&found["mode"], &found["modifiedAtMs"]), (&json!(0o604), &json!(5000)));

    // A link has a time of its own, but no mode of its own.
    let link = folder.link("file", "link");
    client.call("fs/setMetadata", json!({"path": link, "mtime": mtime, "followSymlinks": false})).await;
    assert_eq!(std::fs::metadata(folder.path("file")).unwrap().mtime(), 5);
    assert_eq!(std::fs::symlink_metadata(folder.path("link")).unwrap().mtime(), -1);
    let params = json!({"path": link, "mode": 0o777, "followSymlinks": false});
    let error = client.call_error("fs/setMetadata", params).await;
    assert_eq!(error, refusal("path contains a symbolic link", &link));
    let params = json!({"path": uri, "mtime": {"secs": 0, "nanos": 1_000_000_000}});
    let error = client.call_error("fs/setMetadata", params).await;
    assert_eq!(error, refusal("nanoseconds must be below 1000000000", &uri));
    let none = folder.uri("none");
    assert_eq!(client.call_error("fs/setMetadata", json!({"path": none, "mode": 0})).await, os_error(2, &none));
}

#[tokio::test]
async fn a_rename_replaces_the_destination_unless_replace_is_false_and_reports_failures() {
    let (folder, _server, mut client) = set_up().await;
    let (one, other) = (folder.file("one", "1"), folder.file("other", "2"));
    let keep = json!({"sourcePath": one, "destinationPath": other, "replace": false});
    assert_eq!(client.call_error("fs/rename", keep).await, os_error(17, &other));
    assert_eq!((folder.read("one"), folder.read("other")), (b"1".to_vec(), b"2".to_vec()));
    let rename = json!({"sourcePath": one, "destinationPath": other});
    assert_eq!(client.call("fs/rename", rename.clone()).await, json!({}));
    assert_eq!((folder.names(""), folder.read("other")), (vec!["other".to_owned()], b"1".to_vec()));
    assert_eq!(client.call_error("fs/rename", rename).await, os_error(2, &one));

    let onto_itself = json!({"sourcePath": other, "destinationPath": other});
    assert_eq!(client.call("fs/rename", onto_itself).await, json!({}));
    assert_eq!(folder.read("other"), b"1");

    let directory = folder.directory("directory");
    let into_itself = json!({"sourcePath": directory, "destinationPath": folder.uri("directory/below")});
    let error = client.call_error("fs/rename", into_itself).await;
    assert_eq!(error, os_error(22, &folder.uri("directory/below")));
    let over_directory = json!({"sourcePath": other, "destinationPath": directory});
    assert_eq!(client.call_error("fs/rename", over_directory).await, os_error(21, &directory));
    let elsewhere = folder.uri("none/below");
    let error = client.call_error("fs/rename", json!({"sourcePath": other, "destinationPath": elsewhere})).await;
    assert_eq!(error, os_error(2, &elsewhere));
    // `/proc` is another file system.
    let error =
        client.call_error("fs/rename", json!({"sourcePath": other, "destinationPath": "file:///proc/x"})).await;
    assert_eq!(error["code"], -32603, "{error}");
}

#[tokio::test]
async fn the_bytes_of_writes_that_wait_for_the_disk_are_limited() {
    let server = testkit::TestServer::with_args(&["--max-message-bytes", "1MiB", "--max-file-operations", "1"]).await;
    let mut client = server.client().await;
    let folder = crate::folder::Folder::new();
    let data = base64(vec![1; 600 << 10]);
    let mut ids = Vec::new();
    for number in 0..200 {
        let params = json!({"path": folder.uri(number.to_string()), "dataBase64": data});
        ids.push(client.send("fs/writeFile", params).await);
    }
    let mut refusals = 0;
    for (number, id) in ids.into_iter().enumerate() {
        let answer = client.answer(id).await;
        let path = folder.path(number.to_string());
        if let Some(error) = answer.get("error") {
            let message = error["message"].as_str().unwrap();
            assert!(
                message.contains("wait for the disk, at most 1048576 bytes may wait (--max-message-bytes)"),
                "{message}"
            );
            assert!(!path.exists());
            refusals += 1;
        } else {
            assert_eq!(path.metadata().unwrap().len(), 600 << 10);
        }
    }
    // The first write is always accepted. On a fast disk all writes may be accepted.
    assert!(refusals < 200);
}
