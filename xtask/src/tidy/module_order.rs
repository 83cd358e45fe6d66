//! Checks the order of modules in ARCHITECTURE.md: in the crates of [`ORDERED`], a module imports only from itself
//! and from modules that stand before it in a numbered list, and nothing from the root of the crate. The check reads
//! the list in the document, so the order is written only once. Tests inside a module keep to the order too.

use super::complaint::Complaint;
use super::crate_paths::names_below_root;
use super::project::{File, Member, Project};
use super::rust_source::{self, CodePart};
use super::rust_tokens::{self, NameAtLine};

/// The crates whose modules have an order, each with the heading above its list.
const ORDERED: &[(&str, &str)] = &[("server", "Inside the server"), ("client", "Inside the client")];

const DOCUMENT: &str = "ARCHITECTURE.md";

/// Checks the list and the imports of every ordered crate.
pub(super) fn check(project: &Project) -> Vec<Complaint> {
    let ordered = ORDERED.iter().filter_map(|(name, heading)| {
        let member = project.members.iter().find(|member| member.name == *name)?;
        Some(check_member(project, member, heading))
    });
    ordered.flatten().collect()
}

fn check_member(project: &Project, member: &Member, heading: &str) -> Vec<Complaint> {
    let source_folder = format!("{}/src/", member.folder);
    let root = format!("{source_folder}lib.rs");
    let modules = project.file(&root).map(top_modules).unwrap_or_default();
    let order = project.file(DOCUMENT).map(|document| listed_modules(document, heading)).unwrap_or_default();
    if order.is_empty() {
        let message = format!("list the modules of `{}` with numbers below the heading \"{heading}\"", member.name);
        return vec![Complaint::about(DOCUMENT, message)];
    }
    let mut complaints = list_complaints(&order, &modules, &root);
    let sources = project.rust_files().filter(|file| file.path.starts_with(&source_folder) && file.path != root);
    complaints.extend(sources.flat_map(|file| import_complaints(file, &source_folder, &order, &modules)));
    complaints
}

/// Compares the list with the modules that exist.
fn list_complaints(order: &[NameAtLine], modules: &[NameAtLine], root: &str) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (at, NameAtLine { line, name }) in order.iter().enumerate() {
        if position(modules, name).is_none() {
            complaints.push(Complaint::at(DOCUMENT, *line, format!("`{name}` is no module of {root}")));
        } else if position(order, name) != Some(at) {
            complaints.push(Complaint::at(DOCUMENT, *line, format!("`{name}` stands in the list twice")));
        }
    }
    let unlisted = modules.iter().filter(|module| position(order, &module.name).is_none());
    complaints.extend(unlisted.map(|NameAtLine { line, name }| {
        Complaint::at(root, *line, format!("`{name}` is not in the list of modules; give it a place in {DOCUMENT}"))
    }));
    complaints
}

fn import_complaints(
    file: &File,
    source_folder: &str,
    order: &[NameAtLine],
    modules: &[NameAtLine],
) -> Vec<Complaint> {
    let module = module_path(&file.path[source_folder.len()..]);
    // For a module that is not in the list, `list_complaints` has a complaint already, so its imports are not
    // checked.
    let Some(own) = position(order, module[0]) else { return Vec::new() };
    let mut complaints = Vec::new();
    for NameAtLine { line, name } in names_below_root(file, &module) {
        let message = match position(order, &name) {
            Some(at) if at > own => format!("`{}` imports `{name}`, which is after it in {DOCUMENT}", module[0]),
            None if position(modules, &name).is_none() => {
                format!("`{name}` is imported from the root of the crate; import it from its module")
            }
            _ => continue,
        };
        complaints.push(Complaint::at(&file.path, line, message));
    }
    complaints
}

fn position(names: &[NameAtLine], name: &str) -> Option<usize> {
    names.iter().position(|other| other.name == name)
}

/// The names in backticks in the numbered list below the heading. A name that no module can have, such as that of a
/// type, is left out.
fn listed_modules(document: &File, heading: &str) -> Vec<NameAtLine> {
    let is_heading = |line: &str| line.starts_with('#');
    let mut lines = document.text.lines().zip(1..);
    lines.find(|(line, _)| is_heading(line) && line.trim_start_matches('#').trim() == heading);
    let mut in_list = false;
    let list = lines.take_while(|(line, _)| !is_heading(line)).filter(|(line, _)| {
        in_list = starts_item(line) || (in_list && line.starts_with(' '));
        in_list
    });
    let names = list.flat_map(|(line, number)| line.split('`').skip(1).step_by(2).map(move |name| (number, name)));
    let of_modules = names.filter(|(_, name)| name.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
    of_modules.map(|(line, name)| NameAtLine { line, name: name.to_owned() }).collect()
}

/// Whether the line starts with a number and a full stop.
fn starts_item(line: &str) -> bool {
    line.split_once(". ").is_some_and(|(number, _)| number.parse::<usize>().is_ok())
}

/// The modules that the root of the crate declares, without test modules.
fn top_modules(root: &File) -> Vec<NameAtLine> {
    let lines = rust_source::lines(root);
    let tokens = rust_tokens::tokens(&lines);
    let declarations = tokens.windows(2).filter(|pair| pair[0].text == "mod" && pair[0].part == CodePart::Product);
    declarations.map(|pair| pair[1].name_at_line()).collect()
}

/// The module path of a file, from its path below `src`: `a` and `b` for `a/b.rs`.
fn module_path(path: &str) -> Vec<&str> {
    path.trim_end_matches(".rs").split('/').collect()
}

#[cfg(test)]
mod tests {
    use super::super::project::made_up::{files, member};
    use super::*;

    const LIST: &str = "\
# Architecture
1. `elsewhere`
## Inside the server
Modules import in one direction, and `tidy` checks it.

1. Values: `limits`, then `process` (a `Process` has `Limits`),
   then `session`.
2. The face: `listen`.

The reason: `nothing`.
## The tasks
1. `other`
";
    const ROOT: &str = "mod limits;\npub mod listen;\nmod process;\nmod session;\npub use limits::Limits;";

    fn complaints(list: &str, root: &str, path: &str, text: &str) -> Vec<String> {
        let made_up = files(&[("ARCHITECTURE.md", list), ("crates/server/src/lib.rs", root), (path, text)]);
        let project = Project { members: vec![member("server", vec![])], ..made_up };
        check(&project).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_module_may_import_itself_and_modules_before_it() {
        for text in [
            "use crate::limits::Limits;\nuse crate::process::{Process, table::Table};",
            "use crate::session::Session;",
            "use super::process;",
            "fn a(limits: &crate::limits::Limits) {}",
        ] {
            assert_eq!(complaints(LIST, ROOT, "crates/server/src/session.rs", text), [""; 0], "{text}");
        }
        let below = "use super::super::process;\nuse super::listen;";
        assert_eq!(complaints(LIST, ROOT, "crates/server/src/session/close.rs", below), [""; 0]);
        assert_eq!(complaints(LIST, ROOT, "crates/server/tests/a.rs", "use super::listen;"), [""; 0]);
    }

    #[test]
    fn an_import_of_a_later_module_is_refused() {
        assert_eq!(
            complaints(LIST, ROOT, "crates/server/src/process.rs", "//! Runs.\nuse crate::{limits::A, session::B};"),
            ["crates/server/src/process.rs:2: `process` imports `session`, which is after it in ARCHITECTURE.md"]
        );
        for (path, text) in [
            ("crates/server/src/limits.rs", "use super::process::Process;"),
            ("crates/server/src/limits/fixed.rs", "use super::super::process::Process;"),
            ("crates/server/src/session/close.rs", "fn a() { crate::listen::stop() }"),
            ("crates/server/src/limits.rs", "#[cfg(test)]\nmod tests {\n    use super::super::process::Process;\n}"),
            ("crates/server/src/limits/tests.rs", "use crate::process::Process;"),
        ] {
            assert_eq!(complaints(LIST, ROOT, path, text).len(), 1, "{path}: {text}");
        }
    }

    #[test]
    fn an_import_from_the_root_of_the_crate_is_refused() {
        assert_eq!(
            complaints(LIST, ROOT, "crates/server/src/process.rs", "use crate::Limits;"),
            [
                "crates/server/src/process.rs:1: `Limits` is imported from the root of the crate; import it from its module"
            ]
        );
    }

    #[test]
    fn list_and_modules_must_agree() {
        let path = "crates/server/src/process.rs";
        assert_eq!(
            complaints(LIST, &format!("{ROOT}\nmod survive;"), path, "use crate::survive::A;"),
            [
                "crates/server/src/lib.rs:6: `survive` is not in the list of modules; give it a place in ARCHITECTURE.md"
            ]
        );
        assert_eq!(complaints(LIST, &format!("{ROOT}\n#[cfg(test)]\nmod tests;"), path, ""), [""; 0]);
        assert_eq!(
            complaints(&LIST.replace("`listen`", "`listen`, `process`, `gone`"), ROOT, path, ""),
            [
                "ARCHITECTURE.md:8: `process` stands in the list twice",
                "ARCHITECTURE.md:8: `gone` is no module of crates/server/src/lib.rs"
            ]
        );
        assert_eq!(
            complaints("# Inside the server\n`limits` is the first.\n", ROOT, path, ""),
            ["ARCHITECTURE.md: list the modules of `server` with numbers below the heading \"Inside the server\""]
        );
    }
}
