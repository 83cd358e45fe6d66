//! Runs a shell to capture its state: a process of the session that no client sees, bounded in time and in what it reports.

use std::path::Path;

use spawn::{Child, ChildIo, ChildOutput, ReadOutcome, SpawnCommand, SpawnError, Spawned, Stdio};

use super::script::{self, REPORT_DESCRIPTOR, REPORTS, Shell};
use super::state::{Captured, Markers};
use crate::environment::Variables;
use crate::limits::{CAPTURE_PATIENCE, MAX_SNAPSHOT_BYTES};
use crate::start_cancel::StartCancel;

const READ_BYTES: usize = 16 << 10;

/// Why there is no capture.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("the server is ending")]
    Ending,
    #[error("{0}")]
    Spawn(#[from] SpawnError),
    #[error("the shell reported more than {MAX_SNAPSHOT_BYTES} bytes")]
    TooMuch,
    #[error("cannot read from the shell: {0}")]
    Read(#[from] std::io::Error),
    #[error("the shell reported nothing within {} s, or ended before", CAPTURE_PATIENCE.as_secs())]
    Silent,
}

/// Runs one shell for a capture, as a process of a session. Starting and killing processes is not known here.
pub(crate) trait CaptureShell {
    /// Starts the shell, unless it is cancelled before. None: the start has panicked.
    fn start(
        &self,
        command: SpawnCommand,
        cancel: &StartCancel,
    ) -> impl Future<Output = Option<Result<Spawned, SpawnError>>> + Send;

    /// Kills the shell and everything that it has started. The command that waits for the snapshot need not wait for this.
    fn kill_in_background(&self, shell: Child);
}

/// Runs the profile of the shell at `path`, and returns what it has left. Whatever it started is killed.
///
/// A file that never ends, or ends the shell, after a first report does not make the capture fail: without it the command would run as a plain login
/// shell, in which the policy has no say about what the profile exports.
pub(super) async fn capture(
    runner: &impl CaptureShell,
    cancel: &StartCancel,
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
    let Spawned { child, io } = runner.start(command, cancel).await.ok_or(Failure::Ending)??;
    let mut output = Vec::new();
    let reading = read_reports(&child, io, &mut output, &markers);
    // What was reported in time counts.
    let read = tokio::time::timeout(CAPTURE_PATIENCE, reading).await.unwrap_or(Ok(()));
    runner.kill_in_background(child);
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
    if into.len() > MAX_SNAPSHOT_BYTES { Err(Failure::TooMuch) } else { Ok(outcome?) }
}
