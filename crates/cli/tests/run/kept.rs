//! Processes in kept sessions, which outlive the command that started them: `run -d`, `run --session` and `attach`.

use std::path::Path;
use std::process::Stdio;

use testkit::{Signal, TestServer, eventually, is_alive, send_signal};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use crate::support::{command, read_pid, text_and_code, wait_for_output};

/// A server, and a folder for files of a test and for the records that commands write about their kept sessions.
struct KeptSessionFixture {
    server: TestServer,
    folder: tempfile::TempDir,
}

impl KeptSessionFixture {
    async fn start(args: &[&str]) -> Self {
        Self { server: TestServer::with_args(args).await, folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, verb: &str, args: &[&str]) -> Command {
        let all: Vec<&str> = [verb, "--connect", self.server.url()].iter().chain(args).copied().collect();
        let mut command = command(&all);
        command.env("XDG_STATE_HOME", self.folder.path());
        command
    }

    /// Runs `exec-server VERB --connect URL ARGS`. Returns stdout, stderr and exit code.
    async fn run(&self, verb: &str, args: &[&str]) -> (String, String, Option<i32>) {
        text_and_code(&wait_for_output(self.command(verb, args).spawn().unwrap()).await)
    }
}

/// A script that writes its pid to a file and then runs `rest`.
fn script(pid_file: &Path, rest: &str) -> String {
    format!("echo $$ > {}; {rest}", pid_file.display())
}

#[tokio::test]
async fn a_detached_command_can_be_attached() {
    let kept = KeptSessionFixture::start(&[]).await;
    let job = script(&kept.path("pid"), "echo begun; read line; echo got $line; exit 7");
    assert_eq!(kept.run("run", &["-d", "--", "sh", "-c", &job]).await, ("1\n".into(), String::new(), Some(0)));
    let pid = read_pid(&kept.path("pid")).await;
    assert_eq!(kept.run("run", &["-d", "--", "true"]).await.0, "2\n");
    assert_eq!(kept.run("run", &["-d", "--id", "named", "--", "true"]).await.0, "named\n");
    assert!(is_alive(pid));
    let mut attached = kept.command("attach", &["1"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = attached.stdin.take().unwrap();
    stdin.write_all(b"a line\n").await.unwrap();
    assert_eq!(
        text_and_code(&wait_for_output(attached).await),
        ("begun\ngot a line\n".into(), String::new(), Some(7))
    );
    // The output can still be read after the process has ended.
    assert_eq!(kept.run("attach", &["1"]).await, ("begun\ngot a line\n".into(), String::new(), Some(7)));
}

#[tokio::test]
async fn each_attach_can_write_to_the_process() {
    let kept = KeptSessionFixture::start(&[]).await;
    let job = script(&kept.path("pid"), "while read line; do echo $line; done; exit 8");
    kept.run("run", &["-d", "--", "sh", "-c", &job]).await;
    for line in ["one", "two", "three"] {
        let mut attached = kept.command("attach", &[]).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = attached.stdin.take().unwrap();
        stdin.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        let mut lines = BufReader::new(attached.stdout.take().unwrap()).lines();
        while lines.next_line().await.unwrap().unwrap() != line {}
        send_signal(attached.id().unwrap(), Signal::TERM);
        assert_eq!(wait_for_output(attached).await.status.code(), Some(143));
    }
    let mut attached = kept.command("attach", &[]).stdin(Stdio::piped()).spawn().unwrap();
    attached.stdin.take().unwrap().write_all(b"four\n").await.unwrap();
    assert_eq!(
        text_and_code(&wait_for_output(attached).await),
        ("one\ntwo\nthree\nfour\n".into(), String::new(), Some(8))
    );
}

#[tokio::test]
async fn a_hangup_leaves_the_process_running_and_an_interrupt_reaches_it() {
    let kept = KeptSessionFixture::start(&[]).await;
    let job = script(&kept.path("pid"), "trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done");
    let mut child = kept.command("run", &["--session", "work", "--", "sh", "-c", &job]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
    send_signal(child.id().unwrap(), Signal::HUP);
    assert_eq!(wait_for_output(child).await.status.code(), Some(129));
    let pid = read_pid(&kept.path("pid")).await;
    assert!(is_alive(pid));

    let mut attached = kept.command("attach", &["--session", "work"]).spawn().unwrap();
    let mut lines = BufReader::new(attached.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
    send_signal(attached.id().unwrap(), Signal::INT);
    assert_eq!(wait_for_output(attached).await.status.code(), Some(9));
    eventually("the process is gone", || (!is_alive(pid)).then_some(())).await;
}

#[tokio::test]
async fn attach_reports_how_many_bytes_are_no_longer_retained() {
    // With `--detached-hold 0s`, a process without a client goes on, and does not wait until a client reads its
    // output.
    let kept = KeptSessionFixture::start(&["--retain-bytes", "1000", "--detached-hold", "0s"]).await;
    let job = "head -c 100000 /dev/zero; echo end";
    kept.run("run", &["-d", "--", "sh", "-c", job]).await;
    wait_until_ended(&kept).await;
    let (stdout, stderr, code) = kept.run("attach", &["1"]).await;
    assert!(stdout.ends_with("end\n") && stdout.len() < 100_000, "{} bytes", stdout.len());
    assert_eq!(stdout.len() as u64 + dropped_bytes(&stderr), 100_004);
    assert_eq!(code, Some(0));
}

/// Waits until no process runs. `attach` without an id then reports an error.
async fn wait_until_ended(kept: &KeptSessionFixture) {
    testkit::eventually_async("the process has ended", async || {
        let (_, stderr, _) = kept.run("attach", &[]).await;
        stderr.contains("is running; name one that has ended: 1").then_some(())
    })
    .await;
}

/// The number of bytes that are no longer retained, from the message on stderr.
fn dropped_bytes(stderr: &str) -> u64 {
    let rest = stderr.strip_prefix("exec-server: the first ").unwrap();
    rest.split_once(" bytes of output are no longer retained").unwrap().0.parse().unwrap()
}

#[tokio::test]
async fn an_unknown_session_or_process_and_an_ambiguous_attach_are_errors() {
    let kept = KeptSessionFixture::start(&[]).await;
    let (_, stderr, code) = kept.run("attach", &["--session", "other"]).await;
    assert!(stderr.starts_with("exec-server: there is no session `other`") && code == Some(125), "{stderr}");
    for _ in 0..2 {
        kept.run("run", &["-d", "--", "sleep", "600"]).await;
    }
    let (_, stderr, _) = kept.run("attach", &[]).await;
    assert!(stderr.ends_with("are running; name one of: 1, 2\n"), "{stderr}");
    let (_, stderr, _) = kept.run("attach", &["3"]).await;
    assert!(stderr.ends_with("there are: 1, 2\n"), "{stderr}");
}
