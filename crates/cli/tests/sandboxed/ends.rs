//! How sandboxes end: nothing runs on, and no placeholder (an empty directory on which something is mounted) stays.

use std::path::Path;

use testkit::{Client, TestServer, descendants, eventually, is_alive, json};

use crate::{Workspace, run, start_params};

/// Starts a command that leaves a daemon behind, and returns the process id of the daemon on the host.
async fn start_daemon(server: &TestServer, client: &mut Client, workspace: &Workspace) -> u32 {
    let script = format!(
        "setsid sh -c 'echo > {}/begun; exec sleep 4321' < /dev/null > /dev/null 2>&1 & exit 0",
        workspace.path().display()
    );
    run(client, start_params("daemon", &script, &workspace.policy())).await;
    let begun = workspace.path().join("begun");
    eventually("the daemon has begun", || begun.exists().then_some(())).await;
    eventually("the daemon is found", || {
        descendants(server.pid()).into_iter().find(|pid| command_line(*pid).contains("4321"))
    })
    .await
}

fn command_line(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

/// The descendant of the server that has this name.
fn named(server: &TestServer, name: &str) -> Option<u32> {
    let is_called =
        |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
    descendants(server.pid()).into_iter().find(is_called)
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

fn placeholders(workspace: &Path) -> usize {
    [".git", ".agents", ".codex"].iter().filter(|name| workspace.join(name).exists()).count()
}

async fn wait_until_clean(workspace: &Workspace, processes: &[u32]) {
    eventually("no process is left", || processes.iter().all(|pid| !is_alive(*pid)).then_some(())).await;
    eventually("no placeholder is left", || (placeholders(workspace.path()) == 0).then_some(())).await;
}

#[tokio::test]
async fn with_its_session() {
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
async fn with_a_killed_server() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let daemon = start_daemon(&server, &mut client, &workspace).await;
    let processes = descendants(server.pid());
    server.kill().await;
    wait_until_clean(&workspace, &[&processes[..], &[daemon]].concat()).await;
}

#[tokio::test]
async fn with_a_killed_server_whose_guard_was_killed_before() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let daemon = start_daemon(&server, &mut client, &workspace).await;
    let guard = named(&server, "exec-guard").unwrap();
    kill(guard);
    eventually("there is another guard", || named(&server, "exec-guard").filter(|other| *other != guard)).await;
    assert!(is_alive(daemon) && placeholders(workspace.path()) == 3, "the sandbox does not need the guard");
    let processes = descendants(server.pid());
    server.kill().await;
    wait_until_clean(&workspace, &processes).await;
}

#[tokio::test]
async fn with_a_killed_launcher_and_the_next_command_gets_another_one() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let daemon = start_daemon(&server, &mut client, &workspace).await;
    kill(named(&server, "exec-launcher").unwrap());
    eventually("the daemon ends with its launcher", || (!is_alive(daemon)).then_some(())).await;
    let ended = run(&mut client, start_params("next", "echo on", &workspace.policy())).await;
    assert_eq!(ended.output, "on\n");
}

#[tokio::test]
async fn a_terminate_ends_descendants_that_hide_from_it() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    // A descendant that has removed its tag and left its session and its parents cannot be found from outside.
    let script = "bash -c 'ulimit -R unlimited; setsid setsid sleep 4321 & exit'; echo ready; sleep 4322";
    client.call("process/start", start_params("p", script, &workspace.policy())).await;
    client.output_until("p", "ready").await;
    let all = descendants(server.pid());
    let hidden: Vec<u32> = all.into_iter().filter(|pid| command_line(*pid).contains("432")).collect();
    assert!(!hidden.is_empty());
    client.call("process/terminate", json!({"processId": "p"})).await;
    eventually("all have ended", || hidden.iter().all(|pid| !is_alive(*pid)).then_some(())).await;
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
