//! What commands can do in a sandbox at all.

use sandbox::{Access, SandboxNetwork};

use crate::support::{entry, policy, root, sandbox_for};

#[test]
fn a_command_runs_reads_and_writes_what_it_may() {
    let workspace = tempfile::tempdir().unwrap();
    let path = workspace.path().to_str().unwrap();
    let policy = policy(vec![root(Access::Read), entry(workspace.path(), Access::Write)]);
    let sandbox = sandbox_for(&policy, SandboxNetwork::None);
    let outcome = sandbox.run(&format!(
        "id; pwd; ls -la /dev /dev/pts; cat /proc/self/status; ls /proc; echo x > {path}/file; cat {path}/file; echo y > /tmp/outside-of-the-sandbox; ls -la {path}; cat /proc/self/mountinfo; mkdir {path}/.git/x"
    ));
    println!("{}", outcome.output);
    assert_eq!(outcome.code, 1);
}
