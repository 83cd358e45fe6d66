//! Requests with `followSymlinks: false`: no part of the path may be a link, even if another process creates a link
//! during the request. Also the removal of a tree, which never follows a link in the tree.

use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use testkit::{Client, Value, base64, json, unbase64};

use crate::folder::{Folder, set_up};
use crate::{os_error, refusal};

/// Six requests about one path, with `followSymlinks: false`.
fn requests(path: &str) -> [(&'static str, Value); 6] {
    [
        ("fs/readFile", json!({"path": path, "followSymlinks": false})),
        ("fs/writeFile", json!({"path": path, "dataBase64": base64("written"), "followSymlinks": false})),
        ("fs/getMetadata", json!({"path": path, "followSymlinks": false})),
        ("fs/setMetadata", json!({"path": path, "mode": 0o700, "followSymlinks": false})),
        ("fs/createDirectory", json!({"path": path, "followSymlinks": false})),
        ("fs/remove", json!({"path": path, "recursive": false, "force": false, "followSymlinks": false})),
    ]
}

/// The state of the directory `outside`, which no request may change: the names in it, and the contents and mode of
/// its file.
fn state_of_outside(folder: &Folder) -> (Vec<String>, Vec<u8>, u32) {
    let mode = std::fs::metadata(folder.path("outside/file")).unwrap().mode();
    (folder.names("outside"), folder.read("outside/file"), mode)
}

#[tokio::test]
async fn a_link_anywhere_in_a_path_is_refused() {
    let (folder, _server, mut client) = set_up().await;
    folder.file("outside/file", "secret");
    folder.link("outside", "link");
    folder.link("outside/file", "leaf");
    let before = state_of_outside(&folder);
    for name in ["link/file", "link/new", "link/new/deeper"] {
        let path = folder.uri(name);
        for (method, params) in requests(&path) {
            assert_eq!(client.call_error(method, params).await, os_error(20, &path), "{method} {name}");
        }
    }
    let leaf = folder.uri("leaf");
    for (method, params) in requests(&leaf) {
        let expected = match method {
            "fs/readFile" | "fs/writeFile" => os_error(40, &leaf),
            "fs/createDirectory" => os_error(17, &leaf),
            _ => refusal("path contains a symbolic link", &leaf),
        };
        assert_eq!(client.call_error(method, params).await, expected, "{method}");
    }
    assert_eq!(state_of_outside(&folder), before);
    assert!(folder.path("leaf").is_symlink() && folder.path("link").is_symlink());
}

#[tokio::test]
async fn fifos_and_sockets_are_refused_at_once() {
    let (folder, _server, mut client) = set_up().await;
    let fifo = folder.fifo("fifo");
    let [read, write, ..] = requests(&fifo);
    let error = client.call_error(read.0, read.1).await;
    assert_eq!(error, refusal("path is not a regular file", &fifo));
    // The kernel refuses to open a FIFO for writing if no process reads from it and the caller does not wait.
    assert_eq!(client.call_error(write.0, write.1).await, os_error(6, &fifo));
    let socket = folder.socket("socket");
    for (method, params) in &requests(&socket)[..2] {
        let error = client.call_error(method, params.clone()).await;
        assert_eq!(error, refusal("path is not a regular file", &socket), "{method}");
    }
}

/// Exchanges the names `one` and `other`, a directory and a link, again and again while `work` runs.
async fn run_while_swapping(folder: &Folder, one: &str, other: &str, work: impl Future<Output = ()>) {
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let (one, other, stopped) = (folder.path(one), folder.path(other), std::sync::Arc::clone(&stop));
    let swapper = std::thread::spawn(move || {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        let mut swaps = 0;
        while !stopped.load(Ordering::Relaxed) {
            swaps += usize::from(renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).is_ok());
        }
        swaps
    });
    work.await;
    stop.store(true, Ordering::Relaxed);
    assert!(swapper.join().unwrap() > 100, "the directory and the link were hardly ever swapped");
}

/// Sends all requests before it waits for their answers. Returns the answers in the order of the requests.
async fn send_all(client: &mut Client, requests: Vec<(&'static str, Value)>) -> Vec<(&'static str, Value)> {
    let mut sent = Vec::new();
    for (method, params) in requests {
        sent.push((method, client.send(method, params).await));
    }
    let mut answers = Vec::new();
    for (method, id) in sent {
        answers.push((method, client.answer(id).await));
    }
    answers
}

#[tokio::test]
async fn nothing_outside_is_touched_while_a_directory_is_swapped_for_a_link() {
    let (folder, _server, mut client) = set_up().await;
    folder.file("outside/file", "secret");
    folder.file("way/file", "inside");
    folder.link("outside", "link");
    let before = state_of_outside(&folder);
    let inode = std::fs::metadata(folder.path("outside/file")).unwrap().ino();
    let mut succeeded = 0;
    run_while_swapping(&folder, "way", "link", async {
        for round in 0..200 {
            let mut all: Vec<_> = requests(&folder.uri("way/file")).into();
            all.extend(requests(&folder.uri(format!("way/new{round}"))));
            for (method, answer) in send_all(&mut client, all).await {
                succeeded += usize::from(answer.get("result").is_some());
                if method == "fs/readFile" && answer.get("result").is_some() {
                    assert_ne!(unbase64(&answer["result"]["dataBase64"]), b"secret");
                }
            }
        }
    })
    .await;
    assert!(succeeded > 100, "too few requests succeeded: {succeeded}");
    assert_eq!(state_of_outside(&folder), before);
    assert_eq!(std::fs::metadata(folder.path("outside/file")).unwrap().ino(), inode);
}

#[tokio::test]
async fn removing_a_tree_removes_nothing_outside_while_a_directory_is_swapped_for_a_link() {
    let (folder, _server, mut client) = set_up().await;
    for number in 0..50 {
        folder.file(format!("outside/{number}"), "kept");
    }
    for _ in 0..40 {
        for number in 0..20 {
            folder.file(format!("tree/d/e/{number}"), "");
        }
        folder.link(folder.path("outside"), "tree/link");
        let (tree, one, other) = (folder.uri("tree"), folder.path("tree/d"), folder.path("tree/link"));
        let swapper = std::thread::spawn(move || {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            while one.parent().unwrap().exists() {
                let _ = renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE);
            }
        });
        assert_eq!(client.call("fs/remove", json!({"path": tree})).await, json!({}));
        swapper.join().unwrap();
    }
    assert_eq!((folder.names(""), folder.names("outside").len()), (vec!["outside".to_owned()], 50));
}
