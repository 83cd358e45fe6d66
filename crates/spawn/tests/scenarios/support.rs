//! The harness of all scenarios: one spawner, commands in short form, and ways to wait for what is to happen.

use std::ffi::OsString;
use std::fs;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use spawn::{
    Child, ChildExitStatus, ChildInput, ChildIo, ChildOutput, KillFuture, Pty, ReadOutcome, SpawnCommand, SpawnError,
    Spawned,
};
use spawn::{SessionTags, Spawner, StdinMode, Stdio, Survivors, Tag, TerminalSize, WriteOutcome};

/// Long enough for a busy machine; nothing waits this long unless it is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) spawner: Spawner,
    pub(crate) tags: SessionTags,
}

pub(crate) struct Finished {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) status: ChildExitStatus,
}

pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) tag: Tag,
    pub(crate) stdin: Option<ChildInput>,
    pub(crate) stdout: ChildOutput,
    pub(crate) stderr: ChildOutput,
}

impl World {
    pub(crate) fn new() -> Self {
        let spawner = Spawner::new(None).expect("a spawner");
        assert!(spawner.tags_work());
        let tags = spawner.session_tags();
        Self { spawner, tags }
    }

    pub(crate) fn spawn(&self, command: &SpawnCommand) -> Result<Spawned, SpawnError> {
        start(&self.spawner, command, self.tags.next())
    }

    pub(crate) fn start(&self, command: &SpawnCommand) -> Running {
        let tag = self.tags.next();
        let Spawned { child, io } = start(&self.spawner, command, tag).expect("it starts");
        let ChildIo::Pipes { stdin, stdout, stderr, .. } = io else { panic!("no pipes") };
        Running { child, tag, stdin, stdout, stderr }
    }

    pub(crate) fn start_on_pty(&self, command: &SpawnCommand) -> (Child, Pty) {
        let Spawned { child, io } = self.spawn(command).expect("it starts");
        let ChildIo::Pty { pty, .. } = io else { panic!("no terminal") };
        (child, pty)
    }

    pub(crate) async fn run(&self, command: &SpawnCommand) -> Finished {
        let mut running = self.start(command);
        drop(running.stdin.take());
        let (stdout, stderr) = tokio::join!(read_all(&running.stdout), read_all(&running.stderr));
        let status = running.child.wait().await;
        Finished { stdout, stderr, status }
    }

    pub(crate) fn kill_tree(&self, running: &Running) {
        end(self.spawner.kill_tree(running.tag, PATIENCE)).expect("the tree ends");
    }
}

impl Drop for World {
    /// A scenario that fails must not leave its processes to the machine.
    fn drop(&mut self) {
        let _best_effort = end(self.spawner.kill_all(PATIENCE));
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for an end on this thread, also inside a runtime: the thread that brings it about is another one.
pub(crate) fn end(ending: KillFuture) -> Result<(), Survivors> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut ending = pin!(ending);
    loop {
        match ending.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

/// Starts a process that nobody cancels.
pub(crate) fn start(spawner: &Spawner, command: &SpawnCommand, tag: Tag) -> Result<Spawned, SpawnError> {
    spawner.spawn(command, tag, &Arc::default())
}

pub(crate) fn command<const N: usize>(argv: [&str; N]) -> SpawnCommand {
    SpawnCommand {
        argv: argv.iter().map(OsString::from).collect(),
        arg0: None,
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        cwd: "/".into(),
        stdio: Stdio::Pipes { stdin: StdinMode::Null },
        umask: None,
    }
}

pub(crate) fn sh(script: &str) -> SpawnCommand {
    command(["/bin/sh", "-c", script])
}

pub(crate) fn perl(script: &str) -> SpawnCommand {
    command(["/usr/bin/perl", "-e", script])
}

pub(crate) fn on_pty(command: SpawnCommand) -> SpawnCommand {
    SpawnCommand { stdio: Stdio::Pty(TerminalSize::default()), ..command }
}

pub(crate) fn with_stdin(command: SpawnCommand) -> SpawnCommand {
    SpawnCommand { stdio: Stdio::Pipes { stdin: StdinMode::Piped }, ..command }
}

pub(crate) async fn read_all(output: &ChildOutput) -> String {
    read_while(output, |_| true).await
}

/// Reads until the text has come, which must be before the end.
pub(crate) async fn read_until(output: &ChildOutput, text: &str) -> String {
    let read = read_while(output, |so_far| !so_far.contains(text)).await;
    assert!(read.contains(text), "ended without {text:?}: {read:?}");
    read
}

async fn read_while(output: &ChildOutput, wanted: impl Fn(&str) -> bool) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    let reading = async {
        while wanted(&String::from_utf8_lossy(&bytes)) {
            output.readable().await;
            match output.try_read(&mut buffer).expect("readable") {
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
    let pids: Vec<u32> = text.lines().map(|line| line.trim().parse().expect("a pid")).collect();
    assert_eq!(pids.len(), count);
    pids
}

pub(crate) async fn write_all(input: &ChildInput, mut bytes: &[u8]) {
    let writing = async {
        while !bytes.is_empty() {
            input.writable().await;
            match input.try_write(bytes).expect("writable") {
                WriteOutcome::Wrote(count) => bytes = &bytes[count..],
                WriteOutcome::WouldBlock => {}
                WriteOutcome::Closed => panic!("nobody reads"),
            }
        }
    };
    within(writing).await;
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("in time")
}

/// Looks again and again until it is so.
pub(crate) fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        // sleep: the pause between two looks
        thread::sleep(Duration::from_millis(2));
    }
}

/// Field 1 is the state, field 2 the parent, field 4 the session. None if there is no such process.
pub(crate) fn stat_field(pid: u32, field: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(field - 1).map(str::to_owned)
}

pub(crate) fn is_alive(pid: u32) -> bool {
    stat_field(pid, 1).is_some_and(|state| state != "Z" && state != "X")
}

pub(crate) fn zombies_of_ours() -> Vec<u32> {
    let own = std::process::id().to_string();
    fs::read_dir("/proc")
        .expect("/proc")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| stat_field(*pid, 2).as_ref() == Some(&own) && stat_field(*pid, 1).as_deref() == Some("Z"))
        .collect()
}
