//! Input that cannot be passed on as it comes: it waits, it is divided, or the command fails. No input is lost silently.

use std::fs::{File, OpenOptions};

use tempfile::TempDir;
use testkit::scripted::ScriptedReply;
use testkit::{Client, ScriptedServer, TestServer, json};

use crate::support::{command, finished, output_of, told};

/// More than a pipe holds, and more than one write carries.
const INPUT_BYTES: usize = 600_000;

#[tokio::test]
async fn input_waits_while_the_server_has_no_room() {
    let server = TestServer::with_args(&["--max-queued-stdin-total", "300KiB"]).await;
    let mut other = server.client().await;
    let mut params = Client::start_params("p", &["sleep", "1000"]);
    params["pipeStdin"] = json!(true);
    other.call("process/start", params).await;
    // The only process with input may queue as much as it wants, and then there is no room for others.
    let chunk = "AAAA".repeat(1 << 19);
    other.call("process/write", json!({"processId": "p", "chunk": chunk})).await;
    let args = ["run", "--connect", server.url(), "--", "wc", "-c"];
    let all = output_of(&args, &vec![b'x'; INPUT_BYTES]).await;
    assert_eq!(told(&all), (format!("{INPUT_BYTES}\n"), String::new(), Some(0)));
}

#[tokio::test]
async fn input_is_divided_for_a_server_with_a_small_message_limit() {
    for limit in ["100KiB", "8KiB"] {
        let server = TestServer::with_args(&["--max-message-bytes", limit]).await;
        let args = ["run", "--connect", server.url(), "--", "wc", "-c"];
        let all = output_of(&args, &vec![b'x'; INPUT_BYTES]).await;
        assert_eq!(told(&all), (format!("{INPUT_BYTES}\n"), String::new(), Some(0)), "{limit}");
    }
}

/// A server that starts every command and refuses this method.
fn refusing(method: &str, folder: &TempDir) -> (ScriptedServer, testkit::scripted::ScriptedListener) {
    let server = ScriptedServer::new();
    let capabilities = json!({"processCloseStdin": true, "processWriteQuery": true});
    let info = json!({"shell": {"name": "sh", "path": "/bin/sh"}, "capabilities": capabilities});
    server.on("environment/info", move |_| ScriptedReply::Result(info.clone()));
    server.on("process/terminate", |_| ScriptedReply::Result(json!({"running": true})));
    server.on(method, |_| ScriptedReply::Error(-32603, "no memory".to_owned()));
    let listener = server.listen(folder.path());
    (server, listener)
}

#[tokio::test]
async fn input_that_the_server_refuses_is_an_error() {
    for method in ["process/write", "process/closeStdin"] {
        let folder = tempfile::tempdir().unwrap();
        let (server, listener) = refusing(method, &folder);
        let all = output_of(&["run", "--connect", listener.url(), "--", "job"], b"input").await;
        let words = "exec-server: the server did not take the input of the command: no memory\n";
        assert_eq!(told(&all), (String::new(), words.to_owned(), Some(125)), "{method}");
        assert_eq!(server.count("process/terminate"), 1, "{method}");
    }
}

#[tokio::test]
async fn a_stdin_that_cannot_be_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for args in [&["run", "--", "cat"][..], &["shell"]] {
        let child = command(args).stdin(File::open(folder.path()).unwrap()).spawn().unwrap();
        let words = "exec-server: cannot read stdin: Is a directory\n";
        assert_eq!(told(&finished(child).await), (String::new(), words.to_owned(), Some(125)), "{args:?}");
    }
}

#[tokio::test]
async fn a_stdin_that_is_open_for_writing_only_is_empty() {
    // As `nohup` leaves it.
    let unreadable = OpenOptions::new().write(true).open("/dev/null").unwrap();
    let child = command(&["run", "--", "sh", "-c", "cat; echo done"]).stdin(unreadable).spawn().unwrap();
    assert_eq!(told(&finished(child).await), ("done\n".to_owned(), String::new(), Some(0)));
}

#[tokio::test]
async fn the_end_of_input_in_the_middle_of_a_line_reaches_a_terminal() {
    for input in [&b"abc"[..], b"abc\n", b"abc\r", b"abc\x04", b""] {
        let all = output_of(&["run", "-t", "--", "sh", "-c", "cat > /dev/null; exit 6"], input).await;
        assert_eq!(all.status.code(), Some(6), "{input:?}");
    }
}
