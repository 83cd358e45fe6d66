//! All other tests once more, as an ordinary user. The imitated machines then belong to this user.

#[test]
fn every_test_of_a_machine_without_namespaces_also_passes_as_an_ordinary_user() {
    testkit::repeat_tests_as_ordinary_user("ordinary_user::", Some(("EXEC_SERVER_BIN", &testkit::binary())));
}
