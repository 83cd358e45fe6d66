//! Attacks on a sandbox. A [`Yard`] is a temporary directory to attack: it has a writable workspace `ws` with protected and
//! denied files in it, and a directory `outside`. An attack is a Python program that gets the path of the yard. It must
//! succeed without a sandbox, because a program with a mistake would prove nothing, and it must fail in a sandbox.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use sandbox::{Access, FilePolicy, RequestedEntry, SandboxNetwork};
use tempfile::TempDir;

use crate::support::{PYTHON, TestSandbox, entry, policy, root, sandbox_for};

/// The contents of every denied file.
const SECRET: &str = "the-denied-contents";

/// What every attack begins with. `base` is the yard, `ws` the workspace.
const PREAMBLE: &str = r#"
import ctypes, errno, fcntl, os, platform, shutil, signal, socket, stat, struct, subprocess, sys, threading, time
base = sys.argv[1]
ws = base + "/ws"
outside = base + "/outside"
libc = ctypes.CDLL(None, use_errno=True)
def call(function, *args):
    done = function(*args)
    if done == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return done
def put(path):
    with open(path, "w") as file:
        file.write("changed")
def show(path):
    with open(path) as file:
        print(file.read(), flush=True)
"#;

/// A temporary directory to attack. Dropping it removes the directory.
pub(crate) struct Yard {
    directory: TempDir,
}

impl Yard {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path();
        for (file, contents) in [
            ("outside/file", "original"),
            ("outside/dir/file", "original"),
            ("outside/denied/secret", SECRET),
            ("ws/.git/config", "original"),
            ("ws/a/b/.git/config", "original"),
            ("ws/a/file", "original"),
            ("ws/denied/secret", SECRET),
            ("ws/deep/er/denied/secret", SECRET),
            ("ws/denied.txt", SECRET),
            ("ws/file", "of the workspace"),
        ] {
            let path = base.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, contents).unwrap();
        }
        Self { directory }
    }

    pub(crate) fn base(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.base().join(name)
    }

    /// The entries of the yard's policy: `ws` may be written, but not its `.git`, nor that of the repository in `a/b`.
    pub(crate) fn entries(&self) -> Vec<RequestedEntry> {
        vec![
            root(Access::Read),
            entry(self.path("ws"), Access::Write),
            entry(self.path("ws/a/b"), Access::Write),
            entry(self.path("ws/denied"), Access::Deny),
            entry(self.path("ws/denied.txt"), Access::Deny),
            entry(self.path("ws/deep/er/denied"), Access::Deny),
            entry(self.path("outside/denied"), Access::Deny),
        ]
    }

    pub(crate) fn policy(&self) -> FilePolicy {
        policy(self.entries())
    }

    pub(crate) fn sandbox(&self) -> TestSandbox {
        sandbox_for(&self.policy(), SandboxNetwork::None)
    }

    /// Everything that a command must not change, each with its mode, and contents or target.
    fn guarded(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let mut found = BTreeMap::new();
        let guarded = ["outside", "ws/.git", "ws/a/b/.git", "ws/denied", "ws/denied.txt", "ws/deep/er/denied"];
        let mut left: Vec<PathBuf> = guarded.iter().map(|name| self.path(name)).collect();
        while let Some(path) = left.pop() {
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            let contents = if metadata.is_dir() {
                left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                Vec::new()
            } else if metadata.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else if metadata.is_file() {
                fs::read(&path).unwrap()
            } else {
                Vec::new()
            };
            found.insert(
                path.strip_prefix(self.base()).unwrap().to_owned(),
                (metadata.permissions().mode(), contents),
            );
        }
        found
    }
}

/// What an attack wants to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Something that may not be written is changed.
    Change,
    /// The contents of a denied file are shown.
    Show,
    /// The program exits with code 0.
    Exit,
}

impl Goal {
    fn is_reached(self, code: i32, output: &str, before: &BTreeMap<PathBuf, (u32, Vec<u8>)>, yard: &Yard) -> bool {
        match self {
            Self::Change => yard.guarded() != *before,
            Self::Show => output.contains(SECRET),
            Self::Exit => code == 0,
        }
    }
}

/// Checks that the attack reaches its goal without a sandbox and not in the sandbox of the yard's policy, in which it
/// changes nothing that is guarded.
#[track_caller]
pub(crate) fn attack(name: &str, goal: Goal, program: &str) {
    attack_in(name, goal, program, Yard::sandbox);
}

/// The same for another sandbox.
#[track_caller]
pub(crate) fn attack_in(name: &str, goal: Goal, program: &str, sandbox: impl FnOnce(&Yard) -> TestSandbox) {
    let program = format!("{PREAMBLE}{program}");
    let unprotected = Yard::new();
    let before = unprotected.guarded();
    let run = Command::new(PYTHON).args(["-c", &program]).arg(unprotected.base()).output().unwrap();
    let output = String::from_utf8_lossy(&run.stdout);
    let reached = goal.is_reached(run.status.code().unwrap_or(-1), &output, &before, &unprotected);
    assert!(reached, "{name}: fails without a sandbox too: {output}{}", String::from_utf8_lossy(&run.stderr));

    must_fail(name, goal, &program, sandbox);
}

/// For attacks that only root can do without a sandbox. Other users try them in the sandbox only.
#[track_caller]
pub(crate) fn attack_needing_root(name: &str, goal: Goal, program: &str) {
    attack_needing_root_in(name, goal, program, Yard::sandbox);
}

/// The same for another sandbox.
#[track_caller]
pub(crate) fn attack_needing_root_in(
    name: &str,
    goal: Goal,
    program: &str,
    sandbox: impl FnOnce(&Yard) -> TestSandbox,
) {
    if crate::support::is_root() {
        attack_in(name, goal, program, sandbox);
    } else {
        must_fail(name, goal, &format!("{PREAMBLE}{program}"), sandbox);
    }
}

/// The error of a call that the filter refuses.
pub(crate) const REFUSED: &str = "[Errno 1] Operation not permitted";

/// For attacks that are tried in the sandbox only: without it they would harm the machine, or not every kernel allows them.
/// They must fail with `error`, as Python prints it. With any other error the attack may fail for lack of support in the
/// kernel, which would prove nothing.
#[track_caller]
pub(crate) fn attack_only_in_sandbox(name: &str, program: &str, error: &str) {
    let output = must_fail(name, Goal::Exit, &format!("{PREAMBLE}{program}"), Yard::sandbox);
    assert!(output.contains(error), "{name}: fails for another reason than the sandbox: {output}");
}

/// Checks that the attack fails in the sandbox, and returns its output.
#[track_caller]
fn must_fail(name: &str, goal: Goal, program: &str, sandbox: impl FnOnce(&Yard) -> TestSandbox) -> String {
    let yard = Yard::new();
    let sandbox = sandbox(&yard);
    let before = yard.guarded();
    let outcome = sandbox.python(program, &[yard.base().to_str().unwrap()]);
    let mistake = ["SyntaxError", "NameError", "AttributeError", "TypeError", "ImportError"];
    assert!(!mistake.iter().any(|kind| outcome.output.contains(kind)), "{name}: {}", outcome.output);
    let reached = goal.is_reached(outcome.code, &outcome.output, &before, &yard);
    assert!(!reached, "{name}: succeeds in the sandbox: {}", outcome.output);
    assert_eq!(yard.guarded(), before, "{name}: {}", outcome.output);
    outcome.output
}

/// Runs a Python program without a sandbox, and returns what it has printed. The program must succeed.
#[track_caller]
pub(crate) fn python_outside(program: &str, args: &[&str]) -> String {
    let run = Command::new(PYTHON).args(["-c", program]).args(args).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).unwrap()
}

/// Says why a part of a test cannot be done on this machine. The caller asserts the reason.
#[expect(clippy::print_stderr, reason = "a reader of the test's output has to see what was left out")]
pub(crate) fn left_out(part: &str) {
    eprintln!("left out: {part}");
}
