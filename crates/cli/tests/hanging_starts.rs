//! Process starts that hang while the kernel opens the program, as on a network file system whose server is gone.
//! The tests use a file lease instead. If a process has a lease on a file, an open of the file by another
//! process blocks until the lease is given up.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tempfile::{TempDir, tempdir};
use testkit::{Client, Signal, TestServer, Value, descendants, eventually, is_alive, json, send_signal};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// A Perl script. It takes a lease on the file that the variable `FILE` names. It prints `leased` when it has the
/// lease and `wanted` when another process opens the file. It gives the lease up when its stdin ends.
const HOLD_LEASE: &str = include_str!("../../testkit/hold_lease.pl");

/// Number of hanging starts. The server begins fewer of them at once for one session, so a further start of the
/// session has to wait.
const CROWD: usize = 20;

/// Longest time that starts of one session may take while starts of another session hang. Less than half of the time
/// that they would take if they had to wait for all [`LONG_QUEUE`] starts.
const MAX_DELAY: Duration = Duration::from_secs(8);
/// Number of hanging starts in a long queue. The server takes a start to hang after 250 ms. If it then began the next
/// one, all of them would take 17.5 s.
const LONG_QUEUE: usize = 70;

/// A program whose start hangs until it is released. It creates the files that its arguments name.
struct HangingProgram {
    directory: TempDir,
    holder: Child,
    holder_lines: Lines<BufReader<ChildStdout>>,
}

impl HangingProgram {
    async fn new() -> Self {
        let directory = tempdir().unwrap();
        let program = directory.path().join("program");
        std::fs::copy("/usr/bin/touch", &program).unwrap();
        let mut command = Command::new("/usr/bin/perl");
        command.args(["-e", HOLD_LEASE]).env("FILE", &program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut holder = command.spawn().unwrap();
        let holder_lines = BufReader::new(holder.stdout.take().unwrap()).lines();
        let mut hanging = Self { directory, holder, holder_lines };
        hanging.expect_line("leased").await;
        hanging
    }

    /// Reads the next line of the process that holds the lease, and compares it.
    async fn expect_line(&mut self, line: &str) {
        assert_eq!(self.holder_lines.next_line().await.unwrap().as_deref(), Some(line));
    }

    /// Waits until the first start hangs.
    async fn wait_until_a_start_hangs(&mut self) {
        self.expect_line("wanted").await;
    }

    /// Gives up the lease, so that all starts go on.
    async fn release(&mut self) {
        drop(self.holder.stdin.take());
        assert!(self.holder.wait().await.unwrap().success());
    }

    /// The file that a process of this name creates when it runs.
    fn marker_file(&self, process: &str) -> PathBuf {
        self.directory.path().join(format!("{process} has run"))
    }

    fn has_run(&self, process: &str) -> bool {
        self.marker_file(process).exists()
    }

    /// Params to start `program`, which is a `touch`, with the marker file of this process.
    fn params(&self, program: &Path, process: &str) -> Value {
        let argv = [program.to_str().unwrap(), self.marker_file(process).to_str().unwrap()].map(str::to_owned);
        Client::start_params(process, &argv.each_ref().map(String::as_str))
    }

    /// Params of a start that hangs.
    fn hanging_params(&self, process: &str) -> Value {
        self.params(&self.directory.path().join("program"), process)
    }

    /// Sends [`CROWD`] starts that hang, with numbers as process ids, and then the start of a process `waits` whose
    /// program does not hang. Returns the ids of the requests.
    async fn start_crowd(&mut self, client: &mut Client) -> (Vec<i64>, i64) {
        let mut starts = Vec::new();
        for number in 0..CROWD {
            starts.push(client.send("process/start", self.hanging_params(&number.to_string())).await);
        }
        self.wait_until_a_start_hangs().await;
        // The answer to this request proves that the server has queued all hanging starts, so the next start comes
        // after them.
        assert_eq!(client.processes().await.as_array().unwrap().len(), CROWD);
        let waits = client.send("process/start", self.params(Path::new("/usr/bin/touch"), "waits")).await;
        (starts, waits)
    }

    fn nothing_has_run(&self) -> bool {
        !(0..CROWD).any(|number| self.has_run(&number.to_string())) && !self.has_run("waits")
    }
}

/// Pid of the guard: a child of the server that kills all processes of the server if the server dies.
fn guard_of(server: &TestServer) -> Option<u32> {
    let is_guard = |pid: &u32| {
        let command_line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command_line.starts_with("exec-guard\0") && is_alive(*pid)
    };
    descendants(server.pid()).into_iter().find(is_guard)
}

#[tokio::test]
async fn a_command_that_was_terminated_before_it_was_executed_never_runs() {
    let mut program = HangingProgram::new().await;
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let (starts, waits) = program.start_crowd(&mut client).await;

    let mut terminates = Vec::new();
    for process in ["0", "waits"] {
        terminates.push(client.send("process/terminate", json!({"processId": process})).await);
    }
    for terminate in terminates {
        assert_eq!(client.answer(terminate).await["result"], json!({"running": true}));
    }
    for (start, process) in [(starts[0], "0"), (waits, "waits")] {
        let refusal = client.answer(start).await["error"]["message"].clone();
        assert_eq!(refusal, format!("process {process} start was cancelled"));
    }
    assert_eq!(client.processes().await.as_array().unwrap().len(), CROWD - 1);

    program.release().await;
    for number in 1..CROWD {
        client.outcome(&number.to_string()).await;
        assert!(program.has_run(&number.to_string()));
    }
    client.run("later", &["true"]).await;
    assert!(!program.has_run("0"), "the process was terminated while its program was being opened");
    assert!(!program.has_run("waits"), "the process was terminated while it waited in the queue");
}

#[tokio::test]
async fn no_program_is_executed_after_its_session_has_ended() {
    let mut program = HangingProgram::new().await;
    let server = TestServer::start().await;
    let mut client = server.connect_without_handshake().await;
    client.call("initialize", json!({"clientName": "testkit", "keepForMs": 0})).await;
    client.notify("initialized", json!({})).await;
    program.start_crowd(&mut client).await;

    drop(client);
    let only_the_guard = || (descendants(server.pid()).len() == 1).then_some(());
    eventually("all hanging starts have ended", only_the_guard).await;
    program.release().await;
    let mut other = server.client().await;
    other.run("later", &["true"]).await;
    assert!(program.nothing_has_run());
}

#[tokio::test]
async fn no_program_is_executed_after_the_server_has_ended() {
    let mut program = HangingProgram::new().await;
    let mut server = TestServer::start().await;
    let mut client = server.client().await;
    program.start_crowd(&mut client).await;

    server.signal(Signal::TERM);
    server.wait().await;
    program.release().await;
    assert!(program.nothing_has_run());
}

#[tokio::test]
async fn hanging_starts_of_one_session_delay_neither_other_sessions_nor_a_new_guard() {
    let mut program = HangingProgram::new().await;
    let server = TestServer::start().await;
    let (mut crowd, mut other) = (server.client().await, server.client().await);
    let guard = eventually("there is a guard", || guard_of(&server)).await;
    for number in 0..LONG_QUEUE {
        crowd.send("process/start", program.hanging_params(&number.to_string())).await;
    }
    program.wait_until_a_start_hangs().await;

    // The server must start another guard.
    send_signal(guard, Signal::KILL);
    let starts = async {
        for number in 0..5 {
            other.run(&number.to_string(), &["true"]).await;
        }
        eventually("there is another guard", || guard_of(&server).filter(|next| *next != guard)).await
    };
    tokio::time::timeout(MAX_DELAY, starts).await.expect("the hanging starts delay another session or the guard");
}

#[tokio::test]
async fn a_timeout_applies_to_a_start_that_hangs() {
    let mut program = HangingProgram::new().await;
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let mut params = program.hanging_params("slow");
    params["timeoutMs"] = 300.into();
    let error = client.call_error("process/start", params).await;
    assert_eq!(error["message"], "process slow has not started within its timeoutMs of 300");
    assert_eq!(error["data"]["kind"], "startTimedOut");
    assert_eq!(client.processes().await, json!([]));

    program.wait_until_a_start_hangs().await;
    program.release().await;
    client.run("later", &["true"]).await;
    assert!(!program.has_run("slow"));
}

#[tokio::test]
async fn a_short_timeout_kills_the_process_and_does_not_refuse_its_start() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for number in 0..100 {
        let mut params = Client::start_params(&number.to_string(), &["sleep", "1000"]);
        params["timeoutMs"] = 1.into();
        client.call("process/start", params).await;
        assert_eq!(client.outcome(&number.to_string()).await.exit_code, 137);
    }
}

#[tokio::test]
async fn exec_server_run_with_a_timeout_gives_up_a_start_that_hangs() {
    let mut program = HangingProgram::new().await;
    let mut run = Command::new(testkit::binary());
    run.args(["run", "--timeout", "300ms", "--"]).arg(program.directory.path().join("program")).arg("unused");
    let output = run.output().await.unwrap();
    assert_eq!(output.status.code(), Some(124), "{output:?}");
    program.wait_until_a_start_hangs().await;
}
