//! Tests of which file is executed, with which arguments and in which directory, and of the errors of failed starts.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use spawn::{SpawnCommand, SpawnError};
use tempfile::TempDir;

use crate::support::{World, command, on_pty, sh};

const NO_SUCH_FILE: &str = "No such file or directory (os error 2)";

fn write_file(directory: &TempDir, name: &str, content: &str, mode: u32) {
    let path = directory.path().join(name);
    fs::write(&path, content).expect("the file can be written");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("the mode can be set");
}

fn with_path(command: SpawnCommand, path: &str) -> SpawnCommand {
    SpawnCommand { env: vec![("PATH".into(), path.into())], ..command }
}

fn failure(command: &SpawnCommand) -> SpawnError {
    World::new().spawn(command).expect_err("the start must fail")
}

/// The program and the error number of a command whose program cannot be executed.
fn program_failure(command: &SpawnCommand) -> (PathBuf, Option<i32>) {
    match failure(command) {
        SpawnError::Program { path, source } => (path, source.raw_os_error()),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn arg0_replaces_the_program_in_the_arguments_of_the_child() {
    let done = World::new().run(&SpawnCommand { arg0: Some("other".into()), ..sh("echo $0") }).await;
    assert_eq!(done.stdout, "other\n");
}

#[tokio::test]
async fn the_error_of_a_missing_program_has_the_path_of_the_program() {
    for program in ["/no/such/program", "no-such-program"] {
        for command in [command([program]), on_pty(command([program]))] {
            assert_eq!(failure(&command).to_string(), NO_SUCH_FILE);
            assert_eq!(program_failure(&command), (program.into(), Some(2)));
        }
    }
}

#[tokio::test]
async fn a_command_without_a_program_is_refused() {
    assert_eq!(failure(&command([""])).to_string(), "missing program for pipe spawn");
    assert_eq!(failure(&command([])).to_string(), "missing program for pipe spawn");
    assert_eq!(failure(&on_pty(command([""]))).to_string(), "missing program for PTY spawn");
}

#[tokio::test]
async fn nul_bytes_and_bad_variable_names_are_refused() {
    assert_eq!(failure(&command(["ec\0ho"])).to_string(), "argv contains a NUL byte");
    assert_eq!(failure(&command(["echo", "a\0b"])).to_string(), "argv contains a NUL byte");
    assert_eq!(failure(&SpawnCommand { arg0: Some("\0".into()), ..sh("") }).to_string(), "argv contains a NUL byte");
    assert_eq!(failure(&SpawnCommand { cwd: "/\0".into(), ..sh("") }).to_string(), "cwd contains a NUL byte");
    let env = |name: &str, value: &str| SpawnCommand { env: vec![(name.into(), value.into())], ..sh("") };
    assert_eq!(failure(&env("A", "\0")).to_string(), "env contains a NUL byte");
    assert!(matches!(failure(&env("A=B", "")), SpawnError::EnvironmentName { .. }));
    assert!(matches!(failure(&env("", "")), SpawnError::EnvironmentName { .. }));
}

#[tokio::test]
async fn the_path_variable_of_the_child_is_searched() {
    let directory = TempDir::new().unwrap();
    write_file(&directory, "tool", "#!/bin/sh\necho found", 0o755);
    let path = format!("/no/such/directory:{}", directory.path().display());
    let done = World::new().run(&with_path(command(["tool"]), &path)).await;
    assert_eq!(done.stdout, "found\n");
    assert_eq!(program_failure(&with_path(command(["true"]), "/no/such/directory")), ("true".into(), Some(2)));
}

#[tokio::test]
async fn without_a_path_variable_the_default_path_is_searched() {
    let done = World::new().run(&SpawnCommand { env: Vec::new(), ..command(["echo", "here"]) }).await;
    assert_eq!(done.stdout, "here\n");
}

#[tokio::test]
async fn relative_paths_are_resolved_against_the_cwd() {
    let directory = TempDir::new().unwrap();
    fs::create_dir(directory.path().join("bin")).unwrap();
    write_file(&directory, "bin/tool", "#!/bin/sh\necho found", 0o755);
    write_file(&directory, "local", "#!/bin/sh\necho local", 0o755);
    let world = World::new();
    for (program, path, output) in [
        ("tool", "bin", "found\n"),
        ("bin/tool", "/bin", "found\n"),
        ("./local", "/bin", "local\n"),
        ("local", ":/bin", "local\n"),
    ] {
        let command = SpawnCommand { cwd: directory.path().into(), ..with_path(command([program]), path) };
        assert_eq!(world.run(&command).await.stdout, output, "{program} in {path}");
    }
}

#[tokio::test]
async fn the_search_skips_entries_that_are_not_executable_and_is_refused_if_there_are_no_others() {
    let [first, second, third] = [(); 3].map(|()| TempDir::new().unwrap());
    fs::create_dir(first.path().join("tool")).unwrap();
    write_file(&second, "tool", "#!/bin/sh\necho wrong", 0o644);
    write_file(&third, "tool", "#!/bin/sh\necho right", 0o755);
    let [first, second, third] = [&first, &second, &third].map(|directory| directory.path().display());
    let found = World::new().run(&with_path(command(["tool"]), &format!("{first}:{second}:{third}"))).await;
    assert_eq!(found.stdout, "right\n");
    let refused = failure(&with_path(command(["tool"]), &format!("{first}:{second}:/bin")));
    assert_eq!(refused.to_string(), "Permission denied (os error 13)");
}

#[tokio::test]
async fn a_file_that_is_not_executable_is_refused() {
    let directory = TempDir::new().unwrap();
    write_file(&directory, "data", "echo no", 0o644);
    let path = directory.path().join("data");
    assert_eq!(program_failure(&command([path.to_str().unwrap()])), (path, Some(libc::EACCES)));
}

#[tokio::test]
async fn a_script_without_shebang_runs_in_the_shell() {
    let directory = TempDir::new().unwrap();
    write_file(&directory, "script", "echo $0 $1", 0o755);
    let path = directory.path().join("script");
    let path = path.to_str().unwrap();
    let world = World::new();
    assert_eq!(world.run(&command([path, "arg"])).await.stdout, format!("{path} arg\n"));
    let searched = with_path(command(["script", "arg"]), directory.path().to_str().unwrap());
    assert_eq!(world.run(&searched).await.stdout, format!("{path} arg\n"));
}

#[tokio::test]
async fn a_file_that_is_open_for_writing_is_busy_until_it_is_closed() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("program");
    fs::copy("/bin/true", &path).unwrap();
    let writer = fs::OpenOptions::new().append(true).open(&path).unwrap();
    let command = command([path.to_str().unwrap()]);
    let busy = World::new().spawn(&command);
    drop(writer);
    // Linux 6.11 and 6.12 permit to execute such a file.
    if let Err(error) = busy {
        assert!(matches!(error, SpawnError::Program { source, .. } if source.raw_os_error() == Some(libc::ETXTBSY)));
    }
    assert_eq!(World::new().run(&command).await.status.code(), 0);
}

#[tokio::test]
async fn the_error_of_a_bad_cwd_has_its_path() {
    let directory = TempDir::new().unwrap();
    write_file(&directory, "file", "", 0o644);
    for (cwd, kind) in [
        (directory.path().join("missing"), ErrorKind::NotFound),
        (directory.path().join("file"), ErrorKind::NotADirectory),
        ("".into(), ErrorKind::NotFound),
    ] {
        let error = failure(&SpawnCommand { cwd: cwd.clone(), ..sh("true") });
        let SpawnError::Cwd { path, source } = error else { panic!("{error}") };
        assert_eq!((path, source.kind()), (cwd, kind));
    }
}

#[tokio::test]
async fn the_child_starts_in_the_cwd() {
    let directory = TempDir::new().unwrap();
    let done = World::new().run(&SpawnCommand { cwd: directory.path().into(), ..command(["pwd"]) }).await;
    assert_eq!(Path::new(done.stdout.trim_end()), directory.path().canonicalize().unwrap());
}
