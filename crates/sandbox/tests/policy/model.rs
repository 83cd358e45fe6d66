//! Random policies against a model that is slow and obvious: it tries every entry on every beginning of a path, and
//! every way to match a glob, and knows no sorting, no normal form and no limits.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::sample::select;
use sandbox::Access::{Deny, Read, Write};
use sandbox::{Access, EntryTarget, PolicyRequest, RequestedEntry, RequestedFiles, RequestedTarget};

use super::{Machine, meaning};

type Name = &'static [u8];

/// Few names, so that entries often meet. One is not UTF-8, and two are protected.
const NAMES: [Name; 6] = [b"a", b"b", b"ab", b"\xFFa", b".git", b".codex"];

const GLOB_NAMES: [&str; 13] = ["a", "ab", "*", "**", "?", "a*", "*a", "?a", "[ab]", "[!a]", ".*", "[a", "*.g?t"];

/// A rule as the model sees it.
#[derive(Clone, Debug)]
struct ModelEntry {
    target: ModelTarget,
    access: Access,
}

#[derive(Clone, Debug)]
enum ModelTarget {
    Names(Vec<Name>),
    Glob(Vec<&'static str>),
}

struct Model {
    entries: Vec<ModelEntry>,
    /// The names of `.git` files and of the directories that they name.
    git_files: Vec<(Vec<Name>, Vec<Name>)>,
}

impl Model {
    fn access(&self, path: &[Name]) -> Access {
        let access = self.without_protections(path);
        let protected = !self.writes_everything() && self.protected().iter().any(|below| path.starts_with(below));
        if protected && access == Write { Read } else { access }
    }

    /// Of all entries and all beginnings of the path: the longest beginning, then deny before write before read.
    fn without_protections(&self, path: &[Name]) -> Access {
        let mut best: Option<(usize, Access)> = None;
        for length in 0..=path.len() {
            for entry in self.entries.iter().filter(|entry| applies(&entry.target, &path[..length])) {
                best = match (best, entry.access) {
                    (Some((longest, Deny)), _) if longest == length => best,
                    (Some((longest, Write)), Read) if longest == length => best,
                    (_, access) => Some((length, access)),
                };
            }
        }
        best.map_or(Deny, |(_, access)| access)
    }

    fn protected(&self) -> Vec<Vec<Name>> {
        let writable: Vec<&Vec<Name>> = self
            .entries
            .iter()
            .filter_map(|entry| match &entry.target {
                ModelTarget::Names(names) if entry.access == Write => Some(names),
                _ => None,
            })
            .filter(|names| self.without_protections(names) == Write)
            .collect();
        let mut protected = Vec::new();
        for directory in &writable {
            for name in [b".git".as_slice(), b".agents", b".codex"] {
                protected.push([directory.as_slice(), &[name]].concat());
            }
            let git = [directory.as_slice(), &[b".git"]].concat();
            protected.extend(self.git_files.iter().filter(|(file, _)| *file == git).map(|(_, named)| named.clone()));
        }
        protected.retain(|path| !writable.iter().any(|directory| directory.starts_with(path)));
        protected
    }

    /// The root may be written, and each entry that allows less is for the same path as one that allows writing.
    fn writes_everything(&self) -> bool {
        let writable = |target: &[Name]| {
            self.entries.iter().any(
                |entry| matches!(&entry.target, ModelTarget::Names(names) if names == target && entry.access == Write),
            )
        };
        writable(&[])
            && self.entries.iter().all(|entry| match (&entry.target, entry.access) {
                (_, Write) => true,
                (ModelTarget::Names(names), Read) => writable(names),
                _ => false,
            })
    }
}

fn applies(target: &ModelTarget, path: &[Name]) -> bool {
    match target {
        ModelTarget::Names(names) => names == path,
        ModelTarget::Glob(pattern) => glob_matches(pattern, path),
    }
}

fn glob_matches(pattern: &[&str], path: &[Name]) -> bool {
    match (pattern, path) {
        ([], []) => true,
        (["**"], []) => false,
        (["**"], _) => true,
        (["**", rest @ ..], _) => (0..=path.len()).any(|skipped| glob_matches_rest(rest, &path[skipped..], skipped)),
        ([first, rest @ ..], [name, below @ ..]) => name_matches(first.as_bytes(), name) && glob_matches(rest, below),
        _ => false,
    }
}

/// After `**`. A second `**` directly behind it means the same as one.
fn glob_matches_rest(rest: &[&str], path: &[Name], skipped: usize) -> bool {
    match rest {
        ["**"] => skipped + path.len() > 0,
        _ => glob_matches(rest, path),
    }
}

fn name_matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern {
        [] => name.is_empty(),
        [b'*', rest @ ..] => (0..=name.len()).any(|taken| name_matches(rest, &name[taken..])),
        [b'?', rest @ ..] => !name.is_empty() && name_matches(rest, &name[1..]),
        b"[ab]" => name == b"a" || name == b"b",
        b"[!a]" => name.len() == 1 && name != b"a",
        [first, rest @ ..] => name.first() == Some(first) && name_matches(rest, &name[1..]),
    }
}

fn native(names: &[Name]) -> PathBuf {
    let mut path = PathBuf::from("/");
    path.extend(names.iter().map(|name| OsStr::from_bytes(name)));
    path
}

fn names() -> impl Strategy<Value = Vec<Name>> {
    prop::collection::vec(select(NAMES.to_vec()), 0..4)
}

fn entries() -> impl Strategy<Value = Vec<ModelEntry>> {
    let path = (names(), select(vec![Deny, Read, Write, Write]))
        .prop_map(|(names, access)| ModelEntry { target: ModelTarget::Names(names), access });
    let glob = prop::collection::vec(select(GLOB_NAMES.to_vec()), 1..4)
        .prop_map(|pattern| ModelEntry { target: ModelTarget::Glob(pattern), access: Deny });
    prop::collection::vec(prop_oneof![4 => path, 1 => glob], 0..8)
}

fn request(entries: &[ModelEntry]) -> PolicyRequest {
    let entries = entries
        .iter()
        .map(|entry| RequestedEntry {
            target: match &entry.target {
                ModelTarget::Names(names) => RequestedTarget::Path(native(names)),
                ModelTarget::Glob(pattern) => RequestedTarget::Glob(format!("/{}", pattern.join("/"))),
            },
            access: entry.access,
        })
        .collect();
    PolicyRequest {
        files: RequestedFiles::Restricted { entries, glob_scan_max_depth: None },
        cwd: None,
        workspace_roots: Vec::new(),
    }
}

/// Every path with up to four of the names.
fn all_paths() -> Vec<Vec<Name>> {
    let mut paths = vec![Vec::new()];
    let mut begin = 0;
    for _ in 0..4 {
        let end = paths.len();
        for index in begin..end {
            for name in NAMES {
                let longer = [paths[index].as_slice(), &[name]].concat();
                paths.push(longer);
            }
        }
        begin = end;
    }
    paths
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_policy_decides_as_the_model_does(
        entries in entries(),
        git_files in prop::collection::vec((any::<prop::sample::Index>(), names()), 0..3),
    ) {
        let directories: Vec<&Vec<Name>> = entries
            .iter()
            .filter_map(|entry| match &entry.target {
                ModelTarget::Names(names) => Some(names),
                ModelTarget::Glob(_) => None,
            })
            .collect();
        // Only a `.git` in a directory with an entry can matter, and each directory has one `.git` at most.
        let mut git_files: Vec<(Vec<Name>, Vec<Name>)> = git_files
            .into_iter()
            .filter(|_| !directories.is_empty())
            .map(|(index, named)| ([index.get(&directories).as_slice(), &[b".git"]].concat(), named))
            .collect();
        git_files.sort();
        git_files.dedup_by(|later, first| later.0 == first.0);
        let machine = Machine {
            git_files: git_files.iter().map(|(file, named)| (native(file), native(named))).collect(),
            ..Machine::default()
        };
        let policy = machine.resolve(&request(&entries)).unwrap();
        let model = Model { entries, git_files };
        let mut least = Write;
        for names in all_paths() {
            let path = native(&names);
            let decision = policy.access(&path);
            let expected = model.access(&names);
            prop_assert_eq!(decision.access, expected, "{:?}: {:?} decides", path, decision.entry);
            prop_assert_eq!(decision.entry.map_or(Deny, |entry| entry.access), expected);
            prop_assert!(path.starts_with(&decision.matched) || decision.entry.is_none());
            least = least.min(expected);
        }
        prop_assert_eq!(policy.writes_everything(), model.writes_everything());
        if policy.writes_everything() {
            prop_assert_eq!(least, Write);
        }
    }

    #[test]
    fn the_order_of_entries_and_repeated_entries_have_no_meaning(
        (entries, shuffled) in entries().prop_flat_map(|entries| {
            let twice = [entries.clone(), entries.clone()].concat();
            (Just(entries), Just(twice).prop_shuffle())
        }),
    ) {
        let machine = Machine::default();
        let one = machine.resolve(&request(&entries)).unwrap();
        let other = machine.resolve(&request(&shuffled)).unwrap();
        prop_assert_eq!(meaning(&one), meaning(&other));
    }

    /// A policy whose entries are sent back as a request is the same policy.
    #[test]
    fn resolving_a_resolved_policy_changes_nothing(entries in entries()) {
        let machine = Machine::default();
        let policy = machine.resolve(&request(&entries)).unwrap();
        let again = policy
            .entries()
            .iter()
            .map(|entry| RequestedEntry {
                target: match &entry.target {
                    EntryTarget::Path(path) => RequestedTarget::Path(path.clone()),
                    EntryTarget::Glob(glob) => RequestedTarget::Glob(glob.to_string()),
                },
                access: entry.access,
            })
            .collect();
        let mut request = request(&[]);
        request.files = RequestedFiles::Restricted { entries: again, glob_scan_max_depth: None };
        prop_assert_eq!(meaning(&machine.resolve(&request).unwrap()), meaning(&policy));
    }

    /// A search that skips directories without matches finds every match.
    #[test]
    fn a_directory_with_a_match_below_is_never_left_out(pattern in prop::collection::vec(select(GLOB_NAMES.to_vec()), 1..4)) {
        let entry = ModelEntry { target: ModelTarget::Glob(pattern), access: Deny };
        let policy = Machine::default().resolve(&request(&[entry])).unwrap();
        for entry in policy.globs() {
            let EntryTarget::Glob(glob) = &entry.target else { panic!() };
            for path in all_paths().iter().map(|names| native(names)).filter(|path| glob.matches(path)) {
                prop_assert!(path.ancestors().skip(1).all(|above: &Path| glob.may_match_below(above)), "{:?}", path);
            }
        }
    }
}
