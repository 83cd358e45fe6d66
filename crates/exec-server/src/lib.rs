//! exec-server for programs that embed it: the client, which reconnects by itself, and the server.
//!
//! A program that runs processes in an environment, which is the machine or container of a server:
//!
//! ```no_run
//! # async fn example() -> Result<(), exec_server::ExecServerError> {
//! use exec_server::{ExecParams, ExecServerClient, RemoteExecServerConnectArgs};
//!
//! let args = RemoteExecServerConnectArgs::new("ws://127.0.0.1:7000", "my-harness");
//! let client = ExecServerClient::connect_websocket(args).await?;
//! let process = client.start(ExecParams::new("build", ["make", "-j8"], "file:///src".parse().unwrap())).await?;
//! let output = process.wait_with_output().await?;
//! println!("{}", String::from_utf8_lossy(&output.stdout));
//! # Ok(())
//! # }
//! ```
//!
//! A program that serves as the environment:
//!
//! ```no_run
//! use exec_server::{ExecServerRuntimePaths, become_guard_if_asked, run_main};
//!
//! fn main() -> Result<(), exec_server::ServeError> {
//!     // Before anything else: the server starts this program a second time as its guard, which kills the processes
//!     // of the server if the server itself is killed.
//!     if let Some(code) = become_guard_if_asked() {
//!         std::process::exit(code);
//!     }
//!     let runtime = tokio::runtime::Runtime::new().expect("a runtime");
//!     runtime.block_on(run_main(ExecServerRuntimePaths::of_this_program()?))
//! }
//! ```
//!
//! A program with work and child processes of its own, which runs a server in addition. The server changes no setting
//! of the whole process, such as a limit or a signal, and leaves the children of the program alone:
//!
//! ```no_run
//! # async fn example(listen: exec_server::Listen) -> Result<(), exec_server::ServeError> {
//! use exec_server::{HostProcess, Server, ServerConfig};
//!
//! let server = Server::new(ServerConfig::default(), HostProcess::shared())?;
//! server.listen(listen).await?;
//! // ... the work of the program ...
//! server.shut_down().await;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod forward;
mod paths;
mod remote_environment;
mod run;

pub use client::*;
pub use credentials::{
    Credential, CredentialDescription, CredentialError, CredentialKind, KeyStore, SurveyedCredential,
    bearer as bearer_credential,
};
pub use forward::forward_remote_environment;
pub use paths::{ExecServerRuntimePaths, become_guard_if_asked};
pub use remote::{ForwardDestination, IdentityFileError, RelayIdentity, load_or_create_identity};
pub use remote_environment::{
    RemoteCredentialSource, RemoteEnvironmentConfig, RemoteEnvironmentError, run_remote_environment,
    survey_credentials, variables_of_this_process,
};
#[expect(deprecated, reason = "programs that use the older names go on compiling")]
pub use remote_environment::{RemoteExecutorConfig, run_remote_executor};
pub use run::{ServeError, ServeOptions, run_main, run_main_with_listen_url, serve, serve_with};
pub use server::{Config as ServerConfig, Listen, Server, Tokens};
pub use spawn::HostProcess;
pub use transport::{DEFAULT_LISTEN_URL, ListenUrl, ListenUrlError as ExecServerListenUrlParseError, tls_acceptor};
