//! A library that is preloaded into the server and has functions of the C library in it.

use std::process::Command;

use crate::roles::{is_played, play};
use crate::support::{World, command, on_pty, read_all};

const SPAWNER: &str = "preloaded::role_spawner";

/// Whoever calls one of these fails, and a child that shares our memory must not call any.
const LIBRARY: &str = r#"
#include <errno.h>
#define REFUSE { errno = EXDEV; return -1; }
int setsid(void) REFUSE
int fchdir(int to) REFUSE
int dup2(int from, int to) REFUSE
int execve(const char *path, char *const argv[], char *const env[]) REFUSE
"#;

#[tokio::test]
#[ignore = "a role for the scenario below"]
async fn role_spawner() {
    if !is_played() {
        return;
    }
    let world = World::new();
    assert_eq!(world.run(&command(["echo", "ran"])).await.stdout, "ran\n");
    let (_child, pty) = world.start_on_pty(&on_pty(command(["echo", "ran"])));
    assert_eq!(read_all(&pty.reader()).await, "ran\r\n");
}

#[test]
fn a_child_calls_nothing_but_the_kernel() {
    let directory = tempfile::tempdir().unwrap();
    let (source, library) = (directory.path().join("refuse.c"), directory.path().join("refuse.so"));
    std::fs::write(&source, LIBRARY).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status().unwrap();
    assert!(built.success());
    let played = play(SPAWNER).env("LD_PRELOAD", &library).output().unwrap();
    assert!(played.status.success(), "{}", String::from_utf8_lossy(&played.stdout));
}
