//! Tests of limits: what a process with a limit can do, how it ends at the limit, and what is said about it afterwards.

use std::time::Duration;

use spawn::{
    ChildExitStatus, ExitAccount, LimitKind, MemoryLimitScope, ReachedLimit, SpawnCommand, SpawnError, SpawnLimits,
};

use crate::support::{Finished, World, command, perl, read_all, sh, within};

const NO_LIMITS: SpawnLimits =
    SpawnLimits { memory_bytes: None, cpu_seconds: None, pids: None, open_files: None, file_size_bytes: None };

fn limited(limits: SpawnLimits, command: SpawnCommand) -> SpawnCommand {
    SpawnCommand { limits: Some(limits), ..command }
}

async fn run(world: &World, command: &SpawnCommand) -> (Finished, Option<ExitAccount>) {
    let running = world.start(command);
    let (stdout, stderr) = tokio::join!(read_all(&running.stdout), read_all(&running.stderr));
    let status = within(running.child.wait()).await;
    (Finished { stdout, stderr, status }, running.child.account())
}

fn ended_by(limit: LimitKind) -> Option<ReachedLimit> {
    Some(ReachedLimit { limit, has_ended_process: true })
}

#[tokio::test]
async fn a_process_that_spins_is_ended_by_its_cpu_time() {
    let limits = SpawnLimits { cpu_seconds: Some(1), ..NO_LIMITS };
    let (done, account) = run(&World::new(), &limited(limits, perl("1 while 1"))).await;
    assert_eq!(done.status, ChildExitStatus::Signaled(libc::SIGXCPU));
    let account = account.unwrap();
    assert_eq!(account.reached, ended_by(LimitKind::CpuTime));
    let used = account.usage.user_cpu + account.usage.system_cpu;
    // The limit counts clock ticks, and the usage is exact, so on a busy machine the two differ.
    assert!((Duration::from_millis(300)..Duration::from_secs(3)).contains(&used), "{used:?}");
}

#[tokio::test]
async fn a_process_that_ignores_the_signal_is_killed_a_second_later_and_that_counts_as_the_limit() {
    let limits = SpawnLimits { cpu_seconds: Some(1), ..NO_LIMITS };
    let script = "$SIG{XCPU} = 'IGNORE'; 1 while 1";
    let (done, account) = run(&World::new(), &limited(limits, perl(script))).await;
    assert_eq!(done.status, ChildExitStatus::Signaled(libc::SIGKILL));
    assert_eq!(account.unwrap().reached, ended_by(LimitKind::CpuTime));
}

#[tokio::test]
async fn a_process_that_is_killed_before_its_cpu_time_is_used_up_has_reached_no_limit() {
    let world = World::new();
    let limits = SpawnLimits { cpu_seconds: Some(1), file_size_bytes: Some(1), ..NO_LIMITS };
    let running = world.start(&limited(limits, sh("exec sleep 1000")));
    world.kill_tree(&running);
    assert_eq!(within(running.child.wait()).await, ChildExitStatus::Signaled(libc::SIGKILL));
    assert_eq!(running.child.account().unwrap().reached, None);
}

#[tokio::test]
async fn a_file_cannot_grow_beyond_its_limit() {
    let folder = tempfile::tempdir().unwrap();
    let limits = SpawnLimits { file_size_bytes: Some(4096), ..NO_LIMITS };
    let script = "head -c 4096 /dev/zero > fits && exec head -c 4097 /dev/zero > does-not-fit";
    let command = SpawnCommand { cwd: folder.path().into(), ..sh(script) };
    let (done, account) = run(&World::new(), &limited(limits, command)).await;
    assert_eq!(done.status, ChildExitStatus::Signaled(libc::SIGXFSZ));
    assert_eq!(account.unwrap().reached, ended_by(LimitKind::FileSize));
    assert_eq!(std::fs::metadata(folder.path().join("does-not-fit")).unwrap().len(), 4096);
}

#[tokio::test]
async fn soft_and_hard_limits_are_both_set_so_that_a_process_cannot_raise_them() {
    let limits = SpawnLimits {
        memory_bytes: Some(1 << 30),
        cpu_seconds: Some(60),
        open_files: Some(32),
        file_size_bytes: Some(1 << 20),
        pids: None,
    };
    let world = World::new();
    let script = "for r in 'v 1048576' 'n 32' 'f 2048' 't 60'; do set -- $r; \
                  echo \"$1 $(ulimit -S$1) $(ulimit -H$1)\"; done; ulimit -S -n 33 2>&1 | grep -c .";
    let (done, _) = run(&world, &limited(limits, command(["/bin/bash", "-c", script]))).await;
    let address_space = match world.spawner.memory_limit_scope() {
        MemoryLimitScope::EachProcess => "v 1048576 1048576\n",
        MemoryLimitScope::Tree => "v unlimited unlimited\n",
    };
    assert_eq!(done.stdout, format!("{address_space}n 32 32\nf 1024 1024\nt 60 61\n1\n"), "{}", done.stderr);
}

#[tokio::test]
async fn a_process_gets_an_error_for_one_descriptor_too_many() {
    let limits = SpawnLimits { open_files: Some(10), ..NO_LIMITS };
    let script = "my @f; while (open(my $f, '<', '/dev/null')) { push @f, $f } print fileno($f[-1]), \" $!\"";
    let (done, account) = run(&World::new(), &limited(limits, perl(script))).await;
    assert_eq!(done.stdout, "9 Too many open files");
    assert_eq!((done.status, account.unwrap().reached), (ChildExitStatus::Exited(0), None));
}

#[tokio::test]
async fn a_process_with_a_memory_limit_cannot_allocate_more() {
    let world = World::new();
    let limits = SpawnLimits { memory_bytes: Some(256 << 20), ..NO_LIMITS };
    let script = "my $x = 'x' x (512 << 20); print length $x";
    let (done, account) = run(&world, &limited(limits, perl(script))).await;
    assert_eq!(done.stdout, "");
    assert_ne!(done.status, ChildExitStatus::Exited(0));
    match world.spawner.memory_limit_scope() {
        // The program was refused memory and has ended by itself, so nothing is known for sure.
        MemoryLimitScope::EachProcess => assert_eq!(account.unwrap().reached, None),
        MemoryLimitScope::Tree => assert_eq!(account.unwrap().reached, ended_by(LimitKind::Memory)),
    }
}

#[tokio::test]
async fn a_program_that_does_not_fit_into_its_memory_is_not_started_or_ends_at_once() {
    let world = World::new();
    let limits = SpawnLimits { memory_bytes: Some(1), ..NO_LIMITS };
    match world.spawn(&limited(limits, sh("echo ran"))) {
        Err(SpawnError::MemoryLimit { .. }) => {}
        Err(other) => panic!("{other}"),
        Ok(spawned) => assert_ne!(within(spawned.child.wait()).await, ChildExitStatus::Exited(0)),
    }
}

#[tokio::test]
async fn the_number_of_processes_is_limited_or_the_limit_is_refused_with_the_reason() {
    let world = World::new();
    let limits = SpawnLimits { pids: Some(8), ..NO_LIMITS };
    // The shell ends when it cannot fork. The others must not keep its output open.
    let bomb = sh("i=0; while [ $i -lt 100 ]; do sleep 1000 >/dev/null 2>&1 & i=$((i+1)); done");
    match world.spawner.check_limits(&limits) {
        Ok(()) => {
            let (_, account) = run(&world, &limited(limits, bomb)).await;
            let account = account.unwrap();
            assert_eq!(account.reached.map(|reached| reached.limit), Some(LimitKind::Pids));
            assert!(account.usage.peak_tree_pids.is_none_or(|peak| peak <= 8), "{account:?}");
        }
        Err(refused) => {
            assert_eq!(refused.limit, LimitKind::Pids);
            assert!(
                refused.to_string().starts_with("the limit of processes cannot be enforced without cgroup v2: "),
                "{refused}"
            );
            let Err(SpawnError::Limit(again)) = world.spawn(&limited(limits, bomb)) else { panic!("it was started") };
            assert_eq!(again, refused);
        }
    }
}

#[tokio::test]
async fn usage_is_that_of_the_process_and_of_descendants_that_were_waited_for() {
    let script = "perl -e 'my $x = \"x\" x (300 << 20); my $end = (times)[0] + 0.3; 1 while (times)[0] < $end'; true";
    let (done, account) = run(&World::new(), &limited(NO_LIMITS, sh(script))).await;
    assert_eq!(done.status, ChildExitStatus::Exited(0));
    let ExitAccount { usage, reached } = account.unwrap();
    assert_eq!(reached, None);
    assert!(usage.user_cpu >= Duration::from_millis(250), "{usage:?}");
    assert!(usage.max_resident_bytes.is_some_and(|bytes| (300 << 20..2 << 30).contains(&bytes)), "{usage:?}");
    assert!(usage.minor_faults > 1000 && usage.voluntary_switches > 0, "{usage:?}");
}

/// The kernel counts the memory of the server for its children, because they share it until they execute.
#[tokio::test]
async fn the_memory_of_a_small_process_is_not_mistaken_for_that_of_the_server() {
    let world = World::new();
    let ballast = std::hint::black_box(vec![1_u8; 400 << 20]);
    let (_, account) = run(&world, &limited(NO_LIMITS, command(["true"]))).await;
    assert_eq!(account.unwrap().usage.max_resident_bytes, None);
    drop(ballast);
}

#[tokio::test]
async fn a_process_without_limits_has_no_account() {
    let (done, account) = run(&World::new(), &command(["true"])).await;
    assert_eq!((done.status, account), (ChildExitStatus::Exited(0), None));
}
