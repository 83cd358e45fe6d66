//! Parses a path as a person types it: `ENV:PATH`, `:PATH` or `PATH`. `ENV` is the name of an environment, which is a
//! machine with a server.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// A path as it was typed, and whether it names an environment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TypedPath<'a> {
    /// `PATH`. The command decides which machine the path is on.
    Plain(&'a Path),
    /// `ENV:PATH` with the name of the environment, or `:PATH` with `None` for the environment that the flags choose.
    InEnvironment(Option<&'a str>, &'a Path),
}

impl<'a> TypedPath<'a> {
    /// Parses a typed path. The text before the first colon names an environment if it has only characters that such
    /// names may have. Otherwise the whole text is a path.
    pub(crate) fn parse(text: &'a OsStr) -> Self {
        let plain = Self::Plain(Path::new(text));
        let bytes = text.as_bytes();
        let Some(colon) = bytes.iter().position(|byte| *byte == b':') else { return plain };
        let path = Path::new(OsStr::from_bytes(&bytes[colon + 1..]));
        match std::str::from_utf8(&bytes[..colon]) {
            Ok("") => Self::InEnvironment(None, path),
            Ok(id) if id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') => {
                Self::InEnvironment(Some(id), path)
            }
            _ => plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_or_nothing_before_the_first_colon_chooses_an_environment() {
        let plain = |path| TypedPath::Plain(Path::new(path));
        let in_environment = |id, path| TypedPath::InEnvironment(id, Path::new(path));
        for (text, expected) in [
            ("a", plain("a")),
            ("", plain("")),
            ("/a:b", plain("/a:b")),
            ("./a:b", plain("./a:b")),
            ("a/b:c", plain("a/b:c")),
            ("a.b:c", plain("a.b:c")),
            ("a-1_x:b:c", in_environment(Some("a-1_x"), "b:c")),
            ("a:", in_environment(Some("a"), "")),
            (":/x", in_environment(None, "/x")),
            (":a:b", in_environment(None, "a:b")),
            (":", in_environment(None, "")),
        ] {
            assert_eq!(TypedPath::parse(OsStr::new(text)), expected, "{text}");
        }
        let bytes = OsStr::from_bytes(b"\xff:a");
        assert_eq!(TypedPath::parse(bytes), TypedPath::Plain(Path::new(bytes)));
    }
}
