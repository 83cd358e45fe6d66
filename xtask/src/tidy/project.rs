//! The project as a value: its crates, their dependencies, and its files. The module `load` reads the project
//! from the disk, and the tests of a check make a project up.

mod load;

use serde::Deserialize;

use super::deny_rules::DenyRules;

/// Everything that the checks may look at.
#[derive(Debug, Default)]
pub(super) struct Project {
    /// The crates of the workspace.
    pub(super) members: Vec<Member>,
    /// The third-party crates that the members depend on, directly or not.
    pub(super) foreign: Vec<Package>,
    /// The rules of `deny.toml`.
    pub(super) deny: DenyRules,
    /// Every file that git does not ignore, sorted by path.
    pub(super) files: Vec<File>,
}

/// A crate of the workspace.
#[derive(Debug, Default)]
pub(super) struct Member {
    pub(super) name: String,
    /// Folder of the crate, relative to the root of the project.
    pub(super) folder: String,
    /// The root files of its library and programs, relative to the root of the project.
    pub(super) crate_roots: Vec<String>,
    pub(super) dependencies: Vec<Dependency>,
}

/// A dependency in the manifest of a crate.
#[derive(Debug, Deserialize)]
pub(super) struct Dependency {
    pub(super) name: String,
    /// The name that the manifest uses for it, if that is not the name of the crate.
    #[serde(default)]
    pub(super) rename: Option<String>,
    #[serde(default)]
    pub(super) kind: Kind,
    /// Folder of a crate of this workspace. `None` for a third-party crate.
    #[serde(default)]
    pub(super) path: Option<String>,
}

/// The section of the manifest that has the dependency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Normal,
    Dev,
    Build,
}

/// A third-party crate.
#[derive(Debug, Deserialize)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) license: Option<String>,
}

/// A file and its text. Bytes that are not UTF-8 are replaced.
#[derive(Debug)]
pub(super) struct File {
    /// Path relative to the root of the project, with `/`.
    pub(super) path: String,
    pub(super) text: String,
}

impl Project {
    /// All Rust files that people write. Files with the name `generated.rs` are left out.
    pub(super) fn rust_files(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs") && !file.path.ends_with("/generated.rs"))
    }

    /// The Rust files below the folder `src` of every crate.
    pub(super) fn sources(&self) -> impl Iterator<Item = &File> {
        let is_of = |member: &Member, file: &File| file.path.starts_with(&format!("{}/src/", member.folder));
        self.rust_files().filter(move |file| self.members.iter().any(|member| is_of(member, file)))
    }

    /// The file at this path.
    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl Dependency {
    /// Whether it is a crate of this workspace.
    pub(super) fn is_ours(&self) -> bool {
        self.path.is_some()
    }

    /// The name that the manifest uses.
    pub(super) fn key(&self) -> &str {
        self.rename.as_deref().unwrap_or(&self.name)
    }
}

/// Shorthand for the projects that tests of checks make up.
#[cfg(test)]
pub(super) mod made_up {
    use super::{Dependency, File, Kind, Member, Project};

    pub(in crate::tidy) fn files(files: &[(&str, &str)]) -> Project {
        let file = |(path, text): &(&str, &str)| File { path: (*path).to_owned(), text: (*text).to_owned() };
        Project { files: files.iter().map(file).collect(), ..Project::default() }
    }

    pub(in crate::tidy) fn member(name: &str, dependencies: Vec<Dependency>) -> Member {
        Member {
            name: name.to_owned(),
            folder: format!("crates/{name}"),
            crate_roots: vec![format!("crates/{name}/src/lib.rs")],
            dependencies,
        }
    }

    pub(in crate::tidy) fn ours(name: &str, kind: Kind) -> Dependency {
        Dependency { path: Some(format!("crates/{name}")), ..foreign(name, kind) }
    }

    pub(in crate::tidy) fn foreign(name: &str, kind: Kind) -> Dependency {
        Dependency { name: name.to_owned(), rename: None, kind, path: None }
    }
}
