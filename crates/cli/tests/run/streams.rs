//! Stdin, stdout and stderr of a command.

use std::process::Stdio;

use testkit::{Value, eventually, is_alive, json};
use tokio::io::AsyncReadExt as _;

use crate::support::{command, output, output_with_input, read_pid, text_and_code, wait_for_output};

#[tokio::test]
async fn stdout_and_stderr_stay_apart() {
    let result = output(&["run", "--", "sh", "-c", "echo out; echo err >&2; printf '\\377\\000'"]).await;
    assert_eq!((&*result.stdout, &*result.stderr), (&b"out\n\xff\0"[..], &b"err\n"[..]));
}

#[tokio::test]
async fn stdin_and_its_end_are_passed_on() {
    let result = output_with_input(&["run", "--", "sh", "-c", "cat; echo done"], b"some\ninput").await;
    assert_eq!(text_and_code(&result), ("some\ninputdone\n".into(), String::new(), Some(0)));
    // This stdin is `/dev/null`.
    assert_eq!(text_and_code(&output(&["run", "--", "wc", "-c"]).await).0, "0\n");
}

#[tokio::test]
async fn much_input_and_output_passes_unchanged() {
    let input: Vec<u8> = (0..10_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let result = output_with_input(&["run", "--", "cat"], &input).await;
    assert!(result.stdout == input, "the output differs: {} bytes", result.stdout.len());
}

#[tokio::test]
async fn a_command_that_does_not_read_its_input_ends() {
    let result = output_with_input(&["run", "--", "true"], &vec![b'x'; 3_000_000]).await;
    assert_eq!(text_and_code(&result), (String::new(), String::new(), Some(0)));
}

#[tokio::test]
async fn a_closed_stdout_ends_the_command_and_run_without_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let script = format!("echo $$ > {}; exec yes", pid_file.display());
    let mut child = command(&["run", "--", "sh", "-c", &script]).spawn().unwrap();
    let mut first = [0; 2];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).await.unwrap();
    drop(stdout);
    let result = wait_for_output(child).await;
    assert_eq!((first, text_and_code(&result)), (*b"y\n", (String::new(), String::new(), Some(141))));
    let pid = read_pid(&pid_file).await;
    eventually("the process is gone", || (!is_alive(pid)).then_some(())).await;
}

#[tokio::test]
async fn a_large_output_does_not_fill_the_memory_of_run() {
    let mut child = command(&["run", "--", "head", "-c", "200000000", "/dev/zero"]).spawn().unwrap();
    let pid = child.id().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut buffer = vec![0; 1 << 20];
    let (mut total, mut most_memory) = (0, 0);
    loop {
        let count = stdout.read(&mut buffer).await.unwrap();
        if count == 0 {
            break;
        }
        total += count;
        if is_alive(pid) && total % 7 == 0 {
            most_memory = most_memory.max(testkit::resident_bytes(pid));
        }
    }
    assert_eq!(total, 200_000_000);
    assert!(most_memory < 100 << 20, "`run` uses {most_memory} bytes of memory");
}

#[tokio::test]
async fn run_waits_a_limited_time_for_output_of_descendants() {
    let late = output(&["run", "--", "bash", "-c", "exec > >(sleep 0.2; cat); echo late"]).await;
    assert_eq!(text_and_code(&late), ("late\n".into(), String::new(), Some(0)));
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let script = format!("sleep 600 & echo $! > {}; exit 4", pid_file.display());
    assert_eq!(output(&["run", "--", "sh", "-c", &script]).await.status.code(), Some(4));
    let pid = read_pid(&pid_file).await;
    eventually("the process that was left behind is gone", || (!is_alive(pid)).then_some(())).await;
}

#[tokio::test]
async fn events_can_be_printed_as_json() {
    let result =
        output(&["run", "--json", "--", "sh", "-c", "printf 'é\\n'; exec >&2; printf '\\377'; exit 5"]).await;
    let lines: Vec<Value> =
        result.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    assert!(lines.contains(&json!({"type": "output", "stream": "stdout", "text": "é\n"})), "{lines:?}");
    assert!(lines.contains(&json!({"type": "output", "stream": "stderr", "base64": "/w=="})), "{lines:?}");
    let mut last = lines.last().unwrap().clone();
    let usage = last.as_object_mut().unwrap().remove("usage").unwrap();
    assert!(usage["minorFaults"].as_u64().unwrap() > 0, "{usage}");
    let exited = json!({"type": "exited", "exitCode": 5, "timedOut": false, "sandboxDenied": false});
    assert_eq!((last, result.status.code()), (exited, Some(5)));
}

#[tokio::test]
async fn a_script_on_stdin_is_run_by_the_shell() {
    let result = output_with_input(&["shell"], b"echo hello\nexit 6\n").await;
    assert_eq!(text_and_code(&result), ("hello\n".into(), String::new(), Some(6)));
}

#[tokio::test]
async fn a_command_whose_stdin_is_dev_null_gets_no_input() {
    let mut child = command(&["run", "--", "cat"]);
    let result = wait_for_output(child.stdin(Stdio::null()).spawn().unwrap()).await;
    assert_eq!(text_and_code(&result), (String::new(), String::new(), Some(0)));
}
