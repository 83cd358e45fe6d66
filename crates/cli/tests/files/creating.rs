//! The method `fs/createDirectory`.

use testkit::json;

use crate::folder::set_up;
use crate::{INTERNAL, os_error};

#[tokio::test]
async fn a_directory_is_created_with_its_parents() {
    let (folder, _server, mut client) = set_up().await;
    for (follow, name) in [(true, "a/b/c"), (false, "d/e/f")] {
        let path = folder.uri(name);
        // The second request finds the directory, which is no error.
        for _ in 0..2 {
            let params = json!({"path": path, "followSymlinks": follow});
            assert_eq!(client.call("fs/createDirectory", params).await, json!({}));
        }
        assert!(folder.path(name).is_dir());
        let single = json!({"path": folder.uri(format!("{name}/g")), "recursive": false, "followSymlinks": follow});
        assert_eq!(client.call("fs/createDirectory", single).await, json!({}));
        assert!(folder.path(name).join("g").is_dir());
    }
}

#[tokio::test]
async fn directories_that_cannot_be_created_report_the_reason() {
    let (folder, _server, mut client) = set_up().await;
    let (file, directory) = (folder.file("file", ""), folder.directory("directory"));
    let (missing, below) = (folder.uri("none/below"), folder.uri("file/below"));
    for follow in [true, false] {
        for (path, recursive, errno) in [
            (&file, true, 17),
            (&file, false, 17),
            (&directory, false, 17),
            (&missing, false, 2),
            (&below, true, 20),
            (&below, false, 20),
        ] {
            let params = json!({"path": path, "recursive": recursive, "followSymlinks": follow});
            let error = client.call_error("fs/createDirectory", params.clone()).await;
            assert_eq!(error, os_error(errno, path), "{params}");
        }
    }
    let root = json!({"path": "file:///", "recursive": false, "followSymlinks": false});
    let error = client.call_error("fs/createDirectory", root).await;
    let data = json!({"kind": "alreadyExists", "path": "file:///"});
    assert_eq!(error, json!({"code": INTERNAL, "data": data, "message": "directory already exists"}));
    assert_eq!(client.call("fs/createDirectory", json!({"path": "file:///"})).await, json!({}));
}

#[tokio::test]
async fn many_requests_may_create_the_same_directory_at_once() {
    let (folder, _server, mut client) = set_up().await;
    for round in 0..20 {
        let path = folder.uri(format!("{round}/a/b/c/d"));
        let mut ids = Vec::new();
        for number in 0..16 {
            let params = json!({"path": path, "followSymlinks": number % 2 == 0});
            ids.push(client.send("fs/createDirectory", params).await);
        }
        for id in ids {
            assert_eq!(client.answer(id).await["result"], json!({}));
        }
    }
}
