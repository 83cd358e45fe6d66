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

/// Runs only the tests that `filter` selects, in the syntax of nextest.
pub(crate) fn run_filtered(filter: &[&str]) -> Result<()> {
    let runner = install_prerequisites()?;
    build()?;
    run_tests(runner, filter)
}

fn install_prerequisites() -> Result<Runner> {
    let mut runner = Runner::CargoTest;
    step("install what the tests need", || {
        tools::install_missing_programs()?;
        crate::mcp_server::install()?;
        runner = tools::test_runner();
        Ok(())
    })?;
    Ok(runner)
}

/// Builds everything before the tests run. Tests of several crates start the `exec-server` binary of their own profile, but cargo builds a
/// binary only for the tests of its own package. One command builds binaries and tests with the same features, so that nothing is
/// built twice.
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
