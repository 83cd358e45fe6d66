//! The placeholders of a sandbox (empty directories on which something is mounted) are there for every process. When the sandbox is not used
//! any more, they must not be in the way of other commands.

use std::path::Path;

use testkit::{Client, TestServer, Value, json};

use crate::policies::path_entry;
use crate::{Workspace, run, start_params, until_closed};

/// The server waits a moment for the last processes of a command. On a busy machine they may take longer, so the next command is tried again.
const MOST_ATTEMPTS: usize = 200;

/// The names in the workspace while a sandbox with its ordinary policy exists.
const PLACEHOLDERS: [&str; 3] = [".agents", ".codex", ".git"];

/// Makes an idle sandbox with the ordinary policy of the workspace, and so placeholders in it.
async fn leave_placeholders(client: &mut Client, workspace: &Workspace, process: &str) {
    run(client, start_params(process, "true", &workspace.policy())).await;
    assert_eq!(workspace.names(), PLACEHOLDERS);
}

/// Runs a script without a sandbox, and returns its output.
async fn run_plain(client: &mut Client, process: &str, script: &str, cwd: &Path) -> String {
    let mut params = start_params(process, script, &Value::Null);
    params["cwd"] = json!(format!("file://{}", cwd.display()));
    client.call("process/start", params).await;
    until_closed(client, process).await.output
}

#[tokio::test]
async fn another_session_whose_policy_allows_a_protected_name_can_make_it() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let (mut first, mut second) = (server.client().await, server.client().await);
    let allowing = workspace.policy_with(&[path_entry(&format!("{}/.git", workspace.uri()), "write")], "restricted");
    let script = format!("cd {}; mkdir -p .git && touch .git/x && rm -r .git; echo $?", workspace.path().display());
    // In the second round both sessions have a sandbox already.
    for round in 0..2 {
        run(&mut first, start_params(&format!("a{round}"), "true", &workspace.policy())).await;
        assert!(workspace.path().join(".git").exists());
        let mut attempt = 0;
        loop {
            let allowed = run(&mut second, start_params(&format!("b{round}-{attempt}"), &script, &allowing)).await;
            if allowed.output == "0\n" {
                break;
            }
            attempt += 1;
            assert!(attempt < MOST_ATTEMPTS, "{}", allowed.output);
        }
    }
}

#[tokio::test]
async fn a_command_without_a_sandbox_finds_no_placeholders_of_idle_sandboxes() {
    let (server, workspace, elsewhere) = (TestServer::start().await, Workspace::new(), Workspace::new());
    let (mut first, mut second) = (server.client().await, server.client().await);
    let link = elsewhere.path().join("link");
    std::os::unix::fs::symlink(workspace.path(), &link).unwrap();
    let script =
        format!("cd {} && ls -A && mkdir .git && touch .git/x && rm -r .git; echo $?", workspace.path().display());
    let above = workspace.path().parent().unwrap();
    for (round, cwd) in [workspace.path(), &link, above].into_iter().enumerate() {
        for of_same_session in [true, false] {
            let name = format!("{round}-{of_same_session}");
            leave_placeholders(&mut first, &workspace, &format!("a{name}")).await;
            let client = if of_same_session { &mut first } else { &mut second };
            let mut attempt = 0;
            loop {
                let output = run_plain(client, &format!("b{name}-{attempt}"), &script, cwd).await;
                if output == "0\n" {
                    break;
                }
                attempt += 1;
                assert!(attempt < MOST_ATTEMPTS, "{output}");
            }
        }
    }
}

#[tokio::test]
async fn a_command_without_a_sandbox_in_a_directory_of_the_workspace_finds_no_placeholders_above() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let below = workspace.path().join("a/b");
    std::fs::create_dir_all(&below).unwrap();
    run(&mut client, start_params("a", "true", &workspace.policy())).await;
    assert_eq!(workspace.names(), [&PLACEHOLDERS[..], &["a"]].concat());
    let mut attempt = 0;
    while run_plain(&mut client, &format!("b{attempt}"), "ls -A ../..", &below).await != "a\n" {
        attempt += 1;
        assert!(attempt < MOST_ATTEMPTS);
    }
}

#[tokio::test]
async fn sandboxes_in_use_and_those_of_other_directories_stay() {
    let (server, workspace, elsewhere) = (TestServer::start().await, Workspace::new(), Workspace::new());
    let mut client = server.client().await;
    leave_placeholders(&mut client, &workspace, "a").await;
    assert_eq!(run_plain(&mut client, "elsewhere", "echo on", elsewhere.path()).await, "on\n");
    assert_eq!(workspace.names(), PLACEHOLDERS);
    client.call("process/start", start_params("b", "echo begun; exec sleep 600", &workspace.policy())).await;
    client.output_until("b", "begun").await;
    assert_eq!(run_plain(&mut client, "beside", "echo on", workspace.path()).await, "on\n");
    assert_eq!(workspace.names(), PLACEHOLDERS);
}
