//! The command `exec-server mcp-stdio` with the flags for ssh: it runs a program on another machine and passes stdin,
//! stdout, stderr and the exit code on.

use std::process::{Output, Stdio};

use testkit::binary;
use tokio::process::Command;

use crate::sshd::{HOST, Sshd};

/// Runs `mcp-stdio` with these further arguments. `--program` is the server that ssh starts on the other machine.
async fn run(sshd: &Sshd, args: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(["mcp-stdio", "--ssh", HOST, "--ssh-config"]).arg(sshd.config());
    command.arg("--program").arg(binary()).args(args).stdin(Stdio::null()).kill_on_drop(true);
    command.output().await.unwrap()
}

#[tokio::test]
async fn the_local_cwd_is_mapped_below_the_remote_root_and_output_and_exit_code_come_back() {
    let sshd = Sshd::start().await;
    let (local_root, remote_root) = (tempfile::tempdir().unwrap(), sshd.temporary_directory());
    std::fs::create_dir(remote_root.join("below")).unwrap();
    let below = local_root.path().join("below");
    let roots = ["--local-root", local_root.path().to_str().unwrap(), "--remote-root", remote_root.to_str().unwrap()];
    let script = ["--cwd", below.to_str().unwrap(), "--", "sh", "-c", "pwd -P; echo err >&2; exit 5"];
    let output = run(&sshd, &[&roots[..], &script].concat()).await;
    let expected = std::fs::canonicalize(remote_root.join("below")).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{}\n", expected.display()));
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(5), &b"err\n"[..]));
}

#[tokio::test]
async fn a_host_that_refuses_connections_gives_exit_code_125_and_one_line_on_stderr() {
    let sshd = Sshd::start().await;
    sshd.point_ssh_at_unused_port();
    let output = run(&sshd, &["--", "true"]).await;
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(125), &b""[..]));
    assert!(stderr.starts_with("exec-server: ") && stderr.contains("Connection refused"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}
