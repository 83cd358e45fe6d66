//! `cargo xtask test`: everything that must hold before a change is merged. The cheap checks come before the
//! tests, so that a slip in formatting is found in seconds.

use anyhow::Result;

use crate::step::{cargo, run, step};
use crate::tools::{self, Runner};

/// All steps. The first that fails ends the run.
pub(crate) fn everything() -> Result<()> {
    let runner = install()?;
    step("formatting", || run(&mut cargo(&["fmt", "--all", "--", "--check"])))?;
    step("lints", || run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])))?;
    step("tidy", crate::tidy::run)?;
    step("documentation", || run(cargo(&["doc", "--no-deps", "--workspace"]).env("RUSTDOCFLAGS", "-D warnings")))?;
    build()?;
    step("examples in the documentation", || run(&mut cargo(&["test", "--quiet", "--doc", "--workspace"])))?;
    // Last, so that the run closes on the count of the tests.
    tests(runner, &[])
}

/// Only the tests that `filter` selects, in nextest's syntax.
pub(crate) fn only(filter: &[&str]) -> Result<()> {
    let runner = install()?;
    build()?;
    tests(runner, filter)
}

fn install() -> Result<Runner> {
    let mut runner = Runner::CargoTest;
    step("what the tests need", || {
        tools::install_missing_programs()?;
        crate::mcp_server::install()?;
        runner = tools::test_runner();
        Ok(())
    })?;
    Ok(runner)
}

/// Tests of several crates start the `exec-server` binary of their own profile, and cargo builds a binary only for the
/// tests of its own package. Building bins and tests in one command gives both the same features, so that the tests
/// find everything built.
fn build() -> Result<()> {
    step("build", || run(&mut cargo(&["build", "--workspace", "--bins", "--tests"])))
}

fn tests(runner: Runner, filter: &[&str]) -> Result<()> {
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
