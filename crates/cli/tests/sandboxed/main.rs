//! Commands and file operations with a policy, through the real server. Attacks on the sandbox itself are in the tests
//! of the crate `sandbox`; here are the parts that the server adds.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod changing_files;
mod denials;
mod ends;
mod environment;
mod file_methods;
mod files;
mod in_the_way;
mod killed_launcher;
mod limits;
mod network;
mod network_policy;
mod ordinary_user;
mod placeholders;
mod poison;
#[path = "../shared/policies.rs"]
mod policies;
mod processes;
mod roots;
mod sandbox_limits;
mod shared_by_user;

use std::path::Path;

use tempfile::TempDir;
use testkit::{Client, TestServer, Value, descendants, json};

use crate::policies::{path_entry, restricted, special_entry};

/// A directory that the policies of these tests make writable.
struct Workspace {
    folder: TempDir,
}

impl Workspace {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn uri(&self) -> String {
        format!("file://{}", self.path().display())
    }

    /// Everything may be read, and the directory may be written. There is no network.
    fn policy(&self) -> Value {
        self.policy_with(&[], "restricted")
    }

    fn policy_with(&self, more: &[Value], network: &str) -> Value {
        let mut entries = vec![path_entry(&self.uri(), "write")];
        entries.extend_from_slice(more);
        policy(entries, network)
    }

    /// The names in the directory, sorted.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Everything may be read, and more as the entries say.
fn policy(mut entries: Vec<Value>, network: &str) -> Value {
    entries.push(special_entry(json!({"kind": "root"}), "read"));
    let mut policy = restricted(entries, network);
    policy["cwd"] = json!("file:///");
    policy
}

/// The descendants of the server that have this name.
fn descendants_named(server: &TestServer, name: &str) -> Vec<u32> {
    let is_called =
        |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
    descendants(server.pid()).into_iter().filter(is_called).collect()
}

/// Kills a process, and waits until all of its threads have ended. A process whose first thread has ended counts as a
/// zombie, but another thread may still be ending and keep the descriptors of the process open.
async fn kill_and_wait(pid: u32) {
    testkit::send_signal(pid, testkit::Signal::KILL);
    let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    testkit::eventually("all threads have ended", || (!testkit::is_alive(pid) && threads() <= 1).then_some(())).await;
}

/// The params of a start of a shell script with a policy. Its stderr goes to its stdout.
fn start_params(process: &str, script: &str, sandbox: &Value) -> Value {
    json!({
        "processId": process, "argv": ["/bin/sh", "-c", format!("exec 2>&1; {script}")], "cwd": "file:///",
        "env": {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}, "tty": false, "sandbox": sandbox,
    })
}

/// What `exec-server doctor --json` says about this machine.
async fn doctor() -> Value {
    serde_json::from_slice(&testkit::run_to_end(&["doctor", "--json"]).await.stdout).unwrap()
}

/// How a process ended.
struct Ended {
    output: String,
    exited: Value,
    /// What the proxy of the process has decided.
    decisions: Vec<Value>,
}

/// Starts a process and waits until it is closed.
async fn run(client: &mut Client, params: Value) -> Ended {
    let process = params["processId"].as_str().unwrap().to_owned();
    let started = client.call("process/start", params).await;
    assert_eq!(started["sandboxType"], "linuxSeccomp");
    until_closed(client, &process).await
}

async fn until_closed(client: &mut Client, process: &str) -> Ended {
    let mut output = Vec::new();
    let (mut exited, mut decisions) = (Value::Null, Vec::new());
    loop {
        let event = client.event(process).await;
        match event["method"].as_str().unwrap() {
            "process/output" => output.extend(testkit::unbase64(&event["params"]["chunk"])),
            "process/exited" => exited = event["params"].clone(),
            "process/closed" => break,
            "network/policyDecision" => decisions.push(event["params"].clone()),
            other => panic!("{other}"),
        }
    }
    Ended { output: String::from_utf8_lossy(&output).into_owned(), exited, decisions }
}
