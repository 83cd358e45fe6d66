//! JSON of `fs/*`: which members may be absent, and what older servers and clients send.

use super::*;

#[test]
fn recursive_force_and_follow_symlinks_are_true_if_absent() {
    let path = r#"{"path":"file:///x"}"#;
    let remove: RemoveParams = serde_json::from_str(path).unwrap();
    assert_eq!((remove.recursive, remove.force, remove.follow_symlinks), (true, true, true));
    let create: CreateDirectoryParams = serde_json::from_str(path).unwrap();
    assert_eq!((create.recursive, create.follow_symlinks), (true, true));
    assert!(serde_json::from_str::<FileParams>(path).unwrap().follow_symlinks);
}

#[test]
fn follow_symlinks_is_sent_only_if_it_is_false() {
    let params = FileParams { path: "file:///x".parse().unwrap(), follow_symlinks: true, sandbox: None };
    assert_eq!(serde_json::to_string(&params).unwrap(), r#"{"path":"file:///x"}"#);
    let params = FileParams { follow_symlinks: false, ..params };
    assert_eq!(serde_json::to_string(&params).unwrap(), r#"{"path":"file:///x","followSymlinks":false}"#);
}

#[test]
fn paths_that_are_not_valid_file_uris_do_not_decode() {
    for bad in ["/tmp/x", "src/x", "C:\\\\x", "http://h/x", "file:///a%00b"] {
        assert!(serde_json::from_str::<PathParams>(&format!(r#"{{"path":"{bad}"}}"#)).is_err(), "{bad}");
    }
    let sandbox = r#"{"path":"file:///x","sandbox":{"permissions":{"type":"disabled"},"cwd":"/x","windowsSandboxLevel":"disabled"}}"#;
    assert!(serde_json::from_str::<PathParams>(sandbox).is_err());
}

#[test]
fn a_null_sandbox_decodes_like_an_absent_one() {
    let params: PathParams = serde_json::from_str(r#"{"path":"file:///x","sandbox":null}"#).unwrap();
    assert_eq!(params.sandbox, None);
}

#[test]
fn metadata_without_extensions_decodes() {
    let text = r#"{"isDirectory":false,"isFile":true,"isSymlink":false,"size":3,"createdAtMs":0,"modifiedAtMs":7}"#;
    let metadata: FileMetadata = serde_json::from_str(text).unwrap();
    assert_eq!((metadata.mode, metadata.mtime), (None, None));
    assert_eq!(serde_json::to_string(&metadata).unwrap(), text);
}
