//! Tests of what a child inherits or gets: environment, descriptors, signals, session.

use spawn::SpawnCommand;

use crate::support::{World, block_on, command, on_pty, read_all, sh, stat_field};

#[tokio::test]
async fn a_child_can_have_an_empty_environment() {
    let done = World::new().run(&SpawnCommand { env: Vec::new(), ..command(["/usr/bin/env"]) }).await;
    assert_eq!(done.stdout, "");
}

#[tokio::test]
async fn a_child_gets_exactly_the_given_environment() {
    let env = vec![("A".into(), "1=2".into()), ("B".into(), "".into())];
    let done = World::new().run(&SpawnCommand { env, ..command(["/usr/bin/env"]) }).await;
    assert_eq!(done.stdout, "A=1=2\nB=\n");
}

/// Lists the descriptors of a child. `ls` itself opens one more, to read the directory.
const LIST_DESCRIPTORS: [&str; 2] = ["ls", "/proc/self/fd"];

#[tokio::test]
async fn a_child_has_three_descriptors() {
    use std::os::fd::AsRawFd;
    let inheritable = std::fs::File::open("/").unwrap();
    rustix::io::fcntl_setfd(&inheritable, rustix::io::FdFlags::empty()).unwrap();
    let world = World::new();
    let others: Vec<_> = (0..5).map(|_| world.start(&sh("exec sleep 1000"))).collect();
    assert_eq!(world.run(&command(LIST_DESCRIPTORS)).await.stdout, "0\n1\n2\n3\n");
    let (_child, pty) = world.start_on_pty(&on_pty(command(["ls", "-m", "/proc/self/fd"])));
    assert_eq!(read_all(&pty.reader()).await, "0, 1, 2, 3\r\n");
    assert!(inheritable.as_raw_fd() > 2);
    block_on(world.spawner.kill_session(&world.tags, crate::support::TIMEOUT)).unwrap();
    drop(others);
}

#[tokio::test]
#[expect(unsafe_code, reason = "there is no safe way to change our own signal mask")]
async fn a_child_has_no_ignored_and_no_blocked_signals() {
    // SAFETY: only dispositions without handlers and a mask of this thread are set.
    unsafe {
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGUSR1);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
    let done = World::new().run(&command(["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"])).await;
    for line in done.stdout.lines() {
        assert!(line.ends_with("\t0000000000000000"), "{line}");
    }
    assert_eq!(done.stdout.lines().count(), 2);
}

#[tokio::test]
async fn a_child_leads_its_own_session_and_process_group() {
    let world = World::new();
    let child = world.start(&sh("exec sleep 1000"));
    let pid = child.child.pid();
    assert_eq!(stat_field(pid, 3), Some(pid.to_string()), "group");
    assert_eq!(stat_field(pid, 4), Some(pid.to_string()), "session");
    world.kill_tree(&child);
}
