//! Refuses clock, network and files of the standard library in crates of the layers *vocabulary* and *rules*
//! ([`CrateLayer::is_pure`]). The check in `layers` does not see such uses, because the standard library is no
//! dependency. Tests are not checked: a test needs an `Instant` to begin with.

use super::complaint::Complaint;
use super::layers::{CrateLayer, layer_of};
use super::project::{File, Member, Project};
use super::rust_source::{self, CodePart, has_word};

const CLOCKS: &[&str] = &["Instant::now", "SystemTime::now"];
/// Modules of `std`.
const IO_MODULES: &[&str] = &["fs", "net"];

/// Checks the sources without their tests.
pub(super) fn check(project: &Project) -> Vec<Complaint> {
    let is_pure = |member: &&Member| layer_of(&member.name).is_some_and(CrateLayer::is_pure);
    let folders: Vec<String> =
        project.members.iter().filter(is_pure).map(|member| format!("{}/src/", member.folder)).collect();
    let sources = project.rust_files().filter(|file| folders.iter().any(|folder| file.path.starts_with(folder)));
    sources.flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let mut grouped = GroupedImport::default();
    for line in rust_source::lines(file) {
        if line.part == CodePart::Test {
            continue;
        }
        let imported = grouped.modules(&line.code);
        let clocks = CLOCKS.iter().filter(|clock| line.code.contains(**clock));
        let modules = IO_MODULES
            .iter()
            .filter(|module| has_word(&line.code, &format!("std::{module}")) || imported.contains(module));
        complaints.extend(clocks.map(|clock| {
            Complaint::at(
                &file.path,
                line.number,
                format!("`{clock}` in a crate without I/O; take the time as an argument"),
            )
        }));
        complaints.extend(modules.map(|module| {
            Complaint::at(
                &file.path,
                line.number,
                format!("`std::{module}` in a crate without I/O; move the code to a crate of the layer mechanisms"),
            )
        }));
    }
    complaints
}

/// Follows `use std::{…}` over several lines. `depth` is the number of open braces after the last line.
#[derive(Default)]
struct GroupedImport {
    depth: usize,
}

impl GroupedImport {
    /// The forbidden modules that this line imports from within the braces of `std`.
    fn modules(&mut self, code: &str) -> Vec<&'static str> {
        let inside = match (self.depth, code.split_once("std::{")) {
            (0, None) => return Vec::new(),
            (0, Some((_, group))) => {
                self.depth = 1;
                group
            }
            _ => code,
        };
        let mut outermost = String::new();
        for c in inside.chars() {
            match c {
                '{' => self.depth += 1,
                '}' => self.depth -= 1,
                c if self.depth == 1 => outermost.push(c),
                _ => {}
            }
            if self.depth == 0 {
                break;
            }
        }
        let first_names: Vec<_> = outermost.split(',').map(|path| path.trim().split("::").next()).collect();
        IO_MODULES.iter().copied().filter(|module| first_names.contains(&Some(*module))).collect()
    }
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
    fn clock_network_and_files_are_refused_in_crates_of_rules_and_vocabulary() {
        for text in [
            "let now = std::time::Instant::now();",
            "let now = SystemTime::now();",
            "use std::net::IpAddr;",
            "std::fs::read(path)",
            "use std::{fs, fmt};",
            "use std::{\n    fmt,\n    net::{IpAddr, Ipv4Addr},\n};",
        ] {
            assert_eq!(complaints("session", text).len(), 1, "{text}");
            assert_eq!(complaints("spawn", text), [""; 0], "{text}");
        }
        assert_eq!(
            complaints("protocol", "\nuse std::fs;"),
            [
                "crates/protocol/src/lib.rs:2: `std::fs` in a crate without I/O; move the code to a crate of the layer mechanisms"
            ]
        );
    }

    #[test]
    fn comments_strings_tests_and_other_imports_are_accepted() {
        for text in [
            "//! Does not use std::fs.",
            "let text = \"std::net\";",
            "use std::time::Instant;",
            "use std::{collections::{fs, net}, fmt};",
            "#[cfg(test)]\nmod tests {\n    use std::fs;\n}",
        ] {
            assert_eq!(complaints("session", text), [""; 0], "{text}");
        }
    }
}
