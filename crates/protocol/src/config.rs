//! Params and result of `environmentConfig/read`: the values of the keys that a client asks for, from the
//! configuration files of the environment, the machine on which the server runs. Which files count, and how they are
//! read, is in the server (`environment/config.rs`).

use serde::{Deserialize, Serialize};

use crate::PathUri;

/// Params of `environmentConfig/read`. Each wanted key is a list of at least one name: the literal name at each
/// level, outermost first. The members `configPaths` and `requirementsPaths` together must have at least one wanted
/// key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct EnvironmentConfigReadParams", rename_all = "camelCase")]
pub struct ConfigReadParams {
    /// The directory in which the client works, on the machine of the server. It decides which project files count,
    /// and need not exist.
    pub cwd: PathUri,
    /// The wanted keys of the configuration files. Required, but may be empty.
    pub config_paths: Vec<Vec<String>>,
    /// The wanted keys of the requirements files. Required, but may be empty.
    pub requirements_paths: Vec<Vec<String>>,
}

/// Result of `environmentConfig/read`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigReadResult {
    /// Home directory of the user that the server runs as. Null or absent if it is unknown.
    #[serde(default)]
    pub user_home_dir: Option<PathUri>,
    /// The directory that the variable `CODEX_HOME` of the server names. Without the variable, `.codex` in the home
    /// directory, which need not exist.
    pub codex_home_dir: PathUri,
    /// Host name of the machine, in lower case, with its domain if `/etc/hosts` gives one. Null or absent if it is unknown.
    #[serde(default)]
    pub hostname: Option<String>,
    /// The files with preferences of the machine, the user and the project.
    pub config: ConfigLayers,
    /// The files with limits that the administrator of the machine sets.
    pub requirements: ConfigLayers,
}

/// The files that have a value for any of the wanted keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigLayers {
    /// One layer for each such file, lowest precedence first.
    pub layers: Vec<ConfigLayer>,
    /// The index in `layers` at which the client inserts the settings that it gets from the cloud. They override the
    /// layers before this index, and the layers from this index on override them.
    pub cloud_insertion_index: usize,
}

/// The wanted keys of one configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigLayer {
    /// A description of the file for people, which contains its native path. Programs must not depend on its form.
    pub source: String,
    /// The directory against which relative paths in the file are resolved.
    pub base_dir: PathUri,
    /// The wanted keys and their values as TOML text, never empty. Comments, order and notation of the file are lost.
    pub toml: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_has_all_members_and_two_may_be_null() {
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
