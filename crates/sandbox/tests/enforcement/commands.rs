//! The simplest sandbox: everything may be read, and one directory may be written.

use crate::support::workspace_sandbox;

#[test]
fn a_command_reads_everything_and_writes_its_workspace() {
    let directory = tempfile::tempdir().unwrap();
    let (workspace, outside) = (directory.path().join("ws"), directory.path().join("outside"));
    std::fs::create_dir(&workspace).unwrap();
    std::fs::write(&outside, "readable").unwrap();
    let sandbox = workspace_sandbox(&workspace);
    let script = format!(
        "cd {0} && cat {1} > file && cat file && ! echo x > {1} && ! mkdir .git/x && pwd",
        workspace.display(),
        outside.display()
    );
    let outcome = sandbox.run(&format!("{{ {script}; }} 2> /dev/null"));
    assert_eq!((outcome.code, outcome.output), (0, format!("readable{}\n", workspace.display())));
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "readable");
    assert_eq!(std::fs::read_to_string(workspace.join("file")).unwrap(), "readable");
}
