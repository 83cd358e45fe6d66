//! Finds the paths of a Rust file that start with `crate`, `self` or `super`, in imports and in code, and says which
//! of them lead to the root of the crate. Knows nothing of the order of modules.

use super::project::File;
use super::rust_source;
use super::rust_tokens::{self, NameAtLine, Token};

/// For each path that leads to the root of the crate, the first name below the root: `a` for `crate::a::B`, and also
/// for `super::a` in a module of the root. `module` is the module path of the file.
pub(super) fn names_below_root(file: &File, module: &[&str]) -> Vec<NameAtLine> {
    let lines = rust_source::lines(file);
    let tokens = rust_tokens::tokens(&lines);
    let mut paths = CratePaths { tokens: &tokens, names: Vec::new() };
    paths.read_file(module);
    paths.names
}

struct CratePaths<'a> {
    tokens: &'a [Token<'a>],
    names: Vec<NameAtLine>,
}

impl<'a> CratePaths<'a> {
    /// The text of the token at this index. Empty after the last token.
    fn text(&self, at: usize) -> &'a str {
        self.tokens.get(at).map_or("", |token| token.text)
    }

    fn read_file(&mut self, file_module: &[&'a str]) {
        let mut module = file_module.to_vec();
        // For each open brace, the length of the module path outside it.
        let mut outside = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() {
            match self.text(at) {
                "{" => {
                    outside.push(module.len());
                    if at >= 2 && self.text(at - 2) == "mod" {
                        module.push(self.text(at - 1));
                    }
                }
                "}" => module.truncate(outside.pop().unwrap_or(file_module.len())),
                "crate" | "self" | "super" if self.text(at + 1) == "::" => {
                    at = self.follow(at, &module);
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// Follows the path, or the group of paths in braces, that starts at `at` and is relative to `module`. Returns
    /// the index after the group, or after the first name of the path that is not `crate`, `self` or `super`.
    fn follow(&mut self, at: usize, module: &[&'a str]) -> usize {
        let goes_on = self.text(at + 1) == "::";
        match self.text(at) {
            "{" => self.follow_group(at, module),
            "crate" if goes_on => self.follow(at + 2, &[]),
            "self" if goes_on => self.follow(at + 2, module),
            "super" if goes_on => self.follow(at + 2, &module[..module.len().saturating_sub(1)]),
            _ => {
                self.record_name(at, module);
                at + 1
            }
        }
    }

    fn follow_group(&mut self, open: usize, module: &[&'a str]) -> usize {
        let mut at = open + 1;
        while at < self.tokens.len() && self.text(at) != "}" {
            let followed = self.follow(at, module);
            at = self.skip_member(followed);
        }
        at + 1
    }

    /// Skips the rest of a member of a group. Returns the index of the next member, or of the brace that closes the
    /// group.
    fn skip_member(&self, mut at: usize) -> usize {
        let mut depth = 0_usize;
        while at < self.tokens.len() {
            match self.text(at) {
                "," if depth == 0 => return at + 1,
                "}" if depth == 0 => return at,
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            at += 1;
        }
        at
    }

    /// Records the name at this index if it is relative to the root of the crate.
    fn record_name(&mut self, at: usize, module: &[&str]) {
        let below_root = self.tokens.get(at).filter(|_| module.is_empty());
        self.names.extend(below_root.map(Token::name_at_line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(module: &[&str], text: &str) -> Vec<String> {
        let file = File { path: "src/a.rs".to_owned(), text: text.to_owned() };
        let names = names_below_root(&file, module);
        names.into_iter().map(|found| format!("{} {}", found.line, found.name)).collect()
    }

    #[test]
    fn imports_are_read_in_every_form() {
        for (text, expected) in [
            ("use crate::x::Y;", vec!["1 x"]),
            ("pub(crate) use crate::x;", vec!["1 x"]),
            ("use crate::{x::{Y, Z}, y::W};", vec!["1 x", "1 y"]),
            (
                "use crate::{\n    x::{\n        self, Y,\n    },\n    y,\n};\nuse crate::z::A;",
                vec!["2 x", "5 y", "7 z"],
            ),
            ("use {std::fmt, crate::x::Y};", vec!["1 x"]),
            ("use crate::*;", vec!["1 *"]),
            ("use crate::{self as root};", vec!["1 self"]),
            ("use std::fmt;\nuse crate_x::y;", vec![]),
        ] {
            assert_eq!(names(&["a"], text), expected, "{text}");
        }
    }

    #[test]
    fn paths_in_code_are_read() {
        for (text, expected) in [
            ("fn a() -> crate::x::Y { crate::y::z() }", vec!["1 x", "1 y"]),
            ("($x:ident) => { $crate::x::$x };", vec!["1 x"]),
            ("pub(crate) fn a() {}\npub(in crate::a) fn b() {}", vec!["2 a"]),
            ("let x = self.crate_x; Self::x(); x::<crate::y::Y>()", vec!["1 y"]),
            ("// crate::x\n/// [`X`](crate::x::X)\nlet text = \"crate::x\";", vec![]),
        ] {
            assert_eq!(names(&["a"], text), expected, "{text}");
        }
    }

    #[test]
    fn super_counts_where_it_leads_to_the_root() {
        assert_eq!(names(&["a"], "use super::x::Y;\nuse self::b::C;\nuse self::super::y;"), ["1 x", "3 y"]);
        assert_eq!(names(&["a", "b"], "use super::x;\nuse super::super::y::Z;"), ["2 y"]);
        assert_eq!(names(&["a", "b"], "use super::{x, super::{y, z::Z}};"), ["1 y", "1 z"]);
        assert_eq!(
            names(&["a"], "mod b {\n    use super::x;\n    fn c() { super::super::y::z() }\n}\nuse super::w;"),
            ["3 y", "5 w"]
        );
    }
}
