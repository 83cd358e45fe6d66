//! Who belongs to a tree: a value computed from one census of all processes, without asking the operating system anything. Most members
//! carry the tag; those that have thrown it away are found by descent, or by the session they are still in.

use std::collections::{HashMap, HashSet};

use rustix::process::Pid;

use crate::procfs::Stat;
use crate::tag::{Instance, Scope, Tag};

/// One process of a census.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) pid: Pid,
    pub(crate) tag: Option<Tag>,
    pub(crate) stat: Stat,
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
    pub(crate) all_sessions: HashSet<i32>,
}

impl Membership<'_> {
    pub(crate) fn covers(&self, tag: Tag) -> bool {
        covers(self.scope, self.adopted, tag)
    }

    /// Those who belong to the tree and all their descendants, parents first: a shell that outlived its jobs would say that they were
    /// killed, and go on to its next command. The census must not have our own process in it, nor a guard.
    pub(crate) fn members(&self, census: &[Row]) -> Vec<Row> {
        let mut by_parent: HashMap<i32, Vec<&Row>> = HashMap::new();
        for row in census {
            by_parent.entry(row.stat.parent).or_default().push(row);
        }
        let mut members = Vec::new();
        let mut found: HashSet<Pid> = HashSet::new();
        let roots: HashMap<i32, &Row> =
            census.iter().filter(|row| self.is_root(row)).map(|row| (row.pid.as_raw_nonzero().get(), row)).collect();
        let (below, above): (Vec<&Row>, Vec<&Row>) =
            roots.values().partition(|row| roots.contains_key(&row.stat.parent));
        // Those below are found from above, unless their parents were not what they seemed when they were looked at.
        let mut pending: Vec<&Row> = below.into_iter().chain(above).collect();
        while let Some(row) = pending.pop() {
            if found.insert(row.pid) {
                members.push(*row);
                pending.extend(by_parent.get(&row.pid.as_raw_nonzero().get()).into_iter().flatten());
            }
        }
        members
    }

    fn is_root(&self, row: &Row) -> bool {
        match row.tag {
            Some(tag) if self.covers(tag) => true,
            Some(tag) if tag.instance() == self.scope.instance() => false,
            _ => self.is_child_without_tag(row),
        }
    }

    /// A leader where tags do not work, or an orphan that has come to us without its tag. The orphan still is in the session it
    /// was born in, unless it has left that as well: then only who ends everything may claim it.
    fn is_child_without_tag(&self, row: &Row) -> bool {
        if row.stat.parent != self.own_pid.as_raw_nonzero().get() {
            return false;
        }
        let is_stray = row.tag.is_none()
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
pub(crate) fn servers_inside(members: &[Row], census: &[Row], own: Instance) -> HashSet<Instance> {
    let inside: HashSet<Pid> = members.iter().map(|row| row.pid).collect();
    let mut servers: HashSet<Instance> = members.iter().filter_map(|row| Some(row.tag?.instance())).collect();
    servers.remove(&own);
    for row in census.iter().filter(|row| !inside.contains(&row.pid)) {
        if let Some(tag) = row.tag {
            servers.remove(&tag.instance());
        }
    }
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

    fn membership<'a>(scope: &'a Scope, adopted: &'a HashSet<Instance>, sessions: &[i32]) -> Membership<'a> {
        Membership {
            scope,
            adopted,
            own_pid: pid(OWN_PID),
            own_session: OWN_SESSION,
            sessions: sessions.iter().copied().collect(),
            all_sessions: sessions.iter().copied().collect(),
        }
    }

    fn members(scope: &Scope, sessions: &[i32], census: &[Row]) -> Vec<i32> {
        let adopted = HashSet::new();
        let mut pids: Vec<_> = membership(scope, &adopted, sessions)
            .members(census)
            .iter()
            .map(|row| row.pid.as_raw_nonzero().get())
            .collect();
        pids.sort_unstable();
        pids
    }

    fn two_tags() -> (Tag, Tag) {
        let range = SessionNumbers::new(Instance::unused(&HashSet::new())).range();
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
        assert_eq!(members(&Scope::Tree(ours), &[20], &census), [20, 21, 22, 23, 24]);
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
        let (scope, adopted) = (Scope::Tree(ours), HashSet::new());
        let membership = membership(&scope, &adopted, &[20]);
        let order: Vec<_> = membership.members(&census).iter().map(|row| row.pid.as_raw_nonzero().get()).collect();
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
        assert_eq!(members(&Scope::Everything(ours.instance()), &[20], &census), [20, 41]);
    }

    #[test]
    fn a_server_inside_is_adopted_only_if_nothing_of_it_is_outside() {
        let (ours, _) = two_tags();
        let (inner, _) = two_tags();
        let inside = [row(20, OWN_PID, 20, Some(ours)), row(21, 20, 21, Some(inner))];
        let adopted = servers_inside(&inside, &inside, ours.instance());
        assert_eq!(adopted, HashSet::from([inner.instance()]));
        let outside = [inside[0], inside[1], row(30, 1, 30, Some(inner))];
        assert_eq!(servers_inside(&inside, &outside, ours.instance()), HashSet::new());
    }
}
