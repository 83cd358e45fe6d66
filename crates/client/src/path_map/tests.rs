//! Tests which paths and patterns are mapped, and that nothing else in a sandbox object changes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use proptest::prelude::*;

use super::*;

fn example_map() -> PathMap {
    PathMap::new(Path::new("/here/ws"), Path::new("/srv/build/")).unwrap()
}

fn uri(text: &str) -> PathUri {
    text.parse().unwrap()
}

fn map_sandbox(sandbox: &str) -> Result<String, PathMapError> {
    let sandbox = RawValue::from_string(sandbox.to_owned()).unwrap();
    example_map().map_sandbox(&sandbox).map(|mapped| mapped.get().to_owned())
}

/// A sandbox object that denies access to the files that match this pattern.
fn sandbox_that_denies(pattern: &str) -> String {
    let pattern = serde_json::to_string(pattern).unwrap();
    format!(
        r#"{{"permissions":{{"type":"managed","file_system":{{"type":"restricted","entries":[{{"path":{{"type":"glob_pattern","pattern":{pattern}}},"access":"deny"}}]}}}}}}"#
    )
}

#[test]
fn paths_at_or_below_a_root_are_mapped_into_the_other_root() {
    for (local, remote) in [
        ("file:///here/ws", "file:///srv/build"),
        ("file:///here/ws/", "file:///srv/build"),
        ("file:///here/ws/a/b", "file:///srv/build/a/b"),
        ("file:///here/ws/a%20b%23%25", "file:///srv/build/a%20b%23%25"),
        ("file:///here/ws/%FF%FE", "file:///srv/build/%FF%FE"),
        ("file:///%68ere/ws/x", "file:///srv/build/x"),
        ("file:///here/other%2F..%2Fws/x", "file:///srv/build/x"),
    ] {
        assert_eq!(example_map().to_remote(&uri(local)).as_str(), remote, "{local}");
    }
    assert_eq!(example_map().to_local(&uri("file:///srv/build/a%20b")).as_str(), "file:///here/ws/a%20b");
    assert_eq!(example_map().to_local(&uri("file:///srv/build")).as_str(), "file:///here/ws");
}

#[test]
fn other_paths_stay_as_they_are() {
    for text in [
        "file:///here/wsx",
        "file:///here",
        "file:///tmp/x/",
        "file:///here/ws/..%2F..%2Fetc",
        "file:///C:/here/ws",
        "file://server/here/ws",
    ] {
        assert_eq!(example_map().to_remote(&uri(text)).as_str(), text);
        assert_eq!(PathMap::default().to_remote(&uri(text)).as_str(), text);
    }
    assert_eq!(example_map().to_local(&uri("file:///srv/buildx")).as_str(), "file:///srv/buildx");
}

#[test]
fn a_path_in_the_opaque_form_is_mapped_like_other_paths() {
    // A URI in the opaque form holds the base64 of a path that no other file URI can express.
    let all = PathMap::new(Path::new("/"), Path::new("/srv")).unwrap();
    let opaque = PathUri::from_native(Path::new("/C:/x")).unwrap();
    assert_eq!(all.to_remote(&opaque).as_str(), "file:///srv/C:/x");
    assert_eq!(all.to_local(&uri("file:///srv/C:/x")), opaque);
    // The opaque form keeps `..` on the wire. A path that leaves the root by `..` is not mapped.
    let outside_root = PathUri::from_native(Path::new("/here/ws/../x")).unwrap();
    assert_eq!(example_map().to_remote(&outside_root), outside_root);
}

#[test]
fn roots_may_be_the_root_directory_and_have_any_bytes() {
    let strange = Path::new(OsStr::from_bytes(b"/r%\xff"));
    let map = PathMap::new(Path::new("/"), strange).unwrap();
    assert_eq!(map.to_remote(&uri("file:///a")).as_str(), "file:///r%25%FF/a");
    assert_eq!(map.to_remote(&uri("file:///")).as_str(), "file:///r%25%FF");
    assert_eq!(map.to_local(&uri("file:///r%25%FF/a")).as_str(), "file:///a");
}

#[test]
fn the_longest_of_several_matching_roots_is_used() {
    let pairs = [("/a", "/r/a"), ("/a/b", "/q"), ("/a/b/c", "/p")].map(|(l, r)| (l.into(), r.into()));
    let map = PathMap::of(pairs).unwrap();
    for (local, remote) in [("/a/x", "/r/a/x"), ("/a/b/x", "/q/x"), ("/a/b/c", "/p"), ("/a/b/cc", "/q/cc")] {
        let [local, remote] = [local, remote].map(|path| PathUri::from_native(Path::new(path)).unwrap());
        assert_eq!(map.to_remote(&local), remote);
        assert_eq!(map.to_local(&remote), local);
    }
}

#[test]
fn a_relative_root_is_refused() {
    let refused = PathMap::new(Path::new("/a"), Path::new("b")).unwrap_err();
    assert_eq!(refused.to_string(), "the root `b` of a path map must be absolute");
}

#[test]
fn a_sandbox_object_changes_in_its_paths_only() {
    let before = r#"{ "cwd":"file:\/\/\/here/ws", "future":1234567890123456789012345678901234567890.10,
      "permissions":{"type":"managed","file_system":{"glob_scan_max_depth":4,"type":"restricted","entries":[
        {"path":{"type":"special","value":{"kind":"project_roots","subpath":".git"}},"access":"read"},
        {"path":{"type":"path","path":"file:///here/ws/%FF"},"access":"write","note":"file:///here/ws"},
        {"path":{"type":"path","path":"FILE:///here/wsx"},"access":"deny"},
        {"access":"deny","path":{"type":"glob_pattern","pattern":"/here/ws/**/*.env"}},
        {"access":"deny","path":{"type":"glob_pattern","pattern":"**/*.env"}},
        {"path":{"type":"special","value":{"kind":"unknown","path":"/here/ws/x"}},"access":"read"}]}},
      "workspaceRoots":["file:///here/ws","file:///tmp"],"windowsSandboxLevel":"disabled","x":1e400 }"#;
    let after = r#"{ "cwd":"file:///srv/build", "future":1234567890123456789012345678901234567890.10,
      "permissions":{"type":"managed","file_system":{"glob_scan_max_depth":4,"type":"restricted","entries":[
        {"path":{"type":"special","value":{"kind":"project_roots","subpath":".git"}},"access":"read"},
        {"path":{"type":"path","path":"file:///srv/build/%FF"},"access":"write","note":"file:///here/ws"},
        {"path":{"type":"path","path":"FILE:///here/wsx"},"access":"deny"},
        {"access":"deny","path":{"type":"glob_pattern","pattern":"/srv/build/**/*.env"}},
        {"access":"deny","path":{"type":"glob_pattern","pattern":"**/*.env"}},
        {"path":{"type":"special","value":{"kind":"unknown","path":"/srv/build/x"}},"access":"read"}]}},
      "workspaceRoots":["file:///srv/build","file:///tmp"],"windowsSandboxLevel":"disabled","x":1e400 }"#;
    assert_eq!(map_sandbox(before).unwrap(), after);
}

#[test]
fn a_sandbox_object_of_another_form_is_left_to_the_server() {
    for text in ["null", "7", r#"{"cwd":null,"permissions":[]}"#, r#"{"permissions":{"type":"disabled"}}"#] {
        assert_eq!(map_sandbox(text).unwrap(), text);
    }
}

#[test]
fn a_sandbox_object_that_is_nested_too_deeply_is_refused() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let text = format!(r#"{{"permissions":{{"file_system":{{"entries":[{{"path":{deep}}}]}}}}}}"#);
    assert!(map_sandbox(&text).unwrap_err().to_string().ends_with("it is nested too deeply"));
}

#[test]
fn patterns_below_a_root_are_mapped_and_other_patterns_stay_as_they_are() {
    for (pattern, expected) in [
        ("/here/ws/**/*.env", "/srv/build/**/*.env"),
        ("/here/ws/{a,b}/", "/srv/build/{a,b}/"),
        ("/he[r]e/ws", "/srv/build"),
        (r"/her\e/ws/x", "/srv/build/x"),
        ("/here/wsx/*", "/here/wsx/*"),
        ("/tmp/*", "/tmp/*"),
        ("/**/*.env", "/**/*.env"),
        ("codex-project-roots:///x/*", "codex-project-roots:///x/*"),
    ] {
        assert_eq!(map_sandbox(&sandbox_that_denies(pattern)).unwrap(), sandbox_that_denies(expected), "{pattern}");
    }
}

#[test]
fn a_pattern_that_may_match_both_inside_and_outside_a_root_is_refused() {
    for pattern in ["/here/*/x", "/*/ws/x", "/here/**", "/here/{ws,x}/y", "/here/ws/../*", "/**/ws/x"] {
        let refused = map_sandbox(&sandbox_that_denies(pattern)).unwrap_err();
        assert!(matches!(&refused, PathMapError::Wildcard { .. }), "{pattern}: {refused}");
    }
}

#[test]
fn wildcard_characters_of_a_root_are_escaped() {
    let map = PathMap::new(Path::new("/a*b"), Path::new("/c[d]*")).unwrap();
    assert_eq!(pattern::to_remote(&map.pairs, "/a[*]b/*.rs"), Ok(Some("/c[[]d[]][*]/*.rs".to_owned())));
}

proptest! {
    #[test]
    fn mapping_a_path_below_a_root_to_the_server_and_back_gives_the_same_path(
        local in "(/[a-z%# ]{1,4}){0,3}",
        remote in "(/[a-z%# ]{1,4}){0,3}",
        below in proptest::collection::vec(proptest::collection::vec(1u8..=255, 1..6), 0..4),
    ) {
        let [here, there] = [local, remote].map(|root| PathBuf::from(format!("/{root}")));
        let map = PathMap::new(&here, &there).unwrap();
        let [here, there] = [normalized(&here), normalized(&there)];
        let mut path = here.clone();
        for name in &below {
            let name: Vec<u8> = name.iter().copied().filter(|byte| *byte != b'/').collect();
            path.push(OsStr::from_bytes(&name));
        }
        let path = normalized(&path);
        prop_assume!(path.starts_with(&here));
        let uri = PathUri::from_native(&path).unwrap();
        let mapped = map.to_remote(&uri);
        prop_assert!(mapped.to_native().unwrap().starts_with(&there));
        prop_assert_eq!(map.to_local(&mapped), uri);
    }
}
