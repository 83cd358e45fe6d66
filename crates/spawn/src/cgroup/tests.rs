//! Scenarios with the cgroup2 file system of this machine. They need no controllers, only the permission to make cgroups; without
//! it, as in most containers, they say so and end.

use std::collections::HashSet;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::leftovers::{remove_directory_tree, remove_of_ended_servers};
use super::location::CgroupLocation;
use super::server_cgroup::ServerCgroup;
use super::tree_cgroup::{CgroupLimits, TreeCgroup, kill_cgroups, remove_empty_cgroups};
use super::{remove_after_server_end, server_directory};
use crate::exec_args::CStringArray;
use crate::rlimit::ChildLimits;
use crate::tag::{Scope, ServerInstance, SessionNumbers, Tag};
use crate::vfork::{self, FileActions};

/// A cgroup in which a test makes others. Dropping it removes all of them.
struct TestBase(PathBuf);

impl TestBase {
    /// None if this user may not make cgroups here.
    fn new(name: &str) -> Option<Self> {
        let own = CgroupLocation::find().ok()?.own;
        let directory = own.join(format!("exec-server-test-{name}-{}", std::process::id()));
        match fs::create_dir(&directory) {
            Ok(()) => Some(Self(directory)),
            Err(error) => {
                eprintln!("skipped: cannot make a cgroup in {}: {error}", own.display());
                None
            }
        }
    }
}

impl Drop for TestBase {
    fn drop(&mut self) {
        super::tree_cgroup::kill_directory(&self.0);
        let removed = remove_directory_tree(&self.0);
        assert!(removed.is_ok() || std::thread::panicking(), "{}: {removed:?}", self.0.display());
    }
}

fn instance() -> ServerInstance {
    ServerInstance::unused(&HashSet::new())
}

fn tag() -> Tag {
    SessionNumbers::new(instance()).new_session().next()
}

/// Starts a program that sleeps, in the cgroup.
fn sleeper_in(cgroup: &TreeCgroup) -> Pid {
    let procs = cgroup.open_procs().unwrap();
    let mut actions = FileActions::default();
    actions.enter_cgroup(procs.as_fd());
    let words = ["sh", "-c", "sleep 1000 & sleep 1000"].map(|word| std::ffi::CString::new(word).unwrap());
    let env = CStringArray::new(vec![c"PATH=/usr/bin:/bin".to_owned()]);
    let argv = CStringArray::new(words.to_vec());
    vfork::spawn(c"/bin/sh", &argv, &env, &actions, &ChildLimits::new(None, &[])).unwrap().pid
}

fn processes_in(directory: &Path) -> Vec<String> {
    fs::read_to_string(directory.join("cgroup.procs")).unwrap().lines().map(str::to_owned).collect()
}

fn directories_in(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
}

fn reap(pid: Pid) -> i32 {
    let status = rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED).unwrap().unwrap();
    status.terminating_signal().unwrap()
}

/// Calls `action` until the directory is gone. A process that was killed leaves its cgroup a moment later.
fn until_gone(directory: &Path, mut action: impl FnMut()) {
    for _ in 0..1_000 {
        action();
        if !directory.exists() {
            return;
        }
        // sleep: the kernel does not tell when the last process of a cgroup that is not watched has left it.
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("{} still exists", directory.display());
}

#[test]
fn a_process_starts_in_its_cgroup_and_is_killed_with_its_descendants_by_one_write() {
    let Some(base) = TestBase::new("kill") else { return };
    let server = ServerCgroup::in_base(&base.0, instance()).unwrap();
    let (tag, other_tag) = (tag(), tag());
    let cgroup = server.make_tree_cgroup(CgroupLimits::default(), tag).unwrap();
    let other = server.make_tree_cgroup(CgroupLimits::default(), other_tag).unwrap();
    let (process, neighbour) = (sleeper_in(&cgroup), sleeper_in(&other));
    let entered = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
    let name = cgroup.directory().file_name().unwrap().to_str().unwrap();
    assert!(entered.lines().any(|line| line.starts_with("0::") && line.ends_with(name)), "{entered}");

    kill_cgroups(&Scope::Tree(tag));
    assert_eq!(reap(process), Signal::KILL.as_raw());
    assert!(processes_in(other.directory()).contains(&neighbour.to_string()), "the neighbour lives");
    let directory = cgroup.directory().to_owned();
    drop(cgroup);
    until_gone(&directory, remove_empty_cgroups);

    kill_cgroups(&Scope::Tree(other_tag));
    assert_eq!(reap(neighbour), Signal::KILL.as_raw());
    let directory = other.directory().to_owned();
    drop(other);
    until_gone(&directory, remove_empty_cgroups);
}

#[test]
fn the_cgroup_of_a_tree_that_still_runs_is_removed_when_it_has_ended() {
    let Some(base) = TestBase::new("late") else { return };
    let server = ServerCgroup::in_base(&base.0, instance()).unwrap();
    let tag = tag();
    let cgroup = server.make_tree_cgroup(CgroupLimits::default(), tag).unwrap();
    let directory = cgroup.directory().to_owned();
    let process = sleeper_in(&cgroup);
    drop(cgroup);
    remove_empty_cgroups();
    assert!(directory.exists());
    // A terminate still finds the tree by its cgroup.
    kill_cgroups(&Scope::Tree(tag));
    reap(process);
    until_gone(&directory, remove_empty_cgroups);
    drop(server);
    assert_eq!(directories_in(&base.0), 0);
}

#[test]
fn cgroups_of_killed_servers_are_removed_and_those_of_running_servers_and_strangers_stay() {
    let Some(base) = TestBase::new("leftovers") else { return };
    let running = instance();
    let server = ServerCgroup::in_base(&base.0, running).unwrap();
    let killed = base.0.join(server_directory(ServerInstance::unused(&HashSet::from([running]))));
    let stranger = base.0.join("exec-server-self");
    fs::create_dir_all(killed.join("tree-1/made-by-the-tree/deep")).unwrap();
    fs::create_dir(&stranger).unwrap();
    remove_of_ended_servers(&base.0);
    assert!(!killed.exists());
    assert!(stranger.exists() && base.0.join(server_directory(running)).exists());
    drop(server);
}

#[test]
fn a_leftover_with_a_process_stays_until_the_process_has_ended() {
    let Some(base) = TestBase::new("busy") else { return };
    let number = instance();
    let directory = base.0.join(server_directory(number));
    let server = ServerCgroup::in_base(&base.0, number).unwrap();
    let cgroup = server.make_tree_cgroup(CgroupLimits::default(), tag()).unwrap();
    let process = sleeper_in(&cgroup);
    drop((cgroup, server));
    remove_of_ended_servers(&base.0);
    assert!(directory.exists());
    super::tree_cgroup::kill_directory(&directory);
    reap(process);
    until_gone(&directory, || remove_of_ended_servers(&base.0));
}

/// What the guard does when its server was killed.
#[test]
fn the_cgroups_of_a_server_that_has_ended_are_killed_and_removed() {
    let Ok(location) = CgroupLocation::find() else { return };
    let number = instance();
    // The guard looks in its own cgroup.
    let Ok(server) = ServerCgroup::in_base(&location.own, number) else { return };
    let directory = location.own.join(server_directory(number));
    let cgroup = server.make_tree_cgroup(CgroupLimits::default(), tag()).unwrap();
    let process = sleeper_in(&cgroup);
    std::mem::forget((cgroup, server));
    remove_after_server_end(number, || assert_eq!(reap(process), Signal::KILL.as_raw()));
    until_gone(&directory, || remove_after_server_end(number, || {}));
}

#[test]
fn a_bound_on_the_number_and_depth_of_cgroups_is_named() {
    let Some(base) = TestBase::new("bounds") else { return };
    for (file, number) in
        [("cgroup.max.descendants", "0"), ("cgroup.max.descendants", "1"), ("cgroup.max.depth", "1")]
    {
        fs::write(base.0.join(file), number).unwrap();
        let problem = ServerCgroup::in_base(&base.0, instance()).unwrap_err();
        let names_bound = problem.contains("cgroup.max.descendants or cgroup.max.depth of a cgroup above");
        assert!(names_bound, "{file} {number}: {problem}");
        fs::write(base.0.join(file), "max").unwrap();
    }
    assert_eq!(directories_in(&base.0), 0);
}

#[test]
fn two_servers_with_one_name_do_not_share_a_cgroup() {
    let Some(base) = TestBase::new("twice") else { return };
    let number = instance();
    let _first = ServerCgroup::in_base(&base.0, number).unwrap();
    let problem = ServerCgroup::in_base(&base.0, number).unwrap_err();
    assert!(problem.contains("cannot make the cgroup"), "{problem}");
}

/// Another server that starts looks for leftovers, and may find the new cgroup before it is locked.
#[test]
fn a_server_gets_its_cgroup_while_other_servers_look_for_leftovers() {
    let Some(base) = TestBase::new("race") else { return };
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    remove_of_ended_servers(&base.0);
                }
            });
        }
        let made: Vec<_> = (0..100).map(|_| ServerCgroup::in_base(&base.0, instance()).map(drop)).collect();
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(made.iter().all(Result::is_ok), "{:?}", made.iter().find(|made| made.is_err()));
    });
    assert_eq!(directories_in(&base.0), 0);
}
