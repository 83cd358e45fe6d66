//! One step of a chore of `cargo xtask`: a header line, the work, its time. Also runs the programs that the steps
//! need.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// Does `work` under a header line and prints how long it took, whether it failed or not.
pub(crate) fn step(title: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("==> {title}");
    let started = Instant::now();
    let outcome = work();
    println!("    {title}: {:.1} s", started.elapsed().as_secs_f64());
    outcome
}

/// The folder that holds the workspace's manifest.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// The cargo that runs this program, so that all steps use one toolchain.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// Runs a command to its end. Its output goes to the terminal. Returns an error if the command fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", command_line(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", command_line(command));
    }
    Ok(())
}

/// Runs a command to its end and returns its stdout. Its stderr goes to the terminal.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", command_line(command)))?;
    if !output.status.success() {
        bail!("{} failed: {}", command_line(command), output.status);
    }
    Ok(output.stdout)
}

/// The name of the program and its arguments in backticks, for error messages.
fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words: Vec<_> = std::iter::once(name).chain(command.get_args()).map(|word| word.to_string_lossy()).collect();
    format!("`{}`", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "`sh -c exit 3` failed: exit status: 3");
    }

    #[test]
    fn output_is_what_the_command_printed() {
        let printed = output(Command::new("sh").args(["-c", "echo hello"])).unwrap();
        assert_eq!(printed, b"hello\n");
    }
}
