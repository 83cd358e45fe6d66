//! What the manifest of a plugin says about the files of the plugin. The rest of it is the client's business.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The two members that are looked at.
#[derive(Default, Deserialize)]
struct Members<'a> {
    #[serde(borrow, rename = "mcpServers")]
    mcp_servers: Option<&'a RawValue>,
    #[serde(borrow)]
    apps: Option<&'a RawValue>,
}

/// What one member declares.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Declared {
    /// Nothing that can be used.
    Nothing,
    /// The configuration itself.
    Inline,
    /// A file, as a path below the plugin.
    File(PathBuf),
    /// A path that is not accepted, and why.
    Refused(&'static str),
}

/// What a manifest declares.
pub(super) struct Declarations {
    pub(super) mcp_servers: Declared,
    pub(super) apps: Declared,
}

impl Declarations {
    /// Of a text that is no object, or that has one of the members twice, neither counts.
    pub(super) fn of(manifest: &str) -> Self {
        // Serde would read the members of a struct from a list too.
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
        Ok(path) => below(&path),
        Err(_) => Declared::Nothing,
    }
}

/// A path of a manifest. Both kinds of slash separate its components when `..` is looked for, so that a path is refused on every system
/// or on none.
fn below(path: &str) -> Declared {
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
    fn members_are_found_behind_escapes_and_beside_anything() {
        let declared = Declarations::of(" {\"a\":[[1]],\"mcp\\u0053ervers\":\"./x/.//y\",\"apps\":{}}");
        assert_eq!((declared.mcp_servers, declared.apps), (Declared::File("x/y".into()), Declared::Inline));
    }

    #[test]
    fn a_manifest_that_nests_without_end_declares_something_or_nothing_and_ends() {
        let deep = "[".repeat(500_000);
        assert_eq!(Declarations::of(&format!("{{\"apps\":{deep}")).apps, Declared::Nothing);
        let closed = format!("{{\"a\":{deep}{},\"apps\":\"./x\"}}", "]".repeat(500_000));
        assert_eq!(Declarations::of(&closed).apps, Declared::File("x".into()));
    }
}
