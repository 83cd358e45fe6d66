//! Random directories with random policies: what a command really can do is what a slow and obvious model says. The
//! model starts from the entries of the policy, whose own rules are tested elsewhere, and follows their links.
//!
//! Where a sandbox differs from the policy, the model says exactly how:
//! - Access is decided by file, not by path. Entries that lead to the same file by different paths together
//!   allow what the strictest of them allows, and a path through a link is allowed what its target is.
//! - A missing path that may not be written is a directory in the sandbox, if a command could make it otherwise. If
//!   several of its directories are missing, the first of them may be read and not written.
//! - A directory in which the access changes somewhere cannot be renamed, nor can a link that an entry leads through.
//! - An entry that grants something through a link that the command could replace is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};
use sandbox::Access::{Deny, Read, Write};
use sandbox::{Access, EntrySource, EntryTarget, FilePolicy, PlanError, SandboxNetwork, plan_sandbox};

use crate::support::{build_planned, entry, glob, minimal, policy, root};

const NAMES: [&[u8]; 6] = [b"a", b"b", b"s.env", b".git", b".codex", b"odd \xff\n"];
const GLOBS: [&str; 5] = ["**/*.env", "*/b", "a/*", "**/odd*", "a/**/.git"];

#[derive(Clone, Debug)]
enum Kind {
    Directory,
    File,
    /// To a path below one of the directories.
    Link(Index, Vec<usize>),
}

#[derive(Clone, Debug)]
struct Scene {
    /// Each one has a directory, a name and a kind.
    files: Vec<(Index, usize, Kind)>,
    root: Access,
    entries: Vec<(Index, Vec<usize>, Access)>,
    globs: Vec<usize>,
}

fn scenes() -> impl Strategy<Value = Scene> {
    let name = 0..NAMES.len();
    let below = || prop::collection::vec(0..NAMES.len(), 0..3);
    let kind = prop_oneof![
        4 => Just(Kind::Directory),
        3 => Just(Kind::File),
        2 => (any::<Index>(), below()).prop_map(|(index, names)| Kind::Link(index, names)),
    ];
    let access = select(vec![Deny, Read, Write, Write]);
    (
        prop::collection::vec((any::<Index>(), name, kind), 4..24),
        select(vec![Read, Read, Deny, Write]),
        prop::collection::vec((any::<Index>(), below(), access), 1..9),
        prop::collection::vec(0..GLOBS.len(), 0..2),
    )
        .prop_map(|(files, root, entries, globs)| Scene { files, root, entries, globs })
}

/// The files of a scene on the disk.
struct Tree {
    _directory: tempfile::TempDir,
    base: PathBuf,
    directories: Vec<PathBuf>,
    files: Vec<PathBuf>,
    links: Vec<PathBuf>,
}

/// All paths below a directory. The directory may be a link; links below it are not followed.
fn everything_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(everything_below(&path));
        }
        found.push(path);
    }
    found
}

fn is_writable(directory: &Path) -> bool {
    rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok()
}

fn one_of<'a>(index: &Index, directories: &'a [PathBuf]) -> &'a Path {
    &directories[index.index(directories.len())]
}

fn join(base: &Path, names: &[usize]) -> PathBuf {
    names.iter().fold(base.to_owned(), |path, name| path.join(OsStr::from_bytes(NAMES[*name])))
}

impl Tree {
    fn make(scene: &Scene) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        let mut tree = Self {
            _directory: directory,
            directories: vec![base.clone()],
            base,
            files: Vec::new(),
            links: Vec::new(),
        };
        for (parent, name, kind) in &scene.files {
            let path = join(one_of(parent, &tree.directories), &[*name]);
            if fs::symlink_metadata(&path).is_ok() {
                continue;
            }
            match kind {
                Kind::Directory => {
                    fs::create_dir(&path).unwrap();
                    tree.directories.push(path);
                }
                Kind::File => {
                    fs::write(&path, "contents").unwrap();
                    tree.files.push(path);
                }
                Kind::Link(target, names) => {
                    let target = join(one_of(target, &tree.directories), names);
                    // A link to something in the same directory is relative.
                    let relative = path.parent().and_then(|parent| target.strip_prefix(parent).ok());
                    symlink(relative.filter(|short| short.iter().next().is_some()).unwrap_or(&target), &path)
                        .unwrap();
                    tree.links.push(path);
                }
            }
        }
        tree
    }

    fn policy(&self, scene: &Scene) -> FilePolicy {
        let mut entries = vec![minimal()];
        if scene.root != Deny {
            entries.push(root(scene.root));
        }
        for (index, names, access) in &scene.entries {
            entries.push(entry(join(one_of(index, &self.directories), names), *access));
        }
        entries.extend(scene.globs.iter().map(|number| glob(format!("{}/{}", self.base.display(), GLOBS[*number]))));
        policy(entries)
    }

    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.directories.iter().skip(1).chain(&self.files).chain(&self.links)
    }
}

/// Where a path leads.
#[derive(Debug)]
struct Followed {
    links: Vec<PathBuf>,
    end: End,
}

#[derive(Debug)]
enum End {
    Existing(PathBuf),
    /// The first part that does not exist, and whether it is the whole path.
    Missing(PathBuf, bool),
    BehindFile(PathBuf),
    Loop,
}

/// Replaces the first link of the path by its target, until there is none.
fn follow(path: &Path) -> Followed {
    let mut path = path.to_owned();
    let mut links = Vec::new();
    loop {
        let mut beginnings: Vec<PathBuf> = path.ancestors().map(Path::to_owned).collect();
        beginnings.reverse();
        let Some(link) = beginnings.iter().find(|beginning| beginning.is_symlink()) else {
            let end = match beginnings.iter().find(|beginning| !beginning.exists()) {
                None => End::Existing(path),
                Some(missing) if missing.parent().unwrap().is_file() => {
                    End::BehindFile(missing.parent().unwrap().to_owned())
                }
                Some(missing) => End::Missing(missing.clone(), *missing == path),
            };
            return Followed { links, end };
        };
        if links.len() > 40 {
            return Followed { links, end: End::Loop };
        }
        let rest = path.strip_prefix(link).unwrap().to_owned();
        let target = link.parent().unwrap().join(fs::read_link(link).unwrap());
        links.push(link.clone());
        path = if rest.as_os_str().is_empty() { target } else { target.join(rest) };
    }
}

/// What is allowed for real files.
#[derive(Debug, Default)]
struct Model {
    root: Option<Access>,
    nodes: BTreeMap<PathBuf, Access>,
    placeholders: BTreeSet<PathBuf>,
    /// Links and files that cannot be replaced.
    pinned: BTreeSet<PathBuf>,
    /// Links that exist although their directory is denied.
    made_links: BTreeSet<PathBuf>,
    /// Whether an entry grants something through a link that can be replaced.
    is_refused: bool,
}

impl Model {
    fn new(policy: &FilePolicy) -> Self {
        let mut model = Self { root: Some(policy.access(Path::new("/")).access), ..Self::default() };
        let mut granted = Vec::new();
        for entry in policy.entries().iter().filter(|entry| entry.access != Deny) {
            if let EntryTarget::Path(path) = &entry.target {
                granted.extend(path.canonicalize());
                granted.push(path.clone());
            }
        }
        let is_granted_below = |above: &Path| granted.iter().any(|path| path.starts_with(above));
        let mut found = Vec::new();
        let mut missing_writable = BTreeSet::new();
        for entry in policy.entries() {
            match &entry.target {
                EntryTarget::Path(path) if path == Path::new("/") => {}
                EntryTarget::Path(path) => {
                    let followed = follow(path);
                    if entry.access == Write && matches!(followed.end, End::Missing(..)) {
                        missing_writable.insert(path.clone());
                    }
                    found.push((followed, entry.access, entry.source.clone(), false));
                }
                EntryTarget::Glob(glob) => found.extend(
                    everything_below(glob.directory())
                        .into_iter()
                        .filter(|path| glob.matches(path))
                        // What is below a match is denied with it, unless an entry allows a path there.
                        .filter(|path| {
                            !path.ancestors().skip(1).any(|above| glob.matches(above) && !is_granted_below(above))
                        })
                        .map(|path| (follow(&path), Deny, EntrySource::Request(0), true)),
                ),
            }
        }
        let is_protection = |source: &EntrySource| matches!(source, EntrySource::ProtectedName { .. });
        found.retain(|(_, _, source, _)| {
            !matches!(source, EntrySource::ProtectedName { writable } if missing_writable.contains(writable))
        });
        for (followed, access, source, _) in &found {
            if let End::Existing(path) = &followed.end
                && !is_protection(source)
            {
                model.add(path, *access);
            }
        }
        for (followed, access, source, _) in &found {
            match &followed.end {
                End::Existing(path) if is_protection(source) && model.access(path) == Write => {
                    model.add(path, *access);
                }
                _ => {}
            }
        }
        for (followed, access, _, _) in found.iter().filter(|(_, access, _, _)| *access < Write) {
            match &followed.end {
                // In a directory of somebody else, as the root directory usually is, nobody can make it.
                End::Missing(first, is_whole)
                    if model.above(first) == Write && is_writable(first.parent().unwrap()) =>
                {
                    model.add(first, if *is_whole { *access } else { Read });
                    model.placeholders.insert(first.clone());
                }
                End::BehindFile(file) if model.access(file) == Write => {
                    model.pinned.insert(file.clone());
                }
                _ => {}
            }
        }
        for (followed, access, source, is_match) in &found {
            for link in &followed.links {
                let can_be_replaced = model.access(link.parent().unwrap()) == Write;
                if let End::Existing(path) = &followed.end {
                    let grants = !is_match && !is_protection(source) && *access > model.above(path);
                    model.is_refused |= can_be_replaced && grants;
                    if *access > Deny && model.access(link.parent().unwrap()) == Deny {
                        model.made_links.insert(link.clone());
                    }
                }
                if can_be_replaced && *access < Write {
                    model.pinned.insert(link.clone());
                }
            }
        }
        model
    }

    fn add(&mut self, path: &Path, access: Access) {
        let known = self.nodes.entry(path.to_owned()).or_insert(access);
        *known = access.min(*known);
    }

    fn access(&self, path: &Path) -> Access {
        path.ancestors().find_map(|above| self.nodes.get(above).copied()).or(self.root).unwrap()
    }

    fn above(&self, path: &Path) -> Access {
        self.access(path.parent().unwrap())
    }

    /// Whether something is mounted at a path or below, so that it cannot be renamed.
    fn is_pinned(&self, renamed: &Path) -> bool {
        let changes = self.nodes.iter().filter(|(path, access)| self.above(path) != **access).map(|(path, _)| path);
        changes.chain(&self.pinned).any(|path| path.starts_with(renamed))
    }

    /// Whether a link is there, and all links after it.
    fn leads_somewhere(&self, links: &[PathBuf]) -> bool {
        links.iter().all(|link| self.access(link.parent().unwrap()) > Deny || self.made_links.contains(link))
    }
}

/// Tells for each path of the first list whether it can be read or listed, and whether it can be written or something can be
/// made in it. Then tells for each path of the second list whether it can be renamed.
const PROBE: &str = r#"
import os, sys
def attempt(action):
    try:
        action()
        return "1"
    except OSError:
        return "0"
def read(path):
    if os.path.isdir(path):
        os.listdir(path)
    else:
        with open(path, "rb") as file:
            file.read()
def write(path):
    if os.path.isdir(path):
        os.mkdir(path + b"/probe")
        os.rmdir(path + b"/probe")
    else:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND))
def rename(path):
    os.rename(path, path + b".moved")
    os.rename(path + b".moved", path)
paths, renamed = (list(map(bytes.fromhex, text.split(","))) if text else [] for text in sys.argv[1:])
for path in paths:
    print(attempt(lambda: read(path)) + attempt(lambda: write(path)))
for path in renamed:
    print(attempt(lambda: rename(path)))
"#;

fn hexadecimal(paths: &[PathBuf]) -> String {
    let one =
        |path: &PathBuf| path.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    paths.iter().map(one).collect::<Vec<_>>().join(",")
}

fn check(scene: &Scene) -> Result<(), TestCaseError> {
    let tree = Tree::make(scene);
    let policy = tree.policy(scene);
    let model = Model::new(&policy);
    let planned = match plan_sandbox(&policy, SandboxNetwork::None) {
        Ok(planned) => planned,
        Err(PlanError::WritableLink { .. }) => {
            prop_assert!(model.is_refused, "refused without a reason: {model:#?}");
            return Ok(());
        }
        Err(error) => return Err(TestCaseError::fail(format!("{error}"))),
    };
    prop_assert!(!model.is_refused, "a link grants something: {model:#?}");
    prop_assert!(model.placeholders.iter().all(|path| path.is_dir()));

    let mut expected = Vec::new();
    let mut paths = Vec::new();
    for path in tree.all().chain(&model.placeholders) {
        let followed = follow(path);
        let End::Existing(real) = followed.end else { continue };
        let access = if model.leads_somewhere(&followed.links) { model.access(&real) } else { Deny };
        expected.push(match access {
            Deny => "00",
            Read => "10",
            Write => "11",
        });
        paths.push(path.clone());
    }
    let all: Vec<PathBuf> = tree.all().cloned().collect();
    let renamed = all.iter().map(|path| if model.above(path) == Write && !model.is_pinned(path) { "1" } else { "0" });
    expected.extend(renamed);
    let plan = planned.plan.clone();
    let sandbox = build_planned(planned);
    let output = sandbox.python(PROBE, &[&hexadecimal(&paths), &hexadecimal(&all)]);
    prop_assert_eq!(output.code, 0, "{}", output.output);
    for ((found, expected), path) in output.output.lines().zip(&expected).zip(paths.iter().chain(&all)) {
        prop_assert_eq!(found, *expected, "{:?} with {:#?} and {:#?}", path, model, plan);
    }
    prop_assert_eq!(output.output.lines().count(), expected.len());
    drop(sandbox);
    // Other tests that run at the same time may use the placeholders in `/` too.
    let mut own = model.placeholders.iter().filter(|path| path.starts_with(&tree.base));
    prop_assert!(own.all(|path| !path.exists()), "a placeholder is left");
    Ok(())
}

#[test]
fn commands_can_do_what_the_policy_allows() {
    // Each case makes a sandbox. More cases: PROPTEST_CASES.
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(48);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 300, ..Config::default() };
    TestRunner::new(config).run(&scenes(), |scene| check(&scene)).unwrap();
}
