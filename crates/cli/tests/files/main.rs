//! The methods `fs/*`: what each of them does, its errors, and that no file or request blocks other requests.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod bad_paths;
mod blocks;
mod copying;
mod creating;
mod folder;
mod large;
mod links;
mod listing;
mod no_follow;
mod reading;
mod removing;
mod restricted_file_systems;
mod sessions;
mod special_files;
mod uploads;
mod walking;
mod writing;

use testkit::{Value, json};

const NOT_FOUND: i64 = -32004;
const INVALID_REQUEST: i64 = -32600;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL: i64 = -32603;

/// The expected error for a path about which the operating system has reported `errno`.
fn os_error(errno: i64, path: &str) -> Value {
    let (code, text, kind) = match errno {
        1 => (INVALID_REQUEST, "Operation not permitted", "permissionDenied"),
        2 => (NOT_FOUND, "No such file or directory", "notFound"),
        13 => (INVALID_REQUEST, "Permission denied", "permissionDenied"),
        17 => (INTERNAL, "File exists", "alreadyExists"),
        18 => (INTERNAL, "Invalid cross-device link", "other"),
        20 => (INTERNAL, "Not a directory", "notADirectory"),
        21 => (INTERNAL, "Is a directory", "isADirectory"),
        22 => (INVALID_REQUEST, "Invalid argument", "invalidInput"),
        28 => (INTERNAL, "No space left on device", "storageFull"),
        30 => (INTERNAL, "Read-only file system", "readOnlyFilesystem"),
        36 => (INTERNAL, "File name too long", "other"),
        39 => (INTERNAL, "Directory not empty", "other"),
        40 => (INTERNAL, "Too many levels of symbolic links", "other"),
        6 => (INTERNAL, "No such device or address", "other"),
        _ => panic!("the text of errno {errno} is missing in this function"),
    };
    let message = format!("{text} (os error {errno})");
    json!({"code": code, "data": {"errno": errno, "kind": kind, "path": path}, "message": message})
}

/// The expected error for a path that the server itself refuses, without an error of the operating system.
fn refusal(message: &str, path: &str) -> Value {
    json!({"code": INVALID_REQUEST, "data": {"kind": "invalidInput", "path": path}, "message": message})
}

/// The expected error for a path that is not a regular file.
fn not_a_file(path: &std::path::Path) -> Value {
    refusal(&format!("path `{}` is not a file", path.display()), &folder::uri_of(path))
}
