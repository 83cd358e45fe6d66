//! `cargo xtask bench`: measures the product beside this machine's own limit and prints both. It judges nothing but
//! the figures: a line that falls short says so, and the run still succeeds.

mod table;

use anyhow::{Result, bail};

use table::Row;

/// How the table is printed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Format {
    /// Aligned, for a terminal.
    Text,
    /// For docs/benchmarks.md.
    Markdown,
}

/// Measures and prints.
pub(crate) fn run(format: Format) -> Result<()> {
    let rows = measurements();
    if rows.is_empty() {
        bail!("there is nothing to measure yet");
    }
    match format {
        Format::Text => print!("{}", table::text(&rows)),
        Format::Markdown => print!("{}", table::markdown(&rows)),
    }
    Ok(())
}

fn measurements() -> Vec<Row> {
    Vec::new()
}
