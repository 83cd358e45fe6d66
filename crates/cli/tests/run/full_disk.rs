//! Commands of `exec-server` whose stdout or stderr is a file on a full disk.

use std::fs::File;
use std::process::Stdio;

use tokio::process::Command;

use crate::support::{command, text_and_code, wait_for_output};

/// How often a test repeats a command. `run` may notice the failed write before or after the exit of the command, and
/// both orders must be tested.
const REPETITIONS: usize = 25;

/// A device on which every write fails, as on a full disk.
fn full_device() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

async fn stderr_and_code(command: &mut Command) -> (String, Option<i32>) {
    let (_, stderr, code) = text_and_code(&wait_for_output(command.spawn().unwrap()).await);
    (stderr, code)
}

#[tokio::test]
async fn output_that_cannot_be_written_is_an_error() {
    let expected = ("exec-server: cannot write the output: No space left on device\n".to_owned(), Some(125));
    for _ in 0..REPETITIONS {
        assert_eq!(stderr_and_code(command(&["run", "--", "echo", "hi"]).stdout(full_device())).await, expected);
    }
    for _ in 0..REPETITIONS {
        assert_eq!(stderr_and_code(command(&["run", "--json", "--", "true"]).stdout(full_device())).await, expected);
    }
}

#[tokio::test]
async fn a_list_of_limits_that_cannot_be_written_is_an_error_unless_its_reader_is_gone() {
    let (stderr, code) = stderr_and_code(command(&["--help-limits"]).stdout(full_device())).await;
    assert_eq!((stderr.as_str(), code), FAILED_LIST);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(stderr_and_code(command(&["--help-limits"]).stdout(writer)).await, (String::new(), Some(0)));
}

/// Stderr and exit code if the list of limits cannot be written.
const FAILED_LIST: (&str, Option<i32>) =
    ("exec-server: cannot write the list of limits: No space left on device\n", Some(125));

#[tokio::test]
async fn an_error_message_that_cannot_be_written_does_not_change_the_exit_code() {
    let failing = [
        (&["run", "--", "/no/such/program"][..], 127),
        (&["run", "--id", "x", "--", "true"], 125),
        (&["ps"], 1),
        (&["cat", "/no/such/file"], 1),
    ];
    for (args, code) in failing {
        // `RUST_LOG` adds log lines, which cannot be written either.
        let status = command(args).env("RUST_LOG", "debug").stderr(full_device()).status().await.unwrap();
        assert_eq!(status.code(), Some(code), "{args:?}");
    }
}
