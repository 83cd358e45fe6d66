//! Paths that are invalid or too long, very deep trees, and paths whose dots, escapes or links could lead to another
//! file than the one that is meant. Also requests with a sandbox.

use testkit::{Client, Value, base64, json};

use crate::folder::{Folder, set_up};
use crate::restricted_file_systems::server_with_mounts;
use crate::{INTERNAL, INVALID_PARAMS, INVALID_REQUEST, NOT_FOUND, os_error};

/// The methods that take a path, except `fs/watch` and `fs/search`, with their other params.
fn methods(path: &str) -> Vec<(&'static str, Value)> {
    let walk = json!({"maxDepth": 1, "maxDirectories": 1, "maxEntries": 1, "followDirectorySymlinks": false});
    vec![
        ("fs/readFile", json!({"path": path})),
        ("fs/open", json!({"handleId": "h", "path": path})),
        ("fs/create", json!({"handleId": "h", "path": path})),
        ("fs/writeFile", json!({"path": path, "dataBase64": ""})),
        ("fs/createDirectory", json!({"path": path})),
        ("fs/getMetadata", json!({"path": path})),
        ("fs/setMetadata", json!({"path": path, "mode": 0o600})),
        ("fs/canonicalize", json!({"path": path})),
        ("fs/readDirectory", json!({"path": path})),
        ("fs/walk", json!({"path": path, "options": walk})),
        ("fs/remove", json!({"path": path})),
        ("fs/copy", json!({"sourcePath": path, "destinationPath": "file:///none/copy", "recursive": true})),
        ("fs/copy", json!({"sourcePath": "file:///none/copy", "destinationPath": path, "recursive": true})),
        ("fs/rename", json!({"sourcePath": path, "destinationPath": "file:///none/new"})),
        ("fs/rename", json!({"sourcePath": "file:///none/old", "destinationPath": path})),
        ("fs/readLink", json!({"path": path})),
        ("fs/symlink", json!({"path": path, "target": "x"})),
    ]
}

/// Calls each of these methods with this path. Returns the name of each method, and its error.
async fn errors(client: &mut Client, path: &str) -> Vec<(&'static str, Value)> {
    let mut errors = Vec::new();
    for (method, params) in methods(path) {
        errors.push((method, client.call_error(method, params).await));
    }
    errors
}

#[tokio::test]
async fn paths_that_are_no_valid_file_uri_are_refused() {
    let (_folder, _server, mut client) = set_up().await;
    for (path, message) in [
        ("/tmp/x", "invalid URI: relative URL without a base"),
        ("src/x", "invalid URI: relative URL without a base"),
        ("", "invalid URI: relative URL without a base"),
        ("~/x", "invalid URI: relative URL without a base"),
        ("C:\\x", "unsupported path URI scheme `c`"),
        ("http://host/x", "unsupported path URI scheme `http`"),
        ("artifact:x", "unsupported path URI scheme `artifact`"),
        ("file:///a?b", "query parameters are not allowed in path URIs"),
        ("file:///a#b", "fragments are not allowed in path URIs"),
        ("file:///a%00b", "'file:///a%00b' is invalid on 'linux'"),
        ("file:///%00", "'file:///%00' is invalid on 'linux'"),
        ("file:///%00/bad/path/", "'file:///%00/bad/path/' is invalid on 'linux'"),
        ("file:///%00/bad/path/YQ==", "'file:///%00/bad/path/YQ==' is invalid on 'linux'"),
        ("file:///%00/bad/path/YQ/x", "'file:///%00/bad/path/YQ/x' is invalid on 'linux'"),
    ] {
        for (method, error) in errors(&mut client, path).await {
            assert_eq!(error["code"], INVALID_PARAMS, "{method} {path:?}: {error}");
            assert!(error["message"].as_str().unwrap().starts_with(message), "{method} {path:?}: {error}");
        }
    }
}

#[tokio::test]
async fn paths_of_other_operating_systems_are_refused() {
    let (_folder, _server, mut client) = set_up().await;
    for (path, canonical) in [
        ("file:///C:/Users/x", "file:///C:/Users/x"),
        ("file:///c:/Users/x", "file:///C:/Users/x"),
        ("file://server/share/x", "file://server/share/x"),
        // The opaque form of a path, `file:///%00/bad/path/` and base64 of its bytes. These bytes are `C:` in UTF-16.
        ("file:///%00/bad/path/QwA6AA", "file:///%00/bad/path/QwA6AA"),
    ] {
        let message = format!("'{canonical}' is invalid on 'linux'");
        let data = json!({"kind": "invalidInput", "path": canonical});
        for (method, error) in errors(&mut client, path).await {
            let expected = json!({"code": INVALID_REQUEST, "data": data, "message": message});
            assert_eq!(error, expected, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn the_opaque_form_of_a_path_is_normalised_and_may_contain_no_nul() {
    let (folder, _server, mut client) = set_up().await;
    folder.file("elsewhere/secret", "outside");
    folder.directory("elsewhere/deep");
    folder.file("here/secret", "inside");
    folder.link("../elsewhere/deep", "here/link");
    // The base64 of this form has the alphabet for URLs and no padding.
    let opaque = |bytes: &[u8]| {
        let text = base64(bytes).as_str().unwrap().replace('+', "-").replace('/', "_");
        format!("file:///%00/bad/path/{}", text.trim_end_matches('='))
    };
    let through_link = folder.path("here/link/../secret");
    let uri = opaque(through_link.as_os_str().as_encoded_bytes());
    assert_eq!(crate::folder::read_file(&mut client, &uri).await, b"inside");
    let unfollowed = client.call("fs/readFile", json!({"path": uri, "followSymlinks": false})).await;
    assert_eq!(unfollowed, json!({"dataBase64": base64("inside")}));
    let uri = opaque(b"/tmp/a\0b");
    let message = format!("'{uri}' is invalid on 'linux'");
    for (method, error) in errors(&mut client, &uri).await {
        assert_eq!((&error["code"], &error["message"]), (&json!(INVALID_REQUEST), &json!(message)), "{method}");
    }
}

#[tokio::test]
async fn escapes_are_decoded_once_and_before_dots_are_removed() {
    let (folder, _server, mut client) = set_up().await;
    folder.file("a b", "with a space");
    folder.file("a%20b", "with an escape in its name");
    let root = folder.uri("");
    let root = root.trim_end_matches('/');
    let read =
        async |client: &mut Client, name: &str| crate::folder::read_file(client, &format!("{root}/{name}")).await;
    assert_eq!(read(&mut client, "a%20b").await, b"with a space");
    assert_eq!(read(&mut client, "a b").await, b"with a space");
    assert_eq!(read(&mut client, "a%2520b").await, b"with an escape in its name");
    folder.file("up/down", "down");
    // An escaped separator is still a separator. The server removes `.` and `..` before it looks for the file, so the
    // directory `none` need not exist.
    assert_eq!(read(&mut client, "up%2Fdown").await, b"down");
    assert_eq!(read(&mut client, "none%2F..%2Fup/down").await, b"down");
    assert_eq!(read(&mut client, "none/%2e%2E/up/./down/").await, b"down");
}

/// `..` removes the part of the path before it, even if this part is a link.
#[tokio::test]
async fn dots_after_a_link_do_not_follow_the_link() {
    let (folder, _server, mut client) = set_up().await;
    folder.file("elsewhere/secret", "outside");
    folder.directory("elsewhere/deep");
    folder.file("here/secret", "inside");
    folder.link("../elsewhere/deep", "here/link");
    for dots in ["..", "%2e%2e", "%2E%2E%2F.", "x/../.."] {
        let path = format!("{}/{dots}/secret", folder.uri("here/link"));
        assert_eq!(crate::folder::read_file(&mut client, &path).await, b"inside", "{dots}");
    }
    let path = format!("{}/../new", folder.uri("here/link"));
    crate::folder::write_file(&mut client, &path, "new").await;
    assert_eq!(folder.names("here"), ["link", "new", "secret"]);
    assert_eq!(folder.names("elsewhere"), ["deep", "secret"]);
    // `..` at the root stays at the root.
    let above_the_root = format!("file:///../../..{}", folder.path("here/secret").display());
    assert_eq!(crate::folder::read_file(&mut client, &above_the_root).await, b"inside");
}

#[tokio::test]
async fn a_path_that_is_too_long_is_an_error() {
    let (folder, _server, mut client) = set_up().await;
    let long_name = folder.uri("n".repeat(256));
    // Longer than any path that the kernel opens, and short enough to be repeated whole in an error.
    let deep = folder.uri("d/".repeat(5_000));
    let deep = deep.trim_end_matches('/');
    for path in [long_name.as_str(), deep] {
        for (method, error) in errors(&mut client, path).await {
            if ["fs/copy", "fs/rename", "fs/canonicalize"].contains(&method) {
                // Copy and rename may report the other path, which does not exist. Canonicalize may fail at an
                // earlier part of the path.
                assert!([INTERNAL, NOT_FOUND].contains(&error["code"].as_i64().unwrap()), "{method}: {error}");
            } else {
                assert_eq!(error, os_error(36, path), "{method}");
            }
        }
    }
    assert!(folder.names("").is_empty());
}

#[tokio::test]
async fn a_tree_of_ten_thousand_levels_is_created_copied_and_removed() {
    let folder = Folder::new();
    // The tree is on a file system in memory, because a disk would be slow.
    let server = server_with_mounts(&folder, "mount -t tmpfs none \"$0\"").await;
    let mut client = server.client().await;
    // With `followSymlinks` false the server opens one directory at a time, so the path may be longer than the kernel
    // allows.
    let deep = folder.uri(format!("top/{}", "d/".repeat(10_000)));
    let created = client.call("fs/createDirectory", json!({"path": deep, "followSymlinks": false})).await;
    assert_eq!(created, json!({}));
    let copy = json!({"sourcePath": folder.uri("top"), "destinationPath": folder.uri("copy"), "recursive": true});
    assert_eq!(client.call("fs/copy", copy).await, json!({}));
    for name in ["top", "copy"] {
        assert_eq!(client.call("fs/remove", json!({"path": folder.uri(name)})).await, json!({}));
    }
    assert_eq!(client.call("fs/readDirectory", json!({"path": folder.uri("")})).await, json!({"entries": []}));
}

#[tokio::test]
async fn loops_of_links_are_errors_but_the_links_can_be_read_copied_and_removed() {
    let (folder, _server, mut client) = set_up().await;
    folder.link("two", "one");
    folder.link("one", "two");
    let (link, below_link) = (folder.uri("one"), folder.uri("one/file"));
    for (method, params) in [
        ("fs/readFile", json!({"path": link})),
        ("fs/open", json!({"handleId": "h", "path": link})),
        ("fs/create", json!({"handleId": "h", "path": link})),
        ("fs/writeFile", json!({"path": link, "dataBase64": base64("x")})),
        ("fs/getMetadata", json!({"path": link})),
        ("fs/setMetadata", json!({"path": link, "mode": 0})),
        ("fs/canonicalize", json!({"path": link})),
        ("fs/readDirectory", json!({"path": link})),
    ] {
        assert_eq!(client.call_error(method, params).await, os_error(40, &link), "{method}");
    }
    for (method, params) in methods(&below_link) {
        if method != "fs/copy" && method != "fs/rename" {
            assert_eq!(client.call_error(method, params).await, os_error(40, &below_link), "{method}");
        }
    }
    assert_eq!(client.call("fs/readLink", json!({"path": link})).await, json!({"target": "two"}));
    let copy = json!({"sourcePath": link, "destinationPath": folder.uri("three"), "recursive": false});
    assert_eq!(client.call("fs/copy", copy).await, json!({}));
    for name in ["one", "two", "three"] {
        assert_eq!(client.call("fs/remove", json!({"path": folder.uri(name)})).await, json!({}));
    }
    assert!(folder.names("").is_empty());
}

#[tokio::test]
async fn a_policy_that_allows_nothing_hides_every_file_and_one_without_restrictions_none() {
    let (folder, _server, mut client) = set_up().await;
    let uri = folder.file("file", "x");
    let restricted = json!({
        "permissions": {"type": "managed", "file_system": {"type": "restricted", "entries": []}, "network": "enabled"},
        "windowsSandboxLevel": "disabled",
    });
    for (method, mut params) in methods(&uri) {
        params["sandbox"] = restricted.clone();
        let answer = client.request(method, params).await;
        // Removing a file that is not there, and walking through nothing, succeed.
        let does_nothing = matches!(method, "fs/remove" | "fs/walk");
        assert!(answer["error"].is_object() || does_nothing, "{method}: {answer}");
        assert_eq!(std::fs::read(folder.path("file")).unwrap(), b"x", "{method}");
    }
    for permissions in [json!({"type": "disabled"}), json!({"type": "external", "network": "restricted"})] {
        let sandbox = json!({"permissions": permissions, "windowsSandboxLevel": "disabled"});
        let read = client.call("fs/readFile", json!({"path": uri, "sandbox": sandbox})).await;
        assert_eq!(read, json!({"dataBase64": base64("x")}));
        for (method, mut params) in methods(&uri) {
            params["sandbox"] = sandbox.clone();
            let answer = client.request(method, params).await;
            assert_ne!(answer["error"]["data"]["kind"], "sandboxDenied", "{method}");
            // The request may have changed, moved or removed the file.
            std::fs::remove_file(folder.path("file")).ok();
            folder.file("file", "x");
        }
    }
    // A sandbox must have `windowsSandboxLevel`, and its `cwd` must be a URI.
    let native_cwd = json!({"permissions": {"type": "disabled"}, "cwd": "/x", "windowsSandboxLevel": "disabled"});
    for sandbox in [json!({"permissions": {"type": "disabled"}}), native_cwd] {
        let error = client.call_error("fs/readFile", json!({"path": uri, "sandbox": sandbox})).await;
        assert_eq!(error["code"], INVALID_PARAMS, "{error}");
    }
}
