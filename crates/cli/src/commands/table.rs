//! Aligns rows of text in columns, for people.

use std::io::IsTerminal as _;

/// Aligns the columns of these rows. The last column is not padded. A line of more than `width` characters is cut to
/// that width and ends with `…`.
pub(super) fn aligned<const COLUMNS: usize>(rows: &[[String; COLUMNS]], width: Option<usize>) -> String {
    let column_width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS).map(column_width).collect();
    let mut table = String::new();
    for row in rows {
        let mut line = String::new();
        for (text, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{text:width$}  "));
        }
        table.push_str(cut(line.trim_end(), width).trim_end());
        table.push('\n');
    }
    table
}

/// The width of the terminal at stdout. `None` if stdout is not a terminal, so that text for a pipe or a file is not
/// cut, or if the terminal has no width.
pub(super) fn terminal_width() -> Option<usize> {
    let stdout = std::io::stdout();
    let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok()).flatten()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

fn cut(line: &str, width: Option<usize>) -> String {
    match width {
        Some(width) if line.chars().count() > width => {
            line.chars().take(width.saturating_sub(1)).chain(['…']).collect()
        }
        _ => line.to_owned(),
    }
}
