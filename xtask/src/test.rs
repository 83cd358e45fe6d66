//! `cargo xtask test`: everything that must succeed before a change is merged. The fast checks come before the
//! tests, so that a mistake in formatting is found in seconds.

use anyhow::Result;

use crate::step::{cargo, run, step};
use crate::tools::{self, Runner};

/// Runs all steps. The first step that fails ends the run.
pub(crate) fn run_all() -> Result<()> {
    let runner = install_prerequisites()?;
    step("formatting", || run(&mut cargo(&["fmt", "--all", "--", "--check"])))?;
    step("lints", || run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])))?;
    step("tidy", crate::tidy::run)?;
    step("documentation", || run(cargo(&["doc", "--no-deps", "--workspace"]).env("RUSTDOCFLAGS", "-D warnings")))?;
    build()?;
    step("examples in the documentation", || run(&mut cargo(&["test", "--quiet", "--doc", "--workspace"])))?;
    // The tests come last, so that their summary is at the end of the output.
    run_tests(runner, &[])
}

/// Runs only the tests that `filter` selects. The test runner gets the words of `filter` as arguments.
pub(crate) fn run_filtered(filter: &[&str]) -> Result<()> {
    let runner = install_prerequisites()?;
    build()?;
    run_tests(runner, filter)
}

/// Installs what the tests need. Returns the test runner to use.
fn install_prerequisites() -> Result<Runner> {
    let mut runner = Runner::CargoTest;
    step("install what the tests need", || {
        tools::install_programs_for_tests()?;
        crate::mcp_server::install()?;
        runner = tools::test_runner();
        Ok(())
    })?;
    Ok(runner)
}

/// Builds everything before the tests run. Tests of several packages start the `exec-server` binary, built with the
/// same profile as they are, but cargo builds the binaries of a package only for the tests of the same package. One
/// command builds binaries and tests with the same features, so that nothing is built twice.
fn build() -> Result<()> {
    step("build", || run(&mut cargo(&["build", "--workspace", "--bins", "--tests"])))
}

fn run_tests(runner: Runner, filter: &[&str]) -> Result<()> {
    step("tests", || {
        let mut command = match runner {
            Runner::Nextest => cargo(&["nextest", "run", "--workspace"]),
            Runner::CargoTest => cargo(&["test", "--workspace", "--bins", "--lib", "--tests"]),
        };
        if runner == Runner::Nextest && std::env::var("CI").is_ok_and(|ci| ci == "true") {
            command.args(["--profile", "ci"]);
        }
        run(command.args(filter))
    })
}
