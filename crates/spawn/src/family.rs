//! Who belongs to a tree: a value computed from one census of all processes, without asking the operating system anything. Most members
//! carry the tag; those that have thrown it away are found by descent, or by the session they are still in.

use std::collections::{HashMap, HashSet};

use rustix::process::Pid;

use crate::left_sessions::LeftSessions;
use crate::procfs::Stat;
use crate::tag::{Instance, Scope, Tag};

/// One process of a census.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) pid: Pid,
    pub(crate) tag: Option<Tag>,
    pub(crate) stat: Stat,
}

/// All processes of the machine at one time, without our own and without guards. It is indexed once, so that finding the members
/// of many trees costs as much as there are members, and not as many looks at every process as there are trees.
#[derive(Default)]
pub(crate) struct Census {
    rows: Vec<Row>,
    by_parent: HashMap<i32, Vec<usize>>,
    by_tag: HashMap<Tag, Vec<usize>>,
    by_instance: HashMap<Instance, Vec<usize>>,
    by_session: HashMap<i32, Vec<usize>>,
}

impl Census {
    pub(crate) fn new(rows: Vec<Row>) -> Self {
        let mut census = Self::default();
        for (number, row) in rows.iter().enumerate() {
            census.by_parent.entry(row.stat.parent).or_default().push(number);
            census.by_session.entry(row.stat.session).or_default().push(number);
            if let Some(tag) = row.tag {
                census.by_tag.entry(tag).or_default().push(number);
                census.by_instance.entry(tag.instance()).or_default().push(number);
            }
        }
        census.rows = rows;
        census
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub(crate) fn in_session(&self, session: i32) -> impl Iterator<Item = &Row> {
        self.at(self.by_session.get(&session))
    }

    fn children_of(&self, row: &Row) -> impl Iterator<Item = &Row> {
        self.at(self.by_parent.get(&row.pid.as_raw_nonzero().get()))
    }

    fn at(&self, numbers: Option<&Vec<usize>>) -> impl Iterator<Item = &Row> {
        numbers.into_iter().flatten().filter_map(|number| self.rows.get(*number))
    }
}

/// What makes a process a member, besides having one as its parent.
pub(crate) struct Membership<'a> {
    pub(crate) scope: &'a Scope,
    /// Other servers that run inside the tree: what they start carries their tags.
    pub(crate) adopted: &'a HashSet<Instance>,
    /// Our own process, to which orphans come.
    pub(crate) own_pid: Pid,
    pub(crate) own_session: i32,
    /// The sessions of the leaders in scope, and those of all leaders.
    pub(crate) sessions: HashSet<i32>,
    pub(crate) all_sessions: &'a HashSet<i32>,
    /// Sessions of leaders whose server is gone: whoever is in one is a member, whoever its parent is now.
    pub(crate) left_sessions: &'a LeftSessions,
    /// A child that is in no known session may be a guard whose number is not known yet, and is nobody's member.
    pub(crate) guard_is_starting: bool,
}

impl Membership<'_> {
    pub(crate) fn covers(&self, tag: Tag) -> bool {
        covers(self.scope, self.adopted, tag)
    }

    /// Those who belong to the tree and all their descendants, parents first: a shell that outlived its jobs would say that they were
    /// killed, and go on to its next command.
    pub(crate) fn members(&self, census: &Census) -> Vec<Row> {
        let mut members = Vec::new();
        let mut found: HashSet<Pid> = HashSet::new();
        let roots: HashMap<i32, &Row> = self
            .candidates(census)
            .filter(|row| self.is_root(row))
            .map(|row| (row.pid.as_raw_nonzero().get(), row))
            .collect();
        let (below, above): (Vec<&Row>, Vec<&Row>) =
            roots.values().partition(|row| roots.contains_key(&row.stat.parent));
        // Those below are found from above, unless their parents were not what they seemed when they were looked at.
        let mut pending: Vec<&Row> = below.into_iter().chain(above).collect();
        while let Some(row) = pending.pop() {
            if found.insert(row.pid) {
                members.push(*row);
                pending.extend(census.children_of(row));
            }
        }
        members
    }

    /// Every process that can be a root, and others.
    fn candidates<'c>(&'c self, census: &'c Census) -> Box<dyn Iterator<Item = &'c Row> + 'c> {
        match self.scope {
            Scope::Tree(tag) => {
                let tagged = census.at(census.by_tag.get(tag));
                let adopted = self.adopted.iter().flat_map(|server| census.at(census.by_instance.get(server)));
                let in_session = self.sessions.iter().flat_map(|session| census.in_session(*session));
                Box::new(tagged.chain(adopted).chain(in_session))
            }
            Scope::Sessions(..) | Scope::Everything(_) => Box::new(census.rows.iter()),
        }
    }

    fn is_root(&self, row: &Row) -> bool {
        match row.tag {
            Some(tag) if self.covers(tag) => true,
            Some(tag) if tag.instance() == self.scope.instance() => false,
            _ => self.left_sessions.contains(row.stat.session) || self.is_child_without_tag(row),
        }
    }

    /// A leader where tags do not work, or an orphan that has come to us without its tag. The orphan still is in the session it
    /// was born in, unless it has left that as well: then only who ends everything may claim it.
    fn is_child_without_tag(&self, row: &Row) -> bool {
        if row.stat.parent != self.own_pid.as_raw_nonzero().get() {
            return false;
        }
        let is_stray = row.tag.is_none()
            && !self.guard_is_starting
            && row.stat.session != self.own_session
            && !self.all_sessions.contains(&row.stat.session);
        self.sessions.contains(&row.stat.session) || (is_stray && matches!(self.scope, Scope::Everything(_)))
    }
}

pub(crate) fn covers(scope: &Scope, adopted: &HashSet<Instance>, tag: Tag) -> bool {
    scope.contains(tag) || adopted.contains(&tag.instance())
}

/// Other servers all of whose processes are members. The condition keeps a process from having strangers killed by
/// giving itself their tag.
pub(crate) fn servers_inside(members: &[Row], census: &Census, own: Instance) -> HashSet<Instance> {
    let mut servers: HashSet<Instance> = members.iter().filter_map(|row| Some(row.tag?.instance())).collect();
    servers.remove(&own);
    if servers.is_empty() {
        return servers;
    }
    let inside: HashSet<Pid> = members.iter().map(|row| row.pid).collect();
    servers.retain(|server| census.at(census.by_instance.get(server)).all(|row| inside.contains(&row.pid)));
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

    fn row(number: i32, parent: i32, session: i32, tag: Option<Tag>) -> Row {
        Row { pid: pid(number), tag, stat: Stat::running(parent, session) }
    }

    /// The members of a scope whose leaders have made these sessions, in the order in which they are found.
    fn members(scope: &Scope, sessions: &[i32], rows: &[Row]) -> Vec<i32> {
        members_while(false, scope, sessions, rows)
    }

    fn members_while(guard_is_starting: bool, scope: &Scope, sessions: &[i32], rows: &[Row]) -> Vec<i32> {
        let sessions: HashSet<i32> = sessions.iter().copied().collect();
        let membership = Membership {
            scope,
            adopted: &HashSet::new(),
            own_pid: pid(OWN_PID),
            own_session: OWN_SESSION,
            sessions: sessions.clone(),
            all_sessions: &sessions,
            left_sessions: &LeftSessions::default(),
            guard_is_starting,
        };
        let members = membership.members(&Census::new(rows.to_vec()));
        members.iter().map(|row| row.pid.as_raw_nonzero().get()).collect()
    }

    fn sorted(mut pids: Vec<i32>) -> Vec<i32> {
        pids.sort_unstable();
        pids
    }

    fn two_tags() -> (Tag, Tag) {
        let range = SessionNumbers::new(Instance::unused(&HashSet::new())).new_session();
        (range.next(), range.next())
    }

    #[test]
    fn a_tree_is_its_tag_its_descendants_and_its_session() {
        let (ours, other) = two_tags();
        let census = [
            row(20, OWN_PID, 20, Some(ours)),
            row(21, 1, 21, Some(ours)),
            row(22, 21, 22, None),
            row(23, 22, 23, None),
            row(24, OWN_PID, 20, None),
            row(30, OWN_PID, 30, Some(other)),
            row(31, 30, 30, None),
            row(40, OWN_PID, OWN_SESSION, None),
            row(41, OWN_PID, 41, None),
            row(50, 1, 20, None),
        ];
        assert_eq!(sorted(members(&Scope::Tree(ours), &[20], &census)), [20, 21, 22, 23, 24]);
    }

    #[test]
    fn parents_come_before_their_children() {
        let (ours, _) = two_tags();
        let tag = Some(ours);
        let census = [
            row(18, 20, 20, tag),
            row(19, 18, 20, tag),
            row(20, OWN_PID, 20, tag),
            row(21, 20, 20, tag),
            row(30, 31, 30, tag),
            row(31, 30, 30, tag),
        ];
        let order = members(&Scope::Tree(ours), &[20], &census);
        let place = |pid: i32| order.iter().position(|found| *found == pid).unwrap();
        assert_eq!(order.len(), census.len(), "even a loop that only a torn census can show loses nobody");
        assert!(place(20) < place(18) && place(18) < place(19) && place(20) < place(21), "{order:?}");
    }

    #[test]
    fn everything_includes_strays_but_not_children_of_other_code() {
        let (ours, _) = two_tags();
        let census = [
            row(20, OWN_PID, 20, Some(ours)),
            row(40, OWN_PID, OWN_SESSION, None),
            row(41, OWN_PID, 41, None),
            row(50, 1, 50, None),
        ];
        let everything = Scope::Everything(ours.instance());
        assert_eq!(sorted(members(&everything, &[20], &census)), [20, 41]);
        assert_eq!(members_while(true, &everything, &[20], &census), [20], "the stray may be the guard");
    }

    #[test]
    fn a_server_inside_is_adopted_only_if_nothing_of_it_is_outside() {
        let (ours, _) = two_tags();
        let (inner, _) = two_tags();
        let inside = [row(20, OWN_PID, 20, Some(ours)), row(21, 20, 21, Some(inner))];
        let adopted = servers_inside(&inside, &Census::new(inside.to_vec()), ours.instance());
        assert_eq!(adopted, HashSet::from([inner.instance()]));
        let outside = [inside[0], inside[1], row(30, 1, 30, Some(inner))];
        assert_eq!(servers_inside(&inside, &Census::new(outside.to_vec()), ours.instance()), HashSet::new());
    }
}
