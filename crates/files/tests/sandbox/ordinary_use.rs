//! Every operation in its ordinary use, in a sandbox: it does the same as on the host.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use files::{
    CommitOptions, DanglingLinks, FileRoot, Follow, Pattern, SearchHit, SearchQuery, TreeWalkOptions, Upload,
    WalkItem,
};

use crate::support::{TestSandbox, not_cancelled};

/// Uses every operation in the directory `ws`. Returns what they have returned, with paths relative to `ws`.
fn use_every_operation(root: &FileRoot, ws: &Path) -> Vec<String> {
    let at = |name: &str| ws.join(name);
    let relative = |path: &Path| path.strip_prefix(ws).unwrap().display().to_string();
    let mut seen = Vec::new();
    files::create_directory(root, &at("d/e/f"), true, Follow::Yes).unwrap();
    files::create_directory(root, &at("d/g/"), false, Follow::Yes).unwrap();
    files::write_file(root, &at("d/a"), b"needle one", Follow::Yes).unwrap();
    files::write_file(root, &at("d/e/b"), b"needle two", Follow::Yes).unwrap();
    files::write_file(root, &at("d/e/ignored"), b"needle three", Follow::Yes).unwrap();
    files::write_file(root, &at("d/.ignore"), b"ignored", Follow::Yes).unwrap();
    files::symlink(root, "e/b".as_ref(), &at("d/link")).unwrap();
    files::symlink(root, "none".as_ref(), &at("d/dangling")).unwrap();
    seen.push(format!("{:?}", files::read_link(root, &at("d/link")).unwrap()));
    seen.push(String::from_utf8(files::read_file(root, &at("d/link"), Follow::Yes, 99).unwrap()).unwrap());
    seen.push(relative(&files::canonicalize(root, &at("d/e/../link")).unwrap()));
    files::set_metadata(root, &at("d/link"), Some(0o640), Some((7, 8)), Follow::Yes).unwrap();
    let described = files::metadata(root, &at("d/link"), Follow::Yes).unwrap();
    seen.push(format!("{:o} {} {}", described.mode, described.modified_seconds, described.is_symlink));
    let upload = Upload::create(root, &at("d/link"), true, Follow::Yes).unwrap();
    upload.write_block(0, b"needle uploaded").unwrap();
    upload.commit(&CommitOptions { sync: true, ..CommitOptions::default() }).unwrap();
    let upload = Upload::create(root, &at("d/new"), false, Follow::No).unwrap();
    upload.commit(&CommitOptions { size: Some(3), ..CommitOptions::default() }).unwrap();
    files::copy(root, &at("d"), &at("copy"), true, &not_cancelled()).unwrap();
    files::copy(root, &at("d/a"), &at("copied"), false, &not_cancelled()).unwrap();
    files::rename(root, &at("copied"), &at("renamed"), false).unwrap();
    seen.push(format!("{:?}", files::rename(root, &at("renamed"), &at("d/a"), false).unwrap_err().io().kind()));
    files::rename(root, &at("copy/g/"), &at("copy/h/"), true).unwrap();
    files::remove(root, &at("copy/e"), true, false, Follow::Yes, &not_cancelled()).unwrap();
    files::remove(root, &at("d/g"), false, false, Follow::Yes, &not_cancelled()).unwrap();
    let cached = files::read_file_if_cached(root, &at("d/a"), 99).map(Result::unwrap);
    assert!(cached.is_none_or(|bytes| bytes == b"needle one"));
    let cached = files::metadata_if_cached(root, &at("d/none"));
    assert!(cached.is_none_or(|described| described.is_err()));
    let mut listed = files::read_directory(root, &at("d"), 99, DanglingLinks::Listed).unwrap();
    listed.sort_by(|one, other| one.name.cmp(&other.name));
    seen.extend(listed.iter().map(|entry| format!("{entry:?}")));
    for follow_directory_symlinks in [true, false] {
        let options = TreeWalkOptions {
            max_depth: 9,
            max_directories: 99,
            max_entries: 999,
            follow_directory_symlinks,
            prune_hidden_directories: false,
        };
        for top in ["d", "copy"] {
            files::walk(root, &at(top), &options, &not_cancelled(), &mut |item| {
                let WalkItem::Entry { path, kind } = item else { panic!("{item:?}") };
                seen.push(format!("{} {kind:?}", relative(path)));
                ControlFlow::Continue(())
            })
            .unwrap();
        }
    }
    let query = SearchQuery {
        pattern: Some(Pattern { text: "needle".into(), ..Pattern::default() }),
        follow_symlinks: true,
        ..SearchQuery::below(at("d"))
    };
    let hits = Mutex::new(BTreeSet::new());
    let summary = query.prepare(root).unwrap().run(&not_cancelled(), &|hit| {
        let SearchHit::Lines { path, .. } = hit else { panic!("{hit:?}") };
        hits.lock().unwrap().insert(relative(&path));
        ControlFlow::Continue(())
    });
    seen.push(format!("{:?} {}", hits.into_inner().unwrap(), summary.matches));
    seen
}

#[test]
fn every_operation_does_the_same_in_a_sandbox_as_on_the_host() {
    let (small, whole, host) = (TestSandbox::start(), TestSandbox::start(), TestSandbox::start());
    let on_host = use_every_operation(FileRoot::host(), &host.at("ws"));
    assert_eq!(use_every_operation(&small.small_root(), Path::new("/ws")), on_host);
    assert_eq!(use_every_operation(&whole.whole_root(), &whole.at("ws")), on_host);
    assert!(on_host.contains(&r#"{"d/a", "d/e/b", "d/link"} 3"#.to_owned()), "{on_host:?}");
}

#[test]
fn a_device_that_is_known_to_be_local_gives_cached_answers_in_a_sandbox_too() {
    let sandbox = TestSandbox::start();
    let (root, path) = (sandbox.small_root(), PathBuf::from("/ws/file"));
    let on_host = files::metadata(FileRoot::host(), &sandbox.at("ws/file"), Follow::Yes).unwrap();
    let host_is_answered = files::metadata_if_cached(FileRoot::host(), &sandbox.at("ws/file")).is_some();
    files::read_file(&root, &path, Follow::Yes, 99).unwrap();
    let answered = files::metadata_if_cached(&root, &path).map(Result::unwrap);
    assert_eq!(answered, host_is_answered.then_some(on_host));
}
