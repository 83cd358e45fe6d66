//! All other tests once more, as an ordinary user.

#[test]
fn every_test_of_a_sandbox_also_passes_as_an_ordinary_user() {
    testkit::repeat_tests_as_ordinary_user("ordinary_user::", None);
}
