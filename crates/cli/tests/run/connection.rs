//! Connections that are lost while a command runs.

use testkit::{CuttingProxy, Signal, TestServer, eventually, eventually_async, http_get, is_alive};
use tokio::io::AsyncReadExt as _;

use crate::support::{command, finished, number_in, told};

#[tokio::test]
async fn output_is_complete_although_the_connection_is_cut() {
    const TOTAL: usize = 40_000_000;
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let script = format!("seq 1 100000000 | head -c {TOTAL}");
    let args = ["run", "--connect", &proxy.url(), "--", "sh", "-c", &script];
    let mut child = command(&args).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut all = Vec::with_capacity(TOTAL);
    let mut next_cut = TOTAL / 8;
    while stdout.read_buf(&mut all).await.unwrap() > 0 {
        if all.len() > next_cut {
            proxy.cut();
            next_cut += TOTAL / 8;
        }
    }
    let expected = std::process::Command::new("sh").args(["-c", &script]).output().unwrap().stdout;
    assert!(all == expected, "{} of {TOTAL} bytes, or others", all.len());
    // Such short breaks are not mentioned.
    assert_eq!(told(&finished(child).await), (String::new(), String::new(), Some(0)));
}

#[tokio::test]
async fn a_longer_break_is_mentioned_and_recovered() {
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let folder = tempfile::tempdir().unwrap();
    let go_on = folder.path().join("go-on");
    let script = format!("echo ready; while ! [ -e {} ]; do sleep 0.05; done; echo done; exit 3", go_on.display());
    let mut child = command(&["run", "--connect", &proxy.url(), "--", "sh", "-c", &script]).spawn().unwrap();
    let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let mut line = [0; 6];
    stdout.read_exact(&mut line).await.unwrap();
    proxy.refuse(true);
    proxy.cut();
    let mut said = Vec::new();
    while !said.ends_with(b"\n") {
        stderr.read_buf(&mut said).await.unwrap();
    }
    proxy.refuse(false);
    while said.iter().filter(|byte| **byte == b'\n').count() < 2 {
        stderr.read_buf(&mut said).await.unwrap();
    }
    std::fs::write(&go_on, "").unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).await.unwrap();
    let said = String::from_utf8(said).unwrap();
    assert_eq!(said, "exec-server: connection lost, reconnecting…\nexec-server: reconnected\n");
    assert_eq!((rest.as_str(), finished(child).await.status.code()), ("done\n", Some(3)));
}

#[tokio::test]
async fn a_client_that_loses_a_kept_session_prints_how_to_return_to_it() {
    let state = tempfile::tempdir().unwrap();
    let address = state.path().join("address");
    let url = format!("unix://{}", address.display());
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
    // Another server at this address does not know the session.
    let _second = serve("second").await;
    drop(first);
    let (runner, follower) = tokio::join!(finished(runner), finished(follower));
    let way_back = |verb: &str, what: &str| {
        format!("; if the server has kept the session, `exec-server {verb} --connect {url}{what}\n")
    };
    let (_, stderr, code) = told(&runner);
    assert!(stderr.ends_with(&way_back("attach", " --session work p` takes it up again")), "{stderr}");
    assert_eq!(code, Some(125));
    let (_, stderr, code) = told(&follower);
    assert!(stderr.ends_with(&way_back("logs", " -f --session work p` follows it again")), "{stderr}");
    assert_eq!(code, Some(125));
}

#[tokio::test]
async fn a_server_that_has_ended_is_our_failure() {
    let folder = tempfile::tempdir().unwrap();
    let number = folder.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 600", number.display());
    let child = command(&["run", "--", "sh", "-c", &script]).spawn().unwrap();
    let pid = number_in(&number).await;
    // The child of this command is its server.
    let served = testkit::descendants(child.id().unwrap());
    let myself = testkit::binary().canonicalize().unwrap();
    let is_server = |pid: &&u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == myself);
    let serving = *served.iter().find(is_server).unwrap();
    testkit::send_signal(serving, Signal::KILL);
    let (_, stderr, code) = told(&finished(child).await);
    assert_eq!(code, Some(125), "{stderr}");
    assert!(stderr.starts_with("exec-server: ") && stderr.lines().count() == 1, "{stderr}");
    eventually("the process is gone", || (!is_alive(pid)).then_some(())).await;
}

#[tokio::test]
async fn at_shutdown_of_the_server_a_slow_reader_still_gets_the_rest_and_the_exit_code() {
    let mut server = TestServer::with_args(&["--shutdown-grace", "100ms"]).await;
    let child = command(&["run", "--connect", server.url(), "--", "seq", "1", "3000000"]).spawn().unwrap();
    eventually_async("the process waits for our reader", async || {
        let metrics = http_get(server.address(), "/metrics", &[]).await.body;
        let line = metrics.lines().find_map(|line| line.strip_prefix("exec_server_output_bytes_total "));
        (line?.parse::<u64>().unwrap() > 3 << 20).then_some(())
    })
    .await;
    server.signal(Signal::TERM);
    assert_eq!(server.wait().await, Some(0));
    let all = finished(child).await;
    let numbers: String = (1..=3_000_000).map(|number| format!("{number}\n")).collect();
    assert!(numbers.as_bytes().starts_with(&all.stdout), "{} bytes", all.stdout.len());
    assert!(all.stdout.len() > 3 << 20, "{} bytes", all.stdout.len());
    assert_eq!(all.status.code(), Some(128 + 15), "{}", String::from_utf8_lossy(&all.stderr));
}
