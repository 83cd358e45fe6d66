//! Scans a capability root, a directory with plugins and skills: finds the plugin that the root is or belongs to,
//! plugins below the root, and skills. The order of the steps is part of the published protocol, because the order of
//! warnings and the choice of files within the size limit follow from it.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use files::{Cancel, EntryKind, FileError, TreeWalkOptions, WalkItem};
use protocol::{CapabilityFile, DiscoveredPlugin, DiscoveredSkill, PathUri};

use super::bundle::Bundle;
use super::manifest::{Declarations, Declared};
use crate::limits::{MAX_SCAN_DEPTH, MAX_SCAN_DIRECTORIES, MAX_SCAN_ENTRIES, MAX_SCAN_NAME_BYTES};

/// Directories that may hold the manifest of a plugin. The first of them that has a manifest counts.
const MANIFEST_DIRECTORIES: [&str; 3] = [".codex-plugin", ".claude-plugin", ".cursor-plugin"];
const MANIFEST: &str = "plugin.json";
const SKILL: &str = "SKILL.md";
/// Path relative to the directory of [`SKILL`].
const SKILL_METADATA: &str = "agents/openai.yaml";
/// Path relative to the directory of a plugin whose manifest does not name its MCP configuration.
const MCP_CONFIG: &str = ".mcp.json";

const LIMITS: TreeWalkOptions = TreeWalkOptions {
    max_depth: MAX_SCAN_DEPTH,
    max_directories: MAX_SCAN_DIRECTORIES,
    max_entries: MAX_SCAN_ENTRIES,
    follow_directory_symlinks: true,
    prune_hidden_directories: false,
};
/// Each entry that the scan finds counts its URI, the text of its error if it has one, and this many bytes against
/// [`MAX_SCAN_NAME_BYTES`].
const NAME_OVERHEAD_BYTES: usize = 64;

/// The contents of a root.
#[derive(Default)]
pub(super) struct Scanned {
    /// The plugin in the directory of the root itself.
    pub(super) plugin: Option<DiscoveredPlugin>,
    pub(super) skills: Vec<DiscoveredSkill>,
    /// The manifests that give the skills their namespaces: the manifest of the root, or else of the nearest
    /// directory above it that has one; then the manifests of plugins below the root.
    pub(super) namespace_manifests: Vec<CapabilityFile>,
}

/// Scans the directory `root`, which the client calls `root_uri`, and reads files through `bundle`, which enforces the limits.
pub(super) fn scan(
    root: &Path,
    root_uri: &PathUri,
    bundle: &mut Bundle<'_>,
    cancel: &Cancel,
) -> Result<Scanned, FileError> {
    let found = find_files(root, root_uri, bundle, cancel)?;
    // The manifest of the root is opened by its name and not found by the scan, so it may be a symbolic link to a
    // file. The answer contains it twice: in `plugin` and in `namespace_manifests`.
    let own = first_manifest(root, 2, bundle);
    let nearest = own.clone().or_else(|| root.ancestors().skip(1).find_map(|above| first_manifest(above, 1, bundle)));
    let mut scanned = Scanned { namespace_manifests: nearest.into_iter().collect(), ..Scanned::default() };
    let mut last_read_plugin: Option<&Path> = None;
    // The manifests are sorted by plugin and then by priority. Only the first manifest of each plugin is read, and
    // none of the root if `own` was read.
    for manifest in &found.manifests {
        cancel.check()?;
        if last_read_plugin != Some(&*manifest.plugin) && (own.is_none() || manifest.plugin != root) {
            last_read_plugin = Some(&manifest.plugin);
            scanned.namespace_manifests.extend(bundle.read(&manifest.path, 1));
        }
    }
    scanned.plugin = own.map(|manifest| read_plugin(root, manifest, bundle));
    for path in &found.skills {
        cancel.check()?;
        let Some(instructions) = bundle.read(path, 1) else { continue };
        let metadata = path.parent().and_then(|beside| bundle.read(&beside.join(SKILL_METADATA), 1));
        scanned.skills.push(DiscoveredSkill { instructions, metadata });
    }
    Ok(scanned)
}

/// A manifest that the scan has found, in the root or below it.
struct FoundManifest {
    /// The directory of the plugin.
    plugin: PathBuf,
    path: PathBuf,
}

/// The files of a root that are to be read. Each list has the order of reading; the manifests are read first.
struct FilesToRead {
    skills: Vec<PathBuf>,
    manifests: Vec<FoundManifest>,
}

fn find_files(
    root: &Path,
    root_uri: &PathUri,
    bundle: &mut Bundle<'_>,
    cancel: &Cancel,
) -> Result<FilesToRead, FileError> {
    let mut skills = Vec::new();
    let mut manifests = Vec::new();
    let mut left_name_bytes = MAX_SCAN_NAME_BYTES;
    let end = files::walk(bundle.file_root(), root, &LIMITS, cancel, &mut |item| {
        let path = match &item {
            WalkItem::Entry { path, .. } | WalkItem::Error { path, .. } => *path,
        };
        let Some(uri) = PathUri::from_native(path) else { return ControlFlow::Continue(()) };
        let warning = match &item {
            WalkItem::Entry { .. } => None,
            WalkItem::Error { error, .. } => Some((uri.as_str(), error.to_string())),
        };
        let message_bytes = warning.as_ref().map_or(0, |(_, error)| error.len());
        match left_name_bytes.checked_sub(uri.as_str().len() + message_bytes + NAME_OVERHEAD_BYTES) {
            Some(rest) => left_name_bytes = rest,
            None => return ControlFlow::Break(()),
        }
        if let Some((uri, error)) = warning {
            bundle.warn(format!("failed to scan capability path {uri}: {error}"));
        } else if matches!(item, WalkItem::Entry { kind: EntryKind::File, .. }) {
            if path.ends_with(SKILL) {
                skills.push((uri, path.to_owned()));
            } else if let Some((plugin, priority)) = plugin_of_manifest(path)
                && let Some(plugin_uri) = PathUri::from_native(plugin)
            {
                let manifest = FoundManifest { plugin: plugin.to_owned(), path: path.to_owned() };
                manifests.push((plugin_uri, priority, manifest));
            }
        }
        ControlFlow::Continue(())
    })?;
    if end.truncated {
        bundle.warn(format!("capability scan reached its traversal limit (root: {root_uri})"));
    }
    skills.sort_unstable_by(|(one, _), (other, _)| one.as_str().cmp(other.as_str()));
    manifests
        .sort_unstable_by(|(one, first, _), (other, second, _)| (one.as_str(), first).cmp(&(other.as_str(), second)));
    Ok(FilesToRead {
        skills: skills.into_iter().map(|(_, path)| path).collect(),
        manifests: manifests.into_iter().map(|(_, _, manifest)| manifest).collect(),
    })
}

/// The directory of the plugin, and the index in [`MANIFEST_DIRECTORIES`], if `path` is the manifest of a plugin.
fn plugin_of_manifest(path: &Path) -> Option<(&Path, usize)> {
    let directory = path.parent().filter(|_| path.ends_with(MANIFEST))?;
    let priority = MANIFEST_DIRECTORIES.iter().position(|name| directory.ends_with(name))?;
    Some((directory.parent()?, priority))
}

/// Reads the manifest of the plugin in the directory `plugin`, if there is one. The answer will contain it `copies`
/// times.
fn first_manifest(plugin: &Path, copies: usize, bundle: &mut Bundle<'_>) -> Option<CapabilityFile> {
    MANIFEST_DIRECTORIES.iter().find_map(|name| bundle.read(&plugin.join(name).join(MANIFEST), copies))
}

/// Reads the files of the plugin in the directory `root`: those that its manifest declares, or else [`MCP_CONFIG`].
fn read_plugin(root: &Path, manifest: CapabilityFile, bundle: &mut Bundle<'_>) -> DiscoveredPlugin {
    let declared = Declarations::parse(&manifest.contents);
    for (member, declared) in [("mcpServers", &declared.mcp_servers), ("apps", &declared.apps)] {
        if let Declared::Refused(why) = declared {
            bundle.warn(format!("ignoring {member} in {}: {why}", manifest.path));
        }
    }
    let mcp_config = match declared.mcp_servers {
        Declared::Inline => None,
        Declared::File(file) => bundle.read(&root.join(file), 1),
        Declared::Nothing | Declared::Refused(_) => bundle.read(&root.join(MCP_CONFIG), 1),
    };
    let apps_config = match declared.apps {
        Declared::File(file) => bundle.read(&root.join(file), 1),
        Declared::Nothing | Declared::Inline | Declared::Refused(_) => None,
    };
    DiscoveredPlugin { manifest, mcp_config, apps_config }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugin_of_a_manifest_is_found_from_its_path() {
        for (priority, directory) in MANIFEST_DIRECTORIES.iter().enumerate() {
            let path = Path::new("/r/p").join(directory).join(MANIFEST);
            assert_eq!(plugin_of_manifest(&path), Some((Path::new("/r/p"), priority)));
        }
        for other in ["/r/p/plugin.json", "/r/.codex-plugin/other.json", "/r/x.codex-plugin/plugin.json"] {
            assert_eq!(plugin_of_manifest(Path::new(other)), None, "{other}");
        }
    }
}
