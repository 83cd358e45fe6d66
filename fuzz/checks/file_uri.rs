//! Checks that must succeed for any text that arrives as a path URI, and for any native path. Used by the fuzz target
//! and by the test that replays the corpus.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use protocol::PathUri;

/// Panics if one of the checks fails for these bytes.
pub(crate) fn check(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        check_text(text);
    }
    check_native(Path::new(OsStr::from_bytes(bytes)));
}

/// The canonical text of a parsed URI parses to the same URI. If the URI has a native path, the URI of that path has
/// the same native path.
fn check_text(text: &str) {
    let Ok(uri) = text.parse::<PathUri>() else { return };
    assert!(uri.as_str().starts_with("file://"), "{uri}");
    let again: PathUri = uri.as_str().parse().expect("the canonical text parses");
    assert_eq!(again, uri, "the canonical text parses to the same URI");
    let json = serde_json::to_string(&uri).expect("a URI can be encoded");
    assert_eq!(serde_json::from_str::<PathUri>(&json).expect("an encoded URI can be decoded"), uri);

    let Ok(native) = uri.to_native() else { return };
    assert_normal(&native);
    let from_native = PathUri::from_native(&native).expect("an absolute path has a URI");
    assert_eq!(from_native.to_native().as_deref(), Ok(&*native), "{uri} and {from_native} have the same native path");
}

/// Every absolute path has a URI. The native path of that URI has no `.` and no `..`, and it equals the given path if
/// that has no `..`. A path with a NUL byte is an exception: its URI has no native path.
fn check_native(path: &Path) {
    let Some(uri) = PathUri::from_native(path) else {
        assert!(!path.is_absolute(), "the absolute path {} has no URI", path.display());
        return;
    };
    let again: PathUri = uri.as_str().parse().expect("the URI of a native path parses");
    assert_eq!(again, uri);
    if path.as_os_str().as_bytes().contains(&0) {
        assert!(uri.to_native().is_err(), "no file has such a name: {uri}");
        return;
    }
    let native = uri.to_native().expect("the URI of a native path has a native path");
    assert_normal(&native);
    if !path.components().any(|component| component == Component::ParentDir) {
        assert_eq!(native, path);
    }
}

fn assert_normal(native: &Path) {
    let bytes = native.as_os_str().as_bytes();
    assert!(native.is_absolute() && !bytes.contains(&0), "{}", native.display());
    let is_normal = |component| matches!(component, Component::RootDir | Component::Normal(_));
    assert!(native.components().all(is_normal), "{} has dots", native.display());
}
