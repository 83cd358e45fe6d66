//! The method `fs/remove`.

use testkit::json;

use crate::folder::set_up;
use crate::{INTERNAL, os_error};

#[tokio::test]
async fn trees_files_and_links_are_removed_but_not_the_targets_of_links() {
    let (folder, _server, mut client) = set_up().await;
    folder.file("kept/file", "kept");
    folder.file("tree/a/b/file", "");
    folder.fifo("tree/fifo");
    folder.socket("tree/socket");
    folder.link(folder.path("kept"), "tree/link");
    folder.file("file", "");
    folder.link("kept", "link");
    folder.link("nowhere", "dangling");
    for name in ["tree", "file", "link", "dangling"] {
        assert_eq!(client.call("fs/remove", json!({"path": folder.uri(name)})).await, json!({}), "{name}");
    }
    assert_eq!((folder.names(""), folder.names("kept")), (vec!["kept".to_owned()], vec!["file".to_owned()]));
}

#[tokio::test]
async fn removing_a_missing_path_needs_force_and_removing_a_full_directory_needs_recursive() {
    let (folder, _server, mut client) = set_up().await;
    let (none, full, empty) = (folder.uri("none"), folder.directory("full"), folder.directory("empty"));
    folder.file("full/file", "");
    // `force` and `recursive` are true by default.
    assert_eq!(client.call("fs/remove", json!({"path": none})).await, json!({}));
    let error = client.call_error("fs/remove", json!({"path": none, "force": false})).await;
    assert_eq!(error, os_error(2, &none));
    for follow in [true, false] {
        let params = json!({"path": full, "recursive": false, "followSymlinks": follow});
        assert_eq!(client.call_error("fs/remove", params).await, os_error(39, &full));
    }
    let below = folder.uri("full/file/below");
    assert_eq!(client.call_error("fs/remove", json!({"path": below})).await, os_error(20, &below));
    let params = json!({"path": empty, "recursive": false, "followSymlinks": false});
    assert_eq!(client.call("fs/remove", params).await, json!({}));
    let params = json!({"path": folder.uri("full/file"), "recursive": false, "followSymlinks": false});
    assert_eq!(client.call("fs/remove", params).await, json!({}));
    assert_eq!(folder.names(""), ["full"]);
}

#[tokio::test]
async fn recursive_removal_without_following_links_is_refused() {
    let (folder, _server, mut client) = set_up().await;
    let uri = folder.file("file", "");
    // `recursive` is true by default, so this request is refused.
    let error = client.call_error("fs/remove", json!({"path": uri, "followSymlinks": false})).await;
    let data = json!({"kind": "other", "path": uri});
    let message = "recursive no-follow removal is unsupported";
    assert_eq!(error, json!({"code": INTERNAL, "data": data, "message": message}));
    assert_eq!(folder.names(""), ["file"]);
}

#[tokio::test]
async fn the_root_is_never_removed() {
    let (_folder, _server, mut client) = set_up().await;
    for path in ["file:///", "file:///tmp/..", "file:///%2E%2E/"] {
        // The requests are not recursive, so they would do no harm even if the server did not refuse them.
        for follow in [true, false] {
            let params = json!({"path": path, "recursive": false, "followSymlinks": follow});
            let error = client.call_error("fs/remove", params).await;
            assert_eq!(error["message"], "`/` is a mount point and is not removed", "{path}");
            assert_eq!((&error["code"], &error["data"]["path"]), (&json!(INTERNAL), &json!("file:///")));
        }
    }
}
