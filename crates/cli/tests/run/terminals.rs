//! Commands on a terminal: keys, sizes, and that `exec-server` restores the mode of the terminal in all cases.

use testkit::{
    CuttingProxy, Signal, Terminal, TestServer, eventually, eventually_async, http_get, is_alive, process_state,
    send_signal,
};

use crate::support::{command, read_pid, wait_for_output};

/// `exec-server shell` on a terminal, whose prompt is `ready>`.
fn shell(args: &[&str]) -> Terminal {
    let all: Vec<&str> = ["shell"].iter().chain(args).chain(&["--env", "PS1=ready>"]).copied().collect();
    Terminal::start(&all, |command| command.env("SHELL", "/bin/sh"))
}

/// `exec-server run -t` with a script that writes its pid to the file `pid`, prints `ready`, and waits.
fn run_waiting_script(args: &[&str], folder: &tempfile::TempDir) -> Terminal {
    let script = format!("echo $$ > {}; echo ready; exec sleep 600", folder.path().join("pid").display());
    let all: Vec<&str> = ["run", "-t"].iter().chain(args).chain(&["--", "sh", "-c", &script]).copied().collect();
    Terminal::start(&all, |command| command)
}

/// A shell at its prompt, on a server whose connections can be cut.
async fn shell_behind_proxy() -> (TestServer, CuttingProxy, Terminal) {
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let mut terminal = shell(&["--connect", &proxy.url()]);
    terminal.keys("PS1='now''> '\r");
    terminal.shows("now> ").await;
    (server, proxy, terminal)
}

#[tokio::test]
async fn a_shell_works_in_the_terminal_of_the_user() {
    let mut terminal = shell(&[]);
    terminal.keys("PS1='now''> '\r");
    terminal.shows("now> ").await;
    assert!(terminal.is_raw());
    terminal.keys("tty; stty size; echo $0 $TERM\r");
    terminal.shows("/dev/pts/").await;
    terminal.shows("24 80\r\n-").await;
    terminal.shows("xterm").await;
    terminal.resize(33, 101);
    // The new size is sent in a request of its own, so the shell may see it a moment later.
    terminal.keys("until [ \"$(stty size)\" = '33 101' ]; do sleep 0.1; done; echo res''ized\r");
    terminal.shows("resized").await;
    terminal.keys("sleep 600; echo interrupted $?\r");
    terminal.shows("$?\r\n").await;
    eventually("sleep runs", || descendant_sleeps(&terminal).then_some(())).await;
    terminal.keys("\x03");
    terminal.shows("now> ").await;
    terminal.keys("exit 5\r");
    assert_eq!(terminal.ended().await.code(), Some(5));
    assert!(!terminal.is_raw());
}

/// Whether a process `sleep` runs below the program of the terminal.
fn descendant_sleeps(terminal: &Terminal) -> bool {
    testkit::descendants(terminal.pid())
        .iter()
        .any(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sleep"))
}

#[tokio::test]
async fn the_terminal_is_restored_after_every_signal() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130)] {
        let folder = tempfile::tempdir().unwrap();
        let mut terminal = run_waiting_script(&[], &folder);
        terminal.shows("ready").await;
        let pid = read_pid(&folder.path().join("pid")).await;
        terminal.becomes_raw(true).await;
        send_signal(terminal.pid(), signal);
        assert_eq!(terminal.ended().await.code(), Some(code));
        assert!(!terminal.is_raw(), "{signal:?}");
        eventually("the process is gone", || (!is_alive(pid)).then_some(())).await;
    }
}

#[tokio::test]
async fn the_keys_tilde_and_dot_end_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = run_waiting_script(&[], &folder);
    terminal.shows("ready").await;
    terminal.becomes_raw(true).await;
    let pid = read_pid(&folder.path().join("pid")).await;
    terminal.keys("\r~.");
    assert_eq!(terminal.ended().await.code(), Some(129));
    assert!(!terminal.is_raw());
    eventually("the process is gone", || (!is_alive(pid)).then_some(())).await;
}

#[tokio::test]
async fn a_stopped_command_restores_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = run_waiting_script(&[], &folder);
    terminal.shows("ready").await;
    terminal.becomes_raw(true).await;
    send_signal(terminal.pid(), Signal::TSTP);
    eventually("the command is stopped", || (process_state(terminal.pid())? == 'T').then_some(())).await;
    assert!(!terminal.is_raw());
    send_signal(terminal.pid(), Signal::CONT);
    terminal.becomes_raw(true).await;
    terminal.keys("\x03");
    assert_eq!(terminal.ended().await.code(), Some(130));
    assert!(!terminal.is_raw());
}

#[tokio::test]
async fn a_lost_connection_is_shown_and_recovered() {
    let (_server, proxy, mut terminal) = shell_behind_proxy().await;
    proxy.cut();
    terminal.shows("\r\n[exec-server: connection lost, reconnecting…]\r\n").await;
    terminal.shows("[exec-server: reconnected]\r\n").await;
    terminal.keys("echo still he''re; exit 3\r");
    terminal.shows("still here").await;
    assert_eq!(terminal.ended().await.code(), Some(3));
    assert!(!terminal.is_raw());
}

#[tokio::test]
async fn a_user_can_leave_while_the_connection_is_lost() {
    let (_server, proxy, mut terminal) = shell_behind_proxy().await;
    proxy.refuse(true);
    proxy.cut();
    terminal.shows("connection lost").await;
    terminal.keys("these keys go nowhere\r~.");
    assert_eq!(terminal.ended().await.code(), Some(129));
    assert!(!terminal.is_raw());
}

#[tokio::test]
async fn sizes_that_could_not_be_sent_are_merged_to_the_last_one() {
    let (server, proxy, mut terminal) = shell_behind_proxy().await;
    proxy.refuse(true);
    proxy.cut();
    terminal.shows("connection lost").await;
    for columns in 101..=300 {
        terminal.resize(33, columns);
        // The command sleeps again when it has handled the signal.
        eventually("the command waits", || (process_state(terminal.pid())? == 'S').then_some(())).await;
    }
    proxy.refuse(false);
    terminal.shows("reconnected").await;
    terminal.keys("until [ \"$(stty size)\" = '33 300' ]; do sleep 0.1; done; echo res''ized; exit 6\r");
    terminal.shows("resized").await;
    assert_eq!(terminal.ended().await.code(), Some(6));
    let metrics = http_get(server.address(), "/metrics", &[]).await.body;
    let resizes = metrics.lines().find(|line| line.contains("\"process/resize\"")).unwrap();
    let count: u64 = resizes.rsplit(' ').next().unwrap().parse().unwrap();
    // One that was on its way when the connection was lost, one that waited, and two that make the program draw its screen again.
    assert!((1..=4).contains(&count), "{resizes}");
}

#[tokio::test]
async fn a_server_that_has_ended_leaves_the_terminal_restored() {
    let server = TestServer::start().await;
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = run_waiting_script(&["--connect", server.url()], &folder);
    terminal.shows("ready").await;
    terminal.becomes_raw(true).await;
    // The next server at this address does not know the session.
    let address = server.url().to_owned();
    server.kill().await;
    let _other = TestServer::with_args(&["--listen", &address]).await;
    terminal.shows("connection lost").await;
    terminal.shows("exec-server: ").await;
    assert_eq!(terminal.ended().await.code(), Some(125));
    assert!(!terminal.is_raw());
}

#[tokio::test]
async fn a_kept_shell_can_be_left_and_attached_from_another_terminal() {
    let server = TestServer::start().await;
    let state = tempfile::tempdir().unwrap();
    let mut first = Terminal::start(&["shell", "--connect", server.url(), "--session", "work"], |command| {
        command.env("XDG_STATE_HOME", state.path())
    });
    first.keys("PS1='now''> '; X=kept\r");
    first.shows("now> ").await;
    first.keys("\r~.");
    first.shows(&format!("left 1 running; `exec-server attach --connect {} --session work 1`", server.url())).await;
    assert_eq!(first.ended().await.code(), Some(0));
    assert!(!first.is_raw());

    let mut second = Terminal::start(&["attach", "--connect", server.url(), "--session", "work"], |command| {
        command.env("XDG_STATE_HOME", state.path())
    });
    // `attach` prints the earlier output first.
    second.shows("now> ").await;
    second.becomes_raw(true).await;
    second.keys("echo it was $X; exit 4\r");
    second.shows("it was kept").await;
    assert_eq!(second.ended().await.code(), Some(4));
    assert!(!second.is_raw());
}

#[tokio::test]
async fn a_full_screen_program_opens_and_quits() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text");
    let mut terminal =
        Terminal::start(&["run", "-t", "--", "vi", "-u", "NONE", file.to_str().unwrap()], |command| command);
    terminal.shows("~").await;
    terminal.keys("ihello");
    terminal.shows("hello").await;
    terminal.keys("\x1b:wq\r");
    assert_eq!(terminal.ended().await.code(), Some(0));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "hello\n");
    assert!(!terminal.is_raw());
}

#[tokio::test]
async fn old_terminal_queries_are_not_sent_to_the_terminal_again() {
    let server = TestServer::start().await;
    let folder = tempfile::tempdir().unwrap();
    let connect = ["--connect", server.url()];
    let script = "stty -echo; printf 'old \\033[6nquestion'; read line; printf 'new \\033[6nquestion'; sleep 600";
    let mut run = command(&["run", "-d", "-t", connect[0], connect[1], "--", "sh", "-c", script]);
    assert_eq!(
        wait_for_output(run.env("XDG_STATE_HOME", folder.path()).spawn().unwrap()).await.status.code(),
        Some(0)
    );
    let mut logs = command(&["logs", connect[0], connect[1], "1"]);
    logs.env("XDG_STATE_HOME", folder.path());
    eventually_async("the program has sent its query", async || {
        let logs = wait_for_output(logs.spawn().unwrap()).await;
        logs.stdout.ends_with(b"question").then_some(())
    })
    .await;
    let attach = ["attach", connect[0], connect[1], "1"];
    let mut terminal = Terminal::start(&attach, |command| command.env("XDG_STATE_HOME", folder.path()));
    terminal.shows("old question").await;
    terminal.becomes_raw(true).await;
    terminal.keys("\r");
    terminal.shows("new \x1b[6nquestion").await;
    terminal.keys("\x03");
    assert_eq!(terminal.ended().await.code(), Some(130));
}
