//! Licences: who takes the product under Apache-2.0 can take everything in it, with no duty beyond keeping notices.

use super::complaint::Complaint;
use super::project::{Package, Project};
use super::spdx;

/// They ask for nothing but their notice, or not even that. Absent on purpose: MPL-2.0 and all GPLs, which put duties
/// on the source, and OpenSSL, which puts one on advertising.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Checks all crates from elsewhere, those that only build or test with us too.
pub(super) fn check(project: &Project) -> Vec<Complaint> {
    project.foreign.iter().filter_map(check_package).collect()
}

fn check_package(package: &Package) -> Option<Complaint> {
    let objection = match &package.license {
        None => "names no licence".to_owned(),
        Some(expression) => match spdx::is_satisfied(expression, |licence| ALLOWED.contains(&licence)) {
            Ok(true) => return None,
            Ok(false) => format!("is under `{expression}`, which we cannot pass on"),
            Err(error) => format!("has a licence we cannot read, `{expression}`: {error}"),
        },
    };
    Some(Complaint::about("Cargo.lock", format!("{} {} {objection}", package.name, package.version)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(license: Option<&str>) -> Vec<String> {
        let package =
            Package { name: "some".to_owned(), version: "1.0.0".to_owned(), license: license.map(str::to_owned) };
        let project = Project { foreign: vec![package], ..Project::default() };
        check(&project).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn permissive_licences_pass() {
        for license in ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "ISC AND (Apache-2.0 OR ISC) AND BSD-3-Clause"] {
            assert_eq!(complaints(Some(license)), [""; 0], "{license}");
        }
    }

    #[test]
    fn others_do_not() {
        assert_eq!(
            complaints(Some("MIT AND MPL-2.0")),
            ["Cargo.lock: some 1.0.0 is under `MIT AND MPL-2.0`, which we cannot pass on"]
        );
        assert_eq!(complaints(None), ["Cargo.lock: some 1.0.0 names no licence"]);
        assert_eq!(
            complaints(Some("MIT AND")),
            ["Cargo.lock: some 1.0.0 has a licence we cannot read, `MIT AND`: a licence is missing at the end"]
        );
    }
}
