//! The guard is a process that outlives its server and then kills everything that the server has started.
//! `role_guard` and `role_server` are not tests: other tests run them in a process of their own; see `roles`.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, ExitCode, Stdio};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use spawn::{GuardProgram, Spawner};

use crate::roles::{ROLE, is_role_process, role_arguments, role_command};
use crate::support::{
    TIMEOUT, World, block_on, command, dedicate_process, is_alive, read_pids, read_until, sh, spawn_tagged,
    stat_field, until, with_stdin,
};

const SERVER: &str = "guard::role_server";
const GUARD: &str = "guard::role_guard";

/// A shell and two descendants in another kernel session (`setsid`). Prints the process id of each.
const TREE: &str = "trap '' TERM HUP INT; setsid sh -c 'sleep 1000 & echo $!; echo $$; wait' & echo $$; wait";

fn guard_program() -> GuardProgram {
    GuardProgram {
        program: std::env::current_exe().expect("the path of this program"),
        args: role_arguments(GUARD).map(Into::into).into(),
    }
}

#[test]
#[ignore = "run by the tests below in a process of its own"]
fn role_guard() {
    if !is_role_process() {
        return;
    }
    let argument = std::env::args_os().next_back().unwrap();
    let code = spawn::guard_main(&argument);
    std::process::exit(if code == ExitCode::SUCCESS { 0 } else { 1 });
}

#[tokio::test]
#[ignore = "run by the tests below in a process of its own"]
async fn role_server() {
    if !is_role_process() {
        return;
    }
    let spawner = Spawner::new(dedicate_process(), Some(guard_program())).unwrap();
    let tags = spawner.session_tags();
    let mut running = Vec::new();
    // The second tree removes its tag, the limit `RLIMIT_RTTIME`, so the guard cannot find it by the tag.
    for tree in [sh(TREE), command(["bash", "-c", &format!("ulimit -R unlimited; {TREE}")])] {
        let spawned = spawn_tagged(&spawner, &tree, tags.next()).unwrap();
        let spawn::ChildIo::Pipes { stdout, .. } = &spawned.io else { unreachable!() };
        for pid in read_pids(stdout, 3).await {
            println!("pid {pid}");
        }
        running.push(spawned);
    }
    println!("ready");
    // Runs until the test writes a byte to stdin or kills this process.
    let _byte_or_end = std::io::stdin().read(&mut [0]);
}

/// A process that runs `role_server`.
struct ServerProcess {
    process: Child,
    /// Kept open, so that the server can still print.
    _stdout: BufReader<ChildStdout>,
    /// Process ids of all processes in the server's trees.
    pids: Vec<u32>,
}

/// Starts a server and waits until its trees run.
fn start_server() -> ServerProcess {
    let mut process =
        role_command(SERVER).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the server starts");
    let mut stdout = BufReader::new(process.stdout.take().expect("piped"));
    let mut pids = Vec::new();
    loop {
        let mut line = String::new();
        assert_ne!(
            stdout.read_line(&mut line).expect("the output of the server can be read"),
            0,
            "the server ended before it was ready"
        );
        match line.trim().strip_prefix("pid ") {
            Some(pid) => pids.push(pid.parse().expect("a process id follows")),
            None if line.trim() == "ready" => return ServerProcess { process, _stdout: stdout, pids },
            None => {}
        }
    }
}

#[test]
fn neither_trees_nor_guard_are_left_after_a_server_is_killed() {
    let mut server = start_server();
    assert_eq!(server.pids.len(), 6);
    assert!(server.pids.iter().all(|pid| is_alive(*pid)));
    let guard = guard_of(server.process.id());
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    until("the trees are gone", || !server.pids.iter().any(|pid| is_alive(*pid)));
    until("the guard is gone", || !is_alive(guard));
}

#[test]
fn no_tree_is_left_after_a_server_exits() {
    let mut server = start_server();
    server.process.stdin.take().unwrap().write_all(b"x").unwrap();
    server.process.wait().unwrap();
    until("the trees are gone", || !server.pids.iter().any(|pid| is_alive(*pid)));
}

/// The process id of a server's guard. Waits until there is one.
fn guard_of(server: u32) -> u32 {
    let is_guard = |pid: &u32| {
        let parent = stat_field(*pid, 2);
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        parent == Some(server.to_string()) && command.contains(GUARD) && is_alive(*pid)
    };
    let find = || {
        let names = std::fs::read_dir("/proc").expect("/proc");
        names.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).find(is_guard)
    };
    // The command line of a new process can be read only a moment after it was started.
    until("there is a guard", || find().is_some());
    find().expect("there is a guard")
}

#[tokio::test]
#[expect(unsafe_code, reason = "the role of the guard is passed in our own environment")]
async fn a_guard_survives_kill_all_is_replaced_if_it_is_killed_and_acts_when_the_spawner_is_dropped() {
    // SAFETY: the only other threads of this process are those of the test harness, which read no environment now.
    unsafe { std::env::set_var(ROLE, "guard") };
    let spawner = Spawner::new(dedicate_process(), Some(guard_program())).unwrap();
    let first = guard_of(std::process::id());
    let child = spawn_tagged(&spawner, &sh("exec sleep 1000"), spawner.session_tags().next()).unwrap().child;
    block_on(spawner.kill_all(TIMEOUT)).unwrap();
    assert!(is_alive(first) && !is_alive(child.pid()));

    kill_guard(&spawner);
    spawner.ensure_guard().unwrap();
    let second = guard_of(std::process::id());
    assert_ne!(second, first);
    spawner.ensure_guard().unwrap();
    assert_eq!(guard_of(std::process::id()), second);

    let tree = spawn_tagged(&spawner, &sh("exec setsid sleep 1000"), spawner.session_tags().next()).unwrap();
    drop(spawner);
    until("the tree of the dropped spawner is gone", || !is_alive(tree.child.pid()));
    until("the guard is gone", || !is_alive(second));
}

/// Kills the guard of this process and waits until the spawner has noticed that.
fn kill_guard(spawner: &Spawner) {
    let guard = guard_of(std::process::id()).try_into().ok().and_then(Pid::from_raw).expect("a valid process id");
    kill_process(guard, Signal::KILL).expect("the guard is killed");
    until("the spawner needs a guard", || spawner.needs_guard());
}

#[tokio::test]
#[expect(unsafe_code, reason = "the role of the guard is passed in our own environment")]
async fn a_guard_that_is_being_started_is_not_killed_by_kill_all() {
    // SAFETY: the only other threads of this process are those of the test harness, which read no environment now.
    unsafe { std::env::set_var(ROLE, "guard") };
    let spawner = Spawner::new(dedicate_process(), Some(guard_program())).unwrap();
    for _ in 0..20 {
        kill_guard(&spawner);
        std::thread::scope(|scope| {
            let starting = scope.spawn(|| spawner.ensure_guard());
            while !starting.is_finished() {
                block_on(spawner.kill_all(TIMEOUT)).unwrap();
            }
            starting.join().unwrap().unwrap();
        });
        block_on(spawner.kill_all(TIMEOUT)).unwrap();
        assert!(!spawner.needs_guard());
    }
}

/// A low limit of descriptors, so that the test can use them all up quickly.
const DESCRIPTOR_LIMIT: u64 = 64;

#[tokio::test]
#[expect(unsafe_code, reason = "the role of the guard is passed in our own environment")]
async fn a_guard_start_without_descriptors_kills_nothing_and_can_be_repeated() {
    // SAFETY: the only other threads of this process are those of the test harness, which read no environment now.
    unsafe { std::env::set_var(ROLE, "guard") };
    let spawner = Spawner::new(dedicate_process(), Some(guard_program())).unwrap();
    let tree = spawn_tagged(&spawner, &sh("exec sleep 1000"), spawner.session_tags().next()).unwrap();
    kill_guard(&spawner);
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTOR_LIMIT), maximum }).unwrap();
    let mut fillers: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    // From no free descriptor up to one less than a guard needs.
    for free in 0..3 {
        let error = spawner.ensure_guard().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "with {free} free descriptors");
        drop(fillers.pop().unwrap());
    }
    fillers.clear();
    assert!(is_alive(tree.child.pid()), "no half-started guard has killed the processes of the server");
    spawner.ensure_guard().unwrap();
    assert!(!spawner.needs_guard() && is_alive(tree.child.pid()));
    block_on(spawner.kill_all(TIMEOUT)).unwrap();
}

#[tokio::test]
async fn a_guard_that_cannot_be_started_is_an_error() {
    let program = GuardProgram { program: "/no/such/guard".into(), args: Vec::new() };
    assert_eq!(Spawner::new(dedicate_process(), Some(program)).unwrap_err().raw_os_error(), Some(libc::ENOENT));
}

#[tokio::test]
async fn the_trees_and_the_guard_of_a_server_inside_a_tree_are_killed_with_that_tree() {
    let world = World::new();
    let executable = std::env::current_exe().unwrap();
    let [ignored, exact, uncaptured, role] = role_arguments(SERVER);
    let mut server = with_stdin(command([executable.to_str().unwrap(), &ignored, &exact, &uncaptured, &role]));
    server.env.push((ROLE.into(), "server".into()));
    let tree = world.start(&server);
    let output = read_until(&tree.stdout, "ready").await;
    let pids: Vec<u32> = output.lines().filter_map(|line| line.strip_prefix("pid ")?.parse().ok()).collect();
    assert_eq!(pids.len(), 6);
    let guard = guard_of(tree.child.pid());
    world.kill_tree(&tree);
    let left: Vec<_> = pids.iter().chain([&guard]).filter(|pid| is_alive(**pid)).collect();
    assert!(left.is_empty(), "{left:?} of {pids:?} and the guard {guard}");
}
