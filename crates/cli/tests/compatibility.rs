//! Checks that every test that `docs/compatibility.md` names exists.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use std::path::{Path, PathBuf};

/// Every Rust file in `crates`: the parts of its path, and its text.
fn sources() -> Vec<(Vec<String>, String)> {
    let crates = project().join("crates");
    let mut waiting = vec![crates.clone()];
    let mut found = Vec::new();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let below = path.strip_prefix(&crates).unwrap().with_extension("");
            let words = below.components().map(|part| part.as_os_str().to_str().unwrap().to_owned()).collect();
            found.push((words, std::fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

#[test]
fn every_test_that_is_named_exists() {
    let document = std::fs::read_to_string(project().join("docs/compatibility.md")).unwrap();
    let sources = sources();
    let is_name = |text: &&str| text.contains("::") && text.chars().all(|c| c.is_alphanumeric() || "_:".contains(c));
    // Names are between backticks.
    let names: Vec<_> = document.split('`').skip(1).step_by(2).filter(is_name).collect();
    assert!(names.len() > 100, "only {} names were found", names.len());
    let is_there = |name: &str| {
        let (place, test) = name.rsplit_once("::").unwrap();
        let function = format!("fn {test}(");
        sources.iter().any(|(words, text)| {
            place.split("::").all(|word| words.iter().any(|part| part == word)) && text.contains(&function)
        })
    };
    let missing: Vec<_> = names.into_iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "docs/compatibility.md names tests that do not exist: {missing:#?}");
}
