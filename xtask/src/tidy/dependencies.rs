//! Refuses dependencies that are not used: an entry in the manifest of the workspace that no crate lists, and an
//! entry in the manifest of a crate that the sources of the crate never name.

use super::complaint::Complaint;
use super::project::{Dependency, Member, Project};
use super::rust_source::{self, has_word};

const WORKSPACE_MANIFEST: &str = "Cargo.toml";

/// Checks the manifest of the workspace and those of its crates.
pub(super) fn check(project: &Project) -> Vec<Complaint> {
    let mut complaints = unused_in_workspace(project);
    complaints.extend(project.members.iter().flat_map(|member| unused_in_crate(project, member)));
    complaints
}

fn unused_in_workspace(project: &Project) -> Vec<Complaint> {
    let manifest = project.file(WORKSPACE_MANIFEST).map_or("", |file| &file.text);
    let used: Vec<&str> =
        project.members.iter().flat_map(|member| &member.dependencies).map(Dependency::key).collect();
    let unused = workspace_dependencies(manifest).into_iter().filter(|(_, key)| !used.contains(key));
    unused
        .map(|(line, key)| Complaint::at(WORKSPACE_MANIFEST, line, format!("no crate depends on `{key}`; remove it")))
        .collect()
}

fn unused_in_crate(project: &Project, member: &Member) -> Vec<Complaint> {
    let folder = format!("{}/", member.folder);
    let sources = project.rust_files().filter(|file| file.path.starts_with(&folder));
    let code: Vec<String> = sources.flat_map(rust_source::lines).map(|line| line.code).collect();
    let is_named = |key: &str| code.iter().any(|line| has_word(line, &key.replace('-', "_")));
    let unnamed = member.dependencies.iter().map(Dependency::key).filter(|key| !is_named(key));
    let manifest = format!("{folder}Cargo.toml");
    unnamed
        .map(|key| Complaint::about(&manifest, format!("`{}` never names `{key}`; remove it", member.name)))
        .collect()
}

/// The line number and the key of each entry in `[workspace.dependencies]`.
fn workspace_dependencies(manifest: &str) -> Vec<(usize, &str)> {
    let lines = manifest.lines().zip(1..);
    let section = lines.skip_while(|(line, _)| line.trim() != "[workspace.dependencies]").skip(1);
    let entries = section.take_while(|(line, _)| !line.starts_with('['));
    entries
        .filter(|(line, _)| line.starts_with(|c: char| c.is_alphanumeric()))
        .filter_map(|(line, number)| Some((number, line.split_once('=')?.0.trim())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::project::Kind;
    use super::super::project::made_up::{files, foreign, member};
    use super::*;

    const MANIFEST: &str = "\
[workspace]
members = [\"a\"]

[workspace.dependencies]
# A comment = no entry.
some-crate = \"1\"
other = { version = \"1\", features = [
    \"x\",
] }

[profile.dev]
opt-level = 1
";

    fn complaints(dependencies: Vec<Dependency>, source: &str) -> Vec<String> {
        let project = Project {
            members: vec![member("session", dependencies)],
            ..files(&[(WORKSPACE_MANIFEST, MANIFEST), ("crates/session/src/lib.rs", source)])
        };
        check(&project).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn entries_that_a_crate_lists_and_its_sources_name_are_accepted() {
        let listed = vec![foreign("some-crate", Kind::Normal), foreign("other", Kind::Dev)];
        assert_eq!(complaints(listed, "use some_crate::X;\nuse other::Y;"), [""; 0]);
    }

    #[test]
    fn an_entry_of_the_workspace_that_no_crate_lists_is_refused() {
        let listed = vec![foreign("some-crate", Kind::Normal)];
        let expected = ["Cargo.toml:7: no crate depends on `other`; remove it"];
        assert_eq!(complaints(listed, "use some_crate::X;"), expected);
    }

    #[test]
    fn an_entry_that_the_sources_do_not_name_is_refused() {
        let listed = vec![foreign("some-crate", Kind::Normal), foreign("other", Kind::Normal)];
        assert_eq!(
            complaints(listed, "use some_crate::X; // and other"),
            ["crates/session/Cargo.toml: `session` never names `other`; remove it"]
        );
    }

    #[test]
    fn a_renamed_dependency_is_found_by_its_new_name() {
        let renamed = Dependency { rename: Some("other".to_owned()), ..foreign("x", Kind::Normal) };
        assert_eq!(
            complaints(vec![renamed, foreign("some-crate", Kind::Normal)], "use {other, some_crate};"),
            [""; 0]
        );
    }
}
