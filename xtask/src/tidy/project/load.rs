//! Loads the project from the disk: `cargo metadata` lists the crates, and git lists the files.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::super::deny_rules::{DENY_FILE, DenyRules};
use super::{Dependency, File, Kind, Member, Package, Project};
use crate::step::{cargo, output, root, run};

impl Project {
    /// Asks cargo and git, and reads the files.
    pub(in crate::tidy) fn load() -> Result<Self> {
        let deny = DenyRules::parse(&load_file(DENY_FILE)?.text)?;
        let mut command = cargo(&["metadata", "--format-version", "1"]);
        for target in &deny.graph.targets {
            command.args(["--filter-platform", target]);
        }
        let metadata: CargoMetadata =
            serde_json::from_slice(&output(&mut command)?).context("cannot read what `cargo metadata` printed")?;
        let files = load_files(Path::new(&metadata.target_directory))?;
        let (members, foreign) =
            (metadata.packages.into_iter()).partition::<Vec<_>, _>(|package| package.source.is_none());
        Ok(Self {
            members: members.into_iter().map(MetadataPackage::into_member).collect(),
            foreign: foreign.into_iter().map(|found| found.package).collect(),
            deny,
            files,
        })
    }
}

#[derive(Deserialize)]
struct CargoMetadata {
    packages: Vec<MetadataPackage>,
    target_directory: String,
}

#[derive(Deserialize)]
struct MetadataPackage {
    #[serde(flatten)]
    package: Package,
    /// `None` for a crate of this workspace.
    source: Option<String>,
    manifest_path: String,
    dependencies: Vec<Dependency>,
    targets: Vec<CargoTarget>,
}

#[derive(Deserialize)]
struct CargoTarget {
    kind: Vec<String>,
    src_path: String,
}

impl MetadataPackage {
    fn into_member(self) -> Member {
        let is_lib_or_bin = |target: &CargoTarget| target.kind.iter().any(|kind| kind == "lib" || kind == "bin");
        let libs_and_bins = self.targets.into_iter().filter(is_lib_or_bin);
        Member {
            name: self.package.name,
            folder: relative(&self.manifest_path).trim_end_matches("/Cargo.toml").to_owned(),
            crate_roots: libs_and_bins.map(|target| relative(&target.src_path)).collect(),
            dependencies: self.dependencies,
        }
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Cargo writes null for a normal dependency, which a derived enum cannot read.
        Ok(match Option::<String>::deserialize(deserializer)?.as_deref() {
            Some("dev") => Self::Dev,
            Some("build") => Self::Build,
            _ => Self::Normal,
        })
    }
}

fn relative(path: &str) -> String {
    let path = Path::new(path);
    path.strip_prefix(root()).unwrap_or(path).to_string_lossy().into_owned()
}

fn load_files(target_directory: &Path) -> Result<Vec<File>> {
    // To an empty repository, every file that is not ignored is a new file, so git lists all of them. The repository
    // of the project is not used, because an unpacked archive has none, and git refuses a repository that another
    // user owns.
    let empty = target_directory.join("tidy.git");
    run(git().args(["init", "--quiet", "--bare"]).arg(&empty))?;
    let listed = output(git().arg("--git-dir").arg(&empty).args([
        "--work-tree",
        ".",
        "ls-files",
        "-z",
        "--others",
        "--exclude-standard",
    ]))?;
    let listed = String::from_utf8(listed).context("a file has a name that is not UTF-8")?;
    let mut paths: Vec<&str> = listed.split_terminator('\0').collect();
    paths.sort_unstable();
    paths.into_iter().map(load_file).collect()
}

fn git() -> Command {
    let mut command = Command::new("git");
    command.current_dir(root());
    // While git runs a hook, these variables point to the repository of the hook.
    command.env_remove("GIT_DIR").env_remove("GIT_INDEX_FILE").env_remove("GIT_WORK_TREE");
    command
}

fn load_file(path: &str) -> Result<File> {
    let bytes = std::fs::read(root().join(path)).with_context(|| format!("cannot read {path}"))?;
    Ok(File { path: path.to_owned(), text: String::from_utf8_lossy(&bytes).into_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_project_loads() {
        let project = Project::load().unwrap();
        let mut members = project.members.iter();
        let own = members.find(|member| member.name == "xtask").unwrap();
        assert_eq!(own.folder, "xtask");
        assert_eq!(own.crate_roots, ["xtask/src/main.rs"]);
        let taken = own.dependencies.iter().find(|used| used.name == "anyhow");
        assert!(!taken.unwrap().is_ours());
        let named = |package: &Package| package.name == "anyhow";
        assert!(project.foreign.iter().any(named));
        assert!(project.file(file!()).is_some());
        let is_output = |file: &File| file.path.starts_with("target/");
        assert!(!project.files.iter().any(is_output));
    }

    #[test]
    fn kinds_of_dependencies_are_read_as_cargo_writes_them() {
        let read = |json: &str| serde_json::from_str::<Kind>(json).unwrap();
        assert_eq!([read("null"), read("\"dev\""), read("\"build\"")], [Kind::Normal, Kind::Dev, Kind::Build]);
    }
}
