//! `environmentConfig/read`: what the configuration files of the environment say about the keys a client asks for.

use serde::{Deserialize, Serialize};

use crate::PathUri;

/// Params of `environmentConfig/read`. A key path is one key for each level, outermost first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigReadParams {
    /// Where the client works: decides which project files count.
    pub cwd: PathUri,
    /// Which keys of the configuration.
    #[serde(default)]
    pub config_paths: Vec<Vec<String>>,
    /// Which keys of the requirements.
    #[serde(default)]
    pub requirements_paths: Vec<Vec<String>>,
}

/// Result of `environmentConfig/read`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigReadResult {
    /// The home directory of the user the server runs as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_home_dir: Option<PathUri>,
    /// `CODEX_HOME`, or `.codex` in the home directory.
    pub codex_home_dir: PathUri,
    /// What the machine calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// What is preferred.
    pub config: ConfigLayers,
    /// What is enforced.
    pub requirements: ConfigLayers,
}

/// Files that say something about the same keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigLayers {
    /// One for each file that is there, lowest precedence first.
    pub layers: Vec<ConfigLayer>,
    /// Where among them a client puts what it was told by somebody else.
    pub cloud_insertion_index: usize,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigLayer {
    /// Where it comes from.
    pub source: ConfigSource,
    /// What relative paths in it are relative to.
    pub base_dir: PathUri,
    /// The keys that were asked for, as TOML.
    pub toml: String,
}

/// Who has written a file, and which it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "type")]
pub enum ConfigSource {
    /// Whoever looks after the machine.
    System {
        /// The file.
        file: PathUri,
    },
    /// The user.
    User {
        /// The file.
        file: PathUri,
    },
    /// A directory of the project the client works in.
    Project {
        /// The file.
        file: PathUri,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_says_its_kind_and_its_file() {
        let source = ConfigSource::System { file: "file:///etc/codex/config.toml".parse().unwrap() };
        let json = serde_json::to_string(&source).unwrap();
        assert_eq!(json, r#"{"type":"system","file":"file:///etc/codex/config.toml"}"#);
        assert_eq!(serde_json::from_str::<ConfigSource>(&json).unwrap(), source);
    }

    #[test]
    fn lists_may_be_left_out() {
        let params: ConfigReadParams = serde_json::from_str(r#"{"cwd":"file:///"}"#).unwrap();
        assert!(params.config_paths.is_empty() && params.requirements_paths.is_empty());
    }
}
