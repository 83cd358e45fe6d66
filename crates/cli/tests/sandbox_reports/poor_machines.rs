//! Machines that lack a part of what sandboxes are made of. They are this machine, in a user namespace with a lower
//! limit, or behind a filter of system calls. `doctor` says what really happens there.

use std::process::Stdio;

use testkit::{Value, binary, binary_for_all_users};
use tokio::process::Command;

use crate::run;

const REFUSE_CALLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sandbox_reports/refuse_calls.py");

/// A machine, as the words before a command line that runs there.
struct Machine(Vec<&'static str>);

impl Machine {
    /// The setting `user.…` is 0.
    fn without_namespaces(setting: &'static str) -> Self {
        let script = r#"echo 0 > /proc/sys/user/"$0" && exec "$@""#;
        Self(vec!["unshare", "--user", "--map-root-user", "sh", "-c", script, setting])
    }

    /// The kernel refuses these system calls, which are separated by commas.
    fn without_calls(calls: &'static str) -> Self {
        Self(vec!["python3", REFUSE_CALLS, calls])
    }

    async fn run(&self, args: &[&str]) -> (String, String, Option<i32>) {
        run(&[&self.0, &[binary().to_str().unwrap()][..], args].concat()).await
    }

    async fn doctor(&self) -> Value {
        let (stdout, stderr, _) = self.run(&["doctor", "--json"]).await;
        assert_eq!(stderr, "");
        serde_json::from_str(&stdout).unwrap()
    }

    /// What the command line can do with policies: "read-only" and "workspace-write" are policies of commands, and
    /// "files" stands for a file operation. The second string is the last error.
    async fn abilities(&self) -> (Vec<&'static str>, String) {
        let (mut abilities, mut last_error) = (Vec::new(), String::new());
        for (name, args) in [
            ("read-only", &["run", "--sandbox", "read-only", "--", "true"][..]),
            ("workspace-write", &["run", "--sandbox", "workspace-write", "--", "true"]),
            ("files", &["cat", "--sandbox", "read-only", "/etc/passwd"]),
        ] {
            match self.run(args).await {
                (_, _, Some(0)) => abilities.push(name),
                (stdout, stderr, _) => {
                    assert_eq!(stdout, "", "{name}");
                    last_error = stderr;
                }
            }
        }
        (abilities, last_error)
    }
}

#[tokio::test]
async fn without_a_kind_of_namespaces_landlock_is_used_and_the_setting_is_named() {
    for (setting, kind) in [
        ("max_mnt_namespaces", "mount"),
        ("max_ipc_namespaces", "IPC"),
        ("max_net_namespaces", "network"),
        ("max_pid_namespaces", "PID"),
    ] {
        let machine = Machine::without_namespaces(setting);
        let report = machine.doctor().await;
        let advice = format!(
            "{kind} namespaces are disabled on this machine; enable them as root with `sysctl -w user.{setting}=15000`"
        );
        assert_eq!(
            (&report["namespaces"]["advice"], &report["policies"]),
            (&advice.as_str().into(), &"onlyLandlock".into())
        );
        let (abilities, refusal) = machine.abilities().await;
        assert_eq!(abilities, ["read-only"], "{setting}");
        assert!(refusal.contains(&advice), "{refusal}");
    }
}

#[tokio::test]
async fn a_machine_on_which_commands_cannot_be_confined_is_not_called_able() {
    for (calls, policies, expected) in
        [("setns", "onlyLandlock", &["read-only"][..]), ("seccomp", "none", &[]), ("setns,seccomp", "none", &[])]
    {
        let machine = Machine::without_calls(calls);
        let report = machine.doctor().await;
        let advice = report["namespaces"]["advice"].as_str().unwrap();
        let call = calls.split(',').next().unwrap();
        let reason = format!("a command cannot be confined with `{call}` (Operation not permitted (os error 1)), ");
        assert!(advice.starts_with(&reason), "{calls}: {advice}");
        assert_eq!(report["policies"], policies, "{calls}: {report}");
        let (abilities, refusal) = machine.abilities().await;
        assert_eq!(abilities, expected, "{calls}: {refusal}");
        assert!(refusal.contains("a command cannot be confined with `"), "{calls}: {refusal}");
    }
}

#[tokio::test]
async fn a_refused_prlimit_is_not_called_a_limit_and_sandboxes_work() {
    let machine = Machine::without_calls("prlimit64");
    let report = machine.doctor().await;
    let advice = report["processTags"]["advice"].as_str().unwrap();
    assert!(advice.starts_with("the system call `prlimit` fails (Operation not permitted"), "{advice}");
    assert_eq!(report["policies"], "all", "{report}");
    let (abilities, refusal) = machine.abilities().await;
    assert_eq!(abilities, ["read-only", "workspace-write", "files"], "{refusal}");
}

#[tokio::test]
async fn doctor_fails_where_a_server_gets_too_few_threads() {
    // Only root can run a command as another user, and the limit does not apply to root.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = binary_for_all_users(folder.path());
    // No real user has this number, and no other test process uses it while this process runs.
    let user = 1_800_000_000 + std::process::id();
    let mut command = Command::new("prlimit");
    command.arg("--nproc=10").arg(&program).arg("doctor").uid(user).gid(user);
    let ended = command.env("HOME", folder.path()).current_dir("/").stdin(Stdio::null()).output().await.unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert_eq!((stdout.as_ref(), ended.status.code()), ("", Some(1)), "{stderr}");
    let expected = "exec-server: a server cannot run here: cannot start with so few threads; raise the limit of processes (ulimit -u)";
    assert!(stderr.starts_with(expected), "{stderr}");
}
