//! Runs a login shell to capture the state that its profile leaves (a shell snapshot, see `snapshot.rs`). The shell is a process of the
//! session that no client sees. Its time and the size of its report are limited.

use std::path::Path;

use spawn::{Child, ChildIo, ChildOutput, ReadOutcome, SpawnCommand, SpawnError, Spawned, Stdio};

use super::script::{self, REPORT_COUNT, REPORT_DESCRIPTOR, Shell};
use super::state::{Markers, ShellReport};
use crate::environment::Variables;
use crate::limits::{CAPTURE_PATIENCE, MAX_SNAPSHOT_BYTES};
use crate::start_cancel::StartCancel;

const READ_BYTES: usize = 16 << 10;

/// Why a capture has failed. The text is logged.
#[derive(Debug, thiserror::Error)]
pub(super) enum CaptureFailure {
    #[error("the start of the shell has panicked")]
    StartPanicked,
    #[error("{0}")]
    Spawn(#[from] SpawnError),
    #[error("the shell reported more than {MAX_SNAPSHOT_BYTES} bytes")]
    TooLarge,
    #[error("cannot read from the shell: {0}")]
    Read(#[from] std::io::Error),
    #[error("the shell ended without a report, or reported nothing within {} s", CAPTURE_PATIENCE.as_secs())]
    Silent,
}

/// Starts and kills the shell of one capture, as a process of a session. A caller implements this, because this module does not know
/// sessions.
pub(crate) trait ShellRunner {
    /// Starts the shell, unless `cancel` is cancelled before. None: the start has panicked.
    fn start(
        &self,
        command: SpawnCommand,
        cancel: &StartCancel,
    ) -> impl Future<Output = Option<Result<Spawned, SpawnError>>> + Send;

    /// Kills the shell and everything that it has started. The command that waits for the snapshot need not wait for this.
    fn kill_in_background(&self, shell: Child);
}

/// Runs the profile of the shell at `path`, and returns the state that the profile leaves. Processes that the profile
/// started are killed.
///
/// The shell reports its state twice, before and after it reads the startup file of interactive shells. If that file
/// never ends, or ends the shell, the first report counts and the capture succeeds. If the capture failed, the
/// command would run as a plain login shell, and the policy of the client would not apply to the variables that the
/// profile exports.
pub(super) async fn capture(
    runner: &impl ShellRunner,
    cancel: &StartCancel,
    shell: Shell,
    path: &str,
    cwd: &Path,
    env: &Variables,
) -> Result<ShellReport, CaptureFailure> {
    let markers = Markers::new(&uuid::Uuid::new_v4().simple().to_string());
    let command = SpawnCommand {
        argv: vec![path.into(), "-lc".into(), script::capture_script(shell, &markers).into()],
        arg0: None,
        env: env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        cwd: cwd.to_owned(),
        stdio: Stdio::Report { descriptor: REPORT_DESCRIPTOR },
        umask: None,
        limits: None,
    };
    let Spawned { child, io } = runner.start(command, cancel).await.ok_or(CaptureFailure::StartPanicked)??;
    let mut output = Vec::new();
    let reading = read_reports(&child, io, &mut output, &markers);
    // After a timeout, the reports that arrived in time count.
    let read = tokio::time::timeout(CAPTURE_PATIENCE, reading).await.unwrap_or(Ok(()));
    runner.kill_in_background(child);
    read?;
    ShellReport::parse(&output, &markers).ok_or(CaptureFailure::Silent)
}

/// Reads until the last report is complete, the shell exits or the stream ends. The stream may end much later than
/// the shell, because processes that the profile started may hold it open.
async fn read_reports(
    child: &Child,
    io: ChildIo,
    output: &mut Vec<u8>,
    markers: &Markers,
) -> Result<(), CaptureFailure> {
    let ChildIo::Report(report) = io else { return Err(CaptureFailure::Silent) };
    let end = [b"\0", markers.end_of_state.as_bytes(), b"\0"].concat();
    let mut exit = std::pin::pin!(child.wait());
    let mut complete_reports = 0;
    loop {
        let before = output.len();
        tokio::select! {
            _status = &mut exit => break,
            () = report.readable() => if read_available(&report, output)? == ReadOutcome::End { return Ok(()) },
        }
        let from = before.saturating_sub(end.len() - 1);
        complete_reports += output[from..].windows(end.len()).filter(|window| *window == end).count();
        if complete_reports == REPORT_COUNT {
            return Ok(());
        }
    }
    // The shell has exited. Its last report may still be in the pipe.
    while report.available() > 0 {
        report.readable().await;
        read_available(&report, output)?;
    }
    Ok(())
}

/// Reads once from the stream and appends the bytes to `into`.
fn read_available(report: &ChildOutput, into: &mut Vec<u8>) -> Result<ReadOutcome, CaptureFailure> {
    let before = into.len();
    into.resize(before + READ_BYTES, 0);
    let outcome = report.try_read(&mut into[before..]);
    let read = if let Ok(ReadOutcome::Data(count)) = outcome { count } else { 0 };
    into.truncate(before + read);
    if into.len() > MAX_SNAPSHOT_BYTES { Err(CaptureFailure::TooLarge) } else { Ok(outcome?) }
}
