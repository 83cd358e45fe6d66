//! The harness of all scenarios: a spawner, short ways to write commands, and functions that wait for output, exits and conditions.

use std::ffi::OsString;
use std::fs;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use spawn::{
    Child, ChildExitStatus, ChildInput, ChildIo, ChildOutput, HostProcess, KillFuture, Pty, ReadOutcome,
    SpawnCommand, SpawnError, Spawned,
};
use spawn::{SessionTags, Spawner, StdinMode, Stdio, Survivors, Tag, TerminalSize, WriteOutcome};

/// The timeout of kills and of the functions that wait. Long enough for a busy machine, so only a bug makes a test
/// wait this long.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A spawner and the tags of one client session. Dropping this value kills all processes of the spawner.
pub(crate) struct World {
    pub(crate) spawner: Spawner,
    pub(crate) tags: SessionTags,
}

/// The output and exit status of a process that has ended.
pub(crate) struct Finished {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) status: ChildExitStatus,
}

/// A process on pipes, the tag of its tree, and our ends of its pipes.
pub(crate) struct RunningProcess {
    pub(crate) child: Child,
    pub(crate) tag: Tag,
    pub(crate) stdin: Option<ChildInput>,
    pub(crate) stdout: ChildOutput,
    pub(crate) stderr: ChildOutput,
}

/// Dedicates the test process to the spawner, see [`HostProcess::dedicate`].
pub(crate) fn dedicate_process() -> HostProcess {
    HostProcess::dedicate().expect("this process can be dedicated to the spawner")
}

impl World {
    /// Makes the spawner in a process that is dedicated to it.
    pub(crate) fn new() -> Self {
        Self::in_host(dedicate_process())
    }

    /// Makes the spawner in a process that is dedicated to it or shared with other code, as `host` says.
    pub(crate) fn in_host(host: HostProcess) -> Self {
        let spawner = Spawner::new(host, None).expect("the spawner starts");
        assert!(spawner.tags_work());
        let tags = spawner.session_tags();
        Self { spawner, tags }
    }

    /// Starts a process on pipes or on a terminal. Returns an error if the start fails.
    pub(crate) fn spawn(&self, command: &SpawnCommand) -> Result<Spawned, SpawnError> {
        spawn_tagged(&self.spawner, command, self.tags.next())
    }

    /// Starts a process on pipes. Panics if the start fails. Closes the ends that the server holds open for the
    /// child, so that the output ends when no process can write to it any more.
    pub(crate) fn start(&self, command: &SpawnCommand) -> RunningProcess {
        let tag = self.tags.next();
        let Spawned { child, io } = spawn_tagged(&self.spawner, command, tag).expect("the process starts");
        let ChildIo::Pipes { stdin, stdout, stderr, .. } = io else { panic!("no pipes") };
        RunningProcess { child, tag, stdin, stdout, stderr }
    }

    /// Like [`Self::start`], for a command that was made with [`on_pty`].
    pub(crate) fn start_on_pty(&self, command: &SpawnCommand) -> (Child, Pty) {
        let Spawned { child, io } = self.spawn(command).expect("the process starts");
        let ChildIo::Pty { pty, .. } = io else { panic!("no terminal") };
        (child, pty)
    }

    /// Starts a process on pipes, closes its stdin, and waits until it has ended.
    pub(crate) async fn run(&self, command: &SpawnCommand) -> Finished {
        let mut running = self.start(command);
        drop(running.stdin.take());
        let (stdout, stderr) = tokio::join!(read_all(&running.stdout), read_all(&running.stderr));
        let status = running.child.wait().await;
        Finished { stdout, stderr, status }
    }

    pub(crate) fn kill_tree(&self, running: &RunningProcess) {
        block_on(self.spawner.kill_tree(running.tag, TIMEOUT)).expect("the tree is killed");
    }
}

impl Drop for World {
    /// Kills all processes, also if the scenario has failed.
    fn drop(&mut self) {
        let _best_effort = block_on(self.spawner.kill_all(TIMEOUT));
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a kill and blocks this thread. It may be called inside a tokio runtime, because another thread does the work.
pub(crate) fn block_on(future: KillFuture) -> Result<(), Survivors> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

/// Starts a process with this tag, without a way to cancel the start.
pub(crate) fn spawn_tagged(spawner: &Spawner, command: &SpawnCommand, tag: Tag) -> Result<Spawned, SpawnError> {
    spawner.spawn(command, tag, &Arc::default())
}

/// A command on pipes that starts in `/`, with `/dev/null` as its stdin and only `PATH` in its environment.
pub(crate) fn command<const N: usize>(argv: [&str; N]) -> SpawnCommand {
    SpawnCommand {
        argv: argv.iter().map(OsString::from).collect(),
        arg0: None,
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        cwd: "/".into(),
        stdio: Stdio::Pipes { stdin: StdinMode::Null },
        umask: None,
        limits: None,
    }
}

pub(crate) fn sh(script: &str) -> SpawnCommand {
    command(["/bin/sh", "-c", script])
}

pub(crate) fn perl(script: &str) -> SpawnCommand {
    command(["/usr/bin/perl", "-e", script])
}

/// Replaces the pipes of the command by a terminal.
pub(crate) fn on_pty(command: SpawnCommand) -> SpawnCommand {
    SpawnCommand { stdio: Stdio::Pty(TerminalSize::default()), ..command }
}

/// Gives the command a pipe as its stdin, which is otherwise `/dev/null`.
pub(crate) fn with_stdin(command: SpawnCommand) -> SpawnCommand {
    SpawnCommand { stdio: Stdio::Pipes { stdin: StdinMode::Piped }, ..command }
}

pub(crate) async fn read_all(output: &ChildOutput) -> String {
    read_while(output, |_| true).await
}

/// Reads until the output contains `text`. Panics if the output ends before.
pub(crate) async fn read_until(output: &ChildOutput, text: &str) -> String {
    let read = read_while(output, |so_far| !so_far.contains(text)).await;
    assert!(read.contains(text), "the output ended without {text:?}: {read:?}");
    read
}

/// Reads as long as the condition holds for the text that was read so far, or until the output ends.
async fn read_while(output: &ChildOutput, wanted: impl Fn(&str) -> bool) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    let reading = async {
        while wanted(&String::from_utf8_lossy(&bytes)) {
            output.readable().await;
            match output.try_read(&mut buffer).expect("the output can be read") {
                ReadOutcome::Data(count) => bytes.extend_from_slice(&buffer[..count]),
                ReadOutcome::WouldBlock => {}
                ReadOutcome::End => break,
            }
        }
    };
    within(reading).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads this many lines, each of them a process id.
pub(crate) async fn read_pids(output: &ChildOutput, count: usize) -> Vec<u32> {
    let text = read_while(output, |so_far| so_far.matches('\n').count() < count).await;
    let pids: Vec<u32> = text.lines().map(|line| line.trim().parse().expect("each line is a process id")).collect();
    assert_eq!(pids.len(), count);
    pids
}

pub(crate) async fn write_all(input: &ChildInput, mut bytes: &[u8]) {
    let writing = async {
        while !bytes.is_empty() {
            input.writable().await;
            match input.try_write(bytes).expect("the input can be written") {
                WriteOutcome::Wrote(count) => bytes = &bytes[count..],
                WriteOutcome::WouldBlock => {}
                WriteOutcome::Closed => panic!("no process reads the input"),
            }
        }
    };
    within(writing).await;
}

/// Waits for a future, at most for [`TIMEOUT`].
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.expect("the future completes before the timeout")
}

/// Checks a condition every 2 ms until it is true. `description` is for the failure message.
pub(crate) fn until(description: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "timed out waiting until {description}");
        // sleep: the time between two checks
        thread::sleep(Duration::from_millis(2));
    }
}

/// A field of `/proc/PID/stat`, counted from after the name: 1 is the state, 2 the parent, 3 the process group, 4 the session. None if
/// there is no such process.
pub(crate) fn stat_field(pid: u32, field: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(field - 1).map(str::to_owned)
}

/// Whether the process exists and is no zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    stat_field(pid, 1).is_some_and(|state| state != "Z" && state != "X")
}

/// The children of this process that have ended and were not reaped.
pub(crate) fn zombie_children() -> Vec<u32> {
    let own = std::process::id().to_string();
    fs::read_dir("/proc")
        .expect("/proc")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| stat_field(*pid, 2).as_ref() == Some(&own) && stat_field(*pid, 1).as_deref() == Some("Z"))
        .collect()
}
