//! Reads from the manifest of a plugin (`plugin.json`) which further files belong to the plugin. The client interprets everything else in the
//! manifest.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The two members of the manifest that this module reads.
#[derive(Default, Deserialize)]
struct Members<'a> {
    #[serde(borrow, rename = "mcpServers")]
    mcp_servers: Option<&'a RawValue>,
    #[serde(borrow)]
    apps: Option<&'a RawValue>,
}

/// The value of one member.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Declared {
    /// The member is missing, or is neither an object nor a string.
    Nothing,
    /// The manifest contains the configuration itself, as an object.
    Inline,
    /// The configuration is in a file. The path is relative to the directory of the plugin.
    File(PathBuf),
    /// The path is not accepted. The text says why.
    Refused(&'static str),
}

/// The values of both members.
pub(super) struct Declarations {
    pub(super) mcp_servers: Declared,
    pub(super) apps: Declared,
}

impl Declarations {
    /// Reads a manifest. If the text is not a JSON object, or has one of the members twice, both members count as missing.
    pub(super) fn parse(manifest: &str) -> Self {
        // Serde would also read the members of a struct from a JSON array.
        let is_object = manifest.trim_start_matches([' ', '\t', '\n', '\r']).starts_with('{');
        let members: Members<'_> =
            if is_object { serde_json::from_str(manifest).unwrap_or_default() } else { Members::default() };
        Self { mcp_servers: declared(members.mcp_servers), apps: declared(members.apps) }
    }
}

fn declared(member: Option<&RawValue>) -> Declared {
    let Some(member) = member.map(RawValue::get) else { return Declared::Nothing };
    if member.starts_with('{') {
        return Declared::Inline;
    }
    match serde_json::from_str::<String>(member) {
        Ok(path) => check_path(&path),
        Err(_) => Declared::Nothing,
    }
}

/// Checks a path of a manifest. Slash and backslash both separate components in the check for `..`, so that all systems refuse the same
/// paths.
fn check_path(path: &str) -> Declared {
    let Some(path) = path.strip_prefix("./") else { return Declared::Refused("path must start with `./`") };
    if path.is_empty() || path.split(['/', '\\']).any(|component| component == "..") {
        return Declared::Refused("path must remain below the capability root");
    }
    // A second slash at the start would make the path absolute.
    Declared::File(path.split('/').filter(|component| !matches!(*component, "" | ".")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_with_escaped_names_are_found_among_other_members() {
        let declared = Declarations::parse(" {\"a\":[[1]],\"mcp\\u0053ervers\":\"./x/.//y\",\"apps\":{}}");
        assert_eq!((declared.mcp_servers, declared.apps), (Declared::File("x/y".into()), Declared::Inline));
    }

    #[test]
    fn a_deeply_nested_manifest_does_not_overflow_the_stack() {
        let deep = "[".repeat(500_000);
        assert_eq!(Declarations::parse(&format!("{{\"apps\":{deep}")).apps, Declared::Nothing);
        let closed = format!("{{\"a\":{deep}{},\"apps\":\"./x\"}}", "]".repeat(500_000));
        assert_eq!(Declarations::parse(&closed).apps, Declared::File("x".into()));
    }
}
