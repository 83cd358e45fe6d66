//! `limits` of a command in a sandbox.

use testkit::{TestServer, Value, json};

use crate::{Ended, Workspace, doctor, run, start_params, until_closed};

fn limited(process: &str, script: &str, workspace: &Workspace, limits: Value) -> Value {
    let mut params = start_params(process, script, &workspace.policy());
    params["limits"] = limits;
    params
}

/// The usage that every exit event of a process with limits has. The largest memory is left out if the kernel does not know it.
fn assert_usage(ended: &Ended) {
    let members = [
        "blockReadBytes",
        "blockWrittenBytes",
        "involuntarySwitches",
        "majorFaults",
        "minorFaults",
        "systemMicros",
        "userMicros",
        "voluntarySwitches",
    ];
    let usage = ended.exited["usage"].as_object().unwrap_or_else(|| panic!("{}", ended.exited));
    let names: Vec<_> = usage.keys().filter(|name| *name != "maxResidentBytes").collect();
    assert_eq!(names, members);
    assert!(usage["minorFaults"].as_u64().unwrap() > 0, "{usage:?}");
}

#[tokio::test]
async fn a_command_that_spins_ends_at_its_cpu_time() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let mut params = limited("p", "exec perl -e '1 while 1'", &workspace, json!({"cpuSeconds": 1}));
    // Ends the command if the limit does not.
    params["timeoutMs"] = json!(25_000);
    let ended = run(&mut client, params).await;
    let reached = json!({"limit": "cpuSeconds", "ended": true});
    assert_eq!(
        (&ended.exited["exitCode"], &ended.exited["limitReached"]),
        (&json!(152), &reached),
        "{}",
        ended.exited
    );
    assert_usage(&ended);
    let micros = |name: &str| ended.exited["usage"][name].as_u64().unwrap();
    let cpu = micros("userMicros") + micros("systemMicros");
    // The limit counts clock ticks, and the usage is exact, so on a busy machine the two differ.
    assert!((300_000..3_000_000).contains(&cpu), "{}", ended.exited);
    assert_eq!(ended.exited["sandboxDenied"], false);
}

#[tokio::test]
async fn a_file_that_grows_too_large_ends_the_command() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let script = format!("exec head -c 2000000 /dev/zero > {}/file", workspace.path().display());
    let ended = run(&mut client, limited("p", &script, &workspace, json!({"fileSizeBytes": 1_000_000}))).await;
    let reached = json!({"limit": "fileSizeBytes", "ended": true});
    assert_eq!(
        (&ended.exited["exitCode"], &ended.exited["limitReached"]),
        (&json!(153), &reached),
        "{}",
        ended.exited
    );
    assert_usage(&ended);
    assert_eq!(std::fs::metadata(workspace.path().join("file")).unwrap().len(), 1_000_000);
}

#[tokio::test]
async fn a_command_cannot_open_more_files_than_its_limit() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let script = "exec perl -e 'my @f; while (open(my $f, \"<\", \"/dev/null\")) { push @f, $f } print scalar @f'";
    let ended = run(&mut client, limited("p", script, &workspace, json!({"openFiles": 20}))).await;
    assert_eq!((ended.output.as_str(), &ended.exited["exitCode"]), ("17", &json!(0)));
    assert_usage(&ended);
    assert!(ended.exited.get("limitReached").is_none(), "{}", ended.exited);
    // The limit is that of the command, and not that of the sandbox.
    let script = "ulimit -n; ulimit -f; ulimit -t";
    let limits = json!({"openFiles": 30, "fileSizeBytes": 51_200, "cpuSeconds": 7});
    assert_eq!(run(&mut client, limited("q", script, &workspace, limits)).await.output, "30\n100\n7\n");
}

#[tokio::test]
async fn without_a_limit_a_command_may_open_a_few_files_less_than_the_server() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let script = "ulimit -Sn; ulimit -Hn; ulimit -f; ulimit -t";
    let mut unconfined = limited("p", script, &workspace, json!(null));
    unconfined["sandbox"] = json!(null);
    client.call("process/start", unconfined).await;
    let outside = until_closed(&mut client, "p").await.output;
    let [soft, hard, others @ ..] = &*outside.lines().collect::<Vec<_>>() else { panic!("{outside}") };
    let (soft, hard): (u64, u64) = (soft.parse().unwrap(), hard.parse().unwrap());
    let lower = hard - 512.min(hard / 8 * 3);
    let expected = format!("{}\n{lower}\n{}\n", soft.min(lower), others.join("\n"));
    assert_eq!(run(&mut client, limited("q", script, &workspace, json!({}))).await.output, expected);
}

#[tokio::test]
async fn a_fork_bomb_ends_at_its_limit_exactly_if_the_machine_can_enforce_it() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let tree_limits = doctor().await["treeLimits"].clone();
    // The `sleep`s must not hold the pipes, or the bomb would never close after its shell has exited. A bomb of this size does no
    // harm if the limit fails.
    let bomb = "for n in $(seq 100); do sleep 1000 >/dev/null 2>&1 & done";
    let params = limited("bomb", bomb, &workspace, json!({"pids": 10}));
    if tree_limits["ok"] == true {
        let ended = run(&mut client, params).await;
        assert_eq!(ended.exited["limitReached"], json!({"limit": "pids", "ended": false}), "{}", ended.exited);
        return;
    }
    let error = client.call_error("process/start", params).await;
    let advice = tree_limits["advice"].as_str().unwrap();
    let message = format!("limits.pids cannot be enforced without cgroup v2: {advice}");
    assert_eq!(error, json!({"code": -32602, "message": message}));
    assert_eq!(client.processes().await, json!([]));
}
