//! Servers that do not end a process although they are asked to, or report impossible exits. Our command ends all the same, and never with
//! a success that the server has not reported.

use std::time::{Duration, Instant};

use tempfile::TempDir;
use testkit::scripted::{ClientMessage, ScriptedConnection, ScriptedListener, ScriptedReply, exited};
use testkit::{ScriptedServer, Signal, json, send_signal};
use tokio::io::AsyncReadExt as _;
use tokio::process::Child;

use crate::support::{command, finished, output, told};

/// Longer than our command waits for a server, even on a loaded machine.
const WAITED_FOR: Duration = Duration::from_secs(40);

struct Silent {
    server: ScriptedServer,
    listener: ScriptedListener,
    _folder: TempDir,
}

impl Silent {
    /// A server with these capabilities that starts every command, and does not answer requests that end one.
    fn start(capabilities: testkit::Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = ScriptedServer::new();
        let info = json!({"shell": {"name": "sh", "path": "/bin/sh"}, "capabilities": capabilities});
        server.on("environment/info", move |_| ScriptedReply::Result(info.clone()));
        server.on("process/start", |asked: &ClientMessage| {
            after_the_answer(asked, |connection, id| connection.output(id, 1, "ready\n"))
        });
        server.on("process/terminate", |_| ScriptedReply::Silence);
        server.on("process/signal", |_| ScriptedReply::Silence);
        server.on("session/keep", |_| ScriptedReply::Silence);
        let listener = server.listen(folder.path());
        Self { server, listener, _folder: folder }
    }

    fn args<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        [&["run", "--connect", self.listener.url()][..], args, &["--", "job"]].concat()
    }

    /// A command that runs.
    async fn running(&self, args: &[&str]) -> Child {
        let mut child = command(&self.args(args)).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).await.unwrap();
        child
    }
}

/// Lets a start succeed, and then calls `happens`.
fn after_the_answer(
    asked: &ClientMessage,
    happens: impl FnOnce(&ScriptedConnection, &str) + Send + 'static,
) -> ScriptedReply {
    let (connection, id) = (asked.connection.clone(), asked.params["processId"].as_str().unwrap().to_owned());
    tokio::spawn(async move { happens(&connection, &id) });
    ScriptedReply::Result(json!({"processId": asked.params["processId"]}))
}

#[tokio::test]
async fn a_second_signal_ends_us_at_once() {
    for (capabilities, method) in
        [(json!({}), "process/terminate"), (json!({"processSignals": true}), "process/signal")]
    {
        let silent = Silent::start(capabilities);
        let child = silent.running(&[]).await;
        let pid = child.id().unwrap();
        send_signal(pid, Signal::TERM);
        silent.server.wait_for(method, 1).await;
        let asked = Instant::now();
        send_signal(pid, Signal::TERM);
        let (stdout, stderr, code) = told(&finished(child).await);
        let words = "exec-server: left before the server had ended the command; it may still be running\n";
        assert_eq!((stdout.as_str(), stderr.as_str(), code), ("", words, Some(143)), "{method}");
        // A goodbye to a server that does not answer takes two seconds, and there are two of them.
        assert!(asked.elapsed() < Duration::from_secs(2), "{method}: {:?}", asked.elapsed());
    }
}

#[tokio::test]
async fn a_server_that_does_not_end_the_command_is_not_waited_for() {
    let run = async |capabilities, args: &[&str], signal: Option<Signal>| {
        let silent = Silent::start(capabilities);
        let child = silent.running(args).await;
        if let Some(signal) = signal {
            send_signal(child.id().unwrap(), signal);
        }
        let ended = tokio::time::timeout(WAITED_FOR, finished(child)).await.expect("the command waits for ever");
        told(&ended)
    };
    let (signalled, replaced, timed_out) = tokio::join!(
        run(json!({"processSignals": true}), &[], Some(Signal::INT)),
        run(json!({}), &[], Some(Signal::HUP)),
        run(json!({}), &["--timeout", "50ms"], None),
    );
    let words = "exec-server: the server did not end the command within 10s; it may still be running\n";
    assert_eq!(signalled, (String::new(), words.to_owned(), Some(130)));
    assert_eq!(replaced, (String::new(), words.to_owned(), Some(129)));
    assert_eq!(timed_out, (String::new(), words.to_owned(), Some(124)));
}

#[tokio::test]
async fn an_exit_code_out_of_range_is_not_a_success() {
    for number in [256, 300, -1, i32::MIN, 65_536] {
        let silent = Silent::start(json!({}));
        silent.server.on("process/start", move |asked: &ClientMessage| {
            after_the_answer(asked, move |connection, id| {
                connection.push("process/exited", exited(id, 1, number, Some(false)));
                connection.push("process/closed", json!({"processId": id, "seq": 2}));
            })
        });
        let (stdout, stderr, code) = told(&output(&silent.args(&[])).await);
        let words =
            format!("exec-server: the server says that the command ended with {number}, which is no exit code\n");
        assert_eq!((stdout.as_str(), stderr.as_str(), code), ("", words.as_str(), Some(125)));
    }
}

#[tokio::test]
async fn the_first_of_two_exits_counts() {
    let silent = Silent::start(json!({}));
    silent.server.on("process/start", |asked: &ClientMessage| {
        after_the_answer(asked, |connection, id| {
            connection.push("process/exited", exited(id, 1, 3, Some(false)));
            connection.push("process/exited", exited(id, 2, 0, Some(false)));
            connection.push("process/closed", json!({"processId": id, "seq": 3}));
        })
    });
    assert_eq!(told(&output(&silent.args(&[])).await), (String::new(), String::new(), Some(3)));
}

#[tokio::test]
async fn a_close_without_an_exit_is_not_waited_for() {
    let silent = Silent::start(json!({}));
    silent.server.on("process/start", |asked: &ClientMessage| {
        after_the_answer(asked, |connection, id| {
            connection.push("process/closed", json!({"processId": id, "seq": 1}));
        })
    });
    let (_, stderr, code) = told(&output(&silent.args(&[])).await);
    let words = "exec-server: the server closed the process and did not say how it exited\n";
    assert_eq!((stderr.as_str(), code), (words, Some(125)));
}

#[tokio::test]
async fn a_connection_that_is_lost_during_the_start_is_an_error_and_the_command_is_ended() {
    let silent = Silent::start(json!({}));
    silent.server.on("process/start", |_| ScriptedReply::Cut);
    silent.server.on("process/terminate", |_| ScriptedReply::Result(json!({"running": true})));
    let (_, stderr, code) = told(&output(&silent.args(&[])).await);
    let words = "exec-server: the connection was lost before the server had said whether the command began; it is ended if \
                 the server can be reached: exec-server transport disconnected\n";
    assert_eq!((stderr.as_str(), code), (words, Some(125)));
    assert_eq!((silent.server.count("process/start"), silent.server.count("process/terminate")), (1, 1));
}
