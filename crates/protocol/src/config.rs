//! `environmentConfig/read`: what the configuration files of the environment say about the keys a client asks for.

use serde::{Deserialize, Serialize};

use crate::PathUri;

/// Params of `environmentConfig/read`. A key path is one literal key for each level, outermost first. No path may be empty, and there
/// must be at least one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct EnvironmentConfigReadParams", rename_all = "camelCase")]
pub struct ConfigReadParams {
    /// The working directory of the client, which decides which project files count. It need not exist.
    pub cwd: PathUri,
    /// Which keys of the configuration are wanted.
    pub config_paths: Vec<Vec<String>>,
    /// Which keys of the requirements are wanted.
    pub requirements_paths: Vec<Vec<String>>,
}

/// Result of `environmentConfig/read`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigReadResult {
    /// The home directory of the user the server runs as, if it is known.
    #[serde(default)]
    pub user_home_dir: Option<PathUri>,
    /// `CODEX_HOME`, or `.codex` in the home directory.
    pub codex_home_dir: PathUri,
    /// What the machine calls itself, in lower case and with its domain if that is known.
    #[serde(default)]
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
    /// One for each file that has some of the keys, lowest precedence first.
    pub layers: Vec<ConfigLayer>,
    /// How many of the layers come before the settings that a client gets from elsewhere.
    pub cloud_insertion_index: usize,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigLayer {
    /// For people: who has written the file, and its native path. Its form may change.
    pub source: String,
    /// Relative paths in the file are meant from this directory.
    pub base_dir: PathUri,
    /// The wanted keys as TOML, never empty. Comments, order and notation of the file are lost.
    pub toml: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_members_of_an_answer_are_there_and_two_may_be_null() {
        let result = ConfigReadResult {
            user_home_dir: None,
            codex_home_dir: "file:///c".parse().unwrap(),
            hostname: None,
            config: ConfigLayers {
                layers: vec![ConfigLayer {
                    source: "system (/etc/codex/config.toml)".into(),
                    base_dir: "file:///etc/codex".parse().unwrap(),
                    toml: "a = 1\n".into(),
                }],
                cloud_insertion_index: 1,
            },
            requirements: ConfigLayers::default(),
        };
        let text = concat!(
            r#"{"userHomeDir":null,"codexHomeDir":"file:///c","hostname":null,"config":{"layers":[{"#,
            r#""source":"system (/etc/codex/config.toml)","baseDir":"file:///etc/codex","toml":"a = 1\n"}],"#,
            r#""cloudInsertionIndex":1},"requirements":{"layers":[],"cloudInsertionIndex":0}}"#,
        );
        assert_eq!(serde_json::to_string(&result).unwrap(), text);
        assert_eq!(serde_json::from_str::<ConfigReadResult>(text).unwrap(), result);
    }

    #[test]
    fn both_lists_are_required() {
        for (params, missing) in [
            (r#"{"cwd":"file:///","requirementsPaths":[]}"#, "missing field `configPaths`"),
            (r#"{"cwd":"file:///","configPaths":[]}"#, "missing field `requirementsPaths`"),
            ("null", "invalid type: null, expected struct EnvironmentConfigReadParams"),
        ] {
            let error = serde_json::from_str::<ConfigReadParams>(params).unwrap_err().to_string();
            assert!(error.starts_with(missing), "{error}");
        }
    }
}
