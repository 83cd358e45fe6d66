//! Words for the person or the program that started us.

use std::io;

use tokio::io::AsyncWriteExt as _;

use crate::sentence::{readable, without_number};

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
        result => result,
    }
}

/// To stderr, in the form of all our messages.
#[expect(clippy::print_stderr, reason = "for the person at the terminal")]
pub(crate) fn complain(sentence: &str) {
    eprintln!("exec-server: {}", readable(without_number(sentence)));
}
