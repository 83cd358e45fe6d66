//! The changes that a watch (`fs/watch`) reports.

use std::fs;

use testkit::{TestServer, json};

use crate::support::{WatchMessages, change, tree, uri, watch};

#[tokio::test]
async fn created_changed_moved_and_removed_files_are_reported_in_order() {
    let (server, tree) = (TestServer::start().await, tree());
    let mut client = server.client().await;
    let (old, new) = (tree.path().join("old"), tree.path().join("new"));
    let mut received = watch(&mut client, "w", tree.path()).await;
    fs::write(&old, "").unwrap();
    assert_eq!(received.changes_until(&mut client, "created", &old).await, [change("created", &old)]);
    fs::write(&old, "more").unwrap();
    assert_eq!(received.changes_until(&mut client, "modified", &old).await, [change("modified", &old)]);
    fs::rename(&old, &new).unwrap();
    let renamed = json!({"path": uri(&new), "kind": "renamed", "from": uri(&old), "isDirectory": false});
    assert_eq!(received.changes_until(&mut client, "renamed", &new).await, [renamed]);
    fs::remove_file(&new).unwrap();
    assert_eq!(received.changes_until(&mut client, "removed", &new).await, [change("removed", &new)]);
}

#[tokio::test]
async fn new_directories_are_watched_with_everything_in_them() {
    let (server, tree) = (TestServer::start().await, tree());
    let mut client = server.client().await;
    let mut received = watch(&mut client, "w", tree.path()).await;
    let deep = tree.path().join("a/b/c");
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("file"), "1").unwrap();
    let changes = received.changes_until(&mut client, "created", &deep.join("file")).await;
    let index_of = |path: String| changes.iter().position(|change| change["path"] == path).unwrap();
    let order = ["a", "a/b", "a/b/c", "a/b/c/file"].map(|path| index_of(uri(&tree.path().join(path))));
    assert!(order.is_sorted(), "a directory is reported before its entries: {changes:?}");
    assert_eq!(changes[order[0]]["isDirectory"], true);
    fs::write(deep.join("file"), "22").unwrap();
    received.changes_until(&mut client, "modified", &deep.join("file")).await;
}

#[tokio::test]
async fn without_recursion_only_the_directory_itself_is_watched() {
    let (server, tree) = (TestServer::start().await, tree());
    let mut client = server.client().await;
    fs::create_dir(tree.path().join("below")).unwrap();
    let params = json!({"watchId": "w", "path": uri(tree.path()), "recursive": false});
    client.call("fs/watch", params).await;
    let mut received = WatchMessages { id: "w".to_owned(), seq: 0 };
    fs::write(tree.path().join("below/unseen"), "").unwrap();
    fs::write(tree.path().join("seen"), "").unwrap();
    let changes = received.changes_until(&mut client, "created", &tree.path().join("seen")).await;
    let unseen = uri(&tree.path().join("below/unseen"));
    assert!(changes.iter().all(|change| change["path"] != unseen), "{changes:?}");
}

#[tokio::test]
async fn a_watched_file_may_be_removed_and_created_again_and_other_files_are_not_reported() {
    let (server, tree) = (TestServer::start().await, tree());
    let mut client = server.client().await;
    let file = tree.path().join("file");
    fs::write(&file, "").unwrap();
    let mut received = watch(&mut client, "w", &file).await;
    fs::write(tree.path().join("neighbour"), "").unwrap();
    fs::write(&file, "1").unwrap();
    assert_eq!(received.changes_until(&mut client, "modified", &file).await, [change("modified", &file)]);
    fs::remove_file(&file).unwrap();
    received.changes_until(&mut client, "removed", &file).await;
    fs::write(&file, "2").unwrap();
    received.changes_until(&mut client, "created", &file).await;
}

#[tokio::test]
async fn sequence_numbers_have_no_gaps_and_no_change_is_lost_in_a_busy_tree() {
    let (server, tree) = (TestServer::start().await, tree());
    let mut client = server.client().await;
    let mut received = watch(&mut client, "w", tree.path()).await;
    let folder = tree.path().to_owned();
    let writer = std::thread::spawn(move || {
        for number in 0..3000 {
            fs::write(folder.join(number.to_string()), "").unwrap();
        }
        fs::write(folder.join("last"), "").unwrap();
    });
    let changes = received.changes_until(&mut client, "created", &tree.path().join("last")).await;
    writer.join().unwrap();
    let created = changes.iter().filter(|change| change["kind"] == "created").count();
    assert_eq!(created, 3001);
}

#[tokio::test]
async fn two_watches_of_one_tree_do_not_disturb_each_other() {
    let (server, tree) = (TestServer::start().await, tree());
    let mut client = server.client().await;
    let file = tree.path().join("file");
    let mut first = watch(&mut client, "first", tree.path()).await;
    let mut second = watch(&mut client, "second", tree.path()).await;
    fs::write(&file, "").unwrap();
    first.changes_until(&mut client, "created", &file).await;
    second.changes_until(&mut client, "created", &file).await;
    client.call("fs/unwatch", json!({"watchId": "first"})).await;
    fs::remove_file(&file).unwrap();
    second.changes_until(&mut client, "removed", &file).await;
}

#[tokio::test]
async fn a_file_name_that_is_not_utf_8_is_reported_as_a_path_that_other_requests_accept() {
    use std::os::unix::ffi::OsStrExt as _;
    let (server, tree) = (TestServer::start().await, tree());
    let mut client = server.client().await;
    let mut received = watch(&mut client, "w", tree.path()).await;
    fs::write(tree.path().join(std::ffi::OsStr::from_bytes(b"a \xff#")), "").unwrap();
    let params = received.next(&mut client).await;
    let path = params["changes"][0]["path"].as_str().unwrap();
    assert_eq!(client.call("fs/getMetadata", json!({"path": path})).await["isFile"], true, "{path}");
}
