//! Requires `#![forbid(unsafe_code)]` in all crates but those that make system calls themselves ([`MAY_BE_UNSAFE`]).
//! Code below a `forbid` cannot allow `unsafe` again, as it could below a `deny`.

use super::complaint::Complaint;
use super::project::{File, Project};
use super::rust_source;

/// Crates that may have unsafe code; `sandbox` does not exist yet. Clippy checks that each `unsafe` in them says why
/// it is sound.
const MAY_BE_UNSAFE: &[&str] = &["sandbox", "spawn"];

const ATTRIBUTE: &str = "#![forbid(unsafe_code)]";

/// Checks the root file of every library and program.
pub(super) fn check(project: &Project) -> Vec<Complaint> {
    let members = project.members.iter().filter(|member| !MAY_BE_UNSAFE.contains(&member.name.as_str()));
    let roots = members.flat_map(|member| &member.crate_roots);
    let lacking = roots.filter(|root| !project.file(root).is_some_and(forbids_unsafe));
    lacking.map(|root| Complaint::about(root, format!("put `{ATTRIBUTE}` at its top"))).collect()
}

fn forbids_unsafe(file: &File) -> bool {
    rust_source::lines(file).iter().any(|line| line.code.trim() == ATTRIBUTE)
}

#[cfg(test)]
mod tests {
    use super::super::project::made_up::{files, member};
    use super::*;

    fn complaints(name: &str, text: &str) -> Vec<String> {
        let path = format!("crates/{name}/src/lib.rs");
        let project = Project { members: vec![member(name, vec![])], ..files(&[(&path, text)]) };
        check(&project).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_attribute_must_be_there() {
        assert_eq!(
            complaints("session", "//! Rules.\n"),
            ["crates/session/src/lib.rs: put `#![forbid(unsafe_code)]` at its top"]
        );
        assert_eq!(complaints("session", "//! Rules.\n// #![forbid(unsafe_code)]\n").len(), 1);
        assert_eq!(complaints("session", "//! Rules.\n#![forbid(unsafe_code)]\n"), [""; 0]);
    }

    #[test]
    fn crates_that_make_system_calls_may_be_unsafe() {
        assert_eq!(complaints("spawn", "//! Processes.\n"), [""; 0]);
        assert_eq!(complaints("sandbox", "//! Policies.\n"), [""; 0]);
    }
}
