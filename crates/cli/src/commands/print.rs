//! Prints to stdout and stderr, for commands whose output is short.

use std::io;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::stdio::stdout;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::oneshot;

use crate::terminal_text::{readable, without_os_error_number};

/// Prints text to stdout. A reader that has closed the pipe is not an error.
pub(crate) async fn print(text: &str) -> io::Result<()> {
    print_bytes(text.as_bytes()).await
}

/// Prints bytes to stdout, which need not be text: names of files, for example. A reader that has closed the pipe is
/// not an error.
pub(crate) async fn print_bytes(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = tokio::io::stdout();
    let written = async {
        stdout.write_all(bytes).await?;
        stdout.flush().await
    };
    match written.await {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(cannot_write),
    }
}

/// Adds to the error of a failed write that our own output could not be written. The kind of the error stays.
pub(crate) fn cannot_write(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write the output: {error}"))
}

/// Whether an error means that the reader of our output has closed the pipe.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Waits until the reader of our stdout has closed the pipe, also while we write nothing. If stdout is a file, which
/// has no reader, it waits for ever.
pub(crate) async fn wait_until_stdout_closes() {
    let (sender, closed) = oneshot::channel();
    // The thread is not joined, because it may wait in the poll for ever.
    let started = std::thread::Builder::new().name("stdout reader".to_owned()).spawn(move || {
        // A poll for no event still reports errors and hang-ups.
        while poll(&mut [PollFd::from_borrowed_fd(stdout(), PollFlags::empty())], None) == Err(Errno::INTR) {}
        // The receiver may be gone.
        let _ignored = sender.send(());
    });
    if started.is_err() || closed.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Prints a message to stderr, after the name of the program. Escape sequences in the message become visible, and the
/// number of an error of the operating system at its end is left out.
pub(crate) fn report(sentence: &str) {
    crate::write_to_stderr(&format!("exec-server: {}\n", readable(without_os_error_number(sentence))));
}
