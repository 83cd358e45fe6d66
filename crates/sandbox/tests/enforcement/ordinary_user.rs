//! All other tests once more, as an ordinary user.

use crate::support::{LAUNCHER_VARIABLE, launcher_command};

#[test]
fn every_test_of_a_real_sandbox_also_passes_as_an_ordinary_user() {
    testkit::repeat_tests_as_ordinary_user("ordinary_user::", Some((LAUNCHER_VARIABLE, &launcher_command())));
}
