//! Params and result of `capabilityRoots/discoverV1`: plugins and skills below directories, with the contents of
//! their files. A *plugin* is a directory with a manifest, the file `plugin.json` in a subdirectory such as
//! `.codex-plugin`. A *skill* is a directory with a file `SKILL.md`. How directories are scanned, and the limits of
//! that, are in the server (`handlers/capability_roots.rs`).

use serde::{Deserialize, Serialize};

use crate::object_only::objects_only;
use crate::{PathUri, SandboxContext};

/// Params of `capabilityRoots/discoverV1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct CapabilityRootsDiscoverParams")]
pub struct DiscoverParams {
    /// The directories to scan, at most 128. The result has them in the same order.
    pub roots: Vec<CapabilityRoot>,
}

/// A directory that is scanned for plugins and skills.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct CapabilityRoot {
    /// Chosen by the client and returned in the result. Any text is allowed, and several roots may have the same id.
    pub id: String,
    /// The directory to scan.
    pub path: PathUri,
    /// The sandbox for every read below this root. A sandbox that restricts files makes the root fail if the server
    /// cannot enforce it. Absent: no restriction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `capabilityRoots/discoverV1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoverResult {
    /// One result for each root of the request, in the order of the request.
    pub roots: Vec<DiscoveredRoot>,
}

/// What was found below one root. If `error` is set, `plugin` is null and all lists are empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredRoot {
    /// The id from the request.
    pub id: String,
    /// The path from the request, normalised.
    pub path: PathUri,
    /// The plugin in the root directory itself. Null or absent if that directory has no manifest.
    #[serde(default)]
    pub plugin: Option<DiscoveredPlugin>,
    /// One entry for each file named `SKILL.md`, sorted by path. Absent: empty.
    #[serde(default)]
    pub skills: Vec<DiscoveredSkill>,
    /// The manifests that give the skills their namespaces. The first is the root's own manifest, or else the nearest
    /// one above the root, if there is any. Those of plugins below the root follow, sorted by the path of the plugin.
    /// Absent: empty.
    #[serde(default)]
    pub namespace_manifests: Vec<CapabilityFile>,
    /// Files and directories that were left out, and why, in the order in which they were found. Absent: empty.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Why the root could not be scanned. Null or absent if it was scanned.
    #[serde(default)]
    pub error: Option<String>,
}

/// The files of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredPlugin {
    /// The file `plugin.json` of the plugin.
    pub manifest: CapabilityFile,
    /// The file that lists the MCP servers of the plugin: the one that the manifest names, or else `.mcp.json`. Null or absent
    /// if there is no such file, or if the manifest itself lists the servers.
    #[serde(default)]
    pub mcp_config: Option<CapabilityFile>,
    /// The file that lists the apps of the plugin. Null or absent if the manifest names none, or if there is no such file.
    #[serde(default)]
    pub apps_config: Option<CapabilityFile>,
}

/// The files of a skill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredSkill {
    /// The file `SKILL.md` of the skill.
    pub instructions: CapabilityFile,
    /// The file `agents/openai.yaml` beside `SKILL.md`. Null or absent if there is none.
    #[serde(default)]
    pub metadata: Option<CapabilityFile>,
}

/// A file and its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilityFile {
    /// Path of the file. It begins with the path of the root or, for the manifest of a plugin that contains the
    /// root, with that of a directory above the root. Symbolic links in it are not resolved.
    pub path: PathUri,
    /// The unchanged text of the file, including a byte order mark and carriage returns.
    pub contents: String,
}

objects_only!(CapabilityRoot);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_members_of_a_result_are_read_as_empty() {
        let root: DiscoveredRoot = serde_json::from_str(r#"{"id":"r","path":"file:///r"}"#).unwrap();
        let complete = r#"{"id":"r","path":"file:///r","plugin":null,"skills":[],"namespaceManifests":[],"warnings":[],"error":null}"#;
        assert_eq!(serde_json::to_string(&root).unwrap(), complete);
        let plugin: DiscoveredPlugin =
            serde_json::from_str(r#"{"manifest":{"path":"file:///m","contents":""}}"#).unwrap();
        assert_eq!((plugin.mcp_config, plugin.apps_config), (None, None));
    }
}
