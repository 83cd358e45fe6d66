//! Lists the environments (the machines that commands can choose), and says which one is the default and why. This
//! module connects to none of them.

use std::path::{Path, PathBuf};

use client::{EnvironmentLocation, Environments, EnvironmentsSource, HomeAndVariables};
use serde_json::{Value, json};

use crate::commands::args::TargetArgs;
use crate::commands::destination::Destination;
use crate::terminal_text::readable;

/// All configured environments in the order of their names, or only the one that a flag chooses.
pub(super) struct EnvironmentList {
    pub(super) environments: Vec<ListedEnvironment>,
    reason: ChoiceReason,
}

/// One row of the list.
pub(super) struct ListedEnvironment {
    pub(super) destination: Destination,
    /// Whether other commands use this environment if they get the flags that this `env` command has got.
    is_default: bool,
}

/// The reason why commands use one environment and not another.
#[derive(Debug, PartialEq, Eq)]
enum ChoiceReason {
    /// This flag chooses the environment. If the flag names an environment of a file, the second value is the file.
    Flag(&'static str, Option<PathBuf>),
    /// `default` in this file names the environment, or says that there is no default.
    FileDefault(PathBuf),
    /// This file has no `default`. Then the default is this machine, unless the file excludes it.
    FileWithoutDefault(PathBuf),
    /// This environment variable has the URL of the only environment, or says that there is no environment.
    Variable(&'static str),
    /// Nothing is configured, so the default is this machine. These files were looked for.
    Unconfigured(Vec<PathBuf>),
}

impl EnvironmentList {
    /// The environment that the flags choose, or all that are configured.
    pub(super) fn load(flags: &TargetArgs) -> anyhow::Result<Self> {
        let variables = HomeAndVariables::of_this_process();
        if let Some(flag) = flags.flag() {
            let chosen = ListedEnvironment { destination: Destination::choose(flags)?, is_default: true };
            let file = match (&flags.environment, Environments::load_with_source(&variables)) {
                (Some(_), Ok((_, EnvironmentsSource::File { path, .. }))) => Some(path),
                _ => None,
            };
            return Ok(Self { environments: vec![chosen], reason: ChoiceReason::Flag(flag, file) });
        }
        let (configured, source) = Environments::load_with_source(&variables)?;
        let reason = match source {
            EnvironmentsSource::File { path, names_default: true } => ChoiceReason::FileDefault(path),
            EnvironmentsSource::File { path, names_default: false } => ChoiceReason::FileWithoutDefault(path),
            EnvironmentsSource::Variable(name) => ChoiceReason::Variable(name),
            EnvironmentsSource::Unconfigured => ChoiceReason::Unconfigured(Environments::candidate_files(&variables)),
        };
        let environments = configured.entries.into_values().map(|spec| ListedEnvironment {
            is_default: configured.default.as_ref() == Some(&spec.id),
            destination: Destination::configured(spec, flags, configured.default.as_deref()),
        });
        Ok(Self { environments: environments.collect(), reason })
    }

    /// A sentence that says which environment commands use, and why.
    pub(super) fn choice_sentence(&self) -> String {
        match self.default() {
            Some(default) => {
                let name = readable(&default.name());
                match &self.reason {
                    ChoiceReason::Flag(flag, None) => format!("{flag} chooses {name}."),
                    ChoiceReason::Flag(flag, Some(file)) => {
                        format!("{flag} chooses {name} of {}.", readable_path(file))
                    }
                    ChoiceReason::FileDefault(file) => {
                        format!("The default is {name}, as {} says.", readable_path(file))
                    }
                    ChoiceReason::FileWithoutDefault(file) => {
                        format!("The default is {name}, because {} does not name another.", readable_path(file))
                    }
                    ChoiceReason::Variable(variable) => format!("The default is {name}, because {variable} is set."),
                    ChoiceReason::Unconfigured(files) => {
                        let files: Vec<String> = files.iter().map(|file| readable_path(file)).collect();
                        let none = format!("The default is {name}, because nothing else is configured.");
                        if files.is_empty() {
                            none
                        } else {
                            format!("{none} There is no {}.", files.join(" and no "))
                        }
                    }
                }
            }
            None => {
                let cause = match &self.reason {
                    ChoiceReason::FileDefault(file) => format!("{} says `none`", readable_path(file)),
                    ChoiceReason::FileWithoutDefault(file) => {
                        format!("{} names none and excludes this machine", readable_path(file))
                    }
                    ChoiceReason::Variable(variable) => format!("{variable} is `none`"),
                    ChoiceReason::Flag(..) | ChoiceReason::Unconfigured(_) => "none is configured".to_owned(),
                };
                format!("There is no default, because {cause}; give commands -e, --connect or --ssh.")
            }
        }
    }

    fn default(&self) -> Option<&ListedEnvironment> {
        self.environments.iter().find(|environment| environment.is_default)
    }

    /// The list for programs. `check` returns the result of the check of the environment at an index, or `None` if
    /// that environment was not checked.
    pub(super) fn json(&self, check: impl Fn(usize) -> Option<Value>) -> Value {
        let environments = self.environments.iter().enumerate().map(|(index, environment)| {
            let mut value = environment.json();
            if let Some(check) = check(index) {
                value["check"] = check;
            }
            value
        });
        json!({
            "source": self.reason.json(),
            "default": self.default().map(ListedEnvironment::name),
            "environments": environments.collect::<Vec<_>>(),
        })
    }
}

impl ListedEnvironment {
    /// The name in the configuration, or the address of a server that a flag names.
    fn name(&self) -> String {
        self.destination.name.clone().unwrap_or_else(|| self.destination.address())
    }

    /// The name for people, with a mark if the environment is the default.
    pub(super) fn label(&self) -> String {
        let mark = if self.is_default { " (default)" } else { "" };
        format!("{}{mark}", readable(&self.name()))
    }

    /// The environment as the JSON that `--json` prints.
    pub(super) fn json(&self) -> Value {
        let mut value = json!({
            "name": self.destination.name,
            "address": self.destination.address(),
            "isDefault": self.is_default,
        });
        match &self.destination.location {
            EnvironmentLocation::Local => value["kind"] = "local".into(),
            EnvironmentLocation::Program { .. } => value["kind"] = "program".into(),
            EnvironmentLocation::Ssh { .. } => value["kind"] = "ssh".into(),
            EnvironmentLocation::Url { ca_file, token_file, .. } => {
                value["kind"] = "url".into();
                value["caFile"] = path_json(ca_file.as_deref());
                value["tokenFile"] = path_json(token_file.as_deref());
            }
            EnvironmentLocation::Remote(location) => {
                value["kind"] = "remote".into();
                value["environmentId"] = location.environment_id.clone().into();
                value["pinnedKey"] = location.pinned_key.clone().into();
                value["caFile"] = path_json(location.ca_file.as_deref());
            }
        }
        value
    }
}

impl ChoiceReason {
    fn json(&self) -> Value {
        match self {
            Self::Flag(flag, file) => json!({"type": "flag", "flag": flag, "path": path_json(file.as_deref())}),
            Self::FileDefault(file) => json!({"type": "file", "path": path_json(Some(file)), "namesDefault": true}),
            Self::FileWithoutDefault(file) => {
                json!({"type": "file", "path": path_json(Some(file)), "namesDefault": false})
            }
            Self::Variable(name) => json!({"type": "variable", "name": name}),
            Self::Unconfigured(files) => {
                json!({"type": "unconfigured", "lookedFor": files.iter().map(|file| path_json(Some(file))).collect::<Vec<_>>()})
            }
        }
    }
}

fn readable_path(path: &Path) -> String {
    readable(&path.to_string_lossy())
}

fn path_json(path: Option<&Path>) -> Value {
    path.map_or(Value::Null, |path| path.to_string_lossy().into())
}
