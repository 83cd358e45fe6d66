//! `shell`: the user's shell in an environment, at our terminal. Without one it reads its commands from our stdin, as `sh` does.

use std::process::ExitCode;

use client::ExecServerClient;

use super::args::ShellArgs;
use super::reach::Destination;
use super::relay::{EndOfInput, Ending, Relay};
use super::run::{Started, choose_id, say_that_it_goes_on, start};
use super::signals::Signals;
use super::start::{Flags, Here};
use super::terminal::is_terminal_at_stdin;

/// Runs the shell to its end.
pub(crate) async fn shell(args: ShellArgs) -> anyhow::Result<ExitCode> {
    let destination = Destination::choose(&args.r#where)?;
    let here = Here::new(&destination.way, args.session.is_some());
    let client = match &args.session {
        Some(name) => destination.connect_to_session(name, Some(args.keep.0)).await?,
        None => destination.connect().await?,
    };
    let code = shell_with(&client, &here, &args).await;
    client.close().await;
    code
}

async fn shell_with(client: &ExecServerClient, here: &Here, args: &ShellArgs) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let is_kept = args.session.is_some();
    let tty = is_terminal_at_stdin();
    let info = client.environment_info().await?;
    let id = choose_id(client, None, is_kept).await?;
    let flags = Flags { cwd: args.cwd.as_deref(), env: &args.env, tty };
    let argv = [info.shell.path.clone()];
    let mut params = here.start(client, id, &argv, flags, Some(&info)).await?;
    if tty {
        // By this name every shell knows that it is the first one, and reads its profile.
        params.arg0 = info.shell.path.rsplit('/').next().map(|name| format!("-{name}"));
    }
    let process = match start(client, params, &mut signals).await? {
        Started::Process(process) => process,
        Started::Nothing(code) => return Ok(code),
    };
    if is_kept {
        process.detach();
    }
    let end_of_input = EndOfInput::Passed;
    let relay = Relay { client, process: &process, tty, json: false, is_kept, end_of_input, redraw: false };
    let ending = relay.run(&mut signals).await?;
    if let (Some(session), Ending::Left) = (&args.session, ending) {
        say_that_it_goes_on(session, process.process_id());
    }
    Ok(ending.exit_code(is_kept))
}
