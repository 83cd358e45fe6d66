//! Symbolic links that lead out of the sandbox. Every operation is tried through links that are absolute or have many
//! `..`, at the end of the path or above it. On the host each attempt reaches the files outside, so each attempt can
//! succeed; in the sandbox the same attempt must stay inside.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Mutex;

use files::{
    CommitOptions, DanglingLinks, FileRoot, Follow, Pattern, SearchHit, SearchQuery, TreeWalkOptions, Upload,
    WalkItem,
};

use crate::support::{OUTSIDE, TestSandbox, not_cancelled};

/// An operation through a link. The arguments are the root, the directory `ws` in this root, and the beginning of the
/// names of the links. Returns what it has read. Errors do not matter here.
type Attempt = fn(&FileRoot, &Path, &str) -> Vec<u8>;

const ATTEMPTS: &[(&str, Attempt)] = &[
    ("read a file", |root, ws, style| {
        files::read_file(root, &ws.join(format!("{style}-file")), Follow::Yes, 99).unwrap_or_default()
    }),
    ("read below a directory", |root, ws, style| {
        files::read_file(root, &ws.join(format!("{style}-directory/secret")), Follow::Yes, 99).unwrap_or_default()
    }),
    ("read a cached file", |root, ws, style| {
        let path = ws.join(format!("{style}-directory/tree/a"));
        // The blocking call finds out that the device is local.
        let read = files::read_file(root, &path, Follow::Yes, 99).unwrap_or_default();
        files::read_file_if_cached(root, &path, 99).map_or(read, Result::unwrap_or_default)
    }),
    ("open a file", |root, ws, style| {
        let mut read = Vec::new();
        if let Ok(file) = files::open_file(root, &ws.join(format!("{style}-file")), Follow::Yes) {
            file.read_block(0, 99, &mut read).unwrap();
        }
        read
    }),
    ("describe a file", |root, ws, style| {
        size_as_contents(files::metadata(root, &ws.join(format!("{style}-file")), Follow::Yes))
    }),
    ("describe a cached file", |root, ws, style| {
        let path = ws.join(format!("{style}-directory/secret"));
        let described = files::metadata(root, &path, Follow::Yes);
        size_as_contents(files::metadata_if_cached(root, &path).unwrap_or(described))
    }),
    ("write a file", |root, ws, style| {
        nothing(files::write_file(root, &ws.join(format!("{style}-file")), b"written", Follow::Yes))
    }),
    ("create a file", |root, ws, style| {
        nothing(files::write_file(root, &ws.join(format!("{style}-dangling")), b"written", Follow::Yes))
    }),
    ("set the mode", |root, ws, style| {
        nothing(files::set_metadata(root, &ws.join(format!("{style}-file")), Some(0o600), None, Follow::Yes))
    }),
    ("set the time", |root, ws, style| {
        nothing(files::set_metadata(root, &ws.join(format!("{style}-file")), None, Some((1, 1)), Follow::Yes))
    }),
    ("create a directory", |root, ws, style| {
        nothing(files::create_directory(root, &ws.join(format!("{style}-directory/new")), false, Follow::Yes))
    }),
    ("create directories", |root, ws, style| {
        nothing(files::create_directory(root, &ws.join(format!("{style}-directory/new/newer")), true, Follow::Yes))
    }),
    ("create a link", |root, ws, style| {
        nothing(files::symlink(root, OsStr::new("target"), &ws.join(format!("{style}-directory/new"))))
    }),
    ("remove a file", |root, ws, style| {
        let path = ws.join(format!("{style}-directory/secret"));
        nothing(files::remove(root, &path, false, false, Follow::Yes, &not_cancelled()))
    }),
    ("remove a tree", |root, ws, style| {
        let path = ws.join(format!("{style}-directory/tree"));
        nothing(files::remove(root, &path, true, false, Follow::Yes, &not_cancelled()))
    }),
    ("rename out", |root, ws, style| {
        nothing(files::rename(root, &ws.join("file"), &ws.join(format!("{style}-directory/new")), true))
    }),
    ("rename in", |root, ws, style| {
        let inside = ws.join("moved");
        nothing(files::rename(root, &ws.join(format!("{style}-directory/secret")), &inside, false));
        files::read_file(root, &inside, Follow::Yes, 99).unwrap_or_default()
    }),
    ("copy in", |root, ws, style| {
        let inside = ws.join("copied");
        nothing(files::copy(root, &ws.join(format!("{style}-directory/secret")), &inside, false, &not_cancelled()));
        files::read_file(root, &inside, Follow::Yes, 99).unwrap_or_default()
    }),
    ("copy a tree in", |root, ws, style| {
        let inside = ws.join("copied");
        nothing(files::copy(root, &ws.join(format!("{style}-directory/tree")), &inside, true, &not_cancelled()));
        files::read_file(root, &inside.join("deep/b"), Follow::Yes, 99).unwrap_or_default()
    }),
    ("copy onto a link", |root, ws, style| {
        let target = ws.join(format!("{style}-file"));
        nothing(files::copy(root, &ws.join("plain-file"), &target, false, &not_cancelled()))
    }),
    ("copy a tree out", |root, ws, style| {
        let target = ws.join(format!("{style}-directory"));
        nothing(files::copy(root, &ws.join("plain-tree"), &target, true, &not_cancelled()))
    }),
    ("upload", |root, ws, style| {
        if let Ok(upload) = Upload::create(root, &ws.join(format!("{style}-file")), true, Follow::Yes) {
            nothing(upload.write_block(0, b"uploaded").and_then(|()| upload.commit(&CommitOptions::default())));
        }
        Vec::new()
    }),
    ("upload a new file", |root, ws, style| {
        if let Ok(upload) = Upload::create(root, &ws.join(format!("{style}-dangling")), true, Follow::Yes) {
            nothing(upload.write_block(0, b"uploaded").and_then(|()| upload.commit(&CommitOptions::default())));
        }
        Vec::new()
    }),
    ("list a directory", |root, ws, style| {
        let listed = files::read_directory(root, &ws.join(format!("{style}-directory")), 99, DanglingLinks::LeftOut);
        names_as_contents(listed.unwrap_or_default().into_iter().map(|entry| entry.name.into_string().unwrap()))
    }),
    ("find out by a listing what links lead to", |root, ws, style| {
        let link = format!("{style}-only-outside");
        let listed = files::read_directory(root, ws, 99, DanglingLinks::LeftOut).unwrap();
        names_as_contents(listed.into_iter().filter(|entry| *entry.name == *link).map(|_| "only-outside".to_owned()))
    }),
    ("walk through a link", |root, ws, style| walked(root, &ws.join(format!("{style}-directory")))),
    ("walk to a link", |root, ws, _| walked(root, ws)),
    ("search through a link", |root, ws, style| found(root, &ws.join(format!("{style}-directory")))),
    ("search and follow links", |root, ws, _| found(root, ws)),
    ("search with an ignore file", |root, ws, style| ignored(root, &ws.join(format!("{style}-ignoring")))),
];

fn nothing<T>(_: T) -> Vec<u8> {
    Vec::new()
}

/// The sizes of the two files differ.
fn size_as_contents(described: Result<files::Metadata, files::FileError>) -> Vec<u8> {
    let is_outside = described.is_ok_and(|metadata| metadata.size == OUTSIDE.len() as u64);
    if is_outside { OUTSIDE.into() } else { Vec::new() }
}

/// A name that exists only outside counts as contents from outside.
fn names_as_contents(names: impl Iterator<Item = String>) -> Vec<u8> {
    let mut names = names;
    if names.any(|name| name == "only-outside") { OUTSIDE.into() } else { Vec::new() }
}

fn walked(root: &FileRoot, top: &Path) -> Vec<u8> {
    let options = TreeWalkOptions {
        max_depth: 5,
        max_directories: 99,
        max_entries: 999,
        follow_directory_symlinks: true,
        prune_hidden_directories: false,
    };
    let mut names = Vec::new();
    let ended = files::walk(root, top, &options, &not_cancelled(), &mut |item| {
        if let WalkItem::Entry { path, .. } = item {
            names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
        ControlFlow::Continue(())
    });
    nothing(ended);
    names_as_contents(names.into_iter())
}

fn found(root: &FileRoot, top: &Path) -> Vec<u8> {
    let query = SearchQuery {
        pattern: Some(Pattern { text: OUTSIDE.into(), ..Pattern::default() }),
        follow_symlinks: true,
        respect_ignore: false,
        threads: Some(3),
        ..SearchQuery::below(top)
    };
    let lines = Mutex::new(Vec::new());
    query.prepare(root).unwrap().run(&not_cancelled(), &|hit| {
        if let SearchHit::Lines { path, lines: hits } = hit
            // The files of `ws` itself are no secret.
            && path.to_str().unwrap().contains("-directory")
        {
            lines.lock().unwrap().extend(hits.into_iter().flat_map(|line| line.text));
        }
        ControlFlow::Continue(())
    });
    lines.into_inner().unwrap()
}

/// Whether a search obeys the ignore file, which exists only outside.
fn ignored(root: &FileRoot, top: &Path) -> Vec<u8> {
    let found = Mutex::new(false);
    SearchQuery::below(top).prepare(root).unwrap().run(&not_cancelled(), &|_| {
        *found.lock().unwrap() = true;
        ControlFlow::Continue(())
    });
    if found.into_inner().unwrap() { Vec::new() } else { OUTSIDE.into() }
}

/// Adds the files for the attempts.
fn with_further_files(sandbox: TestSandbox) -> TestSandbox {
    std::fs::write(sandbox.at("ws/plain-file"), "plain").unwrap();
    std::fs::create_dir(sandbox.at("ws/plain-tree")).unwrap();
    std::fs::write(sandbox.at("ws/plain-tree/secret"), "plain").unwrap();
    std::fs::write(sandbox.outside().join("only-outside"), OUTSIDE).unwrap();
    let up = "../".repeat(40);
    let only_outside = sandbox.outside().join("only-outside");
    let relative = Path::new(&up).join(only_outside.strip_prefix("/").unwrap());
    for (style, target) in [("absolute", only_outside), ("relative", relative)] {
        std::os::unix::fs::symlink(&target, sandbox.at(&format!("ws/{style}-only-outside"))).unwrap();
        let ignoring = sandbox.at(&format!("ws/{style}-ignoring"));
        std::fs::create_dir(&ignoring).unwrap();
        std::os::unix::fs::symlink(&target, ignoring.join(".ignore")).unwrap();
        std::fs::write(ignoring.join(OUTSIDE), "").unwrap();
    }
    sandbox
}

/// Makes one attempt, and returns whether it has read or changed a file outside.
fn reaches_outside(sandbox: &TestSandbox, root: &FileRoot, ws: &Path, style: &str, attempt: Attempt) -> bool {
    let before = sandbox.outside_files();
    let read = attempt(root, ws, style);
    String::from_utf8_lossy(&read).contains(OUTSIDE) || sandbox.outside_files() != before
}

fn check_every_attempt(style: &str) {
    for (name, attempt) in ATTEMPTS {
        let sandbox = with_further_files(TestSandbox::start());
        let small = reaches_outside(&sandbox, &sandbox.small_root(), Path::new("/ws"), style, *attempt);
        assert!(!small, "in the sandbox: {name}");
        // In this root the link leads to the right path, and a mount hides the files.
        let sandbox = with_further_files(TestSandbox::start());
        let whole = reaches_outside(&sandbox, &sandbox.whole_root(), &sandbox.at("ws"), style, *attempt);
        assert!(!whole, "in the sandbox with the paths of the host: {name}");

        let files = with_further_files(TestSandbox::without_mounts());
        let on_host = reaches_outside(&files, FileRoot::host(), &files.at("ws"), style, *attempt);
        assert!(on_host, "the attempt does nothing even on the host: {name}");
    }
}

#[test]
fn no_operation_follows_an_absolute_link_out_of_the_sandbox() {
    check_every_attempt("absolute");
}

#[test]
fn no_operation_follows_a_relative_link_out_of_the_sandbox() {
    check_every_attempt("relative");
}

#[test]
fn a_link_is_resolved_as_if_the_sandbox_were_the_whole_machine() {
    let sandbox = TestSandbox::start();
    let root = sandbox.small_root();
    for style in ["absolute", "relative"] {
        let path = Path::new("/ws").join(format!("{style}-file"));
        assert_eq!(files::read_file(&root, &path, Follow::Yes, 99).unwrap(), b"from inside");
        assert_eq!(files::canonicalize(&root, &path).unwrap(), sandbox.outside().join("secret"));
        let whole = files::canonicalize(&sandbox.whole_root(), &sandbox.at(&format!("ws/{style}-file")));
        assert!(whole.is_err(), "the directory is hidden: {whole:?}");
        assert_eq!(
            files::canonicalize(FileRoot::host(), &sandbox.at(&format!("ws/{style}-file"))).unwrap(),
            sandbox.outside().join("secret")
        );
    }
    let up = format!("/ws/{}ws/./file", "../".repeat(50));
    assert_eq!(files::canonicalize(&root, Path::new(&up)).unwrap(), Path::new("/ws/file"));
    assert_eq!(files::canonicalize(&root, Path::new("/..")).unwrap(), Path::new("/"));
    std::fs::write(sandbox.at("ws/x (deleted)"), "").unwrap();
    assert_eq!(files::canonicalize(&root, Path::new("/ws/x (deleted)")).unwrap(), Path::new("/ws/x (deleted)"));
}

#[test]
fn a_slash_after_a_link_does_not_make_an_operation_follow_it() {
    let sandbox = TestSandbox::start();
    let before = sandbox.outside_files();
    let root = sandbox.small_root();
    for style in ["absolute", "relative"] {
        for end in ["/", "/.", "//", "/./"] {
            let path = Path::new("/ws").join(format!("{style}-directory{end}"));
            assert!(files::rename(&root, &path, Path::new("/ws/renamed"), true).is_err());
            assert!(files::rename(&root, Path::new("/ws/plain"), &path, true).is_err());
            assert!(files::read_link(&root, &path).is_err());
            assert!(files::symlink(&root, OsStr::new("target"), &path).is_err());
            assert!(files::create_directory(&root, &path, false, Follow::Yes).is_err());
            let own = files::metadata(&root, &path, Follow::Yes).unwrap();
            let inside = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(sandbox.outside_in_top()).unwrap());
            assert_eq!(own.inode, inside);
        }
    }
    assert_eq!(sandbox.outside_files(), before);
}

#[test]
fn without_following_links_a_link_is_refused_and_other_files_are_used() {
    let sandbox = TestSandbox::start();
    let (root, before) = (sandbox.small_root(), sandbox.outside_files());
    for name in ["absolute-file", "relative-file", "absolute-directory/secret", "relative-directory/secret"] {
        let path = Path::new("/ws").join(name);
        assert!(files::read_file(&root, &path, Follow::No, 99).is_err(), "{name}");
        assert!(files::open_file(&root, &path, Follow::No).is_err(), "{name}");
        assert!(files::metadata(&root, &path, Follow::No).is_err(), "{name}");
        assert!(files::write_file(&root, &path, b"x", Follow::No).is_err(), "{name}");
        assert!(files::set_metadata(&root, &path, Some(0o600), None, Follow::No).is_err(), "{name}");
        assert!(files::create_directory(&root, &path.join("new"), true, Follow::No).is_err(), "{name}");
        assert!(files::remove(&root, &path, false, false, Follow::No, &not_cancelled()).is_err(), "{name}");
        assert!(Upload::create(&root, &path, true, Follow::No).is_err(), "{name}");
    }
    assert_eq!(sandbox.outside_files(), before);
    let path = Path::new("/ws/plain/a");
    files::write_file(&root, path, b"x", Follow::No).unwrap();
    files::set_metadata(&root, path, Some(0o600), Some((1, 1)), Follow::No).unwrap();
    assert_eq!(files::read_file(&root, path, Follow::No, 99).unwrap(), b"x");
    assert_eq!(files::metadata(&root, path, Follow::No).unwrap().modified_seconds, 1);
    files::create_directory(&root, Path::new("/ws/plain/d/e"), true, Follow::No).unwrap();
    files::remove(&root, path, false, false, Follow::No, &not_cancelled()).unwrap();
    assert!(sandbox.at("ws/plain/d/e").is_dir() && !sandbox.at("ws/plain/a").exists());
}
