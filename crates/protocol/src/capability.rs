//! `capabilityRoots/discoverV1`: the plugins and skills below directories, with the contents of their files.

use serde::{Deserialize, Serialize};

use crate::{PathUri, SandboxContext};

/// Params of `capabilityRoots/discoverV1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct CapabilityRootsDiscoverParams")]
pub struct DiscoverParams {
    /// The directories to look through, 128 at most.
    pub roots: Vec<CapabilityRoot>,
}

/// A directory to look into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilityRoot {
    /// Chosen by the client, and given back. It may be any text, and several roots may have the same.
    pub id: String,
    /// The directory.
    pub path: PathUri,
    /// Applies to everything that is read for this root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `capabilityRoots/discoverV1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoverResult {
    /// One for each root of the request, in its order.
    pub roots: Vec<DiscoveredRoot>,
}

/// What was found in a root. With an `error` everything else is empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredRoot {
    /// As given.
    pub id: String,
    /// As given.
    pub path: PathUri,
    /// The plugin that the root itself is, if it has a manifest.
    #[serde(default)]
    pub plugin: Option<DiscoveredPlugin>,
    /// Every `SKILL.md`, sorted by its path.
    #[serde(default)]
    pub skills: Vec<DiscoveredSkill>,
    /// The manifests that give the skills their names: the root's own, or else the nearest one above the root; then those of plugins
    /// in directories below the root, sorted by the path of the plugin.
    #[serde(default)]
    pub namespace_manifests: Vec<CapabilityFile>,
    /// What was left out, and why, in the order in which it was looked at.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Why nothing could be found.
    #[serde(default)]
    pub error: Option<String>,
}

/// A plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredPlugin {
    /// Its `plugin.json`.
    pub manifest: CapabilityFile,
    /// The file that names its MCP servers: the one that the manifest declares, or else `.mcp.json`. None if the manifest names the
    /// servers itself.
    #[serde(default)]
    pub mcp_config: Option<CapabilityFile>,
    /// The file of apps that the manifest declares.
    #[serde(default)]
    pub apps_config: Option<CapabilityFile>,
}

/// A skill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredSkill {
    /// Its `SKILL.md`.
    pub instructions: CapabilityFile,
    /// `agents/openai.yaml` beside it.
    #[serde(default)]
    pub metadata: Option<CapabilityFile>,
}

/// A text file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilityFile {
    /// The path of the root and the names below it; links in it are not resolved.
    pub path: PathUri,
    /// The exact text, with byte order mark and carriage returns.
    pub contents: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_an_answer_lacks_are_empty() {
        let root: DiscoveredRoot = serde_json::from_str(r#"{"id":"r","path":"file:///r"}"#).unwrap();
        let complete = r#"{"id":"r","path":"file:///r","plugin":null,"skills":[],"namespaceManifests":[],"warnings":[],"error":null}"#;
        assert_eq!(serde_json::to_string(&root).unwrap(), complete);
        let plugin: DiscoveredPlugin =
            serde_json::from_str(r#"{"manifest":{"path":"file:///m","contents":""}}"#).unwrap();
        assert_eq!((plugin.mcp_config, plugin.apps_config), (None, None));
    }
}
