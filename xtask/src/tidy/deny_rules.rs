//! The rules of `deny.toml` that tidy enforces too. They are read from that file, so that tidy and `cargo deny`
//! cannot disagree.

use anyhow::{Context, Result};
use serde::Deserialize;

/// Path of the file, relative to the root of the project.
pub(super) const DENY_FILE: &str = "deny.toml";

/// The part of `deny.toml` that tidy uses.
#[derive(Debug, Default, Deserialize)]
pub(super) struct DenyRules {
    pub(super) graph: DenyGraph,
    pub(super) licenses: DenyLicences,
}

/// Which part of the dependency graph is checked.
#[derive(Debug, Default, Deserialize)]
pub(super) struct DenyGraph {
    /// Target triples. A crate that none of them needs is not checked.
    pub(super) targets: Vec<String>,
}

/// Which licences third-party crates may have.
#[derive(Debug, Default, Deserialize)]
pub(super) struct DenyLicences {
    /// SPDX identifiers of single licences. If a crate has several licences, its licence expression says whether one
    /// of them or all of them must be in this list.
    pub(super) allow: Vec<String>,
}

impl DenyRules {
    /// Reads the text of `deny.toml`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).with_context(|| format!("cannot read {DENY_FILE}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_tidy_does_not_use_are_ignored() {
        let text = "[graph]\ntargets = [\"a\"]\nall-features = true\n[licenses]\nallow = [\"MIT\"]\n[sources]\nunknown-git = \"deny\"";
        let rules = DenyRules::parse(text).unwrap();
        assert_eq!((rules.graph.targets, rules.licenses.allow), (vec!["a".to_owned()], vec!["MIT".to_owned()]));
    }

    #[test]
    fn a_file_without_a_list_of_licences_is_an_error_that_names_the_file() {
        let error = DenyRules::parse("[graph]\ntargets = []\n[licenses]\n").unwrap_err();
        let text = format!("{error:#}");
        assert!(text.starts_with("cannot read deny.toml: ") && text.contains("allow"), "{text}");
    }
}
