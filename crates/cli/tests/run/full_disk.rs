//! Our stdout or stderr is on a full disk.

use std::fs::File;
use std::process::Stdio;

use tokio::process::Command;

use crate::support::{command, finished, told};

/// It is a race whether the failed write is noticed before or after the exit of the command, so each test tries often.
const TRIES: usize = 25;

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

async fn run(command: &mut Command) -> (String, Option<i32>) {
    let (_, stderr, code) = told(&finished(command.spawn().unwrap()).await);
    (stderr, code)
}

#[tokio::test]
async fn output_that_cannot_be_written_is_our_failure() {
    let expected = ("exec-server: cannot write the output: No space left on device\n".to_owned(), Some(125));
    for _ in 0..TRIES {
        assert_eq!(run(command(&["run", "--", "echo", "hi"]).stdout(full())).await, expected);
    }
    for _ in 0..TRIES {
        assert_eq!(run(command(&["run", "--json", "--", "true"]).stdout(full())).await, expected);
    }
}

#[tokio::test]
async fn a_list_that_cannot_be_written_is_our_failure() {
    let (stderr, code) = run(command(&["--help-limits"]).stdout(full())).await;
    assert_eq!((stderr.as_str(), code), FAILED_LIST);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(run(command(&["--help-limits"]).stdout(writer)).await, (String::new(), Some(0)));
}

const FAILED_LIST: (&str, Option<i32>) =
    ("exec-server: cannot write the list of limits: No space left on device\n", Some(125));

#[tokio::test]
async fn an_error_that_cannot_be_written_still_has_its_exit_code() {
    let failing = [
        (&["run", "--", "/no/such/program"][..], 127),
        (&["run", "--id", "x", "--", "true"], 125),
        (&["ps"], 1),
        (&["cat", "/no/such/file"], 1),
    ];
    for (args, code) in failing {
        let status = command(args).env("RUST_LOG", "debug").stderr(full()).status().await.unwrap();
        assert_eq!(status.code(), Some(code), "{args:?}");
    }
}
