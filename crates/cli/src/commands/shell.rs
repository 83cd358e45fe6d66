//! `shell`: opens a login shell in an environment, which is a machine with a server, and shows it in our terminal. If
//! our stdin is not a terminal, the shell is no login shell and reads its commands from our stdin, as `sh` does.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::slice;

use client::{Capabilities, ExecServerClient, StartParams};

use super::args::ShellArgs;
use super::capabilities::environment_info;
use super::environment_hint::EnvironmentHint;
use super::foreground::{EndOfInput, Foreground, Goodbye, input_plan};

use super::destination::{Destination, leave};
use super::kept_session::{SessionCreation, SessionUse};
use super::process_start::{StartContext, StartFlags};
use super::reattach_hint::{ReattachHint, run_in_foreground};
use super::run::{Started, choose_id, start};
use super::signals::Signals;
use super::terminal::is_terminal_at_stdin;

/// Runs the shell to its end.
pub(crate) async fn shell(args: ShellArgs) -> anyhow::Result<ExitCode> {
    let destination = Destination::choose(&args.target)?;
    let hint = EnvironmentHint::new(&destination);
    let context = StartContext::new(&destination.location, args.session.is_some());
    anyhow::ensure!(
        args.keep.is_none() || args.session.is_some(),
        "--keep is about a kept session; give --session too"
    );
    let client = match &args.session {
        Some(name) => {
            let creation = SessionCreation::IfMissing { keep: args.keep.map(|time| time.0) };
            destination.connect_to_session(name, creation, SessionUse::Run).await?
        }
        None => destination.connect().await?,
    };
    let ended = shell_with(&client, &context, &hint, &args).await;
    leave(client, ended.as_ref().map_or(Goodbye::InOrder, |(_, goodbye)| *goodbye)).await;
    ended.map(|(code, _)| code)
}

async fn shell_with(
    client: &ExecServerClient,
    context: &StartContext,
    hint: &EnvironmentHint,
    args: &ShellArgs,
) -> anyhow::Result<(ExitCode, Goodbye)> {
    let is_kept = args.session.is_some();
    let tty = is_terminal_at_stdin();
    let info = environment_info(client).await?;
    let server = &info.capabilities;
    let end_of_input = input_plan::plan(server, tty).await?;
    let limits = args.limits.limits(server)?;
    let id = choose_id(client, None, is_kept).await?;
    let flags = StartFlags { cwd: args.cwd.as_deref(), env: &args.env, tty, sandbox: &args.sandbox };
    let mut params = context.start_params(&info, id, slice::from_ref(&info.shell.path), flags)?;
    params.pipe_stdin &= end_of_input != EndOfInput::EndedBeforeStart;
    params.limits = limits;
    hint.set_variable(&mut params, &args.env);
    if tty {
        make_login_shell(&mut params, server);
    }
    let has_hints = tty && !args.no_hint;
    if has_hints {
        hint.mark_prompt(&mut params, &info.shell.name);
    }
    // From here on, a signal must not leave a process behind.
    let mut signals = Signals::listen()?;
    let process = match start(client, params, &mut signals).await? {
        Started::Process(process) => process,
        Started::Nothing(code) => return Ok((code, Goodbye::InOrder)),
    };
    if is_kept {
        process.detach();
    }
    if has_hints && io::stderr().is_terminal() {
        crate::write_to_stderr(&hint.greeting(is_kept));
    }
    let foreground = Foreground {
        client,
        process: &process,
        server,
        timeout: None,
        tty,
        json: false,
        is_kept,
        end_of_input,
        redraw: false,
    };
    let session = args.session.as_deref();
    let reattach_hint =
        session.map(|session| ReattachHint { target: &args.target, session, id: process.process_id() });
    run_in_foreground(foreground, &mut signals, reattach_hint.as_ref()).await
}

/// Makes the shell a login shell, which reads its profile.
fn make_login_shell(params: &mut StartParams, server: &Capabilities) {
    let Some(shell) = params.argv.first() else { return };
    if server.process_resize {
        // Every shell is a login shell if its `argv[0]` begins with a hyphen.
        params.arg0 = shell.rsplit('/').next().map(|name| format!("-{name}"));
    } else {
        // A server without our extensions, such as `process/resize`, may execute `arg0` as the program. Most shells
        // know `-l`.
        params.argv.push("-l".to_owned());
    }
}
