//! Nothing is left behind: not by `process/terminate`, a timeout, or the end of a session.

use tempfile::TempDir;
use testkit::{Client, TestServer, Value, descendants, eventually, json, process_state};

/// Detached from everything: parents, session, terminal, streams.
const DAEMON: &str = r#"
    use POSIX; $| = 1;
    sub daemon {
        return if fork; setsid(); exit if fork; setsid();
        print "$$\n"; open(STDIN, "<", "/dev/null"); open(STDOUT, ">", "/dev/null"); open(STDERR, ">", "/dev/null");
        chdir "/"; sleep 1000; exit;
    }
"#;

/// Orphans come to the server, so whoever is left is among its descendants; the guard belongs there.
struct Watch {
    server: TestServer,
    guard: Vec<u32>,
}

impl Watch {
    async fn start(args: &[&str]) -> Self {
        let server = TestServer::with_args(args).await;
        let guard = descendants(server.pid());
        assert_eq!(guard.len(), 1);
        Self { server, guard }
    }

    fn left_behind(&self) -> Vec<u32> {
        descendants(self.server.pid()).into_iter().filter(|pid| !self.guard.contains(pid)).collect()
    }

    #[track_caller]
    fn assert_nobody_is_left(&self) {
        let left = self.left_behind();
        let described: Vec<_> = left.iter().map(|pid| (pid, process_state(*pid), command_line(*pid))).collect();
        assert!(left.is_empty(), "left behind: {described:?}");
    }

    async fn until_nobody_is_left(&self) {
        eventually("nobody is left behind", || self.left_behind().is_empty().then_some(())).await;
    }
}

fn command_line(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ")
}

/// Reads what a process writes until there are so many numbers, one a line.
async fn numbers(client: &mut Client, process: &str, count: usize) -> Vec<u32> {
    let mut text = String::new();
    while text.matches('\n').count() < count {
        text += &client.output_until(process, "\n").await;
    }
    text.lines().map(|line| line.trim().parse().unwrap_or_else(|_| panic!("{line:?} is no number"))).collect()
}

async fn terminate(client: &mut Client, process: &str) -> Value {
    client.call("process/terminate", json!({"processId": process})).await
}

/// What a shell would say of a process that was ended by SIGKILL.
const KILLED: i64 = 128 + 9;

/// Starts a command that prints the ids of all its processes, terminates it, and finds none of them when the answer is here.
async fn assert_tree_ends(argv: &[&str], processes: usize) {
    let watch = Watch::start(&[]).await;
    let mut client = watch.server.client().await;
    client.start("p", argv).await;
    let pids = numbers(&mut client, "p", processes).await;
    assert!(pids.iter().all(|pid| process_state(*pid).is_some()), "{pids:?}");
    assert_eq!(terminate(&mut client, "p").await, json!({"running": true}));
    watch.assert_nobody_is_left();
    assert!(pids.iter().all(|pid| process_state(*pid).is_none()), "{pids:?}");
    assert_eq!(client.outcome("p").await.exit_code, KILLED);
}

async fn assert_script_ends(script: &str, processes: usize) {
    assert_tree_ends(&["sh", "-c", script], processes).await;
}

#[tokio::test]
async fn a_single_process() {
    assert_script_ends("echo $$; exec sleep 1000", 1).await;
}

#[tokio::test]
async fn children_in_another_session() {
    assert_script_ends("setsid sh -c 'echo $$; exec sleep 1000' & echo $$; wait", 2).await;
}

#[tokio::test]
async fn daemons() {
    assert_tree_ends(&["perl", "-e", &format!("{DAEMON} daemon() for 1..3; print \"$$\\n\"; sleep 1000")], 4).await;
}

#[tokio::test]
async fn those_that_ignore_every_signal_they_can() {
    let script = "trap '' TERM INT HUP QUIT USR1 USR2; sh -c 'echo $$; sleep 1000' & echo $$; wait";
    assert_script_ends(script, 2).await;
}

#[tokio::test]
async fn those_that_are_stopped() {
    let watch = Watch::start(&[]).await;
    let mut client = watch.server.client().await;
    client.start("p", &["sh", "-c", "setsid sh -c 'echo $$; kill -STOP $$' & echo $$; kill -STOP $$; wait"]).await;
    let pids = numbers(&mut client, "p", 2).await;
    let all_stopped = || pids.iter().all(|pid| process_state(*pid) == Some('T')).then_some(());
    eventually("both are stopped", all_stopped).await;
    assert_eq!(terminate(&mut client, "p").await, json!({"running": true}));
    watch.assert_nobody_is_left();
    assert_eq!(client.outcome("p").await.exit_code, KILLED);
}

/// Each process forks every few milliseconds, in a session of its own, until the file has a byte for each of 1,500 forks.
const BOMB: &str = r#"
    use POSIX;
    my $file = shift; $SIG{CHLD} = "IGNORE"; $SIG{TERM} = "IGNORE"; my $start = time;
    while (-s $file < 1500 && time - $start < 30) {
        if (!fork) { setsid(); open(my $f, ">>", $file); syswrite($f, "x"); }
        select(undef, undef, undef, 0.02);
    }
    sleep 30;
"#;

#[tokio::test]
async fn a_fork_bomb() {
    let directory = TempDir::new().unwrap();
    let count = directory.path().join("count");
    std::fs::write(&count, "").unwrap();
    let forks = || std::fs::metadata(&count).unwrap().len();
    let watch = Watch::start(&[]).await;
    let mut client = watch.server.client().await;
    client.start("p", &["perl", "-e", BOMB, count.to_str().unwrap()]).await;
    eventually("500 processes run", || (forks() >= 500).then_some(())).await;
    assert_eq!(terminate(&mut client, "p").await, json!({"running": true}));
    let at_the_end = forks();
    watch.assert_nobody_is_left();
    assert_eq!(client.outcome("p").await.exit_code, KILLED);
    assert_eq!(forks(), at_the_end, "somebody goes on forking");
    assert_eq!(client.run("q", &["echo", "well"]).await.stdout, b"well\n");
}

#[tokio::test]
async fn jobs_of_an_interactive_shell() {
    let watch = Watch::start(&[]).await;
    let mut client = watch.server.client().await;
    let mut params = Client::start_params("p", &["bash", "--norc", "--noprofile", "-i"]);
    params["tty"] = true.into();
    params["env"]["PS1"] = "$ ".into();
    client.call("process/start", params).await;
    let jobs = "stty -echo; PS1=; set +m; set -m; sleep 1000 & sleep 1000 | sleep 1000 & nohup setsid sleep 1000 & disown -a; trap '' HUP; echo rea''dy\n";
    assert_eq!(client.write("p", "1", jobs).await, "accepted");
    client.output_until("p", "ready").await;
    eventually("all jobs run", || (watch.left_behind().len() >= 5).then_some(())).await;
    assert_eq!(terminate(&mut client, "p").await, json!({"running": true}));
    watch.assert_nobody_is_left();
    let outcome = client.outcome("p").await;
    assert_eq!(outcome.exit_code, KILLED);
}

#[tokio::test]
async fn children_that_hold_the_pipes_after_the_leader_exited() {
    let watch = Watch::start(&[]).await;
    let mut client = watch.server.client().await;
    client.start("p", &["sh", "-c", "sleep 1000 & setsid sleep 1000 & exit 3"]).await;
    let exited = client.event("p").await;
    assert_eq!((&exited["method"], &exited["params"]["exitCode"]), (&json!("process/exited"), &json!(3)));
    let page = client.call("process/read", json!({"processId": "p"})).await;
    assert_eq!((&page["exited"], &page["closed"]), (&json!(true), &json!(false)), "{page}");
    assert_eq!(watch.left_behind().len(), 2);
    assert_eq!(terminate(&mut client, "p").await, json!({"running": false}));
    watch.assert_nobody_is_left();
    assert_eq!(client.event("p").await, json!({"method": "process/closed", "params": {"processId": "p", "seq": 2}}));
}

#[tokio::test]
async fn what_was_written_before_a_terminate_is_delivered() {
    let watch = Watch::start(&[]).await;
    let directory = TempDir::new().unwrap();
    for round in 0..20 {
        let done = directory.path().join(round.to_string());
        let script = format!("head -c 307200 /dev/zero; echo end; touch {}; exec sleep 1000", done.display());
        let mut client = watch.server.client().await;
        client.start("p", &["sh", "-c", &script]).await;
        eventually("it has written everything", || done.exists().then_some(())).await;
        let terminating = client.send("process/terminate", json!({"processId": "p"})).await;
        let outcome = client.outcome("p").await;
        assert_eq!(outcome.stdout.len(), 307_200 + 4);
        assert!(outcome.stdout.ends_with(b"\0end\n"));
        assert_eq!(client.answer(terminating).await["result"], json!({"running": true}));
    }
    watch.assert_nobody_is_left();
}

#[tokio::test]
async fn terminating_what_is_not_there_or_over() {
    let watch = Watch::start(&[]).await;
    let mut client = watch.server.client().await;
    assert_eq!(terminate(&mut client, "nobody").await, json!({"running": false}));
    client.run("p", &["true"]).await;
    assert_eq!(terminate(&mut client, "p").await, json!({"running": false}));
    client.start("q", &["sleep", "1000"]).await;
    let both = [
        client.send("process/terminate", json!({"processId": "q"})).await,
        client.send("process/terminate", json!({"processId": "q"})).await,
    ];
    assert_eq!(client.answer(both[0]).await["result"], json!({"running": true}));
    assert!(client.answer(both[1]).await.get("result").is_some());
    assert_eq!(terminate(&mut client, "q").await, json!({"running": false}));
    watch.assert_nobody_is_left();
}

#[tokio::test]
async fn daemons_of_a_closed_process_can_still_be_terminated() {
    let watch = Watch::start(&[]).await;
    let mut client = watch.server.client().await;
    let outcome = client.run("p", &["perl", "-e", &format!("{DAEMON} daemon() for 1..3")]).await;
    assert_eq!(outcome.exit_code, 0);
    let alive = || watch.left_behind().len() == 3;
    eventually("only the daemons are left", || alive().then_some(())).await;
    assert_eq!(terminate(&mut client, "p").await, json!({"running": false}));
    watch.assert_nobody_is_left();
}

#[tokio::test]
async fn a_timeout_ends_the_whole_tree() {
    let watch = Watch::start(&[]).await;
    let mut client = watch.server.client().await;
    let script = "trap '' TERM; setsid sleep 1000 & echo begun; sleep 1000";
    let mut params = Client::start_params("p", &["sh", "-c", script]);
    params["timeoutMs"] = 1000.into();
    client.call("process/start", params).await;
    let outcome = client.outcome("p").await;
    assert_eq!((outcome.stdout.as_slice(), outcome.seqs), (&b"begun\n"[..], vec![1, 2, 3]), "it had time to begin");
    assert_eq!((outcome.timed_out, outcome.exit_code), (true, KILLED));
    watch.until_nobody_is_left().await;

    let mut params = Client::start_params("q", &["echo", "quick"]);
    params["timeoutMs"] = 60_000.into();
    client.call("process/start", params).await;
    let outcome = client.outcome("q").await;
    assert_eq!((outcome.timed_out, outcome.exit_code), (false, 0));
}

#[tokio::test]
async fn an_expired_session_takes_everything_with_it() {
    let watch = Watch::start(&["--session-ttl", "200ms"]).await;
    let mut other = watch.server.client().await;
    other.start("p", &["sleep", "1000"]).await;
    let others = watch.left_behind();

    let mut client = watch.server.client().await;
    client.run("closed", &["perl", "-e", &format!("{DAEMON} daemon() for 1..3")]).await;
    client.start("stubborn", &["sh", "-c", "trap '' TERM HUP INT; setsid sleep 1000 & sleep 1000"]).await;
    let mut params = Client::start_params("terminal", &["bash", "--norc", "-i"]);
    params["tty"] = true.into();
    client.call("process/start", params).await;
    client.start("full", &["sh", "-c", "sleep 1000 & yes"]).await;
    eventually("all of them run", || (watch.left_behind().len() >= 1 + 3 + 3 + 1 + 3).then_some(())).await;
    drop(client);
    eventually("only the other session is left", || (watch.left_behind() == others).then_some(())).await;
    assert_eq!(other.call("environment/status", json!({})).await, json!({"status": "ready"}));
}

#[tokio::test]
async fn no_zombie_stays() {
    let watch = Watch::start(&["--process-retention", "100ms"]).await;
    let mut client = watch.server.client().await;
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
        watch.assert_nobody_is_left();
    }
    // Nobody asked for the ends of these: they come to the server long after their process has closed, and it looks for
    // them more often while another one runs.
    client.start("another", &["sleep", "1000"]).await;
    client.run("orphans", &["sh", "-c", "for i in 1 2 3; do setsid sleep 0.3 >/dev/null 2>&1 & done"]).await;
    eventually("the orphans are reaped", || (watch.left_behind().len() == 1).then_some(())).await;
}
