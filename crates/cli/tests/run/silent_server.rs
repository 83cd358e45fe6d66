//! Servers that do not end a process when `run` asks for it, that report impossible exits, or that cut the
//! connection. `run` ends in all cases, and never with exit code 0.

use std::time::{Duration, Instant};

use tempfile::TempDir;
use testkit::scripted::{ClientMessage, ScriptedConnection, ScriptedListener, ScriptedReply, exited_params};
use testkit::{ScriptedServer, Signal, json, send_signal};
use tokio::io::AsyncReadExt as _;
use tokio::process::Child;

use crate::support::{command, output, text_and_code, wait_for_output};

/// Time limit for `run`. It waits 10 s for a server, so this is enough even on a loaded machine.
const RUN_LIMIT: Duration = Duration::from_secs(40);

/// A scripted server on a Unix socket.
struct SilentServer {
    server: ScriptedServer,
    listener: ScriptedListener,
    _folder: TempDir,
}

impl SilentServer {
    /// A server with these capabilities. It says that every command has started and has printed `ready`. It does not
    /// answer requests that end a command or a session.
    fn start(capabilities: testkit::Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = ScriptedServer::new();
        let info = json!({"shell": {"name": "sh", "path": "/bin/sh"}, "capabilities": capabilities});
        server.on("environment/info", move |_| ScriptedReply::Result(info.clone()));
        server.on("process/start", |request: &ClientMessage| {
            succeed_and_then(request, |connection, id| connection.push_output(id, 1, "ready\n"))
        });
        server.on("process/terminate", |_| ScriptedReply::Silence);
        server.on("process/signal", |_| ScriptedReply::Silence);
        server.on("session/keep", |_| ScriptedReply::Silence);
        let listener = server.listen(folder.path());
        Self { server, listener, _folder: folder }
    }

    /// The arguments `run --connect URL ARGS -- job`.
    fn args<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        [&["run", "--connect", self.listener.url()][..], args, &["--", "job"]].concat()
    }

    /// Starts `run`, and waits until its command has printed `ready`.
    async fn start_run(&self, args: &[&str]) -> Child {
        let mut child = command(&self.args(args)).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).await.unwrap();
        child
    }
}

/// Answers a start with success, and then calls `then` with the connection and the process id. Each test has only one
/// thread, so the new task runs after the answer was sent.
fn succeed_and_then(
    request: &ClientMessage,
    then: impl FnOnce(&ScriptedConnection, &str) + Send + 'static,
) -> ScriptedReply {
    let (connection, id) = (request.connection.clone(), request.params["processId"].as_str().unwrap().to_owned());
    tokio::spawn(async move { then(&connection, &id) });
    ScriptedReply::Result(json!({"processId": request.params["processId"]}))
}

#[tokio::test]
async fn a_second_signal_ends_run_at_once() {
    for (capabilities, method) in
        [(json!({}), "process/terminate"), (json!({"processSignals": true}), "process/signal")]
    {
        let silent = SilentServer::start(capabilities);
        let child = silent.start_run(&[]).await;
        let pid = child.id().unwrap();
        send_signal(pid, Signal::TERM);
        silent.server.wait_for(method, 1).await;
        let start = Instant::now();
        send_signal(pid, Signal::TERM);
        let (stdout, stderr, code) = text_and_code(&wait_for_output(child).await);
        let message = "exec-server: left before the server had ended the command; it may still be running\n";
        assert_eq!((stdout.as_str(), stderr.as_str(), code), ("", message, Some(143)), "{method}");
        // `run` must not wait for a server that does not answer, which would take at least two seconds.
        assert!(start.elapsed() < Duration::from_secs(2), "{method}: {:?}", start.elapsed());
    }
}

#[tokio::test]
async fn a_server_that_does_not_end_the_command_is_waited_for_only_10_seconds() {
    let run = async |capabilities, args: &[&str], signal: Option<Signal>| {
        let silent = SilentServer::start(capabilities);
        let child = silent.start_run(args).await;
        if let Some(signal) = signal {
            send_signal(child.id().unwrap(), signal);
        }
        let ended = tokio::time::timeout(RUN_LIMIT, wait_for_output(child)).await.expect("`run` does not end");
        text_and_code(&ended)
    };
    let (signalled, terminated, timed_out) = tokio::join!(
        run(json!({"processSignals": true}), &[], Some(Signal::INT)),
        run(json!({}), &[], Some(Signal::HUP)),
        run(json!({}), &["--timeout", "50ms"], None),
    );
    let message = "exec-server: the server did not say within 10s whether it has passed the signal on; the command may still be \
                 running\n";
    assert_eq!(signalled, (String::new(), message.to_owned(), Some(130)));
    let message = "exec-server: the server did not end the command within 10s; it may still be running\n";
    assert_eq!(terminated, (String::new(), message.to_owned(), Some(129)));
    assert_eq!(timed_out, (String::new(), message.to_owned(), Some(124)));
}

#[tokio::test]
async fn an_exit_code_out_of_range_is_not_a_success() {
    for number in [256, 300, -1, i32::MIN, 65_536] {
        let silent = SilentServer::start(json!({}));
        silent.server.on("process/start", move |request: &ClientMessage| {
            succeed_and_then(request, move |connection, id| {
                connection.push("process/exited", exited_params(id, 1, number, Some(false)));
                connection.push("process/closed", json!({"processId": id, "seq": 2}));
            })
        });
        let (stdout, stderr, code) = text_and_code(&output(&silent.args(&[])).await);
        let message =
            format!("exec-server: the server says that the command ended with {number}, which is no exit code\n");
        assert_eq!((stdout.as_str(), stderr.as_str(), code), ("", message.as_str(), Some(125)));
    }
}

#[tokio::test]
async fn the_first_of_two_reported_exits_is_used() {
    let silent = SilentServer::start(json!({}));
    silent.server.on("process/start", |request: &ClientMessage| {
        succeed_and_then(request, |connection, id| {
            connection.push("process/exited", exited_params(id, 1, 3, Some(false)));
            connection.push("process/exited", exited_params(id, 2, 0, Some(false)));
            connection.push("process/closed", json!({"processId": id, "seq": 3}));
        })
    });
    assert_eq!(text_and_code(&output(&silent.args(&[])).await), (String::new(), String::new(), Some(3)));
}

#[tokio::test]
async fn a_close_without_an_exit_is_an_error() {
    let silent = SilentServer::start(json!({}));
    silent.server.on("process/start", |request: &ClientMessage| {
        succeed_and_then(request, |connection, id| {
            connection.push("process/closed", json!({"processId": id, "seq": 1}));
        })
    });
    let (_, stderr, code) = text_and_code(&output(&silent.args(&[])).await);
    let message = "exec-server: the server closed the process and did not say how it exited\n";
    assert_eq!((stderr.as_str(), code), (message, Some(125)));
}

#[tokio::test]
async fn a_connection_that_is_lost_during_the_start_is_an_error_and_the_command_is_ended() {
    let silent = SilentServer::start(json!({}));
    silent.server.on("process/start", |_| ScriptedReply::Cut);
    silent.server.on("process/terminate", |_| ScriptedReply::Result(json!({"running": true})));
    let (_, stderr, code) = text_and_code(&output(&silent.args(&[])).await);
    let message = "exec-server: the connection was lost before the server had said whether the command began; it is ended if \
                 the server can be reached: exec-server transport disconnected\n";
    assert_eq!((stderr.as_str(), code), (message, Some(125)));
    assert_eq!((silent.server.count("process/start"), silent.server.count("process/terminate")), (1, 1));
}
