//! Common uses of the client library.

use client::{ExecProcessEvent, ExecServerError, Stream, WriteStatus};
use testkit::{TestServer, eventually, is_alive};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{connect, sh, sh_with_stdin};

#[tokio::test]
async fn a_command_runs_and_its_output_is_complete() {
    let server = TestServer::start().await;
    let client = connect(&server).await;
    let process = client.start(sh("p", "echo out; echo err >&2; exit 7")).await.unwrap();
    let output = process.wait_with_output().await.unwrap();
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!((output.status.code, output.status.sandbox_denied), (7, false));
}

#[tokio::test]
async fn stdin_and_stdout_are_streams() {
    let server = TestServer::start().await;
    let client = connect(&server).await;
    let process = client.start(sh_with_stdin("p", "cat")).await.unwrap();
    let (mut stdin, mut stdout) = (process.stdin(), process.stdout());
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let mut received = Vec::new();
    let writing = async {
        stdin.write_all(&sent).await.unwrap();
        stdin.shutdown().await.unwrap();
    };
    let (_, read) = tokio::join!(writing, stdout.read_to_end(&mut received));
    read.unwrap();
    assert!(received == sent);
    assert_eq!(process.wait().await.unwrap().code, 0);
}

#[tokio::test]
async fn every_subscriber_gets_every_event() {
    let server = TestServer::start().await;
    let client = connect(&server).await;
    let process = client.start(sh_with_stdin("p", "echo one; read line; echo $line; exit 3")).await.unwrap();
    let (mut early, mut also_early) = (process.events(), process.events());
    assert!(matches!(early.next().await, Some(ExecProcessEvent::Output(_))));
    assert_eq!(process.write("two\n").await.unwrap(), WriteStatus::Accepted);
    assert_eq!(process.wait().await.unwrap().code, 3);
    let mut late = process.events();
    for events in [&mut also_early, &mut late] {
        let mut text = String::new();
        let mut last = None;
        while let Some(event) = events.next().await {
            if let ExecProcessEvent::Output(output) = &event {
                assert_eq!(output.stream, Stream::Stdout);
                text.push_str(std::str::from_utf8(&output.chunk).unwrap());
            }
            last = Some(event);
        }
        assert_eq!(text, "one\ntwo\n");
        assert_eq!(last, Some(ExecProcessEvent::Closed { seq: 4 }));
    }
}

#[tokio::test]
async fn a_start_with_an_id_in_use_is_refused() {
    let server = TestServer::start().await;
    let client = connect(&server).await;
    let _first = client.start(sh("p", "sleep 1000")).await.unwrap();
    let second = client.start(sh("p", "true")).await.err().unwrap();
    assert!(matches!(&second, ExecServerError::Protocol(text) if text == "session already registered for process p"));
}

#[tokio::test]
async fn dropping_a_handle_ends_the_process_unless_the_handle_was_detached() {
    let server = TestServer::start().await;
    let client = connect(&server).await;
    let dropped = client.start(sh("dropped", "sleep 1000")).await.unwrap();
    let detached = client.start(sh("detached", "sleep 1000")).await.unwrap();
    let pid_of = |name: &'static str| {
        let client = client.clone();
        async move {
            let listed = client.processes().await.unwrap();
            listed.iter().find(|process| process.process_id.as_str() == name).unwrap().pid.unwrap()
        }
    };
    let (dropped_pid, detached_pid) = (pid_of("dropped").await, pid_of("detached").await);
    detached.detach();
    drop((dropped, detached));
    eventually("the dropped process ends", || (!is_alive(dropped_pid)).then_some(())).await;
    assert!(is_alive(detached_pid));
}

#[tokio::test]
async fn a_failed_start_returns_the_error_of_the_server_and_frees_the_id() {
    let server = TestServer::start().await;
    let client = connect(&server).await;
    let mut params = sh("p", "true");
    params.argv = vec!["/no/such/program".into()];
    let error = client.start(params).await.err().unwrap();
    let ExecServerError::Server { code, data, .. } = error else { panic!("{error:?}") };
    assert_eq!((code, data.unwrap().errno), (-32603, Some(2)));
    assert!(client.start(sh("p", "true")).await.is_ok(), "the id is free again");
}

#[tokio::test]
async fn a_process_waits_for_a_slow_reader() {
    let server = TestServer::start().await;
    let client = connect(&server).await;
    let process = client.start(sh("p", "head -c 30000000 /dev/zero")).await.unwrap();
    let mut stdout = process.stdout();
    let mut byte = [0];
    stdout.read_exact(&mut byte).await.unwrap();
    // While its output is not read, the process waits: the number of written bytes no longer grows. The server still
    // answers other requests.
    let written = || async { client.processes().await.unwrap()[0].output_bytes };
    let mut before = 0;
    testkit::eventually_async("the process waits", async || {
        let now = written().await;
        (std::mem::replace(&mut before, now) == now).then_some(())
    })
    .await;
    assert!(written().await < 20_000_000);
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest.len(), 29_999_999);
}

#[tokio::test]
async fn a_closed_or_dropped_client_leaves_no_session() {
    let server = TestServer::start().await;
    let has_no_session = async || {
        let metrics = testkit::http_get(server.address(), "/metrics", &[]).await.body;
        let line = metrics
            .lines()
            .find(|line| line.contains("sessions_active ") && !line.starts_with('#'))
            .map(str::to_owned);
        line.unwrap_or_else(|| panic!("{metrics}")).ends_with(" 0")
    };
    for is_dropped in [false, true] {
        let client = connect(&server).await;
        let process = client.start(sh("p", "sleep 1000")).await.unwrap();
        assert!(!has_no_session().await);
        drop(process);
        if is_dropped {
            drop(client);
        } else {
            client.close().await;
        }
        testkit::eventually_async("the session is gone", async || has_no_session().await.then_some(())).await;
    }
}

#[tokio::test]
async fn a_slow_reader_of_a_child_server_loses_nothing() {
    let connector = client::ChildConnector {
        program: testkit::binary().into(),
        args: ["--listen", "stdio"].map(Into::into).into(),
        ..Default::default()
    };
    let client = client::ExecServerClient::connect(connector, Default::default()).await.unwrap();
    let process = client.start(sh("p", "head -c 300000000 /dev/zero")).await.unwrap();
    let mut stdout = process.stdout();
    let (mut total, mut piece) = (0, vec![0; 8 * 1024]);
    loop {
        let count = stdout.read(&mut piece).await.unwrap();
        if count == 0 {
            break;
        }
        total += count;
        if total < 2_000_000 {
            // sleep: the slowness of the reader is tested
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
    assert_eq!(total, 300_000_000);
    client.close().await;
}
