//! Decides which folders of a project are trusted, so that their configuration files count. Only the configuration of the machine, of its
//! user and of its administrator decides this. A project cannot make itself trusted.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use toml::{Table, Value};

use super::ConfigError;

const MARKERS: &str = "project_root_markers";
const PROJECTS: &str = "projects";
/// The only marker if `project_root_markers` is not configured.
const DEFAULT_MARKER: &str = ".git";

/// The settings that decide where a project begins and whether it is trusted.
pub(super) struct ProjectTrust {
    /// The nearest folder at or above the working directory that contains one of these files or directories is the
    /// root of the project. If no folder does, the working directory is the root.
    pub(super) markers: Vec<String>,
    /// Entries by the path of a folder.
    projects: HashMap<String, ProjectEntry>,
}

/// A value in `projects`. Error texts call it `struct ProjectConfig`, as the published ones do.
#[derive(Deserialize)]
#[serde(expecting = "struct ProjectConfig")]
struct ProjectEntry {
    trust_level: Option<TrustLevel>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TrustLevel {
    Trusted,
    Untrusted,
}

#[derive(Deserialize)]
struct Projects {
    #[serde(default)]
    projects: HashMap<String, ProjectEntry>,
}

impl ProjectTrust {
    /// Merges the settings of `layers`: one layer for each configuration file. A later layer overrides an earlier
    /// one.
    pub(super) fn from_layers<'a>(layers: impl IntoIterator<Item = &'a Table>) -> Result<Self, ConfigError> {
        let mut merged = Table::new();
        for layer in layers {
            for key in [MARKERS, PROJECTS] {
                if let Some(value) = layer.get(key) {
                    merge(&mut merged, key, value);
                }
            }
        }
        let markers = match merged.remove(MARKERS) {
            Some(value) => value
                .try_into()
                .map_err(|_: toml::de::Error| ConfigError::load(format!("{MARKERS} must be an array of strings")))?,
            None => vec![DEFAULT_MARKER.to_owned()],
        };
        let Projects { projects } = Value::Table(merged)
            .try_into()
            .map_err(|error: toml::de::Error| ConfigError::load(error.to_string().trim_end()))?;
        Ok(Self { markers, projects })
    }

    /// Whether a folder is trusted. The folder, the root of its project and its git root are checked in this order, and the first that has a
    /// trust level decides. The canonical path of each is checked before the path as given. Without a level, the folder is not trusted.
    pub(super) fn trusts(&self, folder: &Path, project_root: &Path, git_root: Option<&Path>) -> bool {
        let level = [Some(folder), Some(project_root), git_root].into_iter().flatten().find_map(|path| {
            let canonical = files::canonicalize(files::FileRoot::host(), path).ok();
            canonical.as_deref().and_then(|path| self.level(path)).or_else(|| self.level(path))
        });
        level == Some(TrustLevel::Trusted)
    }

    fn level(&self, path: &Path) -> Option<TrustLevel> {
        self.projects.get(path.to_str()?)?.trust_level
    }
}

/// Sets `key` to `value`. If both the old and the new value are tables, they are merged.
fn merge(into: &mut Table, key: &str, value: &Value) {
    match (into.get_mut(key), value) {
        (Some(Value::Table(old)), Value::Table(new)) => {
            for (key, value) in new {
                merge(old, key, value);
            }
        }
        _ => drop(into.insert(key.to_owned(), value.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project_trust(layers: &[&str]) -> Result<ProjectTrust, String> {
        let layers: Vec<Table> = layers.iter().map(|layer| layer.parse().unwrap()).collect();
        ProjectTrust::from_layers(&layers).map_err(|error| error.to_string())
    }

    #[test]
    fn layers_are_merged_and_a_later_layer_overrides() {
        let merged = project_trust(&[
            "project_root_markers = ['a', 'b']\n[projects.'/p']\ntrust_level = 'untrusted'\nother = 1",
            "project_root_markers = ['c']\n[projects.'/q']\ntrust_level = 'trusted'",
            "other = 5\n[projects.'/p']\ntrust_level = 'trusted'",
        ])
        .unwrap();
        assert_eq!(merged.markers, ["c"]);
        let trusts = |folder: &str| merged.trusts(Path::new(folder), Path::new("/x"), None);
        assert!(trusts("/p") && trusts("/q") && !trusts("/r") && !trusts("/p/below"));
        assert_eq!(project_trust(&[]).unwrap().markers, [".git"]);
        assert_eq!(project_trust(&["project_root_markers = []"]).unwrap().markers, [""; 0]);
    }

    #[test]
    fn the_folder_decides_before_the_project_and_the_project_before_the_repository() {
        let levels = project_trust(&["[projects]\n'/f' = {}\n'/p' = { trust_level = 'untrusted' }\n\
            '/g' = { trust_level = 'trusted' }\n'/f/t' = { trust_level = 'trusted' }"])
        .unwrap();
        let trusts = |folder: &str, root: &str, git: Option<&str>| {
            levels.trusts(Path::new(folder), Path::new(root), git.map(Path::new))
        };
        assert!(trusts("/f/t", "/p", None));
        assert!(!trusts("/f", "/p", Some("/g")), "an entry without a level decides nothing");
        assert!(trusts("/f", "/f", Some("/g")));
        assert!(!trusts("/g/", "/x", None), "a path with a trailing slash is another key");
        assert!(!trusts("/n", "/n", None));
    }

    #[test]
    fn errors_name_the_invalid_key() {
        let prefix = "failed to load executor-local config: ";
        for (layer, problem) in [
            ("project_root_markers = 'x'", "project_root_markers must be an array of strings"),
            ("project_root_markers = ['x', 1]", "project_root_markers must be an array of strings"),
            (
                "[projects.'/srv/repo']\ntrust_level = 'bogus'",
                "unknown variant `bogus`, expected `trusted` or `untrusted`\nin `projects./srv/repo.trust_level`",
            ),
            ("projects = 5", "invalid type: integer `5`, expected a map\nin `projects`"),
        ] {
            assert_eq!(project_trust(&[layer]).err(), Some(format!("{prefix}{problem}")), "{layer}");
        }
    }
}
