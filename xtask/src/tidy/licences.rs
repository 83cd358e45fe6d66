//! Refuses third-party crates whose licences `deny.toml` does not allow.

use super::complaint::Complaint;
use super::project::{Package, Project};
use super::spdx;

/// Checks all third-party crates, including those that are only used to build or test.
pub(super) fn check(project: &Project) -> Vec<Complaint> {
    let allowed = &project.deny.licenses.allow;
    project.foreign.iter().filter_map(|package| check_package(package, allowed)).collect()
}

fn check_package(package: &Package, allowed: &[String]) -> Option<Complaint> {
    let objection = match &package.license {
        None => "names no licence".to_owned(),
        Some(expression) => {
            match spdx::is_satisfied(expression, |licence| allowed.iter().any(|known| known == licence)) {
                Ok(true) => return None,
                Ok(false) => format!("is under `{expression}`, which `deny.toml` does not allow"),
                Err(error) => format!("has the licence `{expression}`, which cannot be parsed: {error}"),
            }
        }
    };
    Some(Complaint::about("Cargo.lock", format!("{} {} {objection}", package.name, package.version)))
}

#[cfg(test)]
mod tests {
    use super::super::deny_rules::{DenyLicences, DenyRules};
    use super::*;

    fn complaints(license: Option<&str>) -> Vec<String> {
        let package =
            Package { name: "some".to_owned(), version: "1.0.0".to_owned(), license: license.map(str::to_owned) };
        let allow = ["Apache-2.0", "BSD-3-Clause", "ISC", "MIT"].map(str::to_owned).to_vec();
        let deny = DenyRules { licenses: DenyLicences { allow }, ..DenyRules::default() };
        let project = Project { foreign: vec![package], deny, ..Project::default() };
        check(&project).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn allowed_licences_pass() {
        for license in ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "ISC AND (Apache-2.0 OR ISC) AND BSD-3-Clause"] {
            assert_eq!(complaints(Some(license)), [""; 0], "{license}");
        }
    }

    #[test]
    fn other_licences_are_refused() {
        assert_eq!(
            complaints(Some("MIT AND MPL-2.0")),
            ["Cargo.lock: some 1.0.0 is under `MIT AND MPL-2.0`, which `deny.toml` does not allow"]
        );
        assert_eq!(complaints(None), ["Cargo.lock: some 1.0.0 names no licence"]);
        assert_eq!(
            complaints(Some("MIT AND")),
            [
                "Cargo.lock: some 1.0.0 has the licence `MIT AND`, which cannot be parsed: a licence is missing at the end"
            ]
        );
    }
}
