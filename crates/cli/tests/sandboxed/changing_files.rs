//! Files and mounts that change after a sandbox was made: the next command sees the change, and so do file operations
//! at the latest after a second.

use std::path::Path;
use std::process::Command;

use testkit::{Client, TestServer, Value, eventually_async, json, unbase64};

use crate::policies::path_entry;
use crate::{Workspace, run, start_params, until_closed};

/// The workspace may be written, and everything read except files with names that end in `.env`.
fn without_env_files(workspace: &Workspace) -> Value {
    let glob = json!({"path": {"type": "glob_pattern", "pattern": "**/*.env"}, "access": "deny"});
    let mut policy = workspace.policy_with(&[glob], "restricted");
    policy["cwd"] = json!(workspace.uri());
    policy
}

#[tokio::test]
async fn a_file_that_a_command_has_made_is_denied_to_the_next_command() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let (mut client, sandbox) = (server.client().await, without_env_files(&workspace));
    let at = workspace.path().display();
    let script = format!("cd {at}; mkdir sub; for name in a.env a.txt; do echo secret > sub/$name; done; cat sub/*");
    let made = run(&mut client, start_params("make", &script, &sandbox)).await;
    assert_eq!(made.output, "secret\nsecret\n", "the glob covers what was there when the command began");

    let script = format!(
        "cd {at}/sub; cat a.txt; cat a.env; echo $?; (echo more > a.env) 2> /dev/null; echo $?; rm -f a.env; echo $?"
    );
    let next = run(&mut client, start_params("next", &script, &sandbox)).await;
    let lines: Vec<_> = next.output.lines().collect();
    let refused = [
        "secret",
        "cat: a.env: Permission denied",
        "1",
        "2",
        "rm: cannot remove 'a.env': Device or resource busy",
        "1",
    ];
    assert_eq!(lines, refused);
    assert_eq!(std::fs::read_to_string(workspace.path().join("sub/a.env")).unwrap(), "secret\n");
}

#[tokio::test]
async fn a_file_that_a_command_has_made_is_soon_denied_to_file_operations() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let (mut client, sandbox) = (server.client().await, without_env_files(&workspace));
    std::fs::write(workspace.path().join("plain"), "plain").unwrap();
    let read = |name: &str| json!({"path": format!("{}/{name}", workspace.uri()), "sandbox": sandbox});
    client.call("fs/readFile", read("plain")).await;
    let script = format!("echo secret > {}/a.env", workspace.path().display());
    assert_eq!(run(&mut client, start_params("p", &script, &sandbox)).await.exited["exitCode"], 0);
    let error = eventually_async("the file is denied", async || {
        let answer = client.request("fs/readFile", read("a.env")).await;
        // Until the server looks again, the file is like others.
        if let Some(result) = answer.get("result") {
            assert_eq!(unbase64(&result["dataBase64"]), b"secret\n");
        }
        answer.get("error").cloned()
    })
    .await;
    assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(-32600), &json!("sandboxDenied")), "{error}");
    assert_eq!(unbase64(&client.call("fs/readFile", read("plain")).await["dataBase64"]), b"plain");
    // The policy is the reason: without it the file can be read.
    let unconfined = json!({"path": format!("{}/a.env", workspace.uri())});
    assert_eq!(unbase64(&client.call("fs/readFile", unconfined).await["dataBase64"]), b"secret\n");
}

/// Replaces a file by another one and back again, as a backup does. The kernel detaches the mounts on the file, and then the same file is
/// at the path again.
fn replace_and_restore(path: &Path) {
    let beside = |ending: &str| path.with_extension(ending);
    std::fs::hard_link(path, beside("kept")).unwrap();
    std::fs::write(beside("new"), "new").unwrap();
    std::fs::rename(beside("new"), path).unwrap();
    std::fs::rename(beside("kept"), path).unwrap();
}

/// Gives a file a second name, moves the first name away, and puts the second one in its place. The kernel moves the mounts along.
fn move_and_link_again(path: &Path) {
    let beside = |ending: &str| path.with_extension(ending);
    std::fs::hard_link(path, beside("kept")).unwrap();
    std::fs::rename(path, beside("moved")).unwrap();
    std::fs::rename(beside("kept"), path).unwrap();
}

#[tokio::test]
async fn a_file_that_was_replaced_and_restored_is_as_protected_as_before() {
    a_file_stays_protected(replace_and_restore).await;
}

#[tokio::test]
async fn a_file_whose_name_was_moved_and_made_again_is_as_protected_as_before() {
    a_file_stays_protected(move_and_link_again).await;
}

/// Changes a denied and a read-only file outside of the sandbox. The next command and the next file operation find them protected.
async fn a_file_stays_protected(change: fn(&Path)) {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let at = |name: &str| workspace.path().join(name);
    for name in ["denied", "read-only"] {
        std::fs::write(at(name), "old").unwrap();
    }
    let entry = |name: &str, access: &str| path_entry(&format!("{}/{name}", workspace.uri()), access);
    let sandbox = workspace.policy_with(&[entry("denied", "deny"), entry("read-only", "read")], "restricted");
    let read = json!({"path": format!("{}/denied", workspace.uri()), "sandbox": sandbox});
    let script = format!(
        "cat {}; (echo hostile > {}) 2> /dev/null; echo $?",
        at("denied").display(),
        at("read-only").display()
    );
    let refused = format!("cat: {}: Permission denied\n2\n", at("denied").display());

    let mut waiting = start_params("waiting", "read line; echo $line", &sandbox);
    waiting["pipeStdin"] = json!(true);
    client.call("process/start", waiting).await;
    assert_eq!(run(&mut client, start_params("before", &script, &sandbox)).await.output, refused);
    assert_eq!(client.call_error("fs/readFile", read.clone()).await["data"]["kind"], "sandboxDenied");
    for name in ["denied", "read-only"] {
        change(&at(name));
    }
    assert_eq!(run(&mut client, start_params("after", &script, &sandbox)).await.output, refused);
    // File operations look at the policy at most once a second.
    eventually_async("the file is denied", async || {
        let answer = client.request("fs/readFile", read.clone()).await;
        (answer["error"]["data"]["kind"] == "sandboxDenied").then_some(())
    })
    .await;
    assert_eq!(std::fs::read_to_string(at("read-only")).unwrap(), "old");
    // A command of the old sandbox goes on.
    client.call("process/write", json!({"processId": "waiting", "chunk": testkit::base64("still here\n")})).await;
    assert_eq!(until_closed(&mut client, "waiting").await.output, "still here\n");
}

/// Runs a command in the mount namespace of the server, which is not that of this process.
fn in_namespaces_of(server: &TestServer, command: &[&str]) {
    let mut inside = Command::new("nsenter");
    inside.args(["--user", "--mount", "--preserve-credentials", "-t", &server.pid().to_string()]).args(command);
    assert!(inside.status().unwrap().success(), "{command:?}");
}

#[tokio::test]
async fn what_is_mounted_and_unmounted_in_a_workspace_is_seen_by_the_next_command() {
    let workspace = Workspace::new();
    let mut command = tokio::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "--"]).arg(testkit::binary());
    let server = TestServer::launch(command, &[]).await;
    let mut client = server.client().await;
    let place = workspace.path().join("place");
    std::fs::create_dir(&place).unwrap();
    let at = place.display().to_string();
    let sandbox = workspace.policy();
    let write = async |client: &mut Client, name: &str| {
        let script = format!("echo {name} > {at}/{name} && ls {at}");
        run(client, start_params(name, &script, &sandbox)).await.output
    };
    assert_eq!(write(&mut client, "before").await, "before\n");
    in_namespaces_of(&server, &["mount", "-t", "tmpfs", "none", &at]);
    assert_eq!(write(&mut client, "mounted").await, "mounted\n", "the command writes where the host has its files");
    in_namespaces_of(&server, &["test", "-e", &format!("{at}/mounted")]);
    in_namespaces_of(&server, &["umount", &at]);
    assert_eq!(write(&mut client, "after").await, "after\nbefore\n");
    assert!(place.join("after").exists());
}
