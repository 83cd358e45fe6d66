//! `ENV:PATH`: a path as it is typed, and the machine it is on.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// What a text names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TypedPath<'a> {
    /// A path without an environment.
    Plain(&'a Path),
    /// A path in an environment. None: the one that the flags choose.
    There(Option<&'a str>, &'a Path),
}

impl<'a> TypedPath<'a> {
    /// What stands in front of the first colon is an environment, if it can be the id of one.
    pub(crate) fn parse(text: &'a OsStr) -> Self {
        let plain = Self::Plain(Path::new(text));
        let bytes = text.as_bytes();
        let Some(colon) = bytes.iter().position(|byte| *byte == b':') else { return plain };
        let path = Path::new(OsStr::from_bytes(&bytes[colon + 1..]));
        match std::str::from_utf8(&bytes[..colon]) {
            Ok("") => Self::There(None, path),
            // As ids of environments are made.
            Ok(id) if id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') => {
                Self::There(Some(id), path)
            }
            _ => plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_before_a_colon_is_an_environment() {
        let plain = |path| TypedPath::Plain(Path::new(path));
        let there = |id, path| TypedPath::There(id, Path::new(path));
        for (text, expected) in [
            ("a", plain("a")),
            ("", plain("")),
            ("/a:b", plain("/a:b")),
            ("./a:b", plain("./a:b")),
            ("a/b:c", plain("a/b:c")),
            ("a.b:c", plain("a.b:c")),
            ("a-1_x:b:c", there(Some("a-1_x"), "b:c")),
            ("a:", there(Some("a"), "")),
            (":/x", there(None, "/x")),
            (":a:b", there(None, "a:b")),
            (":", there(None, "")),
        ] {
            assert_eq!(TypedPath::parse(OsStr::new(text)), expected, "{text}");
        }
        let bytes = OsStr::from_bytes(b"\xff:a");
        assert_eq!(TypedPath::parse(bytes), TypedPath::Plain(Path::new(bytes)));
    }
}
