//! Runs the same session again and again; each run cuts the connection after a different byte.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client::{ExecProcessEvent, ExecServerClient, ExecServerError, WriteStatus};
use testkit::{CuttingProxy, TestServer, eventually_async};

use crate::support::{sh, sh_with_stdin, try_connect_to};

/// Timeout of one session. Longer than any session takes, even on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The result of a session with a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CutOutcome {
    /// The session ran to its end.
    Complete,
    /// The cut hit a start, which then failed.
    StartLost,
    /// The cut came before the session was open.
    NotConnected,
}

#[tokio::test]
async fn no_cut_loses_repeats_or_reorders_events() {
    // The test opens a session for each byte, and ended sessions count against this limit for a while.
    let server = TestServer::with_args(&["--max-sessions", "10000"]).await;
    let (outcome, length) = session_with_cut(&server, 0).await;
    assert_eq!(outcome, CutOutcome::Complete);
    assert!(length > 1000, "{length}");
    let next = AtomicU64::new(1);
    let work = || worker(&server, &next, length);
    let outcomes = tokio::join!(work(), work(), work(), work());
    let outcomes = [outcomes.0, outcomes.1, outcomes.2, outcomes.3].concat();
    let count = |outcome| outcomes.iter().filter(|seen| **seen == outcome).count();
    // More than a third of the bytes belong neither to a start nor to the first handshake.
    let (complete, lost, unconnected) =
        (count(CutOutcome::Complete), count(CutOutcome::StartLost), count(CutOutcome::NotConnected));
    assert!(complete > outcomes.len() / 3, "complete {complete}, start lost {lost}, not connected {unconnected}");
    assert!(lost > 0 && unconnected > 0);
}

/// Runs sessions until each byte up to `length` had its cut. `next` is the byte of the next cut, for all workers.
async fn worker(server: &TestServer, next: &AtomicU64, length: u64) -> Vec<CutOutcome> {
    let mut outcomes = Vec::new();
    loop {
        let byte = next.fetch_add(1, Ordering::SeqCst);
        if byte > length {
            return outcomes;
        }
        let outcome = tokio::time::timeout(PATIENCE, session_with_cut(server, byte)).await;
        outcomes.push(outcome.unwrap_or_else(|_| panic!("a cut after byte {byte} makes the session hang")).0);
    }
}

/// Runs the session through a proxy that cuts the connection after this byte, or never if it is 0. Returns how the
/// session went and how many bytes passed.
async fn session_with_cut(server: &TestServer, byte: u64) -> (CutOutcome, u64) {
    let proxy = CuttingProxy::start(server.address()).await;
    proxy.cut_at(byte);
    let directory = tempfile::tempdir().unwrap();
    let outcome = session(&proxy, directory.path()).await;
    (outcome, proxy.bytes_passed())
}

/// Connects, runs [`conversation`], and checks that each input was carried out once and that no process is left.
async fn session(proxy: &CuttingProxy, directory: &Path) -> CutOutcome {
    let Ok(client) = try_connect_to(&proxy.url()).await else { return CutOutcome::NotConnected };
    let journal = directory.join("journal");
    let outcome = match conversation(&client, &journal).await {
        Ok(()) => CutOutcome::Complete,
        Err(()) => CutOutcome::StartLost,
    };
    let lines = std::fs::read_to_string(&journal).unwrap_or_default();
    match outcome {
        CutOutcome::Complete => assert_eq!(lines, "started\none\ntwo\n", "every request was carried out once"),
        // The process that writes the journal was killed early: its own start was lost, or its handle was dropped
        // when the other start was lost.
        _ => assert!("started\none\ntwo\n".starts_with(&lines), "{lines:?}"),
    }
    // The client kills the process of a start whose answer was lost.
    eventually_async("no process runs", async || {
        let listed = client.processes().await.unwrap();
        listed.iter().all(|process| process.exit_code.is_some()).then_some(())
    })
    .await;
    client.close().await;
    outcome
}

/// Starts two processes, writes to the first, ends both, and checks the events of the first. The first process writes
/// its start and each line of its input to the file `journal`. Returns an error if a start was lost.
async fn conversation(client: &ExecServerClient, journal: &Path) -> Result<(), ()> {
    let script = format!(
        "echo started >> {0}; while read line; do echo $line >> {0}; echo got $line; done; echo end; exit 3",
        journal.display()
    );
    let process = match client.start(sh_with_stdin("journal", &script)).await {
        Err(ExecServerError::Disconnected(_)) => return Err(()),
        other => other.unwrap(),
    };
    let mut events = process.events();
    assert_eq!(process.write("one\n").await.unwrap(), WriteStatus::Accepted);
    let mut seen = vec![events.next().await.unwrap()];
    let read = process.read(Some(0), None, Some(0)).await.unwrap();
    assert_eq!(read.chunks[0].chunk.0, b"got one\n");
    assert_eq!(process.write("two\n").await.unwrap(), WriteStatus::Accepted);

    let sleeper = match client.start(sh("sleeper", "sleep 1000")).await {
        Err(ExecServerError::Disconnected(_)) => return Err(()),
        other => other.unwrap(),
    };
    // The client does not repeat a terminate that was lost. The caller repeats it, because only the caller knows
    // whether that is right.
    loop {
        match sleeper.terminate().await {
            Err(ExecServerError::Disconnected(_)) => {}
            other => {
                other.unwrap();
                break;
            }
        }
    }
    assert_eq!(sleeper.wait().await.unwrap().code, 137);

    process.close_stdin().await.unwrap();
    while let Some(event) = events.next().await {
        seen.push(event);
    }
    let mut text = String::new();
    let mut exits = Vec::new();
    for (expected, event) in (1..).zip(seen) {
        let seq = match event {
            ExecProcessEvent::Output(output) => {
                text.push_str(std::str::from_utf8(&output.chunk).unwrap());
                output.seq
            }
            ExecProcessEvent::Exited { seq, exit_code, .. } => {
                exits.push(exit_code);
                seq
            }
            ExecProcessEvent::Closed { seq } => seq,
            ExecProcessEvent::Failed(text) => panic!("{text}"),
        };
        assert_eq!(seq, expected);
    }
    assert_eq!((text.as_str(), exits), ("got one\ngot two\nend\n", vec![3]));
    Ok(())
}
