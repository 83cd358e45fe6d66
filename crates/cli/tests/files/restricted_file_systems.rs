//! File systems with restrictions: full disks, read-only file systems, mount points, and files without permissions.
//! Also a very large file.

use std::os::unix::fs::PermissionsExt as _;

use testkit::{Client, TestServer, base64, binary, json};
use tokio::process::Command;

use crate::folder::{Folder, chunk, open, read_block, read_file, uri_of, write_file};
use crate::{INTERNAL, INVALID_REQUEST, os_error};

const NOBODY: u32 = 65534;

/// A server in a mount namespace of its own. `script` makes the mounts, and `$0` in it is the folder.
pub(crate) async fn server_with_mounts(folder: &Folder, script: &str) -> TestServer {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &format!("set -e; {script}; exec \"$@\"")]);
    command.arg(folder.path("")).arg(binary());
    TestServer::launch(command, &[]).await
}

/// A server that does not run as root, so that permissions of files apply to it: as the user nobody if the test runs
/// as root, otherwise as the user of the test.
async fn server_of_nobody(folder: &Folder) -> TestServer {
    // The server runs from a copy, because other users may not be able to read the build directory.
    let program = folder.path("server");
    std::fs::copy(binary(), &program).unwrap();
    std::fs::set_permissions(folder.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(program);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    TestServer::launch(command, &[]).await
}

/// Gives a file to the user of [`server_of_nobody`], with this mode.
fn give_to_nobody(folder: &Folder, name: &str, mode: u32) {
    let path = folder.path(name);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// The sorted names in a directory as the server lists them. The test itself cannot see the mounts of the server.
async fn names(client: &mut Client, uri: &str) -> Vec<String> {
    let listed = client.call("fs/readDirectory", json!({"path": uri})).await;
    let mut names: Vec<String> =
        listed["entries"].as_array().unwrap().iter().map(|e| e["fileName"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn writes_to_a_full_disk_fail_and_a_failed_upload_keeps_the_old_file() {
    let folder = Folder::new();
    let small = folder.directory("small");
    let large = folder.file("large", vec![1; 2 << 20]);
    let server = server_with_mounts(&folder, "mount -t tmpfs -o size=1m none \"$0/small\"").await;
    let mut client = server.client().await;
    let file = folder.uri("small/file");

    let write = json!({"path": file, "dataBase64": base64(vec![1; 2 << 20])});
    assert_eq!(client.call_error("fs/writeFile", write).await, os_error(28, &file));
    // A write goes directly into the file, so a part of it may be left.
    client.call("fs/remove", json!({"path": file})).await;
    let copy = json!({"sourcePath": large, "destinationPath": file, "recursive": false});
    assert_eq!(client.call_error("fs/copy", copy).await, os_error(28, &file));
    assert_eq!(names(&mut client, &small).await, Vec::<String>::new(), "a failed copy must remove the new file");

    write_file(&mut client, &file, "old").await;
    // An upload writes to a temporary file, which replaces the old file at `fs/commit`.
    client.call("fs/create", json!({"handleId": "u", "path": file})).await;
    client.call("fs/writeBlock", chunk("u", 0, vec![2; 500_000])).await;
    let full = client.call_error("fs/writeBlock", chunk("u", 500_000, vec![2; 1 << 20])).await;
    assert_eq!(full, os_error(28, &file));
    // After a failed block, the upload can only be closed.
    client.call_error("fs/writeBlock", chunk("u", 0, vec![3; 100])).await;
    client.call_error("fs/commit", json!({"handleId": "u"})).await;
    client.call("fs/close", json!({"handleId": "u"})).await;
    assert_eq!(read_file(&mut client, &file).await, b"old");
    assert_eq!(names(&mut client, &small).await, ["file"]);

    client.call("fs/create", json!({"handleId": "u", "path": file})).await;
    client.call("fs/writeBlock", chunk("u", 0, vec![4; 900_000])).await;
    client.call("fs/commit", json!({"handleId": "u", "sync": true})).await;
    assert_eq!(read_file(&mut client, &file).await, vec![4; 900_000], "a closed upload must free its space");
}

#[tokio::test]
async fn mount_points_are_not_removed_and_a_file_is_not_renamed_across_one() {
    let folder = Folder::new();
    let tree = folder.directory("tree");
    folder.directory("tree/mounted");
    let script = "mount -t tmpfs none \"$0/tree/mounted\"; echo kept > \"$0/tree/mounted/kept\"";
    let server = server_with_mounts(&folder, script).await;
    let mut client = server.client().await;
    let mounted = folder.uri("tree/mounted");
    let message = format!("`{}` is a mount point and is not removed", folder.path("tree/mounted").display());
    for (path, recursive) in [(&mounted, true), (&mounted, false), (&tree, true)] {
        let error = client.call_error("fs/remove", json!({"path": path, "recursive": recursive})).await;
        assert_eq!((&error["code"], &error["message"]), (&json!(INTERNAL), &json!(message)));
        assert_eq!(error["data"]["path"], json!(mounted));
    }
    assert_eq!(read_file(&mut client, &folder.uri("tree/mounted/kept")).await, b"kept\n");
    let elsewhere = json!({"sourcePath": folder.uri("tree/mounted/kept"), "destinationPath": folder.uri("new")});
    assert_eq!(client.call_error("fs/rename", elsewhere).await, os_error(18, &folder.uri("new")));
}

#[tokio::test]
async fn files_on_a_read_only_file_system_can_be_read_and_not_changed() {
    let folder = Folder::new();
    let file = folder.file("fixed/file", "kept");
    let script = "mount --bind \"$0/fixed\" \"$0/fixed\"; mount -o remount,bind,ro \"$0/fixed\"";
    let server = server_with_mounts(&folder, script).await;
    let mut client = server.client().await;
    assert_eq!(read_file(&mut client, &file).await, b"kept");
    let new = folder.uri("fixed/new");
    for (method, path, params) in [
        ("fs/writeFile", &file, json!({"path": file, "dataBase64": "eA=="})),
        ("fs/writeFile", &new, json!({"path": new, "dataBase64": "eA=="})),
        ("fs/createDirectory", &new, json!({"path": new})),
        ("fs/create", &new, json!({"handleId": "u", "path": new})),
        ("fs/symlink", &new, json!({"path": new, "target": "x"})),
        ("fs/setMetadata", &file, json!({"path": file, "mode": 0o600})),
        ("fs/remove", &file, json!({"path": file})),
        ("fs/copy", &new, json!({"sourcePath": file, "destinationPath": new, "recursive": false})),
        ("fs/rename", &new, json!({"sourcePath": file, "destinationPath": new})),
    ] {
        assert_eq!(client.call_error(method, params).await, os_error(30, path), "{method}");
    }
    assert_eq!(folder.names("fixed"), ["file"]);
}

#[tokio::test]
async fn operations_without_permission_are_refused() {
    let folder = Folder::new();
    let (secret, closed) = (folder.file("secret", "secret"), folder.directory("closed"));
    let inside = folder.file("closed/inside", "inside");
    give_to_nobody(&folder, "secret", 0o000);
    give_to_nobody(&folder, "closed", 0o000);
    // A directory of the user of the test, to which the server cannot write.
    folder.directory("ours");
    std::fs::set_permissions(folder.path("ours"), std::fs::Permissions::from_mode(0o555)).unwrap();
    let server = server_of_nobody(&folder).await;
    let mut client = server.client().await;
    let new = folder.uri("ours/new");
    for (method, path, params) in [
        ("fs/readFile", &secret, json!({"path": secret})),
        ("fs/readFile", &secret, json!({"path": secret, "followSymlinks": false})),
        ("fs/open", &secret, json!({"handleId": "h", "path": secret})),
        ("fs/writeFile", &secret, json!({"path": secret, "dataBase64": ""})),
        ("fs/copy", &secret, json!({"sourcePath": secret, "destinationPath": new, "recursive": false})),
        ("fs/readDirectory", &closed, json!({"path": closed})),
        ("fs/getMetadata", &inside, json!({"path": inside})),
        ("fs/getMetadata", &inside, json!({"path": inside, "followSymlinks": false})),
        ("fs/canonicalize", &inside, json!({"path": inside})),
        ("fs/remove", &inside, json!({"path": inside})),
        ("fs/writeFile", &new, json!({"path": new, "dataBase64": ""})),
        ("fs/createDirectory", &new, json!({"path": new})),
        ("fs/create", &new, json!({"handleId": "h", "path": new})),
        ("fs/symlink", &new, json!({"path": new, "target": "x"})),
    ] {
        assert_eq!(client.call_error(method, params).await, os_error(13, path), "{method}");
    }
    // Metadata can be read without permission to read the file.
    let found = client.call("fs/getMetadata", json!({"path": secret, "followSymlinks": false})).await;
    assert_eq!((&found["isFile"], &found["size"]), (&json!(true), &json!(6)));
    if rustix::process::geteuid().is_root() {
        let ours = folder.uri("ours");
        let error = client.call_error("fs/setMetadata", json!({"path": ours, "mode": 0o777})).await;
        assert_eq!(error, os_error(1, &ours), "a directory of another user is not changed");
    }
    let options = json!({"maxDepth": 9, "maxDirectories": 99, "maxEntries": 99, "followDirectorySymlinks": false});
    let walked = client.call("fs/walk", json!({"path": folder.uri(""), "options": options})).await;
    let failure = json!({"path": closed, "message": "Permission denied (os error 13)"});
    assert_eq!((&walked["errors"], &walked["truncated"]), (&json!([failure]), &json!(false)));
    std::fs::set_permissions(folder.path("closed"), std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[tokio::test]
async fn a_path_may_lead_through_directories_without_read_permission() {
    let folder = Folder::new();
    let file = folder.file("passage/inner/file", "through");
    give_to_nobody(&folder, "passage/inner/file", 0o600);
    give_to_nobody(&folder, "passage/inner", 0o300);
    give_to_nobody(&folder, "passage", 0o300);
    let server = server_of_nobody(&folder).await;
    let mut client = server.client().await;
    for follow in [true, false] {
        let read = client.call("fs/readFile", json!({"path": file, "followSymlinks": follow})).await;
        assert_eq!(read, json!({"dataBase64": base64("through")}));
        let new = folder.uri(format!("passage/inner/new {follow}"));
        let made = json!({"path": new, "followSymlinks": follow});
        assert_eq!(client.call("fs/createDirectory", made).await, json!({}));
        let removed = json!({"path": new, "recursive": false, "followSymlinks": follow});
        assert_eq!(client.call("fs/remove", removed).await, json!({}));
    }
    for name in ["passage", "passage/inner"] {
        std::fs::set_permissions(folder.path(name), std::fs::Permissions::from_mode(0o700)).unwrap();
    }
}

#[tokio::test]
async fn a_file_of_20_gigabytes_is_too_large_for_one_answer_but_can_be_read_in_blocks_and_copied() {
    use std::os::unix::fs::FileExt as _;
    let folder = Folder::new();
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let size: u64 = 20_000_000_000;
    let uri = folder.file("sparse", "");
    let file = std::fs::OpenOptions::new().write(true).open(folder.path("sparse")).unwrap();
    file.write_all_at(b"middle", size / 2).unwrap();
    file.set_len(size).unwrap();
    for follow in [true, false] {
        let error = client.call_error("fs/readFile", json!({"path": uri, "followSymlinks": follow})).await;
        let message = "file does not fit a message of 67108864 bytes (--max-message-bytes); \
                       read it with fs/open and fs/readBlock";
        assert_eq!((&error["code"], &error["message"]), (&json!(INVALID_REQUEST), &json!(message)));
        assert_eq!(error["data"]["path"], json!(uri_of(folder.path("sparse"))));
    }
    open(&mut client, "h", &uri).await;
    assert_eq!(read_block(&mut client, "h", size / 2, 6).await, (b"middle".to_vec(), false));
    assert_eq!(read_block(&mut client, "h", size - 1, 2).await, (vec![0], true));
    let found = client.call("fs/extents", json!({"handleId": "h"})).await;
    assert_eq!((found["extents"].as_array().unwrap().len(), &found["size"]), (1, &json!(size)));
    let copy = json!({"sourcePath": uri, "destinationPath": folder.uri("copy"), "recursive": false});
    assert_eq!(client.call("fs/copy", copy).await, json!({}));
    open(&mut client, "copy", &folder.uri("copy")).await;
    assert_eq!(read_block(&mut client, "copy", size / 2, 6).await, (b"middle".to_vec(), false));
}
