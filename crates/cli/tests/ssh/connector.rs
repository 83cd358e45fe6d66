//! Tests the client library with a server that the library starts over ssh.

use std::time::{Duration, Instant};

use client::{
    ExecServerClient, ExecServerClientConnectOptions, ExecServerError, PathMap, PathUri, SshConnector, StartParams,
};
use testkit::{binary, eventually, is_alive};

use crate::sshd::{HOST, Sshd};

/// Limit for the time in which sshd starts and two errors of ssh are reported. Short, because a person waits for such
/// errors.
const ERROR_LIMIT: Duration = Duration::from_secs(8);

async fn connect_with(sshd: &Sshd, paths: PathMap) -> Result<ExecServerClient, ExecServerError> {
    let program = binary();
    let config = vec!["-F".into(), sshd.config().into()];
    let connector = SshConnector::with_ssh(HOST, program.to_str().unwrap(), paths, config);
    ExecServerClient::connect(connector, ExecServerClientConnectOptions::default()).await
}

fn uri(path: &std::path::Path) -> PathUri {
    PathUri::from_native(path).unwrap()
}

#[tokio::test]
async fn a_command_runs_on_the_other_machine() {
    let sshd = Sshd::start().await;
    let client = connect_with(&sshd, PathMap::default()).await.unwrap();
    let script = "echo out; echo err >&2; exit 7";
    let process =
        client.start(StartParams::new("p", ["sh", "-c", script], "file:///".parse().unwrap())).await.unwrap();
    let output = process.wait_with_output().await.unwrap();
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!(output.status.code, 7);
    assert!(client.environment_info().await.unwrap().capabilities.process_list);
    assert_eq!(client.address(), "ssh elsewhere");
    client.close().await;
}

#[tokio::test]
async fn paths_are_mapped_in_requests_and_in_answers() {
    let sshd = Sshd::start().await;
    let remote_root = sshd.temporary_directory();
    std::fs::create_dir(remote_root.join("below")).unwrap();
    let local_root = std::path::Path::new("/only/here");
    let client = connect_with(&sshd, PathMap::new(local_root, &remote_root).unwrap()).await.unwrap();
    let process = client.start(StartParams::new("p", ["pwd", "-P"], uri(&local_root.join("below")))).await.unwrap();
    let output = process.wait_with_output().await.unwrap();
    let below = std::fs::canonicalize(remote_root.join("below")).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{}\n", below.display()));
    let info = client.environment_info().await.unwrap();
    // On the other machine the temporary directory is the remote root.
    assert_eq!(info.temp_dir, Some(uri(local_root)));
    // Paths outside of the roots are not changed.
    let process = client.start(StartParams::new("q", ["pwd", "-P"], uri("/".as_ref()))).await.unwrap();
    assert_eq!(process.wait_with_output().await.unwrap().stdout, b"/\n");
    client.close().await;
}

#[tokio::test]
async fn a_closed_or_dropped_client_leaves_no_process_on_the_other_machine() {
    let sshd = Sshd::start().await;
    for calls_close in [true, false] {
        let client = connect_with(&sshd, PathMap::default()).await.unwrap();
        // Prints the pids of the remote server, of the process and of its child.
        let script = "setsid sleep 1000 & echo $PPID $$ $!; exec sleep 1000";
        let params = StartParams::new("p", ["sh", "-c", script], "file:///".parse().unwrap());
        let process = client.start(params).await.unwrap();
        let mut events = process.events();
        let Some(client::ExecProcessEvent::Output(output)) = events.next().await else { panic!("no output") };
        let line = String::from_utf8(output.chunk.to_vec()).unwrap();
        let pids: Vec<u32> = line.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        assert!(pids.len() == 3 && pids.iter().all(|pid| is_alive(*pid)), "{line}");
        // A detached process outlives its handle, but not a server that was started over ssh.
        process.detach();
        drop((process, events));
        if calls_close {
            client.close().await;
        } else {
            drop(client);
        }
        for pid in pids {
            eventually("the remote server and its processes are gone", || (!is_alive(pid)).then_some(())).await;
        }
    }
}

#[tokio::test]
async fn errors_of_ssh_are_reported_within_seconds() {
    let start = Instant::now();
    let sshd = Sshd::start().await;
    sshd.expect_another_host_key();
    let error = connect_with(&sshd, PathMap::default()).await.err().unwrap().to_string();
    assert!(error.contains("Host key verification failed"), "{error}");
    sshd.point_ssh_at_unused_port();
    let error = connect_with(&sshd, PathMap::default()).await.err().unwrap().to_string();
    assert!(error.contains("Connection refused"), "{error}");
    assert!(start.elapsed() < ERROR_LIMIT, "{:?}", start.elapsed());
}

#[tokio::test]
async fn the_error_names_a_server_program_that_does_not_exist() {
    let sshd = Sshd::start().await;
    let config = vec!["-F".into(), sshd.config().into()];
    let connector = SshConnector::with_ssh(HOST, "/no/such/exec-server", PathMap::default(), config);
    let error = ExecServerClient::connect(connector, ExecServerClientConnectOptions::default()).await;
    let error = error.err().unwrap().to_string();
    assert!(error.contains("/no/such/exec-server"), "{error}");
}
