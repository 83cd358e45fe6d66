//! All other tests once more, as an ordinary user. The servers of the tests run as this user too.

#[test]
fn every_test_of_a_sandbox_through_the_server_also_passes_as_an_ordinary_user() {
    testkit::repeat_tests_as_ordinary_user("ordinary_user::", Some(("EXEC_SERVER_BIN", &testkit::binary())));
}
