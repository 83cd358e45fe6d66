//! Checks that every test that `docs/compatibility.md` names exists.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use std::path::{Path, PathBuf};

/// Every Rust file below `crates`: the components of its path below `crates`, without `.rs`, and its text.
fn rust_sources() -> Vec<(Vec<String>, String)> {
    let crates = project_root().join("crates");
    let mut unread_paths = vec![crates.clone()];
    let mut sources = Vec::new();
    while let Some(path) = unread_paths.pop() {
        if path.is_dir() {
            unread_paths.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let relative_path = path.strip_prefix(&crates).unwrap().with_extension("");
            let path_parts =
                relative_path.components().map(|part| part.as_os_str().to_str().unwrap().to_owned()).collect();
            sources.push((path_parts, std::fs::read_to_string(&path).unwrap()));
        }
    }
    sources
}

fn project_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

#[test]
fn every_test_that_the_document_names_exists() {
    let document = std::fs::read_to_string(project_root().join("docs/compatibility.md")).unwrap();
    let sources = rust_sources();
    let is_name = |text: &&str| text.contains("::") && text.chars().all(|c| c.is_alphanumeric() || "_:".contains(c));
    // The names of tests are between backticks. No other text there consists only of words and `::`.
    let names: Vec<_> = document.split('`').skip(1).step_by(2).filter(is_name).collect();
    assert!(names.len() > 100, "only {} names were found", names.len());
    // A test exists if a function has its name, in a file whose path contains every module of the name.
    let exists = |name: &str| {
        let (module_path, test) = name.rsplit_once("::").unwrap();
        let function = format!("fn {test}(");
        sources.iter().any(|(path_parts, text)| {
            module_path.split("::").all(|segment| path_parts.iter().any(|part| part == segment))
                && text.contains(&function)
        })
    };
    let missing: Vec<_> = names.into_iter().filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "docs/compatibility.md names tests that do not exist: {missing:#?}");
}
