//! Words for the person or the program that started us.

use std::io;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::stdio::stdout;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::oneshot;

use crate::terminal_text::{readable, without_os_error_number};

/// To stdout. Whoever has read enough and closed it is no error.
pub(crate) async fn print(text: &str) -> io::Result<()> {
    print_bytes(text.as_bytes()).await
}

/// The same for what need not be text, such as names of files.
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

/// The error of a failed write to stdout or stderr, with words that say so. Its kind stays.
pub(crate) fn cannot_write(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write the output: {error}"))
}

/// Waits until nobody reads our stdout any more, also while we have nothing to write. It waits for ever if stdout is a file.
pub(crate) async fn reader_is_gone() {
    let (tell, told) = oneshot::channel();
    // Not waited for: it may hang in the poll for ever.
    let started = std::thread::Builder::new().name("stdout reader".to_owned()).spawn(move || {
        // Errors and hang-ups are reported without being asked for.
        while poll(&mut [PollFd::from_borrowed_fd(stdout(), PollFlags::empty())], None) == Err(Errno::INTR) {}
        let _nobody_waits = tell.send(());
    });
    if started.is_err() || told.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// To stderr, in the form of all our messages.
pub(crate) fn report(sentence: &str) {
    crate::write_to_stderr(&format!("exec-server: {}\n", readable(without_os_error_number(sentence))));
}
