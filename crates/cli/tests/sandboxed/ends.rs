//! How sandboxes end: nothing runs on, and no placeholder (an empty directory on which something is mounted) stays.

use std::path::Path;

use testkit::{Client, TestServer, descendants, eventually, is_alive, json};

use crate::policies::path_entry;
use crate::{Workspace, descendants_named, kill_and_wait, policy, run, start_params};

/// Starts a command that leaves a daemon behind, and returns the process id of the daemon on the host.
async fn start_daemon(server: &TestServer, client: &mut Client, workspace: &Workspace) -> u32 {
    let script = format!(
        "setsid sh -c 'echo > {}/begun; exec sleep 4321' < /dev/null > /dev/null 2>&1 & exit 0",
        workspace.path().display()
    );
    run(client, start_params("daemon", &script, &workspace.policy())).await;
    let begun = workspace.path().join("begun");
    eventually("the daemon has begun", || begun.exists().then_some(())).await;
    sleeping(server, "4321").await
}

/// The descendant of the server whose command line is `sleep` with this argument, and nothing more.
async fn sleeping(server: &TestServer, argument: &str) -> u32 {
    let expected = format!("sleep\0{argument}\0");
    let command_line = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    eventually("the descendant sleeps", || {
        descendants(server.pid()).into_iter().find(|pid| command_line(*pid) == expected)
    })
    .await
}

fn placeholders(workspace: &Path) -> usize {
    [".git", ".agents", ".codex"].iter().filter(|name| workspace.join(name).exists()).count()
}

async fn wait_until_clean(workspace: &Workspace, processes: &[u32]) {
    eventually("no process is left", || processes.iter().all(|pid| !is_alive(*pid)).then_some(())).await;
    eventually("no placeholder is left", || (placeholders(workspace.path()) == 0).then_some(())).await;
}

#[tokio::test]
async fn a_sandbox_ends_with_its_session() {
    let (server, workspace) = (TestServer::with_args(&["--session-ttl", "1ms"]).await, Workspace::new());
    let mut client = server.client().await;
    let daemon = start_daemon(&server, &mut client, &workspace).await;
    assert!(is_alive(daemon), "a daemon outlives its command");
    assert_eq!(placeholders(workspace.path()), 3);
    drop(client);
    wait_until_clean(&workspace, &[daemon]).await;
    assert_eq!(workspace.names(), ["begun"]);
}

#[tokio::test]
async fn a_sandbox_ends_with_a_killed_server() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let daemon = start_daemon(&server, &mut client, &workspace).await;
    let processes = descendants(server.pid());
    server.kill().await;
    wait_until_clean(&workspace, &[&processes[..], &[daemon]].concat()).await;
}

#[tokio::test]
async fn a_sandbox_ends_with_a_killed_server_whose_guard_was_killed_before() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let daemon = start_daemon(&server, &mut client, &workspace).await;
    let guard = descendants_named(&server, "exec-guard")[0];
    kill_and_wait(guard).await;
    eventually("there is another guard", || {
        descendants_named(&server, "exec-guard").into_iter().find(|other| *other != guard)
    })
    .await;
    assert!(is_alive(daemon) && placeholders(workspace.path()) == 3, "the sandbox does not need the guard");
    let processes = descendants(server.pid());
    server.kill().await;
    wait_until_clean(&workspace, &processes).await;
}

#[tokio::test]
async fn a_sandbox_ends_with_its_killed_launcher_and_the_next_command_gets_another_one() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let daemon = start_daemon(&server, &mut client, &workspace).await;
    kill_and_wait(descendants_named(&server, "exec-launcher")[0]).await;
    eventually("the daemon ends with its launcher", || (!is_alive(daemon)).then_some(())).await;
    let ended = run(&mut client, start_params("next", "echo on", &workspace.policy())).await;
    assert_eq!(ended.output, "on\n");
}

#[tokio::test]
async fn a_session_removes_the_placeholders_of_a_killed_launcher() {
    let (server, workspace) = (TestServer::with_args(&["--session-ttl", "1ms"]).await, Workspace::new());
    let mut client = server.client().await;
    run(&mut client, start_params("p", "true", &workspace.policy())).await;
    kill_and_wait(descendants_named(&server, "exec-launcher")[0]).await;
    assert_eq!(placeholders(workspace.path()), 3, "the session still needs them");
    drop(client);
    wait_until_clean(&workspace, &[]).await;
    assert_eq!(workspace.names(), Vec::<String>::new());
}

#[tokio::test]
async fn a_terminate_ends_descendants_that_hide_from_it() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    // A descendant that has removed its tag and left its session and its parents cannot be found from outside.
    let script = "bash -c 'ulimit -R unlimited; setsid setsid sleep 4321 & exit'; echo ready; sleep 4322";
    client.call("process/start", start_params("p", script, &workspace.policy())).await;
    client.output_until("p", "ready").await;
    let (hidden, child) = (sleeping(&server, "4321").await, sleeping(&server, "4322").await);
    client.call("process/terminate", json!({"processId": "p"})).await;
    eventually("both have ended", || (!is_alive(hidden) && !is_alive(child)).then_some(())).await;
}

#[tokio::test]
async fn sessions_that_follow_each_other_in_one_workspace_do_not_disturb_each_other() {
    let (server, workspace) = (TestServer::with_args(&["--session-ttl", "1ms"]).await, Workspace::new());
    for number in 1..=40 {
        // While the sandbox of the last session ends and removes its placeholders, the next one makes its own.
        let mut client = server.client().await;
        let script = format!("mkdir {}/.git/x || exit {number}", workspace.path().display());
        let ended = run(&mut client, start_params("p", &script, &workspace.policy())).await;
        assert_eq!(ended.exited["exitCode"], number, "{}", ended.output);
    }
    wait_until_clean(&workspace, &[]).await;
}

/// The caller of a server that has ended, such as `run`, may use the directory at once.
#[tokio::test]
async fn when_a_server_has_ended_in_order_its_placeholders_are_gone() {
    for _ in 0..5 {
        let (mut server, workspace) = (TestServer::start().await, Workspace::new());
        let mut client = server.client().await;
        run(&mut client, start_params("p", "true", &workspace.policy())).await;
        assert_eq!(placeholders(workspace.path()), 3);
        server.signal(rustix::process::Signal::TERM);
        assert_eq!(server.wait().await, Some(0));
        assert_eq!(workspace.names(), Vec::<String>::new());
    }
}

/// An agent that is allowed more uses another policy in the same session.
#[tokio::test]
async fn a_policy_that_allows_a_protected_name_works_after_one_that_does_not() {
    let (mut server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let git = format!("{}/.git", workspace.uri());
    let allowing = workspace.policy_with(&[path_entry(&git, "write")], "restricted");
    let script = format!(
        "cd {}; mkdir -p .git && touch .git/x; code=$?; echo $code; test $code -ne 0 || rm -r .git",
        workspace.path().display()
    );
    // A command with a proxy has a sandbox of its own.
    for (round, proxy) in [json!(null), json!(null), crate::network::proxy()].into_iter().enumerate() {
        let refused = run(&mut client, start_params(&format!("a{round}"), &script, &workspace.policy())).await;
        assert!(refused.output.contains("Read-only file system"), "{}", refused.output);
        // The server waits a moment for the processes of the first command, which may take longer on a busy machine.
        let mut attempt = 0;
        loop {
            let id = format!("b{round}-{attempt}");
            let mut params = start_params(&id, &script, &allowing);
            params["networkProxy"] = proxy.clone();
            let allowed = run(&mut client, params).await;
            if allowed.output == "0\n" {
                break;
            }
            attempt += 1;
            assert!(attempt < 200 && allowed.output.contains("Permission denied"), "{}", allowed.output);
        }
    }
    // While a command needs the placeholder, the other policy can be used too, but not this name.
    let running = start_params("c", "echo begun; sleep 600", &workspace.policy());
    client.call("process/start", running).await;
    client.event("c").await;
    let beside = run(&mut client, start_params("d", &script, &allowing)).await;
    assert!(beside.output.contains("Permission denied"), "{}", beside.output);
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.wait().await, Some(0));
    assert_eq!(workspace.names(), Vec::<String>::new());
}

#[tokio::test]
async fn a_command_that_has_ended_costs_no_descriptor() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let open = || std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count();
    run(&mut client, start_params("first", "exit 0", &workspace.policy())).await;
    let before = open();
    for number in 0..200 {
        run(&mut client, start_params(&format!("p{number}"), "exit 0", &workspace.policy())).await;
    }
    // The sockets of a few ended commands may be kept.
    assert!(open() < before + 60, "{before} before, {} after", open());
}

#[tokio::test]
async fn the_shell_of_a_snapshot_ends_at_once() {
    // A server that waited for this time would not be in time.
    let (server, workspace) = (TestServer::with_args(&["--kill-patience", "1h"]).await, Workspace::new());
    let mut client = server.client().await;
    let mut params = start_params("p", "echo on", &workspace.policy());
    params["argv"] = json!(["/bin/sh", "-lc", "echo on"]);
    params["shellSnapshot"] = json!({"scopeId": "s", "shell": {"name": "sh", "path": "/bin/sh"}});
    assert_eq!(run(&mut client, params).await.output, "on\n");
    let is_zombie =
        |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "));
    eventually("no zombie is left", || (!descendants(server.pid()).iter().any(is_zombie)).then_some(())).await;
}

#[tokio::test]
async fn a_start_that_lacks_descriptors_leaves_no_placeholder() {
    let workspace = Workspace::new();
    let mut codes = Vec::new();
    for limit in 16..100 {
        let script = format!("ulimit -n {limit}; exec \"$0\" run --sandbox workspace-write --cwd \"$1\" -- true");
        let ended = tokio::process::Command::new("/bin/sh")
            .args(["-c", &script])
            .args([testkit::binary().as_path(), workspace.path()])
            .output()
            .await
            .unwrap();
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(placeholders(workspace.path()), 0, "{limit}: {stderr}");
        assert!(!stderr.contains("panicked"), "{limit}: {stderr}");
        codes.push(ended.status.code());
        if ended.status.success() {
            break;
        }
    }
    // The first limit that is enough ends the loop, so every way to fail was tried.
    let (last, failed) = codes.split_last().unwrap();
    assert_eq!(*last, Some(0), "some limit is enough: {codes:?}");
    assert!(failed.len() >= 2 && failed.iter().all(|code| *code == Some(125)), "{codes:?}");
}

/// A server with 1,024 descriptors allows 256 placeholders for a session.
#[tokio::test]
async fn unused_sandboxes_end_when_the_session_has_too_many_placeholders() {
    let mut command = tokio::process::Command::new("prlimit");
    command.args(["--nofile=1024:1024", "--"]).arg(testkit::binary());
    let (server, workspace) = (TestServer::launch(command, &[]).await, Workspace::new());
    let mut client = server.client().await;
    let with_roots = |name: &str, count: usize| {
        let root = |number: usize| {
            let root = workspace.path().join(format!("{name}-{number}"));
            std::fs::create_dir(&root).unwrap();
            path_entry(&format!("file://{}", root.display()), "write")
        };
        policy((0..count).map(root).collect(), "restricted")
    };
    // Each of these policies needs 60 placeholders.
    for name in ["a", "b", "c", "d", "e", "f"] {
        let ended = run(&mut client, start_params(name, "exit 3", &with_roots(name, 20))).await;
        assert_eq!(ended.exited["exitCode"], 3);
    }
    let too_many = start_params("q", "exit 0", &with_roots("g", 100));
    let refusal = client.call_error("process/start", too_many).await;
    let message = refusal["message"].as_str().unwrap();
    assert!(message.contains("needs too many placeholders"), "{message}");
}
