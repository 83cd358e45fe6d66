//! The method `fs/copy`, which copies files and trees on the server.

use std::os::unix::fs::PermissionsExt as _;

use testkit::{Value, json};

use crate::folder::{Folder, set_up};
use crate::{not_a_file, os_error, refusal};

/// Params of `fs/copy` for two paths in the folder.
fn copy(folder: &Folder, from: &str, to: &str, recursive: bool) -> Value {
    json!({"sourcePath": folder.uri(from), "destinationPath": folder.uri(to), "recursive": recursive})
}

#[tokio::test]
async fn a_file_is_copied_with_its_permissions_to_a_new_or_existing_file_or_through_a_link() {
    let (folder, _server, mut client) = set_up().await;
    let contents: Vec<u8> = (0..1_500_000u32).map(|n| (n / 3) as u8).collect();
    folder.file("file", &contents);
    std::fs::set_permissions(folder.path("file"), std::fs::Permissions::from_mode(0o751)).unwrap();
    folder.file("longer", vec![9; 2_000_000]);
    folder.link("longer", "link");
    for name in ["new", "longer", "link"] {
        assert_eq!(client.call("fs/copy", copy(&folder, "file", name, false)).await, json!({}));
        assert_eq!(folder.read(name), contents, "{name}");
        let mode = std::fs::metadata(folder.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o751, "{name}");
    }
    assert!(folder.path("link").is_symlink(), "a link at the destination is followed");
}

#[tokio::test]
async fn a_tree_is_merged_into_another_tree_without_its_fifos_and_sockets() {
    let (folder, _server, mut client) = set_up().await;
    folder.file("tree/a/file", "new");
    folder.file("tree/top", "top");
    folder.link("a/file", "tree/relative");
    folder.link("/no/such", "tree/absolute");
    folder.fifo("tree/fifo");
    folder.socket("tree/socket");
    folder.file("to/a/file", "old and longer");
    folder.file("to/a/other", "kept");
    assert_eq!(client.call("fs/copy", copy(&folder, "tree", "to", true)).await, json!({}));
    assert_eq!(folder.names("to"), ["a", "absolute", "relative", "top"]);
    assert_eq!((folder.read("to/a/file"), folder.read("to/a/other")), (b"new".to_vec(), b"kept".to_vec()));
    let target = |name: &str| std::fs::read_link(folder.path(name)).unwrap().into_os_string().into_string().unwrap();
    assert_eq!((target("to/relative"), target("to/absolute")), ("a/file".into(), "/no/such".into()));
    // A destination that does not exist is created with its parents.
    assert_eq!(client.call("fs/copy", copy(&folder, "tree/a", "new/b/c", true)).await, json!({}));
    assert_eq!(folder.read("new/b/c/file"), b"new");
}

#[tokio::test]
async fn a_link_is_copied_as_a_link_but_not_over_an_existing_file() {
    let (folder, _server, mut client) = set_up().await;
    folder.file("file", "x");
    folder.link("file", "link");
    client.call("fs/copy", copy(&folder, "link", "copy", false)).await;
    assert_eq!(std::fs::read_link(folder.path("copy")).unwrap().as_os_str(), "file");
    let error = client.call_error("fs/copy", copy(&folder, "link", "copy", false)).await;
    assert_eq!(error, os_error(17, &folder.uri("copy")));
}

#[tokio::test]
async fn copies_that_fail_report_the_reason() {
    let (folder, _server, mut client) = set_up().await;
    folder.file("tree/file", "x");
    folder.file("file", "kept");
    folder.fifo("fifo");
    folder.link("tree", "alias");
    let needs_recursive = "fs/copy requires recursive: true when sourcePath is a directory";
    let into_itself = "fs/copy cannot copy a directory to itself or one of its descendants";
    let (tree, file) = (folder.uri("tree"), folder.uri("file"));
    for (from, to, recursive, expected) in [
        ("tree", "new", false, refusal(needs_recursive, &tree)),
        ("tree", "tree", true, refusal(into_itself, &tree)),
        ("tree", "tree/a/b", true, refusal(into_itself, &folder.uri("tree/a/b"))),
        ("tree", "alias/below", true, refusal(into_itself, &folder.uri("alias/below"))),
        ("none", "new", true, os_error(2, &folder.uri("none"))),
        ("file", "none/new", false, os_error(2, &folder.uri("none/new"))),
        ("file", "tree", false, os_error(21, &tree)),
        ("tree", "file", true, os_error(17, &file)),
        ("file", "file", false, refusal("fs/copy cannot copy a file onto itself", &file)),
        ("file", "fifo", false, not_a_file(&folder.path("fifo"))),
    ] {
        assert_eq!(client.call_error("fs/copy", copy(&folder, from, to, recursive)).await, expected, "{from} → {to}");
    }
    let error = client.call_error("fs/copy", json!({"sourcePath": tree, "destinationPath": file})).await;
    assert_eq!(error["code"], -32602, "`recursive` is required: {error}");
    assert_eq!(folder.names(""), ["alias", "fifo", "file", "tree"]);
    assert_eq!((folder.names("tree"), folder.read("file")), (vec!["file".to_owned()], b"kept".to_vec()));
}

#[tokio::test]
async fn a_file_is_not_copied_onto_itself_by_any_name() {
    let (folder, _server, mut client) = set_up().await;
    folder.file("file", "precious");
    std::fs::hard_link(folder.path("file"), folder.path("hard")).unwrap();
    folder.link("file", "soft");
    for to in ["file", "hard", "soft"] {
        let error = client.call_error("fs/copy", copy(&folder, "file", to, false)).await;
        assert_eq!(error, refusal("fs/copy cannot copy a file onto itself", &folder.uri(to)));
    }
    assert_eq!(folder.read("hard"), b"precious");
}

#[tokio::test]
async fn a_copy_does_not_keep_setuid_bits_of_another_owner() {
    let (folder, _server, mut client) = set_up().await;
    // Only root can create a file of another owner. Other users copy `su`, a setuid program that belongs to root.
    let from = if rustix::process::geteuid().is_root() {
        let uri = folder.file("file", "program");
        std::os::unix::fs::chown(folder.path("file"), Some(65534), Some(65534)).unwrap();
        std::fs::set_permissions(folder.path("file"), std::fs::Permissions::from_mode(0o6755)).unwrap();
        uri
    } else {
        crate::folder::uri_of("/usr/bin/su")
    };
    let params = json!({"sourcePath": from, "destinationPath": folder.uri("copy"), "recursive": false});
    assert_eq!(client.call("fs/copy", params).await, json!({}));
    let mode = std::fs::metadata(folder.path("copy")).unwrap().permissions().mode();
    assert_eq!(mode & 0o6777, 0o755);
}

#[tokio::test]
async fn links_that_an_earlier_copy_left_are_not_followed() {
    let (folder, _server, mut client) = set_up().await;
    folder.file("outside/file", "precious");
    for name in ["hostile", "to"] {
        folder.directory(name);
    }
    folder.link(folder.path("outside"), "hostile/directory");
    folder.link(folder.path("outside/file"), "hostile/file");
    assert_eq!(client.call("fs/copy", copy(&folder, "hostile", "to", true)).await, json!({}));
    folder.file("tree/file", "new");
    assert_eq!(client.call("fs/copy", copy(&folder, "tree", "to", true)).await, json!({}));
    assert_eq!((folder.read("to/file"), folder.path("to/file").is_symlink()), (b"new".to_vec(), false));
    folder.file("tree/directory/file", "new");
    let error = client.call_error("fs/copy", copy(&folder, "tree", "to", true)).await;
    assert_eq!(error, os_error(17, &folder.uri("to/directory")));
    assert_eq!(folder.read("outside/file"), b"precious");
}
