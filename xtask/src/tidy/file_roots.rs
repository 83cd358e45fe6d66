//! Refuses calls that give a path to the kernel in the crate `files`, outside of its modules `root`. Such a call would
//! resolve the path on this machine, also for a request with a sandbox, and so lead out of the sandbox. Tests are not
//! checked.

use super::complaint::Complaint;
use super::project::{File, Project};
use super::rust_source::{self, CodePart};
use super::rust_tokens::{Token, tokens};

const CHECKED_FOLDER: &str = "crates/files/src/";
/// The modules that resolve paths, each in a root.
const ROOT_FILE: &str = "crates/files/src/root.rs";
const ROOT_FOLDER: &str = "crates/files/src/root/";

/// Names that appear only in calls with a path.
const FORBIDDEN_NAMES: &[&str] = &[
    "CWD",
    "DirBuilder",
    "OpenOptions",
    "WalkBuilder",
    "accessat",
    "add_watch",
    "chmodat",
    "chownat",
    "linkat",
    "mkdirat",
    "mknodat",
    "openat",
    "openat2",
    "readlinkat",
    "renameat",
    "renameat_with",
    "search_path",
    "statat",
    "statfs",
    "statvfs",
    "statx",
    "symlinkat",
    "unlinkat",
    "utimensat",
];
/// Paths of functions and modules. Only types may be imported from `std::fs`, and only those in [`ALLOWED_PATHS`].
const FORBIDDEN_PATHS: &[&[&str]] = &[
    &["std", "::", "fs"],
    &["unix", "::", "fs"],
    &["File", "::", "open"],
    &["File", "::", "create"],
    &["File", "::", "create_new"],
    &["File", "::", "options"],
    &["Gitignore", "::", "new"],
    &["Gitignore", "::", "global"],
    &["rustix", "::", "fs", "::", "*"],
    &["rustix", "::", "fs", ";"],
];
const ALLOWED_PATHS: &[&[&str]] = &[&["std", "::", "fs", "::", "File", ";"]];
/// Methods of `Path` that look at the file. They have no arguments, and a method with arguments is another one.
const FORBIDDEN_METHODS: &[&str] = &[
    "canonicalize",
    "exists",
    "is_dir",
    "is_file",
    "is_symlink",
    "metadata",
    "read_dir",
    "read_link",
    "symlink_metadata",
    "try_exists",
];

/// Checks the sources of the crate `files` without their tests.
pub(super) fn check(project: &Project) -> Vec<Complaint> {
    let is_checked = |file: &&File| {
        let path = &file.path;
        path.starts_with(CHECKED_FOLDER) && path != ROOT_FILE && !path.starts_with(ROOT_FOLDER)
    };
    project.rust_files().filter(is_checked).flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Complaint> {
    let lines = rust_source::lines(file);
    let tokens: Vec<Token<'_>> = tokens(&lines).into_iter().filter(|token| token.part != CodePart::Test).collect();
    let found = (0..tokens.len()).filter_map(|at| Some((tokens[at].line, forbidden_at(&tokens, at)?)));
    found
        .map(|(line, name)| {
            let message = format!(
                "`{name}` resolves a path outside of the root of the operation; use the modules of `{ROOT_FOLDER}`"
            );
            Complaint::at(&file.path, line, message)
        })
        .collect()
}

/// The forbidden name or path that begins with the token `at`.
fn forbidden_at(tokens: &[Token<'_>], at: usize) -> Option<String> {
    let begins =
        |path: &&&[&str]| tokens[at..].iter().map(|token| token.text).take(path.len()).eq(path.iter().copied());
    if let Some(path) = FORBIDDEN_PATHS.iter().find(begins) {
        return ALLOWED_PATHS.iter().find(begins).is_none().then(|| path.concat());
    }
    let name = tokens[at].text;
    if FORBIDDEN_NAMES.contains(&name) {
        return Some(name.to_owned());
    }
    let follows = |offset: usize, text: &str| tokens.get(at + offset).is_some_and(|token| token.text == text);
    let is_call_without_arguments = follows(1, "(") && follows(2, ")");
    // A method of the type itself is not one of `Path`.
    let is_method = at > 1 && tokens[at - 1].text == "." && tokens[at - 2].text != "self";
    (is_method && is_call_without_arguments && FORBIDDEN_METHODS.contains(&name)).then(|| format!(".{name}()"))
}

#[cfg(test)]
mod tests {
    use super::super::project::made_up::files;
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        check(&files(&[(path, text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn calls_with_paths_are_refused_outside_of_the_root_modules() {
        for text in [
            "use rustix::fs::{CWD, Mode};",
            "use rustix::fs::*;",
            "use rustix::fs;",
            "rustix::fs::statx(directory, name);",
            "let listed = std::fs::read_dir(path);",
            "use std::fs::{\n    File,\n    self,\n};",
            "use std::os::unix::fs::symlink;",
            "if path.exists() {}",
            "let metadata = entry.path().metadata();",
            "root.canonicalize()",
            "let file = File::open(path)?;",
            "let rules = Gitignore::new(path);",
        ] {
            assert_eq!(complaints("crates/files/src/search/walk.rs", text).len(), 1, "{text}");
            for unchecked in ["crates/files/src/root.rs", "crates/files/src/root/entered.rs", "crates/spawn/src/a.rs"]
            {
                assert_eq!(complaints(unchecked, text), [""; 0], "{text}");
            }
        }
        assert_eq!(
            complaints("crates/files/src/copy.rs", "\nopenat(CWD)"),
            [
                "crates/files/src/copy.rs:2: `openat` resolves a path outside of the root of the operation; use the modules of `crates/files/src/root/`",
                "crates/files/src/copy.rs:2: `CWD` resolves a path outside of the root of the operation; use the modules of `crates/files/src/root/`",
            ]
        );
    }

    #[test]
    fn calls_with_open_files_and_tests_are_accepted() {
        for text in [
            "use std::fs::File;",
            "use rustix::fs::{Mode, fchmod, fstatfs};",
            "use rustix::fs::inotify::ReadFlags;",
            "inside.canonicalize(path)?",
            "self.metadata()?.size",
            "// std::fs::read(path)",
            "#[cfg(test)]\nmod tests {\n    use std::fs;\n}",
        ] {
            assert_eq!(complaints("crates/files/src/copy.rs", text), [""; 0], "{text}");
        }
        assert_eq!(complaints("crates/files/tests/copying.rs", "use std::fs;"), [""; 0]);
    }
}
