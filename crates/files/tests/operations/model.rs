//! Random sequences of operations, against real files and against a model of what they should do.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use files::{
    CommitOptions, DanglingLinks, FileError, Follow, Upload, copy, create_directory, metadata, read_directory,
    read_file, remove, rename, write_file,
};
use proptest::prelude::*;
use rustix::io::Errno;

use crate::support::{World, never};

/// A path of names below the root; the root itself is empty.
type Name = Vec<&'static str>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    File(Vec<u8>),
    Directory,
}

#[derive(Clone, Debug)]
enum Operation {
    Write(Name, Vec<u8>),
    Upload(Name, Vec<u8>, bool),
    Read(Name),
    Create(Name, bool),
    Remove(Name, bool, bool),
    Rename(Name, Name, bool),
    Copy(Name, Name, bool),
    Describe(Name),
    List(Name),
}

/// What an operation has to say: what it found, or how it failed.
type Outcome = Result<String, String>;

fn os<T>(errno: Errno) -> Result<T, String> {
    Err(std::io::Error::from(errno).to_string())
}

#[derive(Default)]
struct Model(BTreeMap<Name, Node>);

impl Model {
    fn node(&self, name: &[&'static str]) -> Option<&Node> {
        if name.is_empty() { Some(&Node::Directory) } else { self.0.get(name) }
    }

    /// The error of looking a name up, if something above it is not a directory.
    fn passable(&self, name: &[&'static str]) -> Result<(), String> {
        for length in 0..name.len() {
            match self.node(&name[..length]) {
                Some(Node::Directory) => {}
                Some(Node::File(_)) => return os(Errno::NOTDIR),
                None => return os(Errno::NOENT),
            }
        }
        Ok(())
    }

    fn existing(&self, name: &[&'static str]) -> Result<&Node, String> {
        self.passable(name)?;
        self.node(name).map_or_else(|| os(Errno::NOENT), Ok)
    }

    fn below(&self, name: &[&'static str]) -> Vec<(Name, Node)> {
        let inside = self.0.iter().filter(|(other, _)| other.len() > name.len() && other.starts_with(name));
        inside.map(|(other, node)| (other.clone(), node.clone())).collect()
    }

    fn write(&mut self, name: &Name, data: &[u8]) -> Result<(), String> {
        self.passable(name)?;
        if self.node(name) == Some(&Node::Directory) {
            return os(Errno::ISDIR);
        }
        self.0.insert(name.clone(), Node::File(data.to_vec()));
        Ok(())
    }

    fn make_all(&mut self, name: &[&'static str]) -> Result<(), String> {
        for length in 1..=name.len() {
            match self.node(&name[..length]) {
                Some(Node::Directory) => {}
                Some(Node::File(_)) if length == name.len() => return os(Errno::EXIST),
                Some(Node::File(_)) => return os(Errno::NOTDIR),
                None => drop(self.0.insert(name[..length].to_vec(), Node::Directory)),
            }
        }
        Ok(())
    }

    fn remove(&mut self, name: &Name, recursive: bool) -> Result<(), String> {
        let is_directory = self.existing(name)? == &Node::Directory;
        let below = self.below(name);
        if is_directory && !recursive && !below.is_empty() {
            return os(Errno::NOTEMPTY);
        }
        self.0.remove(name);
        below.iter().for_each(|(other, _)| drop(self.0.remove(other)));
        Ok(())
    }

    fn rename(&mut self, from: &Name, to: &Name, replace: bool) -> Result<(), String> {
        self.passable(from)?;
        self.passable(to)?;
        let Some(node) = self.node(from).cloned() else { return os(Errno::NOENT) };
        if !replace && self.node(to).is_some() {
            return os(Errno::EXIST);
        }
        if from == to {
            return Ok(());
        }
        if to.starts_with(from) {
            return os(Errno::INVAL);
        }
        if from.starts_with(to) {
            return os(Errno::NOTEMPTY);
        }
        match (&node, self.node(to)) {
            (Node::File(_), Some(Node::Directory)) => return os(Errno::ISDIR),
            (Node::Directory, Some(Node::File(_))) => return os(Errno::NOTDIR),
            (Node::Directory, Some(Node::Directory)) if !self.below(to).is_empty() => return os(Errno::NOTEMPTY),
            _ => {}
        }
        for (other, below) in self.below(from) {
            self.0.remove(&other);
            self.0.insert([&to[..], &other[from.len()..]].concat(), below);
        }
        self.0.remove(from);
        self.0.insert(to.clone(), node);
        Ok(())
    }

    /// `None` if how much was copied before the failure depends on the order of the file system.
    fn copy(&mut self, from: &Name, to: &Name, recursive: bool) -> Option<Result<(), String>> {
        let node = match self.existing(from) {
            Ok(node) => node.clone(),
            Err(error) => return Some(Err(error)),
        };
        if let Node::File(data) = node {
            let is_same = from == to;
            return Some(if is_same {
                Err("fs/copy cannot copy a file onto itself".into())
            } else {
                self.write(to, &data)
            });
        }
        if !recursive {
            return Some(Err("fs/copy requires recursive: true when sourcePath is a directory".into()));
        }
        if to.starts_with(from) {
            return Some(Err("fs/copy cannot copy a directory to itself or one of its descendants".into()));
        }
        let below = self.below(from);
        if let Err(error) = self.make_all(to) {
            return Some(Err(error));
        }
        let target = |other: &Name| [&to[..], &other[from.len()..]].concat();
        let clashes = |(other, node): &(Name, Node)| match (node, self.node(&target(other))) {
            (_, None) => false,
            (one, Some(two)) => matches!(one, Node::File(_)) != matches!(two, Node::File(_)),
        };
        // Into what is above the source, where the copy may meet what it copies, is left to other tests as well.
        if below.iter().any(clashes) || from.starts_with(to) {
            return None;
        }
        for (other, node) in below {
            self.0.insert(target(&other), node);
        }
        Some(Ok(()))
    }

    fn apply(&mut self, operation: &Operation) -> Option<Outcome> {
        let nothing = |result: Result<(), String>| Some(result.map(|()| String::new()));
        match operation {
            Operation::Write(name, data) => nothing(self.write(name, data)),
            Operation::Upload(name, data, replace) => {
                if name.is_empty() {
                    return Some(os(Errno::ISDIR));
                }
                if !replace && self.existing(name).is_ok() {
                    return Some(os(Errno::EXIST));
                }
                nothing(self.write(name, data))
            }
            Operation::Read(name) => Some(match self.existing(name) {
                Ok(Node::File(data)) => Ok(format!("{data:?}")),
                Ok(Node::Directory) => Err("is not a file".into()),
                Err(error) => Err(error),
            }),
            Operation::Create(name, true) => nothing(self.make_all(name)),
            Operation::Create(name, false) => nothing(self.passable(name).and_then(|()| {
                if self.node(name).is_some() {
                    return os(Errno::EXIST);
                }
                self.0.insert(name.clone(), Node::Directory);
                Ok(())
            })),
            Operation::Remove(name, recursive, force) => {
                let removed = self.remove(name, *recursive);
                nothing(if *force && removed == os(Errno::NOENT) { Ok(()) } else { removed })
            }
            Operation::Rename(from, to, replace) => nothing(self.rename(from, to, *replace)),
            Operation::Copy(from, to, recursive) => {
                self.copy(from, to, *recursive).map(|copied| copied.map(|()| String::new()))
            }
            Operation::Describe(name) => Some(self.existing(name).map(|node| match node {
                Node::File(data) => format!("file of {}", data.len()),
                Node::Directory => "directory".into(),
            })),
            Operation::List(name) => Some(match self.existing(name) {
                Ok(Node::Directory) => {
                    let inside = self.below(name).into_iter().filter(|(other, _)| other.len() == name.len() + 1);
                    Ok(inside.map(|(other, _)| format!("{} ", other[name.len()])).collect())
                }
                Ok(Node::File(_)) => os(Errno::NOTDIR),
                Err(error) => Err(error),
            }),
        }
    }
}

fn apply(root: &Path, operation: &Operation, follow: Follow) -> Outcome {
    let at = |name: &Name| name.iter().fold(root.to_owned(), |path, part| path.join(part));
    let nothing = |result: Result<(), FileError>| result.map(|()| String::new());
    let outcome = match operation {
        Operation::Write(name, data) => nothing(write_file(&at(name), data, follow)),
        Operation::Upload(name, data, replace) => {
            nothing(Upload::create(&at(name), *replace, Follow::Yes).and_then(|upload| {
                upload.write_block(0, data)?;
                upload.commit(&CommitOptions::default())
            }))
        }
        Operation::Read(name) => read_file(&at(name), follow, 1000).map(|data| format!("{data:?}")),
        Operation::Create(name, recursive) => nothing(create_directory(&at(name), *recursive, follow)),
        Operation::Remove(name, recursive, force) => {
            let follow = if *recursive { Follow::Yes } else { follow };
            nothing(remove(&at(name), *recursive, *force, follow, &never()))
        }
        Operation::Rename(from, to, replace) => nothing(rename(&at(from), &at(to), *replace)),
        Operation::Copy(from, to, recursive) => nothing(copy(&at(from), &at(to), *recursive, &never())),
        Operation::Describe(name) => metadata(&at(name), follow)
            .map(|found| if found.is_directory { "directory".into() } else { format!("file of {}", found.size) }),
        Operation::List(name) => read_directory(&at(name), 1000, DanglingLinks::LeftOut).map(|entries| {
            let mut names: Vec<_> =
                entries.iter().map(|entry| format!("{} ", entry.name.to_string_lossy())).collect();
            names.sort();
            names.concat()
        }),
    };
    outcome.map_err(|error| error.to_string())
}

fn tree(root: &Path) -> BTreeMap<String, Node> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                found.insert(name, Node::Directory);
                waiting.push(path);
            } else {
                found.insert(name, Node::File(fs::read(path).unwrap()));
            }
        }
    }
    found
}

fn names(shortest: usize) -> impl Strategy<Value = Name> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), shortest..4)
}

fn operations() -> impl Strategy<Value = Operation> {
    let data = || prop::collection::vec(any::<u8>(), 0..20);
    prop_oneof![
        3 => (names(0), data()).prop_map(|(name, data)| Operation::Write(name, data)),
        2 => (names(1), data(), any::<bool>()).prop_map(|(name, data, replace)| Operation::Upload(name, data, replace)),
        1 => names(0).prop_map(Operation::Read),
        3 => (names(0), any::<bool>()).prop_map(|(name, recursive)| Operation::Create(name, recursive)),
        1 => (names(1), any::<bool>(), any::<bool>()).prop_map(|(name, recursive, force)| {
            Operation::Remove(name, recursive, force)
        }),
        2 => (names(1), names(1), any::<bool>()).prop_map(|(from, to, replace)| Operation::Rename(from, to, replace)),
        2 => (names(1), names(1), any::<bool>()).prop_map(|(from, to, recursive)| Operation::Copy(from, to, recursive)),
        1 => names(0).prop_map(Operation::Describe),
        1 => names(0).prop_map(Operation::List),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn real_files_do_what_the_model_does(steps in prop::collection::vec((operations(), any::<bool>()), 1..60)) {
        let world = World::new();
        let mut model = Model::default();
        for (operation, strict) in steps {
            let follow = if strict { Follow::No } else { Follow::Yes };
            let Some(expected) = model.apply(&operation) else { return Ok(()) };
            let outcome = apply(world.root(), &operation, follow);
            match (&expected, &outcome) {
                (Err(expected), Err(error)) if expected == "is not a file" => {
                    let ours = format!("path `{}", world.root().display());
                    let is_named = error.starts_with(&ours) && error.ends_with("` is not a file");
                    prop_assert!(is_named || error == "path is not a regular file", "{error}");
                }
                _ => prop_assert_eq!(&outcome, &expected, "{:?}", operation),
            }
            let expected = model.0.iter().map(|(name, node)| (name.join("/"), node.clone())).collect();
            prop_assert_eq!(tree(world.root()), expected, "after {:?}", operation);
        }
    }
}
