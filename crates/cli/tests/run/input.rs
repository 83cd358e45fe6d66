//! Input that `run` cannot pass to its command at once, or at all. `run` waits, sends the input in smaller pieces, or
//! fails. No input is lost without an error.

use std::fs::{File, OpenOptions};

use tempfile::TempDir;
use testkit::scripted::ScriptedReply;
use testkit::{Client, ScriptedServer, TestServer, json};

use crate::support::{command, output_with_input, text_and_code, wait_for_output};

/// Size of the input. More than a pipe holds, and more than `run` puts into one `process/write`.
const INPUT_BYTES: usize = 600_000;

#[tokio::test]
async fn input_waits_while_the_input_queues_of_the_server_are_full() {
    let server = TestServer::with_args(&["--max-queued-stdin-total", "300KiB"]).await;
    let mut other = server.client().await;
    let mut params = Client::start_params("p", &["sleep", "1000"]);
    params["pipeStdin"] = json!(true);
    other.call("process/start", params).await;
    // The server accepts this write although it is larger than the limit, because no other input is queued. `sleep`
    // never reads the bytes. While they are queued, another process gets small writes only, and each write waits for
    // the one before.
    let chunk = "AAAA".repeat(1 << 19);
    other.call("process/write", json!({"processId": "p", "chunk": chunk})).await;
    let args = ["run", "--connect", server.url(), "--", "wc", "-c"];
    let output = output_with_input(&args, &vec![b'x'; INPUT_BYTES]).await;
    assert_eq!(text_and_code(&output), (format!("{INPUT_BYTES}\n"), String::new(), Some(0)));
}

#[tokio::test]
async fn input_is_divided_for_a_server_with_a_small_message_limit() {
    for limit in ["100KiB", "8KiB"] {
        let server = TestServer::with_args(&["--max-message-bytes", limit]).await;
        let args = ["run", "--connect", server.url(), "--", "wc", "-c"];
        let output = output_with_input(&args, &vec![b'x'; INPUT_BYTES]).await;
        assert_eq!(text_and_code(&output), (format!("{INPUT_BYTES}\n"), String::new(), Some(0)), "{limit}");
    }
}

/// A server that says that every command has started, and answers `method` with an error. Its socket is in `folder`.
fn server_refusing(method: &str, folder: &TempDir) -> (ScriptedServer, testkit::scripted::ScriptedListener) {
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
async fn input_that_the_server_refuses_is_an_error_and_the_command_is_terminated() {
    for method in ["process/write", "process/closeStdin"] {
        let folder = tempfile::tempdir().unwrap();
        let (server, listener) = server_refusing(method, &folder);
        let output = output_with_input(&["run", "--connect", listener.url(), "--", "job"], b"input").await;
        let message = "exec-server: the server did not take the input of the command: no memory\n";
        assert_eq!(text_and_code(&output), (String::new(), message.to_owned(), Some(125)), "{method}");
        assert_eq!(server.count("process/terminate"), 1, "{method}");
    }
}

#[tokio::test]
async fn a_stdin_that_cannot_be_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for args in [&["run", "--", "cat"][..], &["shell"]] {
        let child = command(args).stdin(File::open(folder.path()).unwrap()).spawn().unwrap();
        let message = "exec-server: cannot read stdin: Is a directory\n";
        assert_eq!(
            text_and_code(&wait_for_output(child).await),
            (String::new(), message.to_owned(), Some(125)),
            "{args:?}"
        );
    }
}

#[tokio::test]
async fn a_stdin_that_is_open_for_writing_only_is_empty() {
    // `nohup` gives such a stdin to its command.
    let unreadable = OpenOptions::new().write(true).open("/dev/null").unwrap();
    let child = command(&["run", "--", "sh", "-c", "cat; echo done"]).stdin(unreadable).spawn().unwrap();
    assert_eq!(text_and_code(&wait_for_output(child).await), ("done\n".to_owned(), String::new(), Some(0)));
}

#[tokio::test]
async fn the_end_of_input_reaches_a_terminal_even_in_the_middle_of_a_line() {
    for input in [&b"abc"[..], b"abc\n", b"abc\r", b"abc\x04", b""] {
        let output = output_with_input(&["run", "-t", "--", "sh", "-c", "cat > /dev/null; exit 6"], input).await;
        assert_eq!(output.status.code(), Some(6), "{input:?}");
    }
}
