//! `capabilityRoots/discoverV1`: the plugins and skills below directories, with the contents of their files.

use serde::{Deserialize, Serialize};

use crate::{PathUri, SandboxContext};

/// Params of `capabilityRoots/discoverV1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoverParams {
    /// Where to look.
    pub roots: Vec<CapabilityRoot>,
}

/// A directory to look into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilityRoot {
    /// Chosen by the client, and given back.
    pub id: String,
    /// The directory.
    pub path: PathUri,
    /// What may be read there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `capabilityRoots/discoverV1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoverResult {
    /// One for each root of the request, in its order.
    pub roots: Vec<DiscoveredRoot>,
}

/// What was found in a root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredRoot {
    /// As given.
    pub id: String,
    /// As given.
    pub path: PathUri,
    /// The plugin that the root itself is.
    #[serde(default)]
    pub plugin: Option<DiscoveredPlugin>,
    /// Every `SKILL.md`.
    #[serde(default)]
    pub skills: Vec<DiscoveredSkill>,
    /// The manifests of plugins in directories below the root, which name the skills there.
    #[serde(default)]
    pub namespace_manifests: Vec<FoundFile>,
    /// What was left out, and why.
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
    pub manifest: FoundFile,
    /// The file that names its MCP servers, unless the manifest does so itself.
    #[serde(default)]
    pub mcp_config: Option<FoundFile>,
}

/// A skill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredSkill {
    /// Its `SKILL.md`.
    pub file: FoundFile,
    /// `agents/openai.yaml` beside it.
    #[serde(default)]
    pub metadata: Option<FoundFile>,
}

/// A file and what is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundFile {
    /// Where it is.
    pub path: PathUri,
    /// All of it.
    pub contents: String,
}
