//! What file operations say about placeholders: the empty directories that the server makes at protected paths that do not
//! exist.

use testkit::{TestServer, json};

use crate::Workspace;

#[tokio::test]
async fn a_protected_directory_that_does_not_exist_cannot_be_made() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    std::fs::create_dir(workspace.path().join(".agents")).unwrap();
    std::os::unix::fs::symlink(".git", workspace.path().join("link")).unwrap();
    let mut client = server.client().await;
    let make = |name: &str| json!({"path": format!("{}/{name}", workspace.uri()), "recursive": true, "sandbox": workspace.policy()});
    for name in [".git", ".git/", ".git/hooks", ".codex", "link"] {
        let error = client.call_error("fs/createDirectory", make(name)).await;
        assert_eq!(error["data"]["kind"], "sandboxDenied", "{name}: {error}");
    }
    // The first exists on the host, the others are not protected.
    for name in [".agents", "new/.git", "new"] {
        client.call("fs/createDirectory", make(name)).await;
    }
}
