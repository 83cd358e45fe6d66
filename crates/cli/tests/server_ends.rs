//! A server that ends leaves no process behind, whether it is asked to end or is killed. After a kill the guard does
//! the work: a child of the server that waits for the death of the server and then kills all processes that the
//! server has started.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use std::process::Stdio;

use testkit::{
    Client, Signal, TestServer, Value, binary, descendants, eventually, is_alive, json, process_state, send_signal,
};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

/// Perl code that becomes a daemon, which is one process. It has another parent and Unix session, its streams are
/// `/dev/null`, and it ignores SIGTERM, SIGHUP and SIGINT.
const DAEMON: &str = r#"
    use POSIX; $SIG{TERM} = $SIG{HUP} = $SIG{INT} = "IGNORE";
    exit if fork; setsid(); exit if fork; setsid();
    open(STDIN, "<", "/dev/null"); open(STDOUT, ">", "/dev/null"); open(STDERR, ">", "/dev/null");
    sleep 1000;
"#;

/// A shell script of four processes that ignore SIGTERM, SIGHUP and SIGINT. One of them is in a Unix session of its
/// own.
const STUBBORN: &str = "trap '' TERM HUP INT; setsid sleep 1000 & sleep 1000 & while :; do sleep 1000; done";

/// The value of a variable in the environment of all processes of a test. The test finds its processes in `/proc` by
/// this variable.
struct ProcessMarker(String);

impl ProcessMarker {
    fn new(test: &str) -> Self {
        Self(format!("{test}-{}", std::process::id()))
    }

    fn start_params(&self, process: &str, argv: &[&str]) -> Value {
        let mut params = Client::start_params(process, argv);
        params["env"]["LEFT_BEHIND_MARK"] = self.0.as_str().into();
        params
    }

    async fn start(&self, client: &mut Client, process: &str, argv: &[&str]) {
        client.call("process/start", self.start_params(process, argv)).await;
    }

    /// The messages of a handshake, and a `process/start` for each of these process ids. Each message is a line.
    fn requests(&self, ids: std::ops::Range<u32>) -> String {
        let mut requests = json!({"id": 1, "method": "initialize", "params": {"clientName": "testkit"}}).to_string();
        requests += "\n{\"method\": \"initialized\", \"params\": {}}\n";
        for id in ids {
            let params = self.start_params(&id.to_string(), &["sleep", "1000"]);
            requests += &format!("{}\n", json!({"id": id, "method": "process/start", "params": params}));
        }
        requests
    }

    /// Pids of all processes that have the variable.
    fn marked_pids(&self) -> Vec<u32> {
        let wanted = format!("LEFT_BEHIND_MARK={}", self.0);
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_marked = |pid: &u32| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
        };
        pids.filter(is_marked).collect()
    }

    async fn wait_for_processes(&self, count: usize) {
        eventually("all processes run", || (self.marked_pids().len() >= count).then_some(())).await;
    }

    async fn wait_until_all_are_gone(&self) {
        eventually("no process is left", || self.marked_pids().is_empty().then_some(())).await;
    }
}

/// Pid of the guard, which is the only child of the server before the first process starts.
fn guard_of(server: &TestServer) -> u32 {
    let children = descendants(server.pid());
    assert_eq!(children.len(), 1, "{children:?}");
    children[0]
}

fn is_guard(pid: u32) -> bool {
    let command_line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    command_line.split('\0').nth(1) == Some("__guard")
}

/// Waits until the guard has ended. A zombie counts as ended: the init process of the machine may reap the guard
/// late.
async fn wait_until_guard_has_ended(guard: u32) {
    eventually("the guard has ended", || (!is_alive(guard)).then_some(())).await;
}

#[tokio::test]
async fn the_end_of_stdin_ends_all_processes() {
    let marker = ProcessMarker::new("stdio");
    let mut command = tokio::process::Command::new(binary());
    command.args(["--listen", "stdio"]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut server = command.spawn().unwrap();
    let mut stdin = server.stdin.take().unwrap();
    let mut requests = vec![
        json!({"id": 1, "method": "initialize", "params": {"clientName": "testkit"}}),
        json!({"method": "initialized", "params": {}}),
    ];
    for (id, argv) in [(2, ["sh", "-c", STUBBORN]), (3, ["perl", "-e", DAEMON])] {
        let params = marker.start_params(&id.to_string(), &argv);
        requests.push(json!({"id": id, "method": "process/start", "params": params}));
    }
    for request in requests {
        stdin.write_all(format!("{request}\n").as_bytes()).await.unwrap();
    }
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    assert!(lines.next_line().await.unwrap().unwrap().contains("sessionId"));
    marker.wait_for_processes(4 + 1).await;
    drop(stdin);
    assert_eq!(server.wait().await.unwrap().code(), Some(0));
    assert_eq!(marker.marked_pids(), [0; 0]);
}

#[tokio::test]
async fn starts_in_flight_at_the_end_of_stdin_leave_no_process() {
    let marker = ProcessMarker::new("stdio-in-flight");
    for _ in 0..10 {
        let mut command = tokio::process::Command::new(binary());
        command.args(["--listen", "stdio"]).stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true);
        let mut server = command.spawn().unwrap();
        let mut stdin = server.stdin.take().unwrap();
        stdin.write_all(marker.requests(2..40).as_bytes()).await.unwrap();
        drop(stdin);
        assert_eq!(server.wait().await.unwrap().code(), Some(0));
        marker.wait_until_all_are_gone().await;
    }
}

/// Like the test above, but the server keeps running for its other listener. So the server itself must end the
/// processes, without the guard.
#[tokio::test]
async fn starts_in_flight_at_the_end_of_one_of_two_listeners_leave_no_process() {
    let marker = ProcessMarker::new("stdio-and-socket");
    for round in 0..10 {
        let mut command = tokio::process::Command::new(binary());
        command.args(["--listen", "stdio", "--listen", "ws://127.0.0.1:0"]).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = command.spawn().unwrap();
        let mut stdin = server.stdin.take().unwrap();
        stdin.write_all(marker.requests(2..40).as_bytes()).await.unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        // In each round, stdin ends one answer later.
        for _ in 0..=round {
            assert!(lines.next_line().await.unwrap().is_some());
        }
        drop(stdin);
        let pid = server.id().unwrap();
        let only_the_guard = || matches!(descendants(pid)[..], [child] if is_guard(child)).then_some(());
        eventually("only the guard is left", only_the_guard).await;
        assert_eq!(server.try_wait().unwrap(), None);
        server.kill().await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_gets_sigterm_ends_all_processes() {
    let marker = ProcessMarker::new("sigterm");
    let mut server = TestServer::with_args(&["--shutdown-grace", "300ms"]).await;
    let mut client = server.client().await;
    let polite = "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done";
    marker.start(&mut client, "polite", &["sh", "-c", polite]).await;
    client.output_until("polite", "ready").await;
    marker.start(&mut client, "stubborn", &["sh", "-c", STUBBORN]).await;
    marker.start(&mut client, "daemon", &["perl", "-e", DAEMON]).await;
    marker.wait_for_processes(1 + 4 + 1).await;
    client.outcome("daemon").await;

    server.signal(Signal::TERM);
    let polite = client.outcome("polite").await;
    assert_eq!((polite.stdout.as_slice(), polite.exit_code), (&b"bye\n"[..], 5));
    assert_eq!(client.outcome("stubborn").await.exit_code, 137);
    assert_eq!(client.drain().await, [json!(null); 0]);
    assert_eq!(server.wait().await, Some(0));
    assert_eq!(marker.marked_pids(), [0; 0]);
}

#[tokio::test]
async fn a_killed_server_leaves_no_process() {
    let marker = ProcessMarker::new("sigkill");
    let server = TestServer::start().await;
    let guard = guard_of(&server);
    let mut client = server.client().await;
    for number in 0..100 {
        marker.start(&mut client, &number.to_string(), &["sleep", "1000"]).await;
    }
    marker.start(&mut client, "stubborn", &["sh", "-c", STUBBORN]).await;
    marker.start(&mut client, "daemon", &["perl", "-e", DAEMON]).await;
    let mut params = marker.start_params("terminal", &["bash", "--norc", "-i"]);
    params["tty"] = true.into();
    client.call("process/start", params).await;
    marker.wait_for_processes(100 + 4 + 1 + 1).await;
    server.kill().await;
    marker.wait_until_all_are_gone().await;
    wait_until_guard_has_ended(guard).await;
}

/// A bash script of four processes that have removed their tag. The tag is a value of a resource limit (`ulimit -R`),
/// by which the server finds the processes of a command. One child is in a Unix session of its own and can be found
/// only as a child of the leader, which is the process that the server has started. So the leader must live until its
/// children are found, and ignores the SIGHUP that it gets when its terminal is closed.
const UNTAGGED: &str =
    "trap '' HUP; ulimit -R unlimited; sleep 1000 & setsid sleep 1000 & while :; do sleep 1000; done";

#[tokio::test]
async fn a_killed_server_leaves_no_process_that_has_removed_its_tag() {
    let marker = ProcessMarker::new("untagged");
    let server = TestServer::start().await;
    let guard = guard_of(&server);
    let mut client = server.client().await;
    marker.start(&mut client, "piped", &["bash", "-c", UNTAGGED]).await;
    let mut params = marker.start_params("terminal", &["bash", "-c", UNTAGGED]);
    params["tty"] = true.into();
    client.call("process/start", params).await;
    marker.wait_for_processes(2 * 4).await;
    server.kill().await;
    marker.wait_until_all_are_gone().await;
    wait_until_guard_has_ended(guard).await;
}

#[tokio::test]
async fn the_guard_has_another_process_name_than_the_server() {
    let server = TestServer::start().await;
    let name = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().trim().to_owned();
    let guard = guard_of(&server);
    eventually("the guard has its own name", || (name(guard) == "exec-guard").then_some(())).await;
    assert_eq!(name(server.pid()), "exec-server");
    let command_line = std::fs::read_to_string(format!("/proc/{guard}/cmdline")).unwrap();
    assert!(!command_line.contains("exec-server"), "{command_line}");
}

#[tokio::test]
async fn a_killed_guard_is_replaced() {
    let marker = ProcessMarker::new("guard");
    let server = TestServer::start().await;
    let first = guard_of(&server);
    let mut client = server.client().await;
    marker.start(&mut client, "stubborn", &["sh", "-c", STUBBORN]).await;
    marker.start(&mut client, "daemon", &["perl", "-e", DAEMON]).await;
    marker.wait_for_processes(4 + 1).await;
    for _ in 0..2 {
        let current = descendants(server.pid()).into_iter().find(|pid| is_guard(*pid)).unwrap();
        send_signal(current, Signal::KILL);
        let successor = || descendants(server.pid()).into_iter().find(|pid| *pid != current && is_guard(*pid));
        assert_ne!(eventually("there is another guard", successor).await, first);
        assert_eq!(process_state(current), None, "the old guard was reaped");
    }
    assert_eq!(marker.marked_pids().len(), 4 + 1, "killing the guard ends no process");
    server.kill().await;
    marker.wait_until_all_are_gone().await;
}

#[tokio::test]
async fn a_killed_guard_is_replaced_before_there_is_a_process_to_guard() {
    let server = TestServer::start().await;
    let first = guard_of(&server);
    send_signal(first, Signal::KILL);
    let successor = || descendants(server.pid()).into_iter().find(|pid| *pid != first && is_guard(*pid));
    eventually("there is another guard", successor).await;
}

#[tokio::test]
async fn starts_in_flight_when_the_server_is_killed_leave_no_process() {
    let marker = ProcessMarker::new("in-flight");
    for round in 0..10 {
        let server = TestServer::start().await;
        let guard = guard_of(&server);
        let mut client = server.client().await;
        // In each round, the server is killed after the answer to a later start.
        let mut awaited_start = 0;
        for number in 0..40 {
            let argv = ["sh", "-c", "setsid sleep 1000 & sleep 1000"];
            let id = client.send("process/start", marker.start_params(&number.to_string(), &argv)).await;
            awaited_start = if number == round { id } else { awaited_start };
        }
        client.answer(awaited_start).await;
        server.kill().await;
        wait_until_guard_has_ended(guard).await;
        assert_eq!(marker.marked_pids(), [0; 0], "round {round}");
    }
}

#[tokio::test]
async fn a_stopped_guard_is_continued() {
    let server = TestServer::start().await;
    let guard = guard_of(&server);
    server.client().await.run("first", &["true"]).await;
    eventually("the guard is stopped", || {
        send_signal(guard, Signal::STOP);
        (process_state(guard) == Some('T')).then_some(())
    })
    .await;
    eventually("the guard runs again", || (process_state(guard) == Some('S')).then_some(())).await;
}
