//! Runs random sequences of operations on real files and on a model in memory. After each operation, the results and the trees must be
//! equal.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use files::{
    CommitOptions, DanglingLinks, FileError, FileRoot, Follow, Upload, copy, create_directory, metadata,
    read_directory, read_file, remove, rename, write_file,
};
use proptest::prelude::*;
use rustix::io::Errno;

use crate::support::{TestDirectory, not_cancelled};

/// A path below the root directory, as a list of names. The empty list is the root directory.
type ModelPath = Vec<&'static str>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum ModelNode {
    File(Vec<u8>),
    Directory,
}

#[derive(Clone, Debug)]
enum Operation {
    Write(ModelPath, Vec<u8>),
    /// The flag says whether an existing file is replaced.
    Upload(ModelPath, Vec<u8>, bool),
    Read(ModelPath),
    /// The flag is `recursive`: whether missing parents are created.
    CreateDirectory(ModelPath, bool),
    /// The flags are `recursive` and `force`.
    Remove(ModelPath, bool, bool),
    /// The flag says whether an existing entry is replaced.
    Rename(ModelPath, ModelPath, bool),
    /// The flag is `recursive`.
    Copy(ModelPath, ModelPath, bool),
    /// Reads the metadata.
    Describe(ModelPath),
    List(ModelPath),
}

/// The result of an operation as text, so that results of real files and of the model can be compared.
type OperationResult = Result<String, String>;

fn os_error<T>(errno: Errno) -> Result<T, String> {
    Err(std::io::Error::from(errno).to_string())
}

/// The expected files and directories below the root.
#[derive(Default)]
struct FileModel(BTreeMap<ModelPath, ModelNode>);

impl FileModel {
    fn node(&self, path: &[&'static str]) -> Option<&ModelNode> {
        if path.is_empty() { Some(&ModelNode::Directory) } else { self.0.get(path) }
    }

    /// Fails as the kernel does if one of the parents of `path` is missing or is not a directory.
    fn check_parents(&self, path: &[&'static str]) -> Result<(), String> {
        for length in 0..path.len() {
            match self.node(&path[..length]) {
                Some(ModelNode::Directory) => {}
                Some(ModelNode::File(_)) => return os_error(Errno::NOTDIR),
                None => return os_error(Errno::NOENT),
            }
        }
        Ok(())
    }

    fn existing_node(&self, path: &[&'static str]) -> Result<&ModelNode, String> {
        self.check_parents(path)?;
        self.node(path).map_or_else(|| os_error(Errno::NOENT), Ok)
    }

    /// Everything below a directory, at any depth.
    fn below(&self, path: &[&'static str]) -> Vec<(ModelPath, ModelNode)> {
        let entries = self.0.iter().filter(|(other, _)| other.len() > path.len() && other.starts_with(path));
        entries.map(|(other, node)| (other.clone(), node.clone())).collect()
    }

    fn write(&mut self, path: &ModelPath, data: &[u8]) -> Result<(), String> {
        self.check_parents(path)?;
        if self.node(path) == Some(&ModelNode::Directory) {
            return os_error(Errno::ISDIR);
        }
        self.0.insert(path.clone(), ModelNode::File(data.to_vec()));
        Ok(())
    }

    fn create_all(&mut self, path: &[&'static str]) -> Result<(), String> {
        for length in 1..=path.len() {
            match self.node(&path[..length]) {
                Some(ModelNode::Directory) => {}
                Some(ModelNode::File(_)) if length == path.len() => return os_error(Errno::EXIST),
                Some(ModelNode::File(_)) => return os_error(Errno::NOTDIR),
                None => drop(self.0.insert(path[..length].to_vec(), ModelNode::Directory)),
            }
        }
        Ok(())
    }

    fn remove(&mut self, path: &ModelPath, recursive: bool) -> Result<(), String> {
        let is_directory = self.existing_node(path)? == &ModelNode::Directory;
        let below = self.below(path);
        if is_directory && !recursive && !below.is_empty() {
            return os_error(Errno::NOTEMPTY);
        }
        self.0.remove(path);
        below.iter().for_each(|(other, _)| drop(self.0.remove(other)));
        Ok(())
    }

    fn rename(&mut self, from: &ModelPath, to: &ModelPath, replace: bool) -> Result<(), String> {
        self.check_parents(from)?;
        self.check_parents(to)?;
        let Some(node) = self.node(from).cloned() else { return os_error(Errno::NOENT) };
        if !replace && self.node(to).is_some() {
            return os_error(Errno::EXIST);
        }
        if from == to {
            return Ok(());
        }
        if to.starts_with(from) {
            return os_error(Errno::INVAL);
        }
        if from.starts_with(to) {
            return os_error(Errno::NOTEMPTY);
        }
        match (&node, self.node(to)) {
            (ModelNode::File(_), Some(ModelNode::Directory)) => return os_error(Errno::ISDIR),
            (ModelNode::Directory, Some(ModelNode::File(_))) => return os_error(Errno::NOTDIR),
            (ModelNode::Directory, Some(ModelNode::Directory)) if !self.below(to).is_empty() => {
                return os_error(Errno::NOTEMPTY);
            }
            _ => {}
        }
        for (other, other_node) in self.below(from) {
            self.0.remove(&other);
            self.0.insert([&to[..], &other[from.len()..]].concat(), other_node);
        }
        self.0.remove(from);
        self.0.insert(to.clone(), node);
        Ok(())
    }

    /// Returns `None` if the result depends on the order in which the file system lists entries. The model must not
    /// be used after that.
    fn copy(&mut self, from: &ModelPath, to: &ModelPath, recursive: bool) -> Option<Result<(), String>> {
        let node = match self.existing_node(from) {
            Ok(node) => node.clone(),
            Err(error) => return Some(Err(error)),
        };
        if let ModelNode::File(data) = node {
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
        if let Err(error) = self.create_all(to) {
            return Some(Err(error));
        }
        let target = |other: &ModelPath| [&to[..], &other[from.len()..]].concat();
        let clashes = |(other, node): &(ModelPath, ModelNode)| match (node, self.node(&target(other))) {
            (_, None) => false,
            (copied, Some(existing)) => {
                matches!(copied, ModelNode::File(_)) != matches!(existing, ModelNode::File(_))
            }
        };
        // A copy into a directory above the source may copy its own results, which also depends on the order of listed entries.
        if below.iter().any(clashes) || from.starts_with(to) {
            return None;
        }
        for (other, node) in below {
            self.0.insert(target(&other), node);
        }
        Some(Ok(()))
    }

    /// Performs an operation on the model. Returns `None` if the result of the operation cannot be predicted.
    fn apply(&mut self, operation: &Operation) -> Option<OperationResult> {
        let without_text = |result: Result<(), String>| Some(result.map(|()| String::new()));
        match operation {
            Operation::Write(path, data) => without_text(self.write(path, data)),
            Operation::Upload(path, data, replace) => {
                if path.is_empty() {
                    return Some(os_error(Errno::ISDIR));
                }
                if !replace && self.existing_node(path).is_ok() {
                    return Some(os_error(Errno::EXIST));
                }
                without_text(self.write(path, data))
            }
            Operation::Read(path) => Some(match self.existing_node(path) {
                Ok(ModelNode::File(data)) => Ok(format!("{data:?}")),
                Ok(ModelNode::Directory) => Err("is not a file".into()),
                Err(error) => Err(error),
            }),
            Operation::CreateDirectory(path, true) => without_text(self.create_all(path)),
            Operation::CreateDirectory(path, false) => without_text(self.check_parents(path).and_then(|()| {
                if self.node(path).is_some() {
                    return os_error(Errno::EXIST);
                }
                self.0.insert(path.clone(), ModelNode::Directory);
                Ok(())
            })),
            Operation::Remove(path, recursive, force) => {
                let removed = self.remove(path, *recursive);
                without_text(if *force && removed == os_error(Errno::NOENT) { Ok(()) } else { removed })
            }
            Operation::Rename(from, to, replace) => without_text(self.rename(from, to, *replace)),
            Operation::Copy(from, to, recursive) => {
                self.copy(from, to, *recursive).map(|copied| copied.map(|()| String::new()))
            }
            Operation::Describe(path) => Some(self.existing_node(path).map(|node| match node {
                ModelNode::File(data) => format!("file of {}", data.len()),
                ModelNode::Directory => "directory".into(),
            })),
            Operation::List(path) => Some(match self.existing_node(path) {
                Ok(ModelNode::Directory) => {
                    let entries = self.below(path).into_iter().filter(|(other, _)| other.len() == path.len() + 1);
                    Ok(entries.map(|(other, _)| format!("{} ", other[path.len()])).collect())
                }
                Ok(ModelNode::File(_)) => os_error(Errno::NOTDIR),
                Err(error) => Err(error),
            }),
        }
    }
}

/// Performs an operation on the real files below `root`.
fn apply(root: &Path, operation: &Operation, follow: Follow) -> OperationResult {
    let at = |path: &ModelPath| path.iter().fold(root.to_owned(), |above, name| above.join(name));
    let without_text = |result: Result<(), FileError>| result.map(|()| String::new());
    let result = match operation {
        Operation::Write(path, data) => without_text(write_file(FileRoot::host(), &at(path), data, follow)),
        Operation::Upload(path, data, replace) => {
            without_text(Upload::create(FileRoot::host(), &at(path), *replace, Follow::Yes).and_then(|upload| {
                upload.write_block(0, data)?;
                upload.commit(&CommitOptions::default())
            }))
        }
        Operation::Read(path) => read_file(FileRoot::host(), &at(path), follow, 1000).map(|data| format!("{data:?}")),
        Operation::CreateDirectory(path, recursive) => {
            without_text(create_directory(FileRoot::host(), &at(path), *recursive, follow))
        }
        Operation::Remove(path, recursive, force) => {
            // A recursive removal without following links is not supported.
            let follow = if *recursive { Follow::Yes } else { follow };
            without_text(remove(FileRoot::host(), &at(path), *recursive, *force, follow, &not_cancelled()))
        }
        Operation::Rename(from, to, replace) => without_text(rename(FileRoot::host(), &at(from), &at(to), *replace)),
        Operation::Copy(from, to, recursive) => {
            without_text(copy(FileRoot::host(), &at(from), &at(to), *recursive, &not_cancelled()))
        }
        Operation::Describe(path) => metadata(FileRoot::host(), &at(path), follow)
            .map(|found| if found.is_directory { "directory".into() } else { format!("file of {}", found.size) }),
        Operation::List(path) => {
            read_directory(FileRoot::host(), &at(path), 1000, DanglingLinks::LeftOut).map(|entries| {
                let mut names: Vec<_> =
                    entries.iter().map(|entry| format!("{} ", entry.name.to_string_lossy())).collect();
                names.sort();
                names.concat()
            })
        }
    };
    result.map_err(|error| error.to_string())
}

/// The real files and directories below the root.
fn real_tree(root: &Path) -> BTreeMap<String, ModelNode> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                found.insert(name, ModelNode::Directory);
                waiting.push(path);
            } else {
                found.insert(name, ModelNode::File(fs::read(path).unwrap()));
            }
        }
    }
    found
}

/// Paths of `shortest` to 3 names.
fn paths(shortest: usize) -> impl Strategy<Value = ModelPath> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), shortest..4)
}

fn operations() -> impl Strategy<Value = Operation> {
    let data = || prop::collection::vec(any::<u8>(), 0..20);
    prop_oneof![
        3 => (paths(0), data()).prop_map(|(path, data)| Operation::Write(path, data)),
        2 => (paths(1), data(), any::<bool>()).prop_map(|(path, data, replace)| Operation::Upload(path, data, replace)),
        1 => paths(0).prop_map(Operation::Read),
        3 => (paths(0), any::<bool>()).prop_map(|(path, recursive)| Operation::CreateDirectory(path, recursive)),
        1 => (paths(1), any::<bool>(), any::<bool>()).prop_map(|(path, recursive, force)| {
            Operation::Remove(path, recursive, force)
        }),
        2 => (paths(1), paths(1), any::<bool>()).prop_map(|(from, to, replace)| Operation::Rename(from, to, replace)),
        2 => (paths(1), paths(1), any::<bool>()).prop_map(|(from, to, recursive)| Operation::Copy(from, to, recursive)),
        1 => paths(0).prop_map(Operation::Describe),
        1 => paths(0).prop_map(Operation::List),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn operations_on_real_files_behave_like_the_model(steps in prop::collection::vec((operations(), any::<bool>()), 1..60)) {
        let test_dir = TestDirectory::new();
        let mut model = FileModel::default();
        for (operation, refuse_links) in steps {
            let follow = if refuse_links { Follow::No } else { Follow::Yes };
            // The model cannot be used after an operation whose result cannot be predicted.
            let Some(expected) = model.apply(&operation) else { return Ok(()) };
            let result = apply(test_dir.root(), &operation, follow);
            match (&expected, &result) {
                (Err(expected), Err(error)) if expected == "is not a file" => {
                    let prefix = format!("path `{}", test_dir.root().display());
                    let contains_path = error.starts_with(&prefix) && error.ends_with("` is not a file");
                    prop_assert!(contains_path || error == "path is not a regular file", "{error}");
                }
                _ => prop_assert_eq!(&result, &expected, "{:?}", operation),
            }
            let expected = model.0.iter().map(|(name, node)| (name.join("/"), node.clone())).collect();
            prop_assert_eq!(real_tree(test_dir.root()), expected, "after {:?}", operation);
        }
    }
}
