//! No process is left behind by `process/terminate`, a timeout, or the end of a session of the exec-server. A session
//! that `setsid` makes is called a Unix session here.

use tempfile::TempDir;
use testkit::{Client, TestServer, Value, descendants, eventually, json, process_state};

/// Perl code with a function `daemon`. The function starts a daemon, which prints its pid. The daemon has another
/// parent and Unix session than the process that started it, no terminal, and none of the streams that it inherited.
const DAEMON: &str = r#"
    use POSIX; $| = 1;
    sub daemon {
        return if fork; setsid(); exit if fork; setsid();
        print "$$\n"; open(STDIN, "<", "/dev/null"); open(STDOUT, ">", "/dev/null"); open(STDERR, ">", "/dev/null");
        chdir "/"; sleep 1000; exit;
    }
"#;

/// A server, and a check that none of its processes is left behind. An orphan becomes a child of the server, so all
/// processes are descendants of the server. The guard, which kills all processes if the server dies, is a child of
/// the server too and is not counted.
struct LeftoverCheck {
    server: TestServer,
    /// Pid of the guard, as the only member.
    guard: Vec<u32>,
}

impl LeftoverCheck {
    async fn start(args: &[&str]) -> Self {
        let server = TestServer::with_args(args).await;
        let guard = descendants(server.pid());
        assert_eq!(guard.len(), 1);
        Self { server, guard }
    }

    /// Pids of all descendants of the server without the guard, running or ended but not reaped.
    fn pids(&self) -> Vec<u32> {
        descendants(self.server.pid()).into_iter().filter(|pid| !self.guard.contains(pid)).collect()
    }

    #[track_caller]
    fn assert_none_left_behind(&self) {
        let left = self.pids();
        let described: Vec<_> = left.iter().map(|pid| (pid, process_state(*pid), command_line(*pid))).collect();
        assert!(left.is_empty(), "left behind: {described:?}");
    }

    async fn wait_until_none_left_behind(&self) {
        eventually("no process is left behind", || self.pids().is_empty().then_some(())).await;
    }
}

fn command_line(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ")
}

/// Reads this many numbers, one on each line, from the output of a process.
async fn read_numbers(client: &mut Client, process: &str, count: usize) -> Vec<u32> {
    let mut text = String::new();
    while text.matches('\n').count() < count {
        text += &client.output_until(process, "\n").await;
    }
    text.lines().map(|line| line.trim().parse().unwrap_or_else(|_| panic!("{line:?} is no number"))).collect()
}

async fn terminate(client: &mut Client, process: &str) -> Value {
    client.call("process/terminate", json!({"processId": process})).await
}

/// Exit code of a process that SIGKILL has ended, as a shell reports it.
const KILLED: i64 = 128 + 9;

/// Starts a command that prints the pids of all its processes, and terminates the command. Checks that none of the
/// processes, which are `count`, exists after the answer.
async fn assert_tree_ends(argv: &[&str], count: usize) {
    let check = LeftoverCheck::start(&[]).await;
    let mut client = check.server.client().await;
    client.start("p", argv).await;
    let pids = read_numbers(&mut client, "p", count).await;
    assert!(pids.iter().all(|pid| process_state(*pid).is_some()), "{pids:?}");
    assert_eq!(terminate(&mut client, "p").await, json!({"running": true}));
    check.assert_none_left_behind();
    assert!(pids.iter().all(|pid| process_state(*pid).is_none()), "{pids:?}");
    assert_eq!(client.outcome("p").await.exit_code, KILLED);
}

async fn assert_script_ends(script: &str, count: usize) {
    assert_tree_ends(&["sh", "-c", script], count).await;
}

#[tokio::test]
async fn terminate_ends_a_single_process() {
    assert_script_ends("echo $$; exec sleep 1000", 1).await;
}

#[tokio::test]
async fn terminate_ends_children_in_another_unix_session() {
    assert_script_ends("setsid sh -c 'echo $$; exec sleep 1000' & echo $$; wait", 2).await;
}

#[tokio::test]
async fn terminate_ends_daemons() {
    assert_tree_ends(&["perl", "-e", &format!("{DAEMON} daemon() for 1..3; print \"$$\\n\"; sleep 1000")], 4).await;
}

#[tokio::test]
async fn terminate_ends_processes_that_ignore_signals() {
    let script = "trap '' TERM INT HUP QUIT USR1 USR2; sh -c 'echo $$; sleep 1000' & echo $$; wait";
    assert_script_ends(script, 2).await;
}

#[tokio::test]
async fn terminate_ends_stopped_processes() {
    let check = LeftoverCheck::start(&[]).await;
    let mut client = check.server.client().await;
    client.start("p", &["sh", "-c", "setsid sh -c 'echo $$; kill -STOP $$' & echo $$; kill -STOP $$; wait"]).await;
    let pids = read_numbers(&mut client, "p", 2).await;
    let all_stopped = || pids.iter().all(|pid| process_state(*pid) == Some('T')).then_some(());
    eventually("both processes are stopped", all_stopped).await;
    assert_eq!(terminate(&mut client, "p").await, json!({"running": true}));
    check.assert_none_left_behind();
    assert_eq!(client.outcome("p").await.exit_code, KILLED);
}

/// Perl code. Each process forks every 20 ms, and each child makes a Unix session of its own and appends a byte to
/// the file that is the argument. The processes stop forking when the file has 1,500 bytes or after 30 seconds.
const FORK_BOMB: &str = r#"
    use POSIX;
    my $file = shift; $SIG{CHLD} = "IGNORE"; $SIG{TERM} = "IGNORE"; my $start = time;
    while (-s $file < 1500 && time - $start < 30) {
        if (!fork) { setsid(); open(my $f, ">>", $file); syswrite($f, "x"); }
        select(undef, undef, undef, 0.02);
    }
    sleep 30;
"#;

#[tokio::test]
async fn terminate_ends_a_fork_bomb() {
    let directory = TempDir::new().unwrap();
    let count = directory.path().join("count");
    std::fs::write(&count, "").unwrap();
    let forks = || std::fs::metadata(&count).unwrap().len();
    let check = LeftoverCheck::start(&[]).await;
    let mut client = check.server.client().await;
    client.start("p", &["perl", "-e", FORK_BOMB, count.to_str().unwrap()]).await;
    eventually("500 processes were forked", || (forks() >= 500).then_some(())).await;
    assert_eq!(terminate(&mut client, "p").await, json!({"running": true}));
    let forks_at_the_answer = forks();
    check.assert_none_left_behind();
    assert_eq!(client.outcome("p").await.exit_code, KILLED);
    assert_eq!(forks(), forks_at_the_answer, "a process still forks");
    assert_eq!(client.run("q", &["echo", "well"]).await.stdout, b"well\n");
}

#[tokio::test]
async fn terminate_ends_jobs_of_an_interactive_shell() {
    let check = LeftoverCheck::start(&[]).await;
    let mut client = check.server.client().await;
    let mut params = Client::start_params("p", &["bash", "--norc", "--noprofile", "-i"]);
    params["tty"] = true.into();
    params["env"]["PS1"] = "$ ".into();
    client.call("process/start", params).await;
    let jobs = "stty -echo; PS1=; set +m; set -m; sleep 1000 & sleep 1000 | sleep 1000 & nohup setsid sleep 1000 & disown -a; trap '' HUP; echo rea''dy\n";
    assert_eq!(client.write("p", "1", jobs).await, "accepted");
    client.output_until("p", "ready").await;
    eventually("the shell and the four processes of its jobs run", || (check.pids().len() >= 5).then_some(())).await;
    assert_eq!(terminate(&mut client, "p").await, json!({"running": true}));
    check.assert_none_left_behind();
    let outcome = client.outcome("p").await;
    assert_eq!(outcome.exit_code, KILLED);
}

#[tokio::test]
async fn terminate_ends_children_that_hold_the_pipes_after_the_process_has_exited() {
    let check = LeftoverCheck::start(&[]).await;
    let mut client = check.server.client().await;
    client.start("p", &["sh", "-c", "sleep 1000 & setsid sleep 1000 & exit 3"]).await;
    let exited = client.event("p").await;
    assert_eq!((&exited["method"], &exited["params"]["exitCode"]), (&json!("process/exited"), &json!(3)));
    let page = client.call("process/read", json!({"processId": "p"})).await;
    assert_eq!((&page["exited"], &page["closed"]), (&json!(true), &json!(false)), "{page}");
    assert_eq!(check.pids().len(), 2);
    assert_eq!(terminate(&mut client, "p").await, json!({"running": false}));
    check.assert_none_left_behind();
    assert_eq!(client.event("p").await, json!({"method": "process/closed", "params": {"processId": "p", "seq": 2}}));
}

#[tokio::test]
async fn output_from_before_a_terminate_is_delivered() {
    let check = LeftoverCheck::start(&[]).await;
    let directory = TempDir::new().unwrap();
    for round in 0..20 {
        let done = directory.path().join(round.to_string());
        let script = format!("head -c 307200 /dev/zero; echo end; touch {}; exec sleep 1000", done.display());
        let mut client = check.server.client().await;
        client.start("p", &["sh", "-c", &script]).await;
        eventually("the process has written everything", || done.exists().then_some(())).await;
        let terminating = client.send("process/terminate", json!({"processId": "p"})).await;
        let outcome = client.outcome("p").await;
        assert_eq!(outcome.stdout.len(), 307_200 + 4);
        assert!(outcome.stdout.ends_with(b"\0end\n"));
        assert_eq!(client.answer(terminating).await["result"], json!({"running": true}));
    }
    check.assert_none_left_behind();
}

#[tokio::test]
async fn terminate_of_an_unknown_or_closed_process_reports_that_it_is_not_running() {
    let check = LeftoverCheck::start(&[]).await;
    let mut client = check.server.client().await;
    assert_eq!(terminate(&mut client, "nobody").await, json!({"running": false}));
    client.run("p", &["true"]).await;
    assert_eq!(terminate(&mut client, "p").await, json!({"running": false}));
    client.start("q", &["sleep", "1000"]).await;
    let requests = [
        client.send("process/terminate", json!({"processId": "q"})).await,
        client.send("process/terminate", json!({"processId": "q"})).await,
    ];
    assert_eq!(client.answer(requests[0]).await["result"], json!({"running": true}));
    // The process may or may not be running when the second of the two requests is handled.
    assert!(client.answer(requests[1]).await.get("result").is_some());
    assert_eq!(terminate(&mut client, "q").await, json!({"running": false}));
    check.assert_none_left_behind();
}

#[tokio::test]
async fn daemons_of_a_closed_process_can_still_be_terminated() {
    let check = LeftoverCheck::start(&[]).await;
    let mut client = check.server.client().await;
    let outcome = client.run("p", &["perl", "-e", &format!("{DAEMON} daemon() for 1..3")]).await;
    assert_eq!(outcome.exit_code, 0);
    let only_daemons_are_left = || check.pids().len() == 3;
    eventually("only the daemons are left", || only_daemons_are_left().then_some(())).await;
    assert_eq!(terminate(&mut client, "p").await, json!({"running": false}));
    check.assert_none_left_behind();
}

#[tokio::test]
async fn a_timeout_ends_a_process_with_all_its_descendants() {
    let check = LeftoverCheck::start(&[]).await;
    let mut client = check.server.client().await;
    let script = "trap '' TERM; setsid sleep 1000 & echo begun; sleep 1000";
    let mut params = Client::start_params("p", &["sh", "-c", script]);
    params["timeoutMs"] = 1000.into();
    client.call("process/start", params).await;
    let outcome = client.outcome("p").await;
    assert_eq!(
        (outcome.stdout.as_slice(), outcome.seqs),
        (&b"begun\n"[..], vec![1, 2, 3]),
        "the script has begun before the timeout"
    );
    assert_eq!((outcome.timed_out, outcome.exit_code), (true, KILLED));
    check.wait_until_none_left_behind().await;

    let mut params = Client::start_params("q", &["echo", "quick"]);
    params["timeoutMs"] = 60_000.into();
    client.call("process/start", params).await;
    let outcome = client.outcome("q").await;
    assert_eq!((outcome.timed_out, outcome.exit_code), (false, 0));
}

#[tokio::test]
async fn an_expired_session_ends_all_its_processes() {
    let check = LeftoverCheck::start(&["--session-ttl", "200ms"]).await;
    let mut other = check.server.client().await;
    other.start("p", &["sleep", "1000"]).await;
    let pids_of_other = check.pids();

    let mut client = check.server.client().await;
    client.run("closed", &["perl", "-e", &format!("{DAEMON} daemon() for 1..3")]).await;
    client.start("stubborn", &["sh", "-c", "trap '' TERM HUP INT; setsid sleep 1000 & sleep 1000"]).await;
    let mut params = Client::start_params("terminal", &["bash", "--norc", "-i"]);
    params["tty"] = true.into();
    client.call("process/start", params).await;
    client.start("full", &["sh", "-c", "sleep 1000 & yes"]).await;
    // The numbers of processes of `p`, `closed`, `stubborn`, `terminal` and `full`.
    eventually("all processes run", || (check.pids().len() >= 1 + 3 + 3 + 1 + 3).then_some(())).await;
    drop(client);
    eventually("only the other session is left", || (check.pids() == pids_of_other).then_some(())).await;
    assert_eq!(other.call("environment/status", json!({})).await, json!({"status": "ready"}));
}

#[tokio::test]
async fn no_zombie_is_left() {
    let check = LeftoverCheck::start(&["--process-retention", "100ms"]).await;
    let mut client = check.server.client().await;
    for number in 0..300 {
        client.start(&format!("one-shot {number}"), &["true"]).await;
    }
    for number in 0..300 {
        assert_eq!(client.outcome(&format!("one-shot {number}")).await.exit_code, 0);
    }
    for number in 0..20 {
        let tree = format!("tree {number}");
        client
            .start(&tree, &["sh", "-c", "for i in 1 2 3; do sh -c 'setsid sleep 1000 & sleep 1000' & done; wait"])
            .await;
        terminate(&mut client, &tree).await;
        check.assert_none_left_behind();
    }
    // No request waits for these orphans. They end after the process that started them has closed, while the process
    // `another` still runs.
    client.start("another", &["sleep", "1000"]).await;
    client.run("orphans", &["sh", "-c", "for i in 1 2 3; do setsid sleep 0.3 >/dev/null 2>&1 & done"]).await;
    eventually("the orphans are reaped", || (check.pids().len() == 1).then_some(())).await;
}
