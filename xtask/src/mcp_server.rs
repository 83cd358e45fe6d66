//! Installs the MCP server that tests connect to, from PyPI, into a Python environment below the target folder. The
//! environment is made once, and again when the list of packages changes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::step::{root, run};
use crate::tools;

/// Lists every package with its version, so that all runs use the same versions.
const REQUIREMENTS: &str = "crates/cli/tests/mcp/requirements.txt";

/// Makes the environment unless it was made from the present list of packages.
pub(crate) fn install() -> Result<()> {
    let list = root().join(REQUIREMENTS);
    let wanted = std::fs::read_to_string(&list).with_context(|| format!("cannot read {REQUIREMENTS}"))?;
    let folder = target_folder().join("mcp-venv");
    // Written last, so an environment that was not finished is made again.
    let installed = folder.join("installed.txt");
    if std::fs::read_to_string(&installed).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    println!("    installing the MCP server for the tests");
    // The package python3 of Debian does not include the modules that make environments.
    if !Command::new("python3").args(["-c", "import ensurepip, venv"]).output().is_ok_and(|run| run.status.success())
    {
        tools::install_packages(&["python3-venv"])?;
    }
    let make = || -> Result<()> {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
        run(Command::new(folder.join("bin/python")).args(pip).arg(&list))
    };
    make().with_context(|| {
        format!("the tests of `exec-server mcp-stdio` need the Python packages of {REQUIREMENTS}, which PyPI serves")
    })?;
    std::fs::write(&installed, wanted).with_context(|| format!("cannot write {}", installed.display()))
}

/// The build directory of cargo. The tests look for the environment beside their own programs.
fn target_folder() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder),
        None => root().join(Path::new("target")),
    }
}
