//! The method `fs/walk`, which lists a directory tree.

use testkit::{Client, Value, json};

use crate::folder::{Folder, set_up};
use crate::{os_error, refusal};

/// The largest allowed values of `maxDepth`, `maxDirectories` and `maxEntries`.
const LIMITS: [usize; 3] = [64, 10_000, 50_000];

fn options([depth, directories, entries]: [usize; 3], follow: bool) -> Value {
    json!({
        "maxDepth": depth, "maxDirectories": directories, "maxEntries": entries, "followDirectorySymlinks": follow,
    })
}

/// Walks the directory `top`. Returns the entries as `KIND PATH`, and whether the result is truncated.
async fn walk(client: &mut Client, folder: &Folder, options: Value) -> (Vec<String>, bool) {
    let root = folder.uri("top");
    let result = client.call("fs/walk", json!({"path": root, "options": options})).await;
    assert_eq!(result["errors"], json!([]));
    let shown = |entry: &Value| {
        let path = entry["path"].as_str().unwrap();
        format!("{} {}", entry["kind"].as_str().unwrap(), path.strip_prefix(&*root).unwrap().trim_start_matches('/'))
    };
    (result["entries"].as_array().unwrap().iter().map(shown).collect(), result["truncated"].as_bool().unwrap())
}

#[tokio::test]
async fn a_walk_lists_level_by_level_up_to_its_limits_and_does_not_enter_pruned_directories() {
    let (folder, _server, mut client) = set_up().await;
    for name in ["top/b/two", "top/a/deep/one", "top/c", "top/b/.hidden/three"] {
        folder.file(name, "");
    }
    let all = [
        "directory a",
        "directory b",
        "file c",
        "directory a/deep",
        "directory b/.hidden",
        "file b/two",
        "file a/deep/one",
        "file b/.hidden/three",
    ];
    let first_entries = |count: usize| all[..count].iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(walk(&mut client, &folder, options(LIMITS, false)).await, (first_entries(8), false));
    assert_eq!(walk(&mut client, &folder, options([0, 10, 10], false)).await, (first_entries(3), false));
    assert_eq!(walk(&mut client, &folder, options([1, 10, 10], false)).await, (first_entries(6), false));
    assert_eq!(walk(&mut client, &folder, options([9, 10, 5], false)).await, (first_entries(5), true));
    assert_eq!(walk(&mut client, &folder, options([9, 10, 8], false)).await, (first_entries(8), false));
    assert_eq!(walk(&mut client, &folder, options([9, 1, 10], false)).await, (first_entries(3), true));
    let mut pruned = options(LIMITS, false);
    pruned["pruneHiddenDirectories"] = true.into();
    assert_eq!(walk(&mut client, &folder, pruned).await, (first_entries(7), false));
}

#[tokio::test]
async fn links_to_directories_are_followed_only_on_request_and_no_directory_is_entered_twice() {
    let (folder, _server, mut client) = set_up().await;
    folder.file("top/d/file", "");
    folder.file("outside/far", "");
    folder.link("..", "top/d/up");
    folder.link("d/file", "top/to a file");
    folder.link("nowhere", "top/dangling");
    folder.link("../outside", "top/out");
    folder.fifo("top/fifo");
    let (found, truncated) = walk(&mut client, &folder, options(LIMITS, false)).await;
    assert_eq!((found, truncated), (vec!["directory d".to_owned(), "file d/file".to_owned()], false));
    let (found, truncated) = walk(&mut client, &folder, options(LIMITS, true)).await;
    let expected = ["directory d", "directory out", "file d/file", "directory d/up", "file out/far"];
    assert_eq!((found, truncated), (expected.map(str::to_owned).to_vec(), false));
    let link = folder.link("top", "root");
    let empty = json!({"entries": [], "errors": [], "truncated": false});
    let params = json!({"path": link, "options": options(LIMITS, false)});
    assert_eq!(client.call("fs/walk", params).await, empty, "a root that is a link is not followed either");
}

#[tokio::test]
async fn a_pruned_hidden_directory_is_entered_through_a_link() {
    let (folder, _server, mut client) = set_up().await;
    folder.file("top/.hidden/file", "");
    folder.link(".hidden", "top/visible");
    let mut pruned = options(LIMITS, true);
    pruned["pruneHiddenDirectories"] = true.into();
    let (found, _) = walk(&mut client, &folder, pruned).await;
    assert_eq!(found, ["directory .hidden", "directory visible", "file visible/file"]);
}

#[tokio::test]
async fn a_walk_of_a_file_is_empty_and_missing_roots_and_invalid_limits_are_refused() {
    let (folder, _server, mut client) = set_up().await;
    let (file, none) = (folder.file("file", ""), folder.uri("none"));
    let empty = json!({"entries": [], "errors": [], "truncated": false});
    let params = json!({"path": file, "options": options(LIMITS, false)});
    assert_eq!(client.call("fs/walk", params).await, empty);
    let params = json!({"path": none, "options": options(LIMITS, false)});
    assert_eq!(client.call_error("fs/walk", params).await, os_error(2, &none));
    let zero = "filesystem walk limits must be greater than zero";
    let too_large = "filesystem walk limits exceed maximums: depth=64, directories=10000, entries=50000";
    for (limits, message) in [
        ([1, 0, 1], zero),
        ([1, 1, 0], zero),
        ([65, 1, 1], too_large),
        ([1, 10_001, 1], too_large),
        ([1, 1, 50_001], too_large),
        ([usize::MAX; 3], too_large),
    ] {
        // The limits are checked before the root is looked up.
        let error = client.call_error("fs/walk", json!({"path": none, "options": options(limits, false)})).await;
        assert_eq!(error, refusal(message, &none), "{limits:?}");
    }
    let error = client.call_error("fs/walk", json!({"path": none, "options": {"maxDepth": 1}})).await;
    assert_eq!(error["code"], -32602);
}

#[tokio::test]
async fn an_answer_that_would_be_too_large_is_truncated() {
    let (folder, _server, mut client) = set_up().await;
    let long = "x".repeat(200);
    for number in 0..16_000 {
        let path = folder.path(format!("{number:05}{long}"));
        rustix::fs::symlinkat("/", rustix::fs::CWD, path).unwrap();
    }
    let params = json!({"path": folder.uri(""), "options": options([0, 1, 50_000], true)});
    let walked = client.call("fs/walk", params).await;
    // The server counts 64 bytes in addition to the path of each entry, and returns at most 4 MiB.
    let bytes_per_entry = folder.uri(format!("{:05}{long}", 0)).len() + 64;
    assert_eq!(walked["entries"].as_array().unwrap().len(), (4 << 20) / bytes_per_entry);
    assert_eq!(walked["truncated"], true);
}
