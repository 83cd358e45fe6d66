//! The direct path with the real binary: an executor that also listens, and commands that reach it through a service.
#![allow(clippy::unwrap_used, reason = "clippy exempts test functions, but not their helper functions")]

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use tempfile::TempDir;
use testkit::service::Leg;
use testkit::{
    TestServer, TestService, UPGRADE_HEADERS, binary, eventually, eventually_async, hide_configuration, http_get,
    json,
};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// The environment that the executor serves.
const ENVIRONMENT: &str = "build-7";

/// Longer than any command takes on a loaded machine. Reached only by a failing test.
const COMMAND_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(120);

struct ExecutorFixture {
    service: TestService,
    executor: TestServer,
    folder: TempDir,
}

impl ExecutorFixture {
    /// `args`: further arguments of the executor.
    async fn start(args: &[&str]) -> Self {
        let service = TestService::start().await;
        let folder = tempfile::tempdir().unwrap();
        let url = service.url();
        let all =
            [&["--remote", &url, "--environment-id", ENVIRONMENT, "--listen", "ws://127.0.0.1:0"], args].concat();
        let executor = TestServer::start_with(&all, |command| {
            hide_configuration(command)
                .env("EXEC_SERVER_API_KEY", TestService::TOKEN)
                .env("XDG_STATE_HOME", folder.path().join("executor"))
        })
        .await;
        service.wait_for_upgrades(Leg::Executor, 1).await;
        Self { service, executor, folder }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        hide_configuration(&mut command)
            .args(args)
            .env("EXEC_SERVER_REMOTE", self.service.url())
            .env("EXEC_SERVER_API_KEY", TestService::TOKEN)
            .env("XDG_STATE_HOME", self.folder.path().join("client"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// What `env --check` says about the environment, as JSON.
    async fn check(&self, args: &[&str]) -> testkit::Value {
        let all = [&["env", "-e", ENVIRONMENT, "--check", "--json"], args].concat();
        let output = finish(self.command(&all)).await;
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The number of connections that use a direct path now.
    async fn direct_connections(&self) -> u64 {
        let metrics = http_get(self.executor.address(), "/metrics", &[]).await.body;
        let wanted = "connections_active{transport=\"direct\"} ";
        let count = metrics.lines().find_map(|line| line.split_once(wanted)?.1.parse().ok());
        count.unwrap_or_default()
    }
}

async fn finish(mut command: Command) -> Output {
    tokio::time::timeout(COMMAND_TIMEOUT, command.output()).await.expect("the command does not end").unwrap()
}

#[tokio::test]
async fn env_says_which_path_is_in_use() {
    let fixture = ExecutorFixture::start(&[]).await;
    let direct = format!("direct {}", fixture.executor.address());
    assert_eq!(fixture.check(&[]).await["environments"][0]["check"]["path"], json!(direct));
    let output = finish(fixture.command(&["env", "-e", ENVIRONMENT, "--check"])).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("\n  path: {direct}\n")), "{text}");
    for policy in ["private", "on"] {
        assert_eq!(fixture.check(&["--direct", policy]).await["environments"][0]["check"]["path"], json!(direct));
    }
    assert_eq!(fixture.check(&["--direct", "off"]).await["environments"][0]["check"]["path"], json!("relay"));

    let by_url = ["env", "--connect", fixture.executor.url(), "--check", "--json"];
    let output = finish(fixture.command(&by_url)).await;
    let checked: testkit::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(checked["environments"][0]["check"]["path"], testkit::Value::Null, "there is one way only");
}

#[tokio::test]
async fn an_executor_that_offers_nothing_is_reached_through_the_relay_and_has_no_direct_path() {
    let fixture = ExecutorFixture::start(&["--direct", "off"]).await;
    assert_eq!(fixture.check(&["--direct", "on"]).await["environments"][0]["check"]["path"], json!("relay"));
    let refused = http_get(fixture.executor.address(), "/direct", UPGRADE_HEADERS).await;
    assert_eq!(refused.status, 404);
}

#[tokio::test]
async fn a_policy_that_does_not_exist_is_refused() {
    for args in [&["--direct", "public", "--listen", "ws://127.0.0.1:0"][..], &["env", "--direct", "public"]] {
        let output = testkit::run_to_end(args).await;
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains("expected `on`, `off` or `private`"), "{text}");
    }
}

#[tokio::test]
async fn a_command_moves_while_it_runs_and_its_output_goes_around_the_relay() {
    const LINES: usize = 300_000;
    let fixture = ExecutorFixture::start(&[]).await;
    let script = format!("echo ready; read line; seq 1 {LINES}; exit 7");
    let mut command = fixture.command(&["run", "-e", ENVIRONMENT, "--", "sh", "-c", &script]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    eventually_async("the command uses the direct path", async || {
        (fixture.direct_connections().await == 1).then_some(())
    })
    .await;
    fixture.service.capture();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"go\n").await.unwrap();
    drop(stdin);
    let ended = tokio::time::timeout(COMMAND_TIMEOUT, child.wait_with_output()).await;
    let output = ended.expect("the command does not end").unwrap();
    let expected: String = (1..=LINES).map(|line| format!("{line}\n")).collect();
    assert!(output.stdout == format!("ready\n{expected}").as_bytes());
    assert_eq!(output.status.code(), Some(7));
    let passed: usize = fixture.service.captured().iter().map(|frame| frame.bytes.len()).sum();
    assert!(passed < 20_000, "the relay has carried {passed} bytes");
    eventually_async("the direct path has ended", async || (fixture.direct_connections().await == 0).then_some(()))
        .await;
}

#[tokio::test]
async fn a_session_goes_on_over_the_direct_path_without_its_relay() {
    let fixture = ExecutorFixture::start(&[]).await;
    let (begin, end) = (fixture.path("begin"), fixture.path("end"));
    let script = format!("echo one; touch {}; {}; echo two", begin.display(), wait_for(&end));
    let child = fixture.command(&["run", "-e", ENVIRONMENT, "--", "sh", "-c", &script]).spawn().unwrap();
    eventually("the command runs", || begin.exists().then_some(())).await;
    eventually_async("the command uses the direct path", async || {
        (fixture.direct_connections().await == 1).then_some(())
    })
    .await;
    fixture.service.refuse_upgrades(Leg::Harness, 1000, 503);
    fixture.service.cut(Leg::Harness);
    std::fs::write(&end, "").unwrap();
    let ended = tokio::time::timeout(COMMAND_TIMEOUT, child.wait_with_output()).await;
    let output = ended.expect("the command does not end").unwrap();
    assert_eq!(output.stdout, b"one\ntwo\n", "{output:?}");
}

#[tokio::test]
async fn sigterm_ends_an_executor_in_order_while_its_harness_is_on_the_direct_path() {
    let mut fixture = ExecutorFixture::start(&[]).await;
    let script = "trap 'echo bye; exit 3' TERM; echo one; while :; do sleep 0.01; done";
    let child = fixture.command(&["run", "-e", ENVIRONMENT, "--", "sh", "-c", script]).spawn().unwrap();
    eventually_async("the command uses the direct path", async || {
        (fixture.direct_connections().await == 1).then_some(())
    })
    .await;
    fixture.executor.signal(testkit::Signal::TERM);
    let ended = tokio::time::timeout(COMMAND_TIMEOUT, child.wait_with_output()).await;
    let output = ended.expect("the command does not end").unwrap();
    assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"one\nbye\n"[..], Some(3)), "{output:?}");
    let ended = tokio::time::timeout(COMMAND_TIMEOUT, fixture.executor.wait()).await;
    assert_eq!(ended.expect("the executor does not end"), Some(0));
}

/// A command that waits until a file exists.
fn wait_for(path: &Path) -> String {
    format!("until [ -e {} ]; do sleep 0.01; done", path.display())
}
