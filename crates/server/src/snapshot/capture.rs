//! Runs a shell to capture its state: a process of the session that no client sees, bounded in time and in what it says.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use spawn::{Child, ChildIo, Command, Output, ReadOutcome, Spawned, StdinMode, Stdio};

use super::script::{self, Shell};
use super::state::Captured;
use crate::environment::Variables;
use crate::server::Shared;
use crate::session::Session;

/// A profile that takes longer would make every first command wait.
const CAPTURE_PATIENCE: Duration = Duration::from_secs(10);
const OUTPUT_BYTES: usize = 512 << 10;
const READ_BYTES: usize = 16 << 10;

/// Why there is no capture.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("the server is ending")]
    Ending,
    #[error("{0}")]
    Spawn(#[from] spawn::SpawnError),
    #[error("the shell did not finish within {} s", CAPTURE_PATIENCE.as_secs())]
    Late,
    #[error("the shell wrote more than {OUTPUT_BYTES} bytes")]
    TooMuch,
    #[error("cannot read from the shell: {0}")]
    Read(#[from] std::io::Error),
    #[error("the shell exited with code {0}")]
    Exit(i32),
    #[error("the shell did not write its state")]
    Incomplete,
}

/// Runs the profile of the shell at `path`, and returns what it has left. Whatever it started is killed.
pub(super) async fn capture(
    shared: &Arc<Shared>,
    session: &Session,
    shell: Shell,
    path: &str,
    cwd: &Path,
    env: &Variables,
) -> Result<Captured, Failure> {
    let marker = script::marker(&uuid::Uuid::new_v4().simple().to_string());
    let command = Command {
        argv: vec![path.into(), "-lc".into(), script::capturing(shell, &marker).into()],
        arg0: None,
        env: env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        cwd: cwd.to_owned(),
        stdio: Stdio::Pipes { stdin: StdinMode::Null },
    };
    let tag = session.tags.next();
    let Spawned { child, io } = shared.starter.start(command, tag).await.ok_or(Failure::Ending)??;
    shared.janitor.start_sweeping();
    let output = match tokio::time::timeout(CAPTURE_PATIENCE, read_to_exit(&child, io)).await {
        Ok(output) => output,
        Err(_) => Err(Failure::Late),
    };
    let for_kill = Arc::clone(shared);
    // The command need not wait for it.
    shared.tasks.spawn(async move { for_kill.kill_unclaimed(&child, tag).await });
    Captured::parse(&output?, &marker).ok_or(Failure::Incomplete)
}

/// What the process had written when it exited. Not until its streams end: what a profile leaves running may hold them open.
async fn read_to_exit(child: &Child, io: ChildIo) -> Result<Vec<u8>, Failure> {
    let ChildIo::Pipes { stdout, stderr, .. } = io else { return Err(Failure::Incomplete) };
    let (mut stdout, mut stderr) = (Some(stdout), Some(stderr));
    let mut output = Vec::new();
    let mut exit = std::pin::pin!(child.wait());
    let status = loop {
        tokio::select! {
            status = &mut exit => break status,
            () = readable(stdout.as_ref()) => take(&mut stdout, &mut output)?,
            // Read so that the shell is not held up by it.
            () = readable(stderr.as_ref()) => take(&mut stderr, &mut Vec::new())?,
        }
    };
    while stdout.as_ref().is_some_and(|stdout| stdout.available() > 0) {
        readable(stdout.as_ref()).await;
        take(&mut stdout, &mut output)?;
    }
    match status.code() {
        0 => Ok(output),
        code => Err(Failure::Exit(code)),
    }
}

async fn readable(output: Option<&Output>) {
    match output {
        Some(output) => output.readable().await,
        None => std::future::pending().await,
    }
}

/// Reads once. A stream that has ended is none from then on.
fn take(stream: &mut Option<Output>, into: &mut Vec<u8>) -> Result<(), Failure> {
    let Some(output) = stream else { return Ok(()) };
    let before = into.len();
    into.resize(before + READ_BYTES, 0);
    let read = match output.try_read(&mut into[before..])? {
        ReadOutcome::Data(count) => count,
        ReadOutcome::WouldBlock => 0,
        ReadOutcome::End => {
            *stream = None;
            0
        }
    };
    into.truncate(before + read);
    if into.len() > OUTPUT_BYTES { Err(Failure::TooMuch) } else { Ok(()) }
}
