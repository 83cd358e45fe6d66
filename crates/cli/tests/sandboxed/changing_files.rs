//! Files that appear after a sandbox was made: deny globs cover them from the next command on, and for file operations
//! at the latest after a second.

use testkit::{TestServer, Value, eventually_async, json, unbase64};

use crate::{Workspace, run, start_params};

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
