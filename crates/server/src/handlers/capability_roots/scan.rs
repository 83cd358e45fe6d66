//! Looks through a root: the plugin that it is, the plugins below it, and skills.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::{Component, Path, PathBuf};

use files::{Cancel, EntryKind, FileError, Follow, WalkItem, WalkOptions};
use protocol::{DiscoveredPlugin, DiscoveredSkill, FoundFile};
use serde::Deserialize;

use super::bundle::Bundle;

/// Directories that hold the manifest of a plugin. The first that is there counts.
const MANIFEST_DIRECTORIES: [&str; 3] = [".codex-plugin", ".claude-plugin", ".cursor-plugin"];
const MANIFEST: &str = "plugin.json";
const SKILL: &str = "SKILL.md";
const SKILL_METADATA: &str = "agents/openai.yaml";
const MCP_CONFIG: &str = ".mcp.json";

const LIMITS: WalkOptions = WalkOptions {
    max_depth: 6,
    max_directories: 2_000,
    max_entries: 20_000,
    follow_directory_symlinks: true,
    prune_hidden_directories: false,
};

/// What is in a root.
#[derive(Default)]
pub(super) struct Scanned {
    pub(super) plugin: Option<DiscoveredPlugin>,
    pub(super) skills: Vec<DiscoveredSkill>,
    pub(super) namespace_manifests: Vec<FoundFile>,
}

/// Looks through `root` and reads what it finds into `bundle`.
pub(super) fn scan(root: &Path, bundle: &mut Bundle<'_>, cancel: &Cancel) -> Result<Scanned, FileError> {
    if !files::metadata(root, Follow::Yes)?.is_directory {
        return Err(FileError::check(ErrorKind::NotADirectory, "capability root is not a directory", root));
    }
    let mut skills = Vec::new();
    let mut plugins = BTreeSet::new();
    let end = files::walk(root, &LIMITS, cancel, &mut |item| {
        match item {
            WalkItem::Entry { path, kind: EntryKind::File } if path.ends_with(SKILL) => skills.push(path.to_owned()),
            WalkItem::Entry { path, kind: EntryKind::File } => plugins.extend(plugin_of_manifest(path)),
            WalkItem::Entry { .. } => {}
            WalkItem::Error { path, error } => bundle.warn(path, &error.to_string()),
        }
        ControlFlow::Continue(())
    })?;
    if end.truncated {
        let (directories, entries) = (LIMITS.max_directories, LIMITS.max_entries);
        let why = format!("only {directories} directories and {entries} entries are looked at; the rest is left out");
        bundle.warn(root, &why);
    }
    // A link to the manifest itself is no entry of the walk, so the root is asked directly.
    let plugin = manifest(root, bundle).map(|manifest| {
        let mcp_config = mcp_config(root, &manifest, bundle);
        DiscoveredPlugin { manifest, mcp_config }
    });
    plugins.remove(root);
    let mut scanned = Scanned { plugin, ..Scanned::default() };
    for path in skills {
        cancel.check()?;
        let Some(file) = bundle.read(&path) else { continue };
        let metadata = path.parent().and_then(|beside| bundle.read(&beside.join(SKILL_METADATA)));
        scanned.skills.push(DiscoveredSkill { file, metadata });
    }
    for plugin in plugins {
        cancel.check()?;
        scanned.namespace_manifests.extend(manifest(&plugin, bundle));
    }
    Ok(scanned)
}

/// The directory of the plugin whose manifest this is, if it is one.
fn plugin_of_manifest(path: &Path) -> Option<PathBuf> {
    let directory = path.parent()?;
    let is_manifest = path.ends_with(MANIFEST) && MANIFEST_DIRECTORIES.iter().any(|name| directory.ends_with(name));
    is_manifest.then(|| directory.parent().map(Path::to_owned)).flatten()
}

fn manifest(plugin: &Path, bundle: &mut Bundle<'_>) -> Option<FoundFile> {
    MANIFEST_DIRECTORIES.iter().find_map(|name| bundle.read(&plugin.join(name).join(MANIFEST)))
}

/// Where a manifest says that the MCP servers of its plugin are.
#[derive(Deserialize)]
struct Declared {
    #[serde(rename = "mcpServers")]
    mcp_servers: Option<McpServers>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum McpServers {
    /// In a file of the plugin.
    File(String),
    /// In the manifest.
    Inline(serde::de::IgnoredAny),
}

fn mcp_config(plugin: &Path, manifest: &FoundFile, bundle: &mut Bundle<'_>) -> Option<FoundFile> {
    let declared: Declared = match serde_json::from_str(&manifest.contents) {
        Ok(declared) => declared,
        Err(error) => {
            bundle.warn(plugin, &format!("the manifest of the plugin is not usable: {error}"));
            return None;
        }
    };
    match declared.mcp_servers {
        None => bundle.read(&plugin.join(MCP_CONFIG)),
        Some(McpServers::Inline(_)) => None,
        Some(McpServers::File(declared)) => {
            let inside = inside(Path::new(&declared));
            let found = inside.as_ref().and_then(|inside| bundle.read(&plugin.join(inside)));
            if found.is_none() {
                let why = match inside {
                    Some(_) => "cannot be read",
                    None => "is not a path inside the plugin",
                };
                bundle.warn(plugin, &format!("the file of MCP servers that the manifest names, `{declared}`, {why}"));
            }
            found
        }
    }
}

/// A relative path that leads nowhere but down, without the dots.
fn inside(path: &Path) -> Option<PathBuf> {
    let parts: Option<PathBuf> = path
        .components()
        .filter(|part| *part != Component::CurDir)
        .map(|part| matches!(part, Component::Normal(_)).then_some(part))
        .collect();
    parts.filter(|path| !path.as_os_str().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declared_path_stays_inside() {
        for (path, expected) in [
            ("./mcp.json", Some("mcp.json")),
            ("a/./b.json", Some("a/b.json")),
            ("", None),
            (".", None),
            ("../mcp.json", None),
            ("a/../../b", None),
            ("/etc/passwd", None),
        ] {
            assert_eq!(inside(Path::new(path)), expected.map(PathBuf::from), "{path}");
        }
    }

    #[test]
    fn a_manifest_names_its_plugin() {
        for directory in MANIFEST_DIRECTORIES {
            let path = Path::new("/r/p").join(directory).join(MANIFEST);
            assert_eq!(plugin_of_manifest(&path), Some("/r/p".into()));
        }
        for other in ["/r/p/plugin.json", "/r/.codex-plugin/other.json", "/r/x.codex-plugin/plugin.json"] {
            assert_eq!(plugin_of_manifest(Path::new(other)), None, "{other}");
        }
    }
}
