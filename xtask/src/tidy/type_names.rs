//! Refuses a type name that is defined twice in the workspace: if a name means two things, a reader may think of the
//! wrong thing. Associated types are not counted, because their trait chooses the name, and neither are types of
//! tests.

use std::collections::BTreeMap;

use super::complaint::Complaint;
use super::project::{File, Project};
use super::rust_source::{self, CodePart};
use super::rust_tokens::{self, NameAtLine, Token};

/// A name that may be defined more than once, and the reason.
type Repeatable = (&'static str, &'static str);

const REPEATABLE: &[Repeatable] =
    &[("BestEngine", "one alias; which of its two definitions is compiled depends on the processor")];

/// Keywords before the name of a type or trait.
const DEFINING_KEYWORDS: &[&str] = &["enum", "struct", "trait", "type", "union"];

/// Checks the sources of every crate.
pub(super) fn check(project: &Project) -> Vec<Complaint> {
    check_with(project, REPEATABLE)
}

fn check_with(project: &Project, repeatable: &[Repeatable]) -> Vec<Complaint> {
    let definitions = definitions(project);
    let is_repeated = |name: &str| definitions.get(name).is_some_and(|places| places.len() > 1);
    let unneeded = repeatable.iter().filter(|(name, _)| !is_repeated(name));
    let mut complaints: Vec<Complaint> = unneeded
        .map(|(name, _)| Complaint::about(file!(), format!("`{name}` is not defined twice; remove it from the list")))
        .collect();
    for (name, places) in definitions.iter().filter(|(name, _)| !repeatable.iter().any(|(known, _)| known == name)) {
        let (first, first_line) = places[0];
        complaints.extend(places[1..].iter().map(|(file, line)| {
            let message = format!("`{name}` is also a type in {}:{first_line}; rename one of them", first.path);
            Complaint::at(&file.path, *line, message)
        }));
    }
    complaints
}

/// Every name of a type or trait, with the files and lines that define it: one or more.
fn definitions(project: &Project) -> BTreeMap<String, Vec<(&File, usize)>> {
    let mut definitions: BTreeMap<String, Vec<(&File, usize)>> = BTreeMap::new();
    for file in project.sources() {
        for NameAtLine { line, name } in defined_types(file) {
            definitions.entry(name).or_default().push((file, line));
        }
    }
    definitions
}

fn defined_types(file: &File) -> Vec<NameAtLine> {
    let lines = rust_source::lines(file);
    let tokens = rust_tokens::tokens(&lines);
    let mut types = Vec::new();
    // For each open brace, whether its block can define associated types.
    let mut braces = Vec::new();
    for (at, pair) in tokens.windows(2).enumerate() {
        let [keyword, name] = pair else { continue };
        match keyword.text {
            "{" => braces.push(opens_impl_or_trait(&tokens[..at])),
            "}" => drop(braces.pop()),
            _ => {}
        }
        let is_definition =
            DEFINING_KEYWORDS.contains(&keyword.text) && name.is_word() && name.part == CodePart::Product;
        let is_associated = keyword.text == "type" && braces.last() == Some(&true);
        if is_definition && !is_associated {
            types.push(name.name_at_line());
        }
    }
    types
}

/// Whether a brace after these tokens opens the body of an `impl` or of a trait.
fn opens_impl_or_trait(before: &[Token<'_>]) -> bool {
    // A semicolon in brackets is that of an array: `impl X for [u8; 4]`.
    let mut brackets = 0_usize;
    let is_of_item = |token: &&Token<'_>| {
        match token.text {
            "]" => brackets += 1,
            "[" => brackets = brackets.saturating_sub(1),
            _ => {}
        }
        brackets > 0 || !matches!(token.text, "{" | "}" | ";")
    };
    let words: Vec<&str> = before.iter().rev().take_while(is_of_item).map(|token| token.text).collect();
    // A function can return `impl Trait`.
    !words.contains(&"fn") && (words.contains(&"impl") || words.contains(&"trait"))
}

#[cfg(test)]
mod tests {
    use super::super::project::made_up::{files, member};
    use super::*;

    fn complaints(repeatable: &[Repeatable], sources: &[(&str, &str)]) -> Vec<String> {
        let members = vec![member("session", vec![]), member("spawn", vec![])];
        let project = Project { members, ..files(sources) };
        check_with(&project, repeatable).iter().map(ToString::to_string).collect()
    }

    /// The complaints if one crate has this source text and another crate defines the type `Place`.
    fn complaints_beside_place(text: &str) -> Vec<String> {
        complaints(&[], &[("crates/session/src/a.rs", text), ("crates/spawn/src/lib.rs", "struct Place;")])
    }

    #[test]
    fn a_second_definition_of_a_name_is_refused() {
        assert_eq!(
            complaints_beside_place("\npub(crate) enum Place {\n}"),
            ["crates/spawn/src/lib.rs:1: `Place` is also a type in crates/session/src/a.rs:2; rename one of them"]
        );
        for text in [
            "pub struct Place<'a>(&'a str);",
            "pub union Place { a: u8 }",
            "unsafe trait Place {}",
            "type Place = u8;",
            "fn a() -> impl Iterator<Item = u8> { type Place = u8; }",
            "fn a() {\n    struct Place;\n}",
            "impl A for B {\n    fn a() {\n        type Place = u8;\n    }\n}",
            "mod b {\n    pub(super) struct Place;\n}",
        ] {
            assert_eq!(complaints_beside_place(text).len(), 1, "{text}");
        }
        assert_eq!(complaints_beside_place("struct Place; mod b { enum Place {} }").len(), 2);
    }

    #[test]
    fn associated_types_tests_and_uses_are_not_counted() {
        for text in [
            "impl A for B {\n    fn a() {}\n    type Place = u8;\n}",
            "unsafe impl<T: A> A for [T; 4] {\n    type Place = u8;\n}",
            "#[allow(a)]\npub(crate) trait A: B where C: D {\n    const X: u8 = 1;\n    type Place: E;\n}",
            "#[cfg(test)]\nmod tests {\n    struct Place;\n}",
            "// struct Place;\nlet text = \"struct Place\";",
            "macro_rules! a { ($name:ident) => { struct $name; } }\na!(Place);",
            "fn a(x: &Place) { x.union(Place) }",
        ] {
            assert_eq!(complaints_beside_place(text), [""; 0], "{text}");
        }
        for path in ["crates/session/tests/a.rs", "crates/session/src/a/tests.rs", "fuzz/checks/a.rs"] {
            let sources = [(path, "struct Place;"), ("crates/spawn/src/lib.rs", "struct Place;")];
            assert_eq!(complaints(&[], &sources), [""; 0], "{path}");
        }
    }

    #[test]
    fn a_repeatable_name_may_be_defined_twice_and_must_be() {
        let repeatable: &[Repeatable] = &[("Place", "a reason")];
        let twice = [("crates/session/src/a.rs", "type Place = u8;\ntype Place = u16;")];
        assert_eq!(complaints(repeatable, &twice), [""; 0]);
        assert_eq!(
            complaints(repeatable, &[("crates/session/src/a.rs", "type Place = u8;")]),
            ["xtask/src/tidy/type_names.rs: `Place` is not defined twice; remove it from the list"]
        );
    }
}
