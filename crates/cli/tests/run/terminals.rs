//! Commands on a terminal: keys, sizes, and that `exec-server` restores the mode of the terminal when it ends or is
//! stopped.

use testkit::{
    CuttingProxy, Signal, Terminal, TestServer, eventually, eventually_async, http_get, is_alive, process_state,
    send_signal,
};

use crate::support::{command, read_pid, wait_for_output};

/// `exec-server shell` on a terminal. The prompt of the shell is `ready>`.
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
    // The quotes keep the echo of the typed line different from the new prompt.
    terminal.type_keys("PS1='now''> '\r");
    terminal.wait_for_text("now> ").await;
    (server, proxy, terminal)
}

#[tokio::test]
async fn a_shell_works_in_the_terminal_of_the_user() {
    let mut terminal = shell(&[]);
    terminal.type_keys("PS1='now''> '\r");
    terminal.wait_for_text("now> ").await;
    assert!(terminal.is_raw());
    terminal.type_keys("tty; stty size; echo $0 $TERM\r");
    terminal.wait_for_text("/dev/pts/").await;
    // `$0` of a login shell begins with `-`.
    terminal.wait_for_text("24 80\r\n-").await;
    terminal.wait_for_text("xterm").await;
    terminal.resize(33, 101);
    // The new size is sent in a request of its own, so the shell may see it a moment later.
    terminal.type_keys("until [ \"$(stty size)\" = '33 101' ]; do sleep 0.1; done; echo res''ized\r");
    terminal.wait_for_text("resized").await;
    terminal.type_keys("sleep 600; echo interrupted $?\r");
    terminal.wait_for_text("$?\r\n").await;
    eventually("sleep runs", || descendant_sleeps(&terminal).then_some(())).await;
    terminal.type_keys("\x03");
    terminal.wait_for_text("now> ").await;
    terminal.type_keys("exit 5\r");
    assert_eq!(terminal.wait_for_end().await.code(), Some(5));
    assert!(!terminal.is_raw());
}

/// Whether a descendant of the program on the terminal is `sleep`.
fn descendant_sleeps(terminal: &Terminal) -> bool {
    testkit::descendants(terminal.pid())
        .iter()
        .any(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sleep"))
}

#[tokio::test]
async fn a_signal_that_ends_run_leaves_the_terminal_restored() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130)] {
        let folder = tempfile::tempdir().unwrap();
        let mut terminal = run_waiting_script(&[], &folder);
        terminal.wait_for_text("ready").await;
        let pid = read_pid(&folder.path().join("pid")).await;
        terminal.wait_for_raw_mode(true).await;
        send_signal(terminal.pid(), signal);
        assert_eq!(terminal.wait_for_end().await.code(), Some(code));
        assert!(!terminal.is_raw(), "{signal:?}");
        eventually("the process is gone", || (!is_alive(pid)).then_some(())).await;
    }
}

#[tokio::test]
async fn the_keys_tilde_and_dot_end_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = run_waiting_script(&[], &folder);
    terminal.wait_for_text("ready").await;
    terminal.wait_for_raw_mode(true).await;
    let pid = read_pid(&folder.path().join("pid")).await;
    terminal.type_keys("\r~.");
    assert_eq!(terminal.wait_for_end().await.code(), Some(129));
    assert!(!terminal.is_raw());
    eventually("the process is gone", || (!is_alive(pid)).then_some(())).await;
}

#[tokio::test]
async fn run_restores_the_terminal_while_it_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = run_waiting_script(&[], &folder);
    terminal.wait_for_text("ready").await;
    terminal.wait_for_raw_mode(true).await;
    send_signal(terminal.pid(), Signal::TSTP);
    eventually("`run` is stopped", || (process_state(terminal.pid())? == 'T').then_some(())).await;
    assert!(!terminal.is_raw());
    send_signal(terminal.pid(), Signal::CONT);
    terminal.wait_for_raw_mode(true).await;
    terminal.type_keys("\x03");
    assert_eq!(terminal.wait_for_end().await.code(), Some(130));
    assert!(!terminal.is_raw());
}

#[tokio::test]
async fn a_lost_connection_is_shown_and_recovered() {
    let (_server, proxy, mut terminal) = shell_behind_proxy().await;
    proxy.cut();
    terminal.wait_for_text("\r\n[exec-server: connection lost, reconnecting…]\r\n").await;
    terminal.wait_for_text("[exec-server: reconnected]\r\n").await;
    terminal.type_keys("echo still he''re; exit 3\r");
    terminal.wait_for_text("still here").await;
    assert_eq!(terminal.wait_for_end().await.code(), Some(3));
    assert!(!terminal.is_raw());
}

#[tokio::test]
async fn a_user_can_leave_while_the_connection_is_lost() {
    let (_server, proxy, mut terminal) = shell_behind_proxy().await;
    proxy.refuse(true);
    proxy.cut();
    terminal.wait_for_text("connection lost").await;
    terminal.type_keys("these keys go nowhere\r~.");
    assert_eq!(terminal.wait_for_end().await.code(), Some(129));
    assert!(!terminal.is_raw());
}

#[tokio::test]
async fn only_the_last_of_the_sizes_that_could_not_be_sent_is_sent_later() {
    let (server, proxy, mut terminal) = shell_behind_proxy().await;
    proxy.refuse(true);
    proxy.cut();
    terminal.wait_for_text("connection lost").await;
    for columns in 101..=300 {
        terminal.resize(33, columns);
        // `exec-server shell` sleeps again when it has handled the signal of the resize.
        eventually("`exec-server shell` waits", || (process_state(terminal.pid())? == 'S').then_some(())).await;
    }
    proxy.refuse(false);
    terminal.wait_for_text("reconnected").await;
    terminal.type_keys("until [ \"$(stty size)\" = '33 300' ]; do sleep 0.1; done; echo res''ized; exit 6\r");
    terminal.wait_for_text("resized").await;
    assert_eq!(terminal.wait_for_end().await.code(), Some(6));
    let metrics = http_get(server.address(), "/metrics", &[]).await.body;
    let resizes = metrics.lines().find(|line| line.contains("\"process/resize\"")).unwrap();
    let count: u64 = resizes.rsplit(' ').next().unwrap().parse().unwrap();
    // At most four requests: the first resize, which waited for a connection; the last resize, which waited for the
    // first; and two resizes that make the program draw its screen again.
    assert!((1..=4).contains(&count), "{resizes}");
}

#[tokio::test]
async fn a_server_that_does_not_know_the_session_any_more_leaves_the_terminal_restored() {
    let server = TestServer::start().await;
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = run_waiting_script(&["--connect", server.url()], &folder);
    terminal.wait_for_text("ready").await;
    terminal.wait_for_raw_mode(true).await;
    // The next server at this address does not know the session.
    let address = server.url().to_owned();
    server.kill().await;
    let _other = TestServer::with_args(&["--listen", &address]).await;
    terminal.wait_for_text("connection lost").await;
    terminal.wait_for_text("exec-server: ").await;
    assert_eq!(terminal.wait_for_end().await.code(), Some(125));
    assert!(!terminal.is_raw());
}

/// A kept session outlives the command that opened it.
#[tokio::test]
async fn a_shell_in_a_kept_session_can_be_left_and_attached_from_another_terminal() {
    let server = TestServer::start().await;
    let state = tempfile::tempdir().unwrap();
    let mut first = Terminal::start(&["shell", "--connect", server.url(), "--session", "work"], |command| {
        command.env("XDG_STATE_HOME", state.path())
    });
    first.type_keys("PS1='now''> '; X=kept\r");
    first.wait_for_text("now> ").await;
    first.type_keys("\r~.");
    first
        .wait_for_text(&format!("left 1 running; `exec-server attach --connect {} --session work 1`", server.url()))
        .await;
    assert_eq!(first.wait_for_end().await.code(), Some(0));
    assert!(!first.is_raw());

    let mut second = Terminal::start(&["attach", "--connect", server.url(), "--session", "work"], |command| {
        command.env("XDG_STATE_HOME", state.path())
    });
    // `attach` prints the earlier output first.
    second.wait_for_text("now> ").await;
    second.wait_for_raw_mode(true).await;
    second.type_keys("echo it was $X; exit 4\r");
    second.wait_for_text("it was kept").await;
    assert_eq!(second.wait_for_end().await.code(), Some(4));
    assert!(!second.is_raw());
}

#[tokio::test]
async fn a_full_screen_program_opens_and_quits() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text");
    let mut terminal =
        Terminal::start(&["run", "-t", "--", "vi", "-u", "NONE", file.to_str().unwrap()], |command| command);
    terminal.wait_for_text("~").await;
    terminal.type_keys("ihello");
    terminal.wait_for_text("hello").await;
    terminal.type_keys("\x1b:wq\r");
    assert_eq!(terminal.wait_for_end().await.code(), Some(0));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "hello\n");
    assert!(!terminal.is_raw());
}

#[tokio::test]
async fn old_terminal_queries_are_not_sent_to_the_terminal_again() {
    // `\033[6n` asks the terminal for the position of its cursor. The terminal answers as if the user had typed the
    // answer.
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
    terminal.wait_for_text("old question").await;
    terminal.wait_for_raw_mode(true).await;
    terminal.type_keys("\r");
    terminal.wait_for_text("new \x1b[6nquestion").await;
    terminal.type_keys("\x03");
    assert_eq!(terminal.wait_for_end().await.code(), Some(130));
}
