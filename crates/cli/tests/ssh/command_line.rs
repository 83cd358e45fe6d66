//! The flags for ssh, and the command that passes stdin and stdout on.

use std::process::{Output, Stdio};

use testkit::binary;
use tokio::process::Command;

use crate::sshd::{HOST, Sshd};

async fn run(sshd: &Sshd, args: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(["mcp-stdio", "--ssh", HOST, "--ssh-config"]).arg(sshd.config());
    command.arg("--program").arg(binary()).args(args).stdin(Stdio::null()).kill_on_drop(true);
    command.output().await.unwrap()
}

#[tokio::test]
async fn a_command_runs_in_the_corresponding_directory() {
    let sshd = Sshd::start().await;
    let (here, there) = (tempfile::tempdir().unwrap(), sshd.temporary());
    std::fs::create_dir(there.join("below")).unwrap();
    let below = here.path().join("below");
    let roots = ["--local-root", here.path().to_str().unwrap(), "--remote-root", there.to_str().unwrap()];
    let script = ["--cwd", below.to_str().unwrap(), "--", "sh", "-c", "pwd -P; echo err >&2; exit 5"];
    let said = run(&sshd, &[&roots[..], &script].concat()).await;
    let expected = std::fs::canonicalize(there.join("below")).unwrap();
    assert_eq!(String::from_utf8(said.stdout).unwrap(), format!("{}\n", expected.display()));
    assert_eq!((said.status.code(), said.stderr.as_slice()), (Some(5), &b"err\n"[..]));
}

#[tokio::test]
async fn a_host_that_does_not_answer_is_our_failure() {
    let sshd = Sshd::start().await;
    sshd.expect_another_port();
    let said = run(&sshd, &["--", "true"]).await;
    let words = String::from_utf8(said.stderr).unwrap();
    assert_eq!((said.status.code(), said.stdout.as_slice()), (Some(125), &b""[..]));
    assert!(words.starts_with("exec-server: ") && words.contains("Connection refused"), "{words}");
    assert_eq!(words.lines().count(), 1, "{words}");
}
