//! Runs a shell to capture its state: a process of the session that no client sees, bounded in time and in what it reports.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use spawn::{Child, ChildIo, ChildOutput, ReadOutcome, SpawnCommand, Spawned, Stdio};

use super::script::{self, REPORT_DESCRIPTOR, REPORTS, Shell};
use super::state::{Captured, Markers};
use crate::environment::Variables;
use crate::server_state::ServerState;
use crate::session::Session;

/// A profile that takes longer would make every first command wait.
const CAPTURE_PATIENCE: Duration = Duration::from_secs(10);
const REPORT_BYTES: usize = 512 << 10;
const READ_BYTES: usize = 16 << 10;

/// Why there is no capture.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("the server is ending")]
    Ending,
    #[error("{0}")]
    Spawn(#[from] spawn::SpawnError),
    #[error("the shell reported more than {REPORT_BYTES} bytes")]
    TooMuch,
    #[error("cannot read from the shell: {0}")]
    Read(#[from] std::io::Error),
    #[error("the shell reported nothing within {} s, or ended before", CAPTURE_PATIENCE.as_secs())]
    Silent,
}

/// Runs the profile of the shell at `path`, and returns what it has left. Whatever it started is killed.
///
/// A file that never ends, or ends the shell, after a first report does not make the capture fail: without it the command would run as a plain login
/// shell, in which the policy has no say about what the profile exports.
pub(super) async fn capture(
    shared: &Arc<ServerState>,
    session: &Session,
    shell: Shell,
    path: &str,
    cwd: &Path,
    env: &Variables,
) -> Result<Captured, Failure> {
    let markers = Markers::new(&uuid::Uuid::new_v4().simple().to_string());
    let command = SpawnCommand {
        argv: vec![path.into(), "-lc".into(), script::capturing(shell, &markers).into()],
        arg0: None,
        env: env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        cwd: cwd.to_owned(),
        stdio: Stdio::Report { descriptor: REPORT_DESCRIPTOR },
        umask: None,
    };
    let tag = session.tags.next();
    let started = shared.starter.start(session.asker(), command, tag, &session.snapshots.cancel).await;
    let Spawned { child, io } = started.ok_or(Failure::Ending)??;
    shared.janitor.start_sweeping();
    let mut output = Vec::new();
    let reading = read_reports(&child, io, &mut output, &markers);
    // What was reported in time counts.
    let read = tokio::time::timeout(CAPTURE_PATIENCE, reading).await.unwrap_or(Ok(()));
    let for_kill = Arc::clone(shared);
    // The command need not wait for it.
    shared.tasks.spawn(async move { for_kill.kill_unclaimed(&child, tag).await });
    read?;
    Captured::parse(&output, &markers).ok_or(Failure::Silent)
}

/// Reads until the last report is complete or the shell exits. Not until the stream ends: what a profile leaves running may hold it open.
async fn read_reports(child: &Child, io: ChildIo, output: &mut Vec<u8>, markers: &Markers) -> Result<(), Failure> {
    let ChildIo::Report(report) = io else { return Err(Failure::Silent) };
    let end = [b"\0", markers.end_of_state.as_bytes(), b"\0"].concat();
    let mut exit = std::pin::pin!(child.wait());
    let mut complete = 0;
    loop {
        let before = output.len();
        tokio::select! {
            _status = &mut exit => break,
            () = report.readable() => if take(&report, output)? == ReadOutcome::End { return Ok(()) },
        }
        let from = before.saturating_sub(end.len() - 1);
        complete += output[from..].windows(end.len()).filter(|window| *window == end).count();
        if complete == REPORTS {
            return Ok(());
        }
    }
    while report.available() > 0 {
        report.readable().await;
        take(&report, output)?;
    }
    Ok(())
}

/// Reads once.
fn take(report: &ChildOutput, into: &mut Vec<u8>) -> Result<ReadOutcome, Failure> {
    let before = into.len();
    into.resize(before + READ_BYTES, 0);
    let outcome = report.try_read(&mut into[before..]);
    let read = if let Ok(ReadOutcome::Data(count)) = outcome { count } else { 0 };
    into.truncate(before + read);
    if into.len() > REPORT_BYTES { Err(Failure::TooMuch) } else { Ok(outcome?) }
}
