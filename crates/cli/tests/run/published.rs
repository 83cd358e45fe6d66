//! The commands `run` and `shell` with a server that has the published protocol (that of `codex exec-server`) and
//! none of our extensions. Where an extension is missing, the commands use something similar, or print what the
//! server cannot do.

use std::fs::OpenOptions;
use std::io::{Seek as _, SeekFrom};
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use testkit::{PublishedProtocolServer, Signal, Terminal, TestServer, eventually, is_alive, send_signal};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use crate::support::{command, output, output_with_input, read_pid, text_and_code, wait_for_output};

/// A server without our extensions, and a folder for the files of a test.
struct PublishedFixture {
    server: PublishedProtocolServer,
    folder: TempDir,
}

impl PublishedFixture {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = TestServer::start_with(&[], |command| command.env("HOME", folder.path())).await;
        Self { server: PublishedProtocolServer::start(server, folder.path()), folder }
    }

    /// The arguments `NAME --connect URL ARGS`.
    fn args<'a>(&'a self, name: &'a str, args: &[&'a str]) -> Vec<&'a str> {
        [name, "--connect", self.server.url()].into_iter().chain(args.iter().copied()).collect()
    }
}

#[tokio::test]
async fn a_command_without_input_runs_as_with_our_server() {
    let published = PublishedFixture::start().await;
    let script = "echo out; echo err >&2; cat; exit 7";
    let expected = ("out\n".to_owned(), "err\n".to_owned(), Some(7));
    assert_eq!(text_and_code(&output(&published.args("run", &["--", "sh", "-c", script])).await), expected);
    // This stdin is a pipe that is closed before any input comes.
    assert_eq!(
        text_and_code(&output_with_input(&published.args("run", &["--", "sh", "-c", script]), b"").await),
        expected
    );
    let empty = std::fs::File::create_new(published.folder.path().join("empty")).unwrap();
    let child = command(&published.args("run", &["--", "sh", "-c", script])).stdin(empty).spawn().unwrap();
    assert_eq!(text_and_code(&wait_for_output(child).await), expected);
}

#[tokio::test]
async fn input_whose_end_cannot_be_passed_on_is_refused_before_anything_runs() {
    let published = PublishedFixture::start().await;
    let marker = published.folder.path().join("has-run");
    let script = format!("touch {}; sort", marker.display());
    let file = published.folder.path().join("input");
    std::fs::write(&file, "b\na\n").unwrap();
    for name in ["run", "shell"] {
        let rest: &[&str] = if name == "run" { &["--", "sh", "-c", &script] } else { &[] };
        let args = published.args(name, rest);
        let piped = output_with_input(&args, format!("{script}\n").as_bytes()).await;
        let redirected =
            wait_for_output(command(&args).stdin(std::fs::File::open(&file).unwrap()).spawn().unwrap()).await;
        for (stdout, stderr, code) in [text_and_code(&piped), text_and_code(&redirected)] {
            assert_eq!((stdout.as_str(), code), ("", Some(125)), "{stderr}");
            assert!(stderr.starts_with("exec-server: this server cannot end the stdin of a command"), "{stderr}");
            assert!(stderr.contains("< /dev/null") && stderr.lines().count() == 1, "{stderr}");
        }
    }
    assert!(!marker.exists(), "the command was run");
}

#[tokio::test]
async fn a_command_runs_while_its_stdin_is_an_open_and_empty_pipe() {
    let published = PublishedFixture::start().await;
    let args = published.args("run", &["--", "sh", "-c", "echo works; exit 4"]);
    let mut child = command(&args).stdin(Stdio::piped()).spawn().unwrap();
    let _open = child.stdin.take();
    assert_eq!(text_and_code(&wait_for_output(child).await), ("works\n".to_owned(), String::new(), Some(4)));
}

#[tokio::test]
async fn a_command_that_waits_for_the_end_of_late_input_is_ended_with_a_message() {
    let published = PublishedFixture::start().await;
    let pid_file = published.folder.path().join("pid");
    let script = format!("echo $$ > {}; echo ready; exec cat", pid_file.display());
    let args = published.args("run", &["--", "sh", "-c", &script]);
    let mut child = command(&args).stdin(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
    let process = read_pid(&pid_file).await;
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"late\n").await.unwrap();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("late"));
    drop(stdin);
    let (_, stderr, code) = text_and_code(&wait_for_output(child).await);
    let expected =
        "exec-server: the input has ended, and this server cannot tell the command; the command was ended\n";
    assert_eq!((stderr.as_str(), code), (expected, Some(125)));
    eventually("the process is gone", || (!is_alive(process)).then_some(())).await;
}

#[tokio::test]
async fn at_the_end_of_input_the_end_of_file_key_is_typed_at_a_terminal() {
    let published = PublishedFixture::start().await;
    let args = published.args("run", &["-t", "--", "sh", "-c", "cat > /dev/null; exit 6"]);
    for input in [&b"one\n"[..], b"one"] {
        assert_eq!(output_with_input(&args, input).await.status.code(), Some(6), "{input:?}");
    }
}

#[tokio::test]
async fn input_is_noticed_whatever_the_size_of_its_file_is() {
    let published = PublishedFixture::start().await;
    let sparse = published.folder.path().join("sparse");
    std::fs::File::create_new(&sparse).unwrap().set_len(1 << 32).unwrap();
    for path in [sparse.as_path(), std::path::Path::new("/proc/self/status")] {
        let child = command(&published.args("run", &["--", "cat"])).stdin(std::fs::File::open(path).unwrap()).spawn();
        let (stdout, stderr, code) = text_and_code(&wait_for_output(child.unwrap()).await);
        assert_eq!((stdout.as_str(), code), ("", Some(125)), "{path:?}: {stderr}");
        assert!(stderr.starts_with("exec-server: this server cannot end the stdin of a command"), "{stderr}");
    }
    // Nothing can be read from these files, so there is no input.
    let mut file_at_its_end = std::fs::File::open(&sparse).unwrap();
    file_at_its_end.seek(SeekFrom::End(0)).unwrap();
    let unreadable = OpenOptions::new().write(true).open("/dev/null").unwrap();
    for stdin in [file_at_its_end, unreadable] {
        let child = command(&published.args("run", &["--", "sh", "-c", "cat; exit 3"])).stdin(stdin).spawn().unwrap();
        assert_eq!(text_and_code(&wait_for_output(child).await), (String::new(), String::new(), Some(3)));
    }
}

#[tokio::test]
async fn sigterm_sighup_and_sigint_to_run_end_the_command() {
    let published = PublishedFixture::start().await;
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 40)] {
        let pid_file = published.folder.path().join(format!("pid-{code}"));
        let script =
            format!("trap 'exit 40' INT; echo $$ > {}; echo ready; while :; do sleep 0.05; done", pid_file.display());
        let mut child = command(&published.args("run", &["--", "sh", "-c", &script])).spawn().unwrap();
        let process = read_pid(&pid_file).await;
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).await.unwrap();
        send_signal(child.id().unwrap(), signal);
        let (_, stderr, ended) = text_and_code(&wait_for_output(child).await);
        assert_eq!((stderr.as_str(), ended), ("", Some(code)));
        eventually("the process is gone", || (!is_alive(process)).then_some(())).await;
    }
}

#[tokio::test]
async fn a_signal_that_cannot_be_sent_is_reported_and_ends_nothing() {
    let published = PublishedFixture::start().await;
    let go_file = published.folder.path().join("go");
    let script = format!("echo ready; while ! [ -e {} ]; do sleep 0.05; done; exit 3", go_file.display());
    let mut child = command(&published.args("run", &["--", "sh", "-c", &script])).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).await.unwrap();
    send_signal(child.id().unwrap(), Signal::USR1);
    let mut line = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut line).await.unwrap();
    assert_eq!(line, "exec-server: this server cannot send this signal to a command\n");
    std::fs::write(&go_file, "").unwrap();
    assert_eq!(wait_for_output(child).await.status.code(), Some(3));
}

#[tokio::test]
async fn stopping_and_continuing_run_does_not_affect_the_command() {
    let published = PublishedFixture::start().await;
    let go_file = published.folder.path().join("go");
    let script = format!("echo ready; while ! [ -e {} ]; do sleep 0.05; done; exit 3", go_file.display());
    let mut child = command(&published.args("run", &["--", "sh", "-c", &script])).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).await.unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    send_signal(child.id().unwrap(), Signal::STOP);
    send_signal(child.id().unwrap(), Signal::CONT);
    // Each line shows that `run` has handled a SIGUSR1. After the second line, `run` has also handled the earlier
    // SIGCONT.
    for _ in 0..2 {
        send_signal(child.id().unwrap(), Signal::USR1);
        let line = stderr.next_line().await.unwrap();
        assert_eq!(line.as_deref(), Some("exec-server: this server cannot send this signal to a command"));
    }
    std::fs::write(&go_file, "").unwrap();
    assert_eq!(wait_for_output(child).await.status.code(), Some(3));
}

#[tokio::test]
async fn a_timeout_is_enforced_by_the_client() {
    let published = PublishedFixture::start().await;
    let pid_file = published.folder.path().join("pid");
    let script = format!("echo $$ > {}; echo before; exec sleep 600", pid_file.display());
    let args = published.args("run", &["--timeout", "1s", "--", "sh", "-c", &script]);
    let (stdout, stderr, code) = text_and_code(&output(&args).await);
    let message = "exec-server: the command was ended because it ran longer than its timeout (--timeout)\n";
    assert_eq!((stdout.as_str(), stderr.as_str(), code), ("before\n", message, Some(124)));
    let process = read_pid(&pid_file).await;
    eventually("the process is gone", || (!is_alive(process)).then_some(())).await;
    let args = published.args("run", &["--timeout", "1h", "--", "sh", "-c", "exit 3"]);
    assert_eq!(output(&args).await.status.code(), Some(3));
    let args = published.args("run", &["--json", "--timeout", "100ms", "--", "sleep", "600"]);
    let (stdout, _, code) = text_and_code(&output(&args).await);
    assert!(stdout.contains("\"timedOut\":true") && code == Some(124), "{stdout}");
}

#[tokio::test]
async fn the_exit_code_tells_why_a_command_cannot_be_started() {
    let published = PublishedFixture::start().await;
    let run = async |args: &[&str]| {
        let (stdout, stderr, code) = text_and_code(&output(&published.args("run", args)).await);
        assert_eq!(stdout, "");
        (stderr, code)
    };
    let not_found = |name: &str| (format!("exec-server: {name}: No such file or directory\n"), Some(127));
    assert_eq!(run(&["--", "no-such-program"]).await, not_found("no-such-program"));
    assert_eq!(run(&["--", "/no/such program"]).await, not_found("/no/such program"));
    assert_eq!(run(&["--cwd", "/etc", "--", "./no-such-program"]).await, not_found("./no-such-program"));
    let (stderr, code) = run(&["--", "/etc/passwd"]).await;
    assert_eq!((stderr.as_str(), code), ("exec-server: /etc/passwd: Permission denied\n", Some(126)));
    let (stderr, code) = run(&["--cwd", "/no/such/folder", "--", "true"]).await;
    assert!(stderr.contains("No such file") && code == Some(125), "{stderr}");
}

#[tokio::test]
async fn a_shell_reads_its_profile() {
    let published = PublishedFixture::start().await;
    for name in [".profile", ".bash_profile", ".zprofile"] {
        std::fs::write(published.folder.path().join(name), "echo prof''iled\n").unwrap();
    }
    let mut terminal = Terminal::start(&published.args("shell", &[]), |command| command);
    terminal.wait_for_text("profiled").await;
    terminal.type_keys("exit 5\r");
    assert_eq!(terminal.wait_for_end().await.code(), Some(5));
}

#[tokio::test]
async fn a_kept_session_is_refused_before_anything_runs() {
    let published = PublishedFixture::start().await;
    let marker = published.folder.path().join("has-run");
    let name = format!("published-{}", std::process::id());
    let args = published.args("run", &["-d", "--session", &name, "--", "touch", marker.to_str().unwrap()]);
    let (_, stderr, code) = text_and_code(&output(&args).await);
    assert!(stderr.contains("cannot keep sessions") && code == Some(125), "{stderr}");
    assert!(!marker.exists());
}

#[tokio::test]
async fn a_server_without_environment_info_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let missing = ["environment/info", "environment/status"];
    let server = PublishedProtocolServer::without_methods(TestServer::start().await, folder.path(), &missing);
    let (stdout, stderr, code) = text_and_code(&output(&["run", "--connect", server.url(), "--", "pwd"]).await);
    assert_eq!((stdout.as_str(), stderr.as_str(), code), ("/\n", "", Some(0)));
    let mut terminal = Terminal::start(&["shell", "--connect", server.url()], |command| command);
    terminal.type_keys("echo wor''ks; exit 5\r");
    terminal.wait_for_text("works").await;
    let ended = tokio::time::timeout(Duration::from_secs(30), terminal.wait_for_end()).await.unwrap();
    assert_eq!(ended.code(), Some(5));
}
