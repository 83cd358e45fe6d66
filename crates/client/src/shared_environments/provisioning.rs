//! The rules that say what a report changes about a deferred environment. A value without IO and tasks.

use std::collections::HashSet;

use protocol::CapabilityRoot;

/// The largest number of capability roots in a report.
const MAX_ROOTS: usize = 256;

/// A report about a deferred environment, from whoever prepares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProvisioningReport {
    /// The environment can be used. It offers plugins and skills in these directories: at most 256, with different ids.
    Ready(Vec<CapabilityRoot>),
    /// The environment will never be usable, for this reason.
    Failed(String),
}

/// What a report has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportEffect {
    /// The environment now has the state that the report describes.
    Applied,
    /// The environment is ordinary, it has failed before, or the report says that a ready environment has failed.
    Ignored,
}

/// Why a report cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReport {
    /// Too many roots. Holds their number.
    #[error("the report has {0} capability roots, and at most {MAX_ROOTS} are allowed")]
    TooManyRoots(usize),
    /// Two roots have the same id, which this holds.
    #[error("the report has two capability roots with the id `{0}`")]
    RepeatedRoot(String),
}

/// What the reports so far say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProvisioningVerdict {
    /// No report has come.
    Pending,
    /// The environment can be used, with these roots.
    Ready(Vec<CapabilityRoot>),
    /// The environment can never be used, for this reason.
    Failed(String),
}

impl ProvisioningVerdict {
    /// Handles a report. The first one decides between [`Self::Ready`] and [`Self::Failed`]; later ones can only change
    /// the roots of a ready environment. An invalid report means failure if it is the first one, and changes nothing
    /// later.
    pub(super) fn handle_report(&mut self, report: ProvisioningReport) -> Result<ReportEffect, InvalidReport> {
        if let Self::Failed(_) = self {
            return Ok(ReportEffect::Ignored);
        }
        match report {
            ProvisioningReport::Failed(reason) if *self == Self::Pending => *self = Self::Failed(reason),
            ProvisioningReport::Failed(_) => return Ok(ReportEffect::Ignored),
            ProvisioningReport::Ready(roots) => match check(&roots) {
                Ok(()) => *self = Self::Ready(roots),
                Err(error) => {
                    if *self == Self::Pending {
                        *self = Self::Failed(error.to_string());
                    }
                    return Err(error);
                }
            },
        }
        Ok(ReportEffect::Applied)
    }
}

fn check(roots: &[CapabilityRoot]) -> Result<(), InvalidReport> {
    if roots.len() > MAX_ROOTS {
        return Err(InvalidReport::TooManyRoots(roots.len()));
    }
    let mut ids = HashSet::new();
    match roots.iter().find(|root| !ids.insert(root.id.as_str())) {
        Some(root) => Err(InvalidReport::RepeatedRoot(root.id.clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(ids: impl IntoIterator<Item = impl ToString>) -> Vec<CapabilityRoot> {
        let root = |id: String| CapabilityRoot { path: format!("file:///{id}").parse().unwrap(), id, sandbox: None };
        ids.into_iter().map(|id| root(id.to_string())).collect()
    }

    fn ready(ids: impl IntoIterator<Item = impl ToString>) -> ProvisioningReport {
        ProvisioningReport::Ready(roots(ids))
    }

    fn failed(reason: &str) -> ProvisioningReport {
        ProvisioningReport::Failed(reason.to_owned())
    }

    #[test]
    fn the_first_failure_is_kept_and_a_later_readiness_is_ignored() {
        let mut verdict = ProvisioningVerdict::Pending;
        assert_eq!(verdict.handle_report(failed("first")), Ok(ReportEffect::Applied));
        for later in [failed("second"), ready(["a"]), ready(["a", "a"])] {
            assert_eq!(verdict.handle_report(later), Ok(ReportEffect::Ignored));
        }
        assert_eq!(verdict, ProvisioningVerdict::Failed("first".to_owned()));
    }

    #[test]
    fn readiness_takes_other_roots_and_ignores_a_failure() {
        let mut verdict = ProvisioningVerdict::Pending;
        for ids in [&["a", "b"][..], &["a", "b"], &["c"], &[]] {
            assert_eq!(verdict.handle_report(ready(ids)), Ok(ReportEffect::Applied));
            assert_eq!(verdict, ProvisioningVerdict::Ready(roots(ids)));
        }
        assert_eq!(verdict.handle_report(failed("late")), Ok(ReportEffect::Ignored));
        assert_eq!(verdict, ProvisioningVerdict::Ready(Vec::new()));
    }

    #[test]
    fn an_invalid_report_fails_a_pending_environment_and_leaves_a_ready_one_alone() {
        let repeated = InvalidReport::RepeatedRoot("a".to_owned());
        let too_many = InvalidReport::TooManyRoots(MAX_ROOTS + 1);
        for (report, error) in [(ready(["a", "b", "a"]), repeated), (ready(0..=MAX_ROOTS), too_many)] {
            let mut pending = ProvisioningVerdict::Pending;
            assert_eq!(pending.handle_report(report.clone()), Err(error.clone()));
            assert_eq!(pending, ProvisioningVerdict::Failed(error.to_string()));
            let mut usable = ProvisioningVerdict::Ready(roots(["kept"]));
            assert_eq!(usable.handle_report(report), Err(error));
            assert_eq!(usable, ProvisioningVerdict::Ready(roots(["kept"])));
        }
        assert_eq!(ProvisioningVerdict::Pending.handle_report(ready(0..MAX_ROOTS)), Ok(ReportEffect::Applied));
    }
}
