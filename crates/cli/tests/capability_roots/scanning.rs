//! The files that the server finds below a root: how deep it scans, which links it follows, and which entries it
//! ignores or cannot read.

use testkit::{TestServer, json};

use crate::{DISCOVER, Tree};

#[tokio::test]
async fn the_scan_ends_at_its_depth_limit_and_follows_links_to_directories() {
    let tree = Tree::new();
    tree.write("r/1/2/3/4/5/6/SKILL.md", "deep enough");
    tree.write("r/1/2/3/4/5/6/7/SKILL.md", "too deep, without a warning");
    tree.write("r/.hidden/node_modules/SKILL.md", "hidden");
    tree.write("outside/SKILL.md", "linked");
    tree.link(tree.path_of("outside"), "r/link");
    // These links lead to directories that are already scanned, and each directory is scanned once.
    tree.link(tree.path_of("outside"), "r/link-again");
    tree.link(tree.path_of("r"), "r/loop");
    // Links to files and broken links are ignored.
    tree.link(tree.path_of("outside/SKILL.md"), "r/file/SKILL.md");
    tree.link("nowhere", "r/broken/SKILL.md");
    let skills = json!([
        tree.skill("r/.hidden/node_modules/SKILL.md", "hidden"),
        tree.skill("r/1/2/3/4/5/6/SKILL.md", "deep enough"),
        tree.skill("r/link/SKILL.md", "linked"),
    ]);
    assert_eq!(tree.discover("r").await, tree.plain_root("r", skills, json!([])));
}

#[tokio::test]
async fn contents_are_the_exact_text() {
    let tree = Tree::new();
    tree.write("r/a/SKILL.md", "");
    tree.write("r/b/SKILL.md", "\u{feff}one\r\ntwo\u{0}\n");
    tree.write("r/b/agents/openai.yaml", "");
    let mut with_metadata = tree.skill("r/b/SKILL.md", "\u{feff}one\r\ntwo\u{0}\n");
    with_metadata["metadata"] = tree.file("r/b/agents/openai.yaml", "");
    let skills = json!([tree.skill("r/a/SKILL.md", ""), with_metadata]);
    assert_eq!(tree.discover("r").await, tree.plain_root("r", skills, json!([])));
}

#[tokio::test]
async fn a_tree_of_too_many_directories_is_reported_and_the_first_ones_are_read() {
    let tree = Tree::new();
    for number in 0..2_001 {
        std::fs::create_dir_all(tree.path_of(&format!("r/{number:04}"))).unwrap();
    }
    tree.write("r/1998/SKILL.md", "in the last directory that is scanned");
    tree.write("r/1999/SKILL.md", "not scanned: the root counts as a directory too");
    let warnings = json!([format!("capability scan reached its traversal limit (root: {})", tree.uri("r"))]);
    let skills = json!([tree.skill("r/1998/SKILL.md", "in the last directory that is scanned")]);
    assert_eq!(tree.discover("r").await, tree.plain_root("r", skills, warnings));
}

#[tokio::test]
async fn unreadable_files_are_reported_and_other_files_are_found() {
    use std::os::unix::fs::PermissionsExt as _;
    let tree = Tree::new();
    let set_mode = |path: &str, mode| {
        std::fs::set_permissions(tree.path_of(path), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    // The user of the server may enter the temporary folder.
    set_mode("", 0o755);
    tree.write("r/SKILL.md", "not readable");
    tree.write("r/listable/SKILL.md", "cannot be reached");
    tree.write("r/closed/SKILL.md", "never seen");
    tree.write("r/open/SKILL.md", "open");
    set_mode("r/SKILL.md", 0o000);
    set_mode("r/closed", 0o000);
    set_mode("r/listable", 0o444);
    tree.write("closed-root/SKILL.md", "never seen");
    set_mode("closed-root", 0o111);
    let binary_directory = tempfile::tempdir().unwrap();
    // The server runs as an ordinary user, also if root runs the tests.
    let server = if rustix::process::geteuid().is_root() {
        TestServer::start_as_user(65534, binary_directory.path(), &[]).await
    } else {
        TestServer::start().await
    };
    let roots = ["r", "closed-root"].map(|root| json!({"id": "r", "path": tree.uri(root)}));
    let result = server.client().await.call(DISCOVER, json!({"roots": roots})).await;
    // Otherwise only root could remove the temporary folder.
    for path in ["r/closed", "r/listable", "closed-root"] {
        set_mode(path, 0o755);
    }
    let denied =
        |what: &str, path: &str| format!("failed to {what} {}: Permission denied (os error 13)", tree.uri(path));
    let warnings = json!([
        denied("scan capability path", "r/closed"),
        denied("read capability file", "r/SKILL.md"),
        denied("inspect capability file", "r/listable/SKILL.md"),
    ]);
    let found = tree.plain_root("r", json!([tree.skill("r/open/SKILL.md", "open")]), warnings);
    let closed = json!([denied("scan capability path", "closed-root")]);
    let expected = [found, tree.plain_root("closed-root", json!([]), closed)];
    assert_eq!(result, json!({"roots": expected}));
}
