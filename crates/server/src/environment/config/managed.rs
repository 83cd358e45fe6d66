//! Turns the managed configuration of a machine (`managed_config.toml`) into requirements, which list the values that
//! a setting may have. Only three settings become requirements. The value that an administrator sets becomes the only
//! allowed value, with two exceptions: the sandbox mode `read-only` always stays allowed, and so does the reviewer
//! `user`.

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::{Table, Value};

use super::ConfigError;

/// The settings that become requirements. They are parsed so that an unknown value is an error: a requirement must not be ignored because it
/// is misspelled.
#[derive(Deserialize)]
struct ManagedSettings {
    approval_policy: Option<ApprovalPolicy>,
    approvals_reviewer: Option<ApprovalsReviewer>,
    sandbox_mode: Option<SandboxMode>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ApprovalPolicy {
    Untrusted,
    OnFailure,
    OnRequest,
    /// A table with a setting for each kind of approval.
    Granular(IgnoredAny),
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ApprovalsReviewer {
    User,
    AutoReview,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SandboxMode {
    ReadOnly,
    WorkspaceWrite,
    DangerFullAccess,
}

/// The requirements that follow from `managed`.
pub(super) fn requirements(managed: &Table) -> Result<Table, ConfigError> {
    let settings: ManagedSettings = Value::Table(managed.clone()).try_into().map_err(|error: toml::de::Error| {
        let problem = error.to_string();
        ConfigError::load(format!("Failed to parse config requirements as TOML: {}", problem.trim_end()))
    })?;
    let mut requirements = Table::new();
    let mut allow = |name: &str, values: Vec<Value>| drop(requirements.insert(name.to_owned(), Value::Array(values)));
    let value = |name: &str| managed.get(name).cloned();
    if settings.approval_policy.is_some() {
        allow("allowed_approval_policies", value("approval_policy").into_iter().collect());
    }
    if let Some(reviewer) = settings.approvals_reviewer {
        let mut allowed: Vec<_> = value("approvals_reviewer").into_iter().collect();
        if reviewer == ApprovalsReviewer::AutoReview {
            allowed.push("user".into());
        }
        allow("allowed_approvals_reviewers", allowed);
    }
    if let Some(mode) = settings.sandbox_mode {
        let mut allowed = vec![Value::from("read-only")];
        if mode != SandboxMode::ReadOnly {
            allowed.extend(value("sandbox_mode"));
        }
        allow("allowed_sandbox_modes", allowed);
    }
    Ok(requirements)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translate(managed: &str) -> Result<String, String> {
        let requirements = requirements(&managed.parse().unwrap()).map_err(|error| error.to_string())?;
        Ok(toml::to_string(&requirements).unwrap())
    }

    #[test]
    fn the_set_value_becomes_the_only_allowed_one_besides_read_only_and_user() {
        for (managed, expected) in [
            ("model = 'm'", ""),
            ("approval_policy = 'never'", "allowed_approval_policies = [\"never\"]\n"),
            (
                "approval_policy = { granular = { rules = true } }",
                "[[allowed_approval_policies]]\n\n[allowed_approval_policies.granular]\nrules = true\n",
            ),
            ("approvals_reviewer = 'user'", "allowed_approvals_reviewers = [\"user\"]\n"),
            ("approvals_reviewer = 'auto_review'", "allowed_approvals_reviewers = [\"auto_review\", \"user\"]\n"),
            ("sandbox_mode = 'read-only'", "allowed_sandbox_modes = [\"read-only\"]\n"),
            ("sandbox_mode = 'workspace-write'", "allowed_sandbox_modes = [\"read-only\", \"workspace-write\"]\n"),
        ] {
            assert_eq!(translate(managed).as_deref(), Ok(expected), "{managed}");
        }
    }

    #[test]
    fn an_unknown_value_is_refused() {
        let prefix = "failed to load executor-local config: Failed to parse config requirements as TOML: ";
        assert_eq!(
            translate("approval_policy = 'bogus'").unwrap_err(),
            format!(
                "{prefix}unknown variant `bogus`, expected one of `untrusted`, `on-failure`, `on-request`, `granular`, \
                 `never`\nin `approval_policy`"
            )
        );
        for wrong in ["approval_policy = 'granular'", "sandbox_mode = 5", "approvals_reviewer = 'nobody'"] {
            assert!(translate(wrong).unwrap_err().starts_with(prefix), "{wrong}");
        }
    }
}
