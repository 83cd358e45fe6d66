//! The methods `fs/canonicalize`, `fs/readLink` and `fs/symlink`.

use std::os::unix::ffi::OsStringExt as _;

use testkit::{base64, json};

use crate::folder::{set_up, uri_of};
use crate::os_error;

#[tokio::test]
async fn a_path_is_resolved_through_its_links() {
    let (folder, _server, mut client) = set_up().await;
    folder.file("real/file", "");
    folder.link("real", "link");
    folder.link("link/file", "further");
    for name in ["real/file", "link/file", "further"] {
        let answer = client.call("fs/canonicalize", json!({"path": folder.uri(name)})).await;
        assert_eq!(answer, json!({"path": folder.uri("real/file")}), "{name}");
    }
    for (name, errno) in [("none", 2), ("real/file/below", 20)] {
        let uri = folder.uri(name);
        assert_eq!(client.call_error("fs/canonicalize", json!({"path": uri})).await, os_error(errno, &uri));
    }
}

#[tokio::test]
async fn a_path_that_looks_like_a_windows_drive_can_be_used() {
    // `file:///C:/x` would be a Windows path, so this URI has another form. The machine has no directory `/C:`, so
    // the file is not found.
    let uri = uri_of("/C:/x");
    let (folder, _server, mut client) = set_up().await;
    folder.file("C:/x", "drive");
    assert_eq!(crate::folder::read_file(&mut client, &folder.uri("C:/x")).await, b"drive");
    assert_eq!(client.call_error("fs/readFile", json!({"path": uri})).await, os_error(2, &uri));
}

#[tokio::test]
async fn a_link_returns_the_target_it_was_created_with() {
    let (folder, _server, mut client) = set_up().await;
    for (name, target) in [("relative", "../x"), ("absolute", "/no/such"), ("itself", "itself"), ("odd", "a b\n%20")]
    {
        let path = folder.uri(name);
        let made = client.call("fs/symlink", json!({"path": path, "target": target})).await;
        assert_eq!(made, json!({}));
        assert_eq!(std::fs::read_link(folder.path(name)).unwrap().as_os_str(), target);
        assert_eq!(client.call("fs/readLink", json!({"path": path})).await, json!({"target": target}));
    }
    // `target` cannot express bytes that are not UTF-8, so `targetBase64` has them.
    let path = folder.uri("bytes");
    let raw = b"\xff/x".to_vec();
    let target = json!({"target": "\u{fffd}/x", "targetBase64": base64(&raw)});
    let mut params = target.clone();
    params["path"] = json!(path);
    client.call("fs/symlink", params).await;
    assert_eq!(std::fs::read_link(folder.path("bytes")).unwrap().into_os_string().into_vec(), raw);
    assert_eq!(client.call("fs/readLink", json!({"path": path})).await, target);
}

#[tokio::test]
async fn links_that_cannot_be_read_or_created_report_the_reason() {
    let (folder, _server, mut client) = set_up().await;
    let (file, none) = (folder.file("file", "kept"), folder.uri("none"));
    assert_eq!(client.call_error("fs/readLink", json!({"path": file})).await, os_error(22, &file));
    assert_eq!(client.call_error("fs/readLink", json!({"path": none})).await, os_error(2, &none));
    assert_eq!(client.call_error("fs/symlink", json!({"path": file, "target": "x"})).await, os_error(17, &file));
    assert_eq!(client.call_error("fs/symlink", json!({"path": none, "target": ""})).await, os_error(2, &none));
    let nul = json!({"path": none, "target": "", "targetBase64": base64("a\0b")});
    assert_eq!(client.call_error("fs/symlink", nul).await, os_error(22, &none));
    let error = client.call_error("fs/symlink", json!({"path": none})).await;
    assert_eq!(error["code"], -32602);
    assert_eq!(folder.names(""), ["file"]);
}
