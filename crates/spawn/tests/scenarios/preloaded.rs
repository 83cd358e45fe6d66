//! A preloaded library (`LD_PRELOAD`) that replaces functions of the C library does not affect how children are made.

use std::process::Command;

use crate::roles::{is_role_process, role_command};
use crate::support::{World, command, on_pty, read_all};

const SPAWNER: &str = "preloaded::role_spawner";

/// The source of a library that replaces functions of the C library by functions that fail. A child that shares the
/// memory of the server must not call any of them.
const LIBRARY: &str = r#"
#include <errno.h>
#define REFUSE { errno = EXDEV; return -1; }
int setsid(void) REFUSE
int fchdir(int to) REFUSE
int dup2(int from, int to) REFUSE
int execve(const char *path, char *const argv[], char *const env[]) REFUSE
"#;

#[tokio::test]
#[ignore = "run by the test below in a process of its own"]
async fn role_spawner() {
    if !is_role_process() {
        return;
    }
    let world = World::new();
    assert_eq!(world.run(&command(["echo", "ran"])).await.stdout, "ran\n");
    let (_child, pty) = world.start_on_pty(&on_pty(command(["echo", "ran"])));
    assert_eq!(read_all(&pty.reader()).await, "ran\r\n");
}

#[test]
fn children_start_although_a_preloaded_library_makes_c_functions_fail() {
    let directory = tempfile::tempdir().unwrap();
    let (source, library) = (directory.path().join("refuse.c"), directory.path().join("refuse.so"));
    std::fs::write(&source, LIBRARY).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status().unwrap();
    assert!(built.success());
    let run = role_command(SPAWNER).env("LD_PRELOAD", &library).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
}
