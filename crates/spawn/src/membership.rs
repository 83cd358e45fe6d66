//! Computes from one [`Census`], without system calls, which processes belong to a tree, to all trees of a client's
//! session, or to all trees of a server. These processes are the *members*. A tree is a process that the server
//! started, its *leader*, and the descendants of the leader. Most members still have the tag that their tree was
//! started with. Members that have removed their tag are found by descent from other members, or because they are
//! still in the kernel session (`setsid`) of their leader. If all trees of the server are wanted, they are also found
//! because they have become children of this process. Start with [`Membership::members`].

use std::collections::{HashMap, HashSet};

use rustix::process::Pid;

use crate::orphaned_sessions::OrphanedSessions;
use crate::procfs::Stat;
use crate::tag::{Scope, ServerInstance, Tag};

/// One process of a census.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CensusProcess {
    pub(crate) pid: Pid,
    pub(crate) tag: Option<Tag>,
    pub(crate) stat: Stat,
}

/// All processes of the machine at one time, without this process and without its guards, the processes that kill all
/// trees after the server has ended. Processes with the tag of a tree of this server that is not searched for may be
/// missing. Indexes are built once, so that finding the members of a tree takes time in proportion to the members and
/// not to all processes.
#[derive(Default)]
pub(crate) struct Census {
    processes: Vec<CensusProcess>,
    by_parent: HashMap<i32, Vec<usize>>,
    by_tag: HashMap<Tag, Vec<usize>>,
    by_instance: HashMap<ServerInstance, Vec<usize>>,
    by_session: HashMap<i32, Vec<usize>>,
}

impl Census {
    pub(crate) fn new(processes: Vec<CensusProcess>) -> Self {
        let mut census = Self::default();
        for (number, process) in processes.iter().enumerate() {
            census.by_parent.entry(process.stat.parent).or_default().push(number);
            census.by_session.entry(process.stat.session).or_default().push(number);
            if let Some(tag) = process.tag {
                census.by_tag.entry(tag).or_default().push(number);
                census.by_instance.entry(tag.instance()).or_default().push(number);
            }
        }
        census.processes = processes;
        census
    }

    pub(crate) fn processes(&self) -> &[CensusProcess] {
        &self.processes
    }

    pub(crate) fn in_session(&self, session: i32) -> impl Iterator<Item = &CensusProcess> {
        self.processes_at(self.by_session.get(&session))
    }

    fn children_of(&self, process: &CensusProcess) -> impl Iterator<Item = &CensusProcess> {
        self.processes_at(self.by_parent.get(&process.pid.as_raw_nonzero().get()))
    }

    fn processes_at(&self, numbers: Option<&Vec<usize>>) -> impl Iterator<Item = &CensusProcess> {
        numbers.into_iter().flatten().filter_map(|number| self.processes.get(*number))
    }
}

/// The conditions that make a process a member. Children of members are members too.
pub(crate) struct Membership<'a> {
    pub(crate) scope: &'a Scope,
    /// Other servers that run inside the tree. The processes that such a server starts have a tag of that server.
    pub(crate) nested_servers: &'a HashSet<ServerInstance>,
    /// Whether orphans become children of this process. If not, `sessions` and `all_sessions` contain no session
    /// whose leader was reaped.
    pub(crate) adopts_orphans: bool,
    pub(crate) own_pid: Pid,
    pub(crate) own_session: i32,
    /// The kernel sessions of the leaders in scope.
    pub(crate) sessions: HashSet<i32>,
    /// The kernel sessions of all leaders.
    pub(crate) all_sessions: &'a HashSet<i32>,
    /// Kernel sessions of leaders whose server has ended. Every process in one is a member, whatever its parent is
    /// now.
    pub(crate) orphaned_sessions: &'a OrphanedSessions,
    /// While a guard is starting, its process id is not known. Then a child in an unknown session may be the guard and is no member.
    pub(crate) guard_is_starting: bool,
}

impl Membership<'_> {
    pub(crate) fn covers(&self, tag: Tag) -> bool {
        covers(self.scope, self.nested_servers, tag)
    }

    /// All members, parents before their children. They are killed in this order, because a shell that outlives its jobs prints that they
    /// were killed and goes on to its next command.
    pub(crate) fn members(&self, census: &Census) -> Vec<CensusProcess> {
        let mut members = Vec::new();
        let mut found: HashSet<Pid> = HashSet::new();
        let roots: HashMap<i32, &CensusProcess> = self
            .candidates(census)
            .filter(|process| self.is_root(process))
            .map(|process| (process.pid.as_raw_nonzero().get(), process))
            .collect();
        let (with_parent, topmost): (Vec<&CensusProcess>, Vec<&CensusProcess>) =
            roots.values().partition(|process| roots.contains_key(&process.stat.parent));
        // The topmost roots are popped first, and the other roots are found from there. The others are in the list too, because parents in
        // a census can be inconsistent, even circular: processes change while it is taken.
        let mut pending: Vec<&CensusProcess> = with_parent.into_iter().chain(topmost).collect();
        while let Some(process) = pending.pop() {
            if found.insert(process.pid) {
                members.push(*process);
                pending.extend(census.children_of(process));
            }
        }
        members
    }

    /// All roots (see [`Self::is_root`]), and possibly other processes. For one tree, the indexes find them without a
    /// scan of all processes.
    fn candidates<'c>(&'c self, census: &'c Census) -> Box<dyn Iterator<Item = &'c CensusProcess> + 'c> {
        match self.scope {
            Scope::Tree(tag) => {
                let tagged = census.processes_at(census.by_tag.get(tag));
                let nested_servers =
                    self.nested_servers.iter().flat_map(|server| census.processes_at(census.by_instance.get(server)));
                let in_session = self.sessions.iter().flat_map(|session| census.in_session(*session));
                Box::new(tagged.chain(nested_servers).chain(in_session))
            }
            Scope::Sessions(..) | Scope::Everything(_) => Box::new(census.processes.iter()),
        }
    }

    /// Whether the process is a member by itself, and not only because its parent is one.
    fn is_root(&self, process: &CensusProcess) -> bool {
        match process.tag {
            Some(tag) if self.covers(tag) => true,
            Some(tag) if tag.instance() == self.scope.instance() => false,
            _ => self.orphaned_sessions.contains(process.stat.session) || self.is_member_without_tag(process),
        }
    }

    /// Whether this is a member although it has no tag in scope: a leader on a machine where tags cannot be set, or an orphan that has
    /// removed its tag. Such an orphan is usually still in the session of its leader. If it has left that session too, it is a member only
    /// of [`Scope::Everything`], because it is not known which tree it comes from.
    fn is_member_without_tag(&self, process: &CensusProcess) -> bool {
        if !self.adopts_orphans {
            // The leader has not been reaped, so no other session can have its number.
            return self.sessions.contains(&process.stat.session);
        }
        // The leader may have been reaped. Another session with its number consists of processes with other parents.
        if process.stat.parent != self.own_pid.as_raw_nonzero().get() {
            return false;
        }
        let is_detached = process.tag.is_none()
            && !self.guard_is_starting
            && process.stat.session != self.own_session
            && !self.all_sessions.contains(&process.stat.session);
        self.sessions.contains(&process.stat.session) || (is_detached && matches!(self.scope, Scope::Everything(_)))
    }
}

pub(crate) fn covers(scope: &Scope, nested_servers: &HashSet<ServerInstance>, tag: Tag) -> bool {
    scope.contains(tag) || nested_servers.contains(&tag.instance())
}

/// Finds other servers that run inside the tree. A server is inside only if all processes with its tags are members.
/// If some were enough, a process could give itself the tag of a foreign server and so have the processes of that
/// server killed.
pub(crate) fn find_nested_servers(
    members: &[CensusProcess],
    census: &Census,
    own: ServerInstance,
) -> HashSet<ServerInstance> {
    let mut servers: HashSet<ServerInstance> =
        members.iter().filter_map(|process| Some(process.tag?.instance())).collect();
    servers.remove(&own);
    if servers.is_empty() {
        return servers;
    }
    let inside: HashSet<Pid> = members.iter().map(|process| process.pid).collect();
    servers.retain(|server| {
        census.processes_at(census.by_instance.get(server)).all(|process| inside.contains(&process.pid))
    });
    servers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tag::SessionNumbers;

    const OWN_PID: i32 = 10;
    const OWN_SESSION: i32 = 9;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).unwrap()
    }

    fn process(number: i32, parent: i32, session: i32, tag: Option<Tag>) -> CensusProcess {
        CensusProcess { pid: pid(number), tag, stat: Stat::running(parent, session) }
    }

    /// The process that computes the members, as a [`HostProcess`](crate::HostProcess) describes it.
    #[derive(PartialEq)]
    enum OwnProcess {
        Shared,
        Dedicated,
        DedicatedWhileGuardStarts,
    }

    /// The members of a scope, in the order in which they are returned. `sessions` are those of the leaders in scope.
    fn members(scope: &Scope, sessions: &[i32], processes: &[CensusProcess]) -> Vec<i32> {
        members_seen_by(OwnProcess::Dedicated, scope, sessions, processes)
    }

    fn members_seen_by(own: OwnProcess, scope: &Scope, sessions: &[i32], processes: &[CensusProcess]) -> Vec<i32> {
        let sessions: HashSet<i32> = sessions.iter().copied().collect();
        let membership = Membership {
            scope,
            nested_servers: &HashSet::new(),
            adopts_orphans: own != OwnProcess::Shared,
            own_pid: pid(OWN_PID),
            own_session: OWN_SESSION,
            sessions: sessions.clone(),
            all_sessions: &sessions,
            orphaned_sessions: &OrphanedSessions::default(),
            guard_is_starting: own == OwnProcess::DedicatedWhileGuardStarts,
        };
        let members = membership.members(&Census::new(processes.to_vec()));
        members.iter().map(|process| process.pid.as_raw_nonzero().get()).collect()
    }

    fn sorted(mut pids: Vec<i32>) -> Vec<i32> {
        pids.sort_unstable();
        pids
    }

    fn two_tags() -> (Tag, Tag) {
        let tags = SessionNumbers::new(ServerInstance::unused(&HashSet::new())).new_session();
        (tags.next(), tags.next())
    }

    #[test]
    fn members_are_found_by_tag_by_descent_and_by_session() {
        let (ours, other) = two_tags();
        let census = [
            process(20, OWN_PID, 20, Some(ours)),
            process(21, 1, 21, Some(ours)),
            process(22, 21, 22, None),
            process(23, 22, 23, None),
            process(24, OWN_PID, 20, None),
            process(30, OWN_PID, 30, Some(other)),
            process(31, 30, 30, None),
            process(40, OWN_PID, OWN_SESSION, None),
            process(41, OWN_PID, 41, None),
            process(50, 1, 20, None),
        ];
        assert_eq!(sorted(members(&Scope::Tree(ours), &[20], &census)), [20, 21, 22, 23, 24]);
    }

    #[test]
    fn parents_come_before_their_children() {
        let (ours, _) = two_tags();
        let tag = Some(ours);
        let census = [
            process(18, 20, 20, tag),
            process(19, 18, 20, tag),
            process(20, OWN_PID, 20, tag),
            process(21, 20, 20, tag),
            process(30, 31, 30, tag),
            process(31, 30, 30, tag),
        ];
        let order = members(&Scope::Tree(ours), &[20], &census);
        let position = |pid: i32| order.iter().position(|found| *found == pid).unwrap();
        assert_eq!(
            order.len(),
            census.len(),
            "processes that are each other's parents in an inconsistent census are found too"
        );
        assert!(
            position(20) < position(18) && position(18) < position(19) && position(20) < position(21),
            "{order:?}"
        );
    }

    #[test]
    fn scope_everything_includes_detached_children_but_no_child_of_other_code() {
        let (ours, _) = two_tags();
        let census = [
            process(20, OWN_PID, 20, Some(ours)),
            process(40, OWN_PID, OWN_SESSION, None),
            process(41, OWN_PID, 41, None),
            process(50, 1, 50, None),
        ];
        let everything = Scope::Everything(ours.instance());
        assert_eq!(sorted(members(&everything, &[20], &census)), [20, 41]);
        let while_guard_starts = members_seen_by(OwnProcess::DedicatedWhileGuardStarts, &everything, &[20], &census);
        assert_eq!(while_guard_starts, [20], "the detached child may be the guard");
    }

    #[test]
    fn in_a_shared_process_no_child_of_other_code_is_a_member() {
        let (ours, _) = two_tags();
        let census = [
            process(20, OWN_PID, 20, None),
            process(21, 1, 20, None),
            process(22, 1, 22, Some(ours)),
            process(40, OWN_PID, OWN_SESSION, None),
            process(41, OWN_PID, 41, None),
            process(42, 41, 41, None),
        ];
        for scope in [Scope::Tree(ours), Scope::Everything(ours.instance())] {
            assert_eq!(sorted(members_seen_by(OwnProcess::Shared, &scope, &[20], &census)), [20, 21, 22]);
        }
    }

    #[test]
    fn a_nested_server_has_no_process_outside_of_the_tree() {
        let (ours, _) = two_tags();
        let (inner, _) = two_tags();
        let inside = [process(20, OWN_PID, 20, Some(ours)), process(21, 20, 21, Some(inner))];
        let nested_servers = find_nested_servers(&inside, &Census::new(inside.to_vec()), ours.instance());
        assert_eq!(nested_servers, HashSet::from([inner.instance()]));
        let outside = [inside[0], inside[1], process(30, 1, 30, Some(inner))];
        assert_eq!(find_nested_servers(&inside, &Census::new(outside.to_vec()), ours.instance()), HashSet::new());
    }
}
