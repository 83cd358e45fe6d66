//! Connections and servers that are lost while a command runs.

use testkit::{CuttingProxy, Signal, TestServer, eventually, eventually_async, http_get, is_alive};
use tokio::io::AsyncReadExt as _;

use crate::support::{command, read_pid, text_and_code, wait_for_output};

#[tokio::test]
async fn output_is_complete_although_the_connection_is_cut() {
    const TOTAL: usize = 40_000_000;
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let script = format!("seq 1 100000000 | head -c {TOTAL}");
    let args = ["run", "--connect", &proxy.url(), "--", "sh", "-c", &script];
    let mut child = command(&args).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut output = Vec::with_capacity(TOTAL);
    let mut next_cut = TOTAL / 8;
    while stdout.read_buf(&mut output).await.unwrap() > 0 {
        if output.len() > next_cut {
            proxy.cut();
            next_cut += TOTAL / 8;
        }
    }
    let expected = std::process::Command::new("sh").args(["-c", &script]).output().unwrap().stdout;
    assert!(output == expected, "the output differs: {} bytes instead of {TOTAL}", output.len());
    // `run` prints no message about such short interruptions.
    assert_eq!(text_and_code(&wait_for_output(child).await), (String::new(), String::new(), Some(0)));
}

#[tokio::test]
async fn run_recovers_from_a_longer_interruption_and_reports_it() {
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let folder = tempfile::tempdir().unwrap();
    let go_file = folder.path().join("go");
    let script = format!("echo ready; while ! [ -e {} ]; do sleep 0.05; done; echo done; exit 3", go_file.display());
    let mut child = command(&["run", "--connect", &proxy.url(), "--", "sh", "-c", &script]).spawn().unwrap();
    let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let mut line = [0; 6];
    stdout.read_exact(&mut line).await.unwrap();
    proxy.refuse(true);
    proxy.cut();
    let mut messages = Vec::new();
    while !messages.ends_with(b"\n") {
        stderr.read_buf(&mut messages).await.unwrap();
    }
    proxy.refuse(false);
    while messages.iter().filter(|byte| **byte == b'\n').count() < 2 {
        stderr.read_buf(&mut messages).await.unwrap();
    }
    std::fs::write(&go_file, "").unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).await.unwrap();
    let messages = String::from_utf8(messages).unwrap();
    assert_eq!(messages, "exec-server: connection lost, reconnecting…\nexec-server: reconnected\n");
    assert_eq!((rest.as_str(), wait_for_output(child).await.status.code()), ("done\n", Some(3)));
}

/// A kept session outlives the command `exec-server run` that opened it, so a person can return to it.
#[tokio::test]
async fn run_and_logs_print_how_to_return_to_a_kept_session_that_they_have_lost() {
    let state = tempfile::tempdir().unwrap();
    let address = state.path().join("address");
    let url = format!("unix://{}", address.display());
    // Starts a server, and makes `address` a link to the socket of the server.
    let serve = async |name: &str| {
        let socket = state.path().join(name);
        let server = TestServer::with_args(&["--listen", &format!("unix://{}", socket.display())]).await;
        let link = state.path().join("link");
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        std::fs::rename(&link, &address).unwrap();
        server
    };
    let first = serve("first").await;
    let start = |args: &[&str]| {
        let mut command = command(args);
        command.env("XDG_STATE_HOME", state.path()).spawn().unwrap()
    };
    let script = "echo ready; exec sleep 600";
    let mut runner = start(&["run", "--connect", &url, "-s", "work", "--id", "p", "--", "sh", "-c", script]);
    let mut line = [0; 6];
    runner.stdout.as_mut().unwrap().read_exact(&mut line).await.unwrap();
    let mut follower = start(&["logs", "--connect", &url, "-s", "work", "-f", "p"]);
    follower.stdout.as_mut().unwrap().read_exact(&mut line).await.unwrap();
    // The second server at this address does not know the session.
    let _second = serve("second").await;
    drop(first);
    let (runner, follower) = tokio::join!(wait_for_output(runner), wait_for_output(follower));
    let command_to_return = |verb: &str, rest: &str| {
        format!("; if the server has kept the session, `exec-server {verb} --connect {url}{rest}\n")
    };
    let (_, stderr, code) = text_and_code(&runner);
    assert!(stderr.ends_with(&command_to_return("attach", " --session work p` takes it up again")), "{stderr}");
    assert_eq!(code, Some(125));
    let (_, stderr, code) = text_and_code(&follower);
    assert!(stderr.ends_with(&command_to_return("logs", " -f --session work p` follows it again")), "{stderr}");
    assert_eq!(code, Some(125));
}

#[tokio::test]
async fn run_has_exit_code_125_and_leaves_no_process_if_its_server_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 600", pid_file.display());
    let child = command(&["run", "--", "sh", "-c", &script]).spawn().unwrap();
    let pid = read_pid(&pid_file).await;
    // Without `--connect`, `run` starts a server as its child.
    let descendants = testkit::descendants(child.id().unwrap());
    let binary = testkit::binary().canonicalize().unwrap();
    let is_server = |pid: &&u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == binary);
    let server = *descendants.iter().find(is_server).unwrap();
    testkit::send_signal(server, Signal::KILL);
    let (_, stderr, code) = text_and_code(&wait_for_output(child).await);
    assert_eq!(code, Some(125), "{stderr}");
    assert!(stderr.starts_with("exec-server: ") && stderr.lines().count() == 1, "{stderr}");
    eventually("the process is gone", || (!is_alive(pid)).then_some(())).await;
}

#[tokio::test]
async fn at_shutdown_of_the_server_a_slow_reader_still_gets_its_output_and_the_exit_code() {
    let mut server = TestServer::with_args(&["--shutdown-grace", "100ms"]).await;
    let child = command(&["run", "--connect", server.url(), "--", "seq", "1", "3000000"]).spawn().unwrap();
    eventually_async("the process has written 3 MiB, and the test has read nothing", async || {
        let metrics = http_get(server.address(), "/metrics", &[]).await.body;
        let line = metrics.lines().find_map(|line| line.strip_prefix("exec_server_output_bytes_total "));
        (line?.parse::<u64>().unwrap() > 3 << 20).then_some(())
    })
    .await;
    server.signal(Signal::TERM);
    assert_eq!(server.wait().await, Some(0));
    let output = wait_for_output(child).await;
    let numbers: String = (1..=3_000_000).map(|number| format!("{number}\n")).collect();
    assert!(numbers.as_bytes().starts_with(&output.stdout), "{} bytes", output.stdout.len());
    assert!(output.stdout.len() > 3 << 20, "{} bytes", output.stdout.len());
    assert_eq!(output.status.code(), Some(128 + 15), "{}", String::from_utf8_lossy(&output.stderr));
}
