//! Finds or starts the server in the background of this machine. That server has the kept sessions of commands whose
//! environment is this machine, and outlives the command that starts it. It listens on a Unix socket in a private
//! directory of the user, and ends by itself when it has had no session for a while.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use client::EnvironmentLocation;

use super::saved_sessions::{make_private_directory, state_directory};
use crate::args::server_variables;

/// How long the server waits for the next session before it ends, unless `--background-idle` says otherwise.
pub(crate) const DEFAULT_IDLE: Duration = Duration::from_secs(60);

/// Returns how to reach the server. If no server runs, this function starts one, which ends after it has had no
/// session for `start_with_idle`. If no server runs and `start_with_idle` is `None`, this function returns `None`.
pub(crate) async fn find_or_start(start_with_idle: Option<Duration>) -> anyhow::Result<Option<EnvironmentLocation>> {
    let directory = state_directory()?;
    let socket = directory.join("server.sock");
    let url = format!("unix://{}", socket.display());
    if tokio::net::UnixStream::connect(&socket).await.is_err() {
        let Some(idle) = start_with_idle else { return Ok(None) };
        // `start_server` waits for the first line that the server prints, which blocks the thread.
        tokio::task::spawn_blocking({
            let url = url.clone();
            move || start_server(&directory, &url, idle)
        })
        .await??;
    }
    Ok(Some(EnvironmentLocation::Url { url, ca_file: None, token_file: None }))
}

fn start_server(directory: &Path, url: &str, idle: Duration) -> anyhow::Result<()> {
    make_private_directory(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let log_path = directory.join("server.log");
    let log = fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&log_path);
    let log = log.with_context(|| format!("cannot write {}", log_path.display()))?;
    // The server can outlive the program that has started this command, so it must not inherit pipes and locked files
    // from that program.
    spawn::set_inherited_fds_close_on_exec().context("cannot make inherited file descriptors close-on-exec")?;
    let mut command = Command::new(std::env::current_exe().context("cannot find the path of this program")?);
    // These environment variables may be meant for another server.
    for name in server_variables() {
        command.env_remove(name);
    }
    let mut server = command
        .args(["--listen", url, "--exit-when-idle", &format!("{}ms", idle.as_millis())])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        // Ctrl-C in this terminal must not end the server.
        .process_group(0)
        .spawn()
        .context("cannot start a server in the background")?;
    let mut line = String::new();
    let stdout = server.stdout.take().context("the server has no stdout")?;
    BufReader::new(stdout).read_line(&mut line)?;
    // If two commands start a server at once, one of the servers ends without printing a line, and the socket belongs
    // to the other server, which serves both commands.
    let is_up =
        line.trim() == url || std::os::unix::net::UnixStream::connect(url.trim_start_matches("unix://")).is_ok();
    anyhow::ensure!(
        is_up,
        "the server in the background did not start: {}",
        fs::read_to_string(&log_path).unwrap_or_default().trim()
    );
    Ok(())
}
