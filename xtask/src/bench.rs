//! `cargo xtask bench`: builds the product and the benchmark with the release profile, and runs the benchmark.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::tools::install_missing_programs;

/// Runs the benchmark, which prints its figures as a table. The arguments are passed to the benchmark.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    // The benchmark compares a search with ripgrep, and a sandbox with bubblewrap.
    install_missing_programs(&[("rg", "ripgrep"), ("bwrap", "bubblewrap")])?;
    cargo(&["build", "--release", "--quiet", "-p", "exec-server-cli", "-p", "bench"])?;
    let mut all = vec!["run", "--release", "--quiet", "-p", "bench", "--"];
    all.extend(args);
    cargo(&all)
}

fn cargo(args: &[&str]) -> Result<()> {
    let status = Command::new(env!("CARGO")).args(args).status().context("cannot run cargo")?;
    ensure!(status.success(), "cargo {} failed", args.join(" "));
    Ok(())
}
