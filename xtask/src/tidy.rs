//! `cargo xtask tidy`: the rules of the project that no compiler checks. Each check is a function from a [`Project`]
//! to complaints. A project is a plain value, so the tests of a check can make up a project that breaks the rule.

mod absolute_paths;
mod complaint;
mod crate_paths;
mod deny_rules;
mod dependencies;
mod documents;
mod file_roots;
mod layers;
mod length;
mod licences;
mod links;
mod module_docs;
mod module_order;
mod names;
mod project;
mod purity;
mod rust_source;
mod rust_tokens;
mod short_docs;
mod sleeps;
mod spdx;
mod type_names;
mod unsafe_code;

use anyhow::{Result, bail};

use complaint::Complaint;
use project::Project;

type Check = fn(&Project) -> Vec<Complaint>;

const CHECKS: &[Check] = &[
    layers::check,
    purity::check,
    module_order::check,
    unsafe_code::check,
    file_roots::check,
    licences::check,
    dependencies::check,
    length::check,
    module_docs::check,
    short_docs::check,
    names::check,
    type_names::check,
    sleeps::check,
    absolute_paths::check,
    documents::check,
    links::check,
];

/// Runs every check and prints the complaints. Returns an error if there are any.
pub(crate) fn run() -> Result<()> {
    let project = Project::load()?;
    let complaints: Vec<Complaint> = CHECKS.iter().flat_map(|check| check(&project)).collect();
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    match complaints.len() {
        0 => Ok(()),
        1 => bail!("tidy has one complaint"),
        many => bail!("tidy has {many} complaints"),
    }
}
