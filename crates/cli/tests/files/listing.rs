//! The method `fs/readDirectory`.

use testkit::{Value, json};

use crate::folder::set_up;
use crate::{INTERNAL, os_error};

/// The entries of an answer, sorted by the JSON text of their names, in which a quotation mark follows the name.
fn sorted_entries(mut answer: Value) -> Vec<Value> {
    let mut entries = std::mem::take(answer["entries"].as_array_mut().unwrap());
    entries.sort_by_key(|entry| entry["fileName"].to_string());
    entries
}

#[tokio::test]
async fn entries_are_listed_with_the_type_of_their_target_and_without_broken_links() {
    let (folder, _server, mut client) = set_up().await;
    assert_eq!(client.call("fs/readDirectory", json!({"path": folder.uri("")})).await, json!({"entries": []}));
    folder.file("file", "");
    folder.directory("directory");
    folder.fifo("fifo");
    folder.socket("socket");
    folder.link("file", "link");
    folder.link("directory", "link to a directory");
    folder.link("nowhere", "dangling");
    let entry = |name: &str, is_directory: bool, is_file: bool| json!({"fileName": name, "isDirectory": is_directory, "isFile": is_file});
    let listed = client.call("fs/readDirectory", json!({"path": folder.uri("")})).await;
    let expected = [
        entry("directory", true, false),
        entry("fifo", false, false),
        entry("file", false, true),
        entry("link to a directory", true, false),
        entry("link", false, true),
        entry("socket", false, false),
    ];
    assert_eq!(sorted_entries(listed), expected);
}

#[tokio::test]
async fn broken_links_are_listed_if_requested() {
    let (folder, _server, mut client) = set_up().await;
    folder.file("file", "");
    folder.directory("directory");
    folder.link("file", "link");
    folder.link("nowhere", "dangling");
    folder.link("circle", "circle");
    folder.link("file/below", "through a file");
    let link = |name: &str, is_file: bool| json!({"fileName": name, "isDirectory": false, "isFile": is_file, "isSymlink": true});
    let params = json!({"path": folder.uri(""), "danglingLinks": true});
    let expected = [
        link("circle", false),
        link("dangling", false),
        json!({"fileName": "directory", "isDirectory": true, "isFile": false, "isSymlink": false}),
        json!({"fileName": "file", "isDirectory": false, "isFile": true, "isSymlink": false}),
        link("link", true),
        link("through a file", false),
    ];
    assert_eq!(sorted_entries(client.call("fs/readDirectory", params).await), expected);
    let plain = |name: &str, is_file: bool| json!({"fileName": name, "isDirectory": !is_file, "isFile": is_file});
    let expected = [plain("directory", false), plain("file", true), plain("link", true)];
    for params in [json!({"path": folder.uri("")}), json!({"path": folder.uri(""), "danglingLinks": false})] {
        assert_eq!(sorted_entries(client.call("fs/readDirectory", params).await), expected);
    }
}

#[tokio::test]
async fn listing_something_other_than_a_directory_is_an_error() {
    let (folder, _server, mut client) = set_up().await;
    for (uri, errno) in [(folder.file("file", ""), 20), (folder.uri("none"), 2), (folder.fifo("fifo"), 20)] {
        assert_eq!(client.call_error("fs/readDirectory", json!({"path": uri})).await, os_error(errno, &uri));
    }
}

#[tokio::test]
async fn a_hundred_thousand_names_are_too_many_to_list_and_fifty_thousand_are_not() {
    let (folder, _server, mut client) = set_up().await;
    let uri = folder.directory("many");
    let make = |range: std::ops::Range<usize>| {
        for number in range {
            std::os::unix::fs::symlink("/", folder.path(format!("many/{number}"))).unwrap();
        }
    };
    make(0..50_000);
    let listed = client.call("fs/readDirectory", json!({"path": uri})).await;
    assert_eq!(listed["entries"].as_array().unwrap().len(), 50_000);
    make(50_000..100_000);
    let error = client.call_error("fs/readDirectory", json!({"path": uri})).await;
    let message = "fs/readDirectory returned 100000 entries; limit is 50000";
    assert_eq!(error, json!({"code": INTERNAL, "data": {"kind": "other", "path": uri}, "message": message}));
    // A walk counts links for its limit, but does not report them. A removal has no limit.
    let options =
        json!({"maxDepth": 64, "maxDirectories": 10_000, "maxEntries": 50_000, "followDirectorySymlinks": false});
    let walked = client.call("fs/walk", json!({"path": uri, "options": options})).await;
    assert_eq!(walked, json!({"entries": [], "errors": [], "truncated": true}));
    assert_eq!(client.call("fs/remove", json!({"path": uri})).await, json!({}));
    assert!(folder.names("").is_empty());
}
