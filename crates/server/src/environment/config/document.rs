//! Reads and parses TOML files. Reading never blocks on a FIFO or a device. The published protocol has different error texts for files of
//! different roles.

use std::io::ErrorKind;
use std::path::Path;

use files::{FileError, FileRoot, Follow};
use toml::Table;

use super::ConfigError;
use crate::limits::{MAX_CONFIG_FILE_BYTES, MAX_CONFIG_TOTAL_BYTES};

/// The role of a configuration file. It decides the texts of errors.
#[derive(Clone, Copy, Debug)]
pub(super) enum FileRole {
    /// The configuration of the machine or of its user.
    Config,
    /// `managed_config.toml`, an older file in which the administrator of the machine fixes settings.
    Managed,
    /// `requirements.toml`, in which the administrator of the machine limits the values that settings may have.
    Requirements,
    /// The configuration of a directory of a project.
    Project,
    /// The configuration of the main checkout of a linked git worktree. Only its key `hooks` counts.
    Hooks,
}

/// Reads the files of one request, up to [`MAX_CONFIG_TOTAL_BYTES`].
pub(super) struct DocumentReader {
    /// Bytes that may still be read.
    left: usize,
}

impl DocumentReader {
    pub(super) fn new() -> Self {
        Self { left: MAX_CONFIG_TOTAL_BYTES }
    }

    /// The contents of a file. An empty table if the file does not exist.
    pub(super) fn document(&mut self, path: &Path, role: FileRole) -> Result<Table, ConfigError> {
        match self.text(path, role)? {
            Some(text) => parse(&text, path, role),
            None => Ok(Table::new()),
        }
    }

    /// The text of a file. None if it does not exist. A dangling symbolic link counts as not existing, and so does a path below something
    /// that is not a directory.
    pub(super) fn text(&mut self, path: &Path, role: FileRole) -> Result<Option<String>, ConfigError> {
        let bytes = match files::read_file(FileRoot::host(), path, Follow::Yes, MAX_CONFIG_FILE_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(error) => return Err(unreadable(path, role, error)),
        };
        let Some(left) = self.left.checked_sub(bytes.len()) else {
            let problem = format!("all configuration files together are limited to {MAX_CONFIG_TOTAL_BYTES} bytes");
            return Err(unreadable(path, role, FileError::failed_check(ErrorKind::FileTooLarge, problem, path)));
        };
        self.left = left;
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(error) => {
                let error = FileError::failed_check(ErrorKind::InvalidData, error.utf8_error().to_string(), path);
                Err(unreadable(path, role, error))
            }
        }
    }
}

pub(super) fn parse(text: &str, path: &Path, role: FileRole) -> Result<Table, ConfigError> {
    text.parse().map_err(|error: toml::de::Error| {
        let file = path.display();
        ConfigError::load(match role {
            FileRole::Config | FileRole::Managed => {
                let (line, column) = line_and_column(text, error.span().map_or(0, |span| span.start));
                format!("{file}:{line}:{column}: {}", error.message())
            }
            FileRole::Requirements => format!("failed to parse requirements layer {file}: {error}"),
            FileRole::Project => format!("Error parsing project config file {file}: {error}"),
            FileRole::Hooks => format!("Error parsing project hooks config file {file}: {error}"),
        })
    })
}

fn unreadable(path: &Path, role: FileRole, cause: FileError) -> ConfigError {
    let file = path.display();
    let problem = match role {
        FileRole::Config => format!("Failed to read config file {file}: {cause}"),
        FileRole::Managed => cause.to_string(),
        FileRole::Requirements => format!("Failed to read requirements file {file}: {cause}"),
        FileRole::Project => format!("Failed to read project config file {file}: {cause}"),
        FileRole::Hooks => format!("Failed to read project hooks config file {file}: {cause}"),
    };
    ConfigError::Load { problem, cause: Some(cause) }
}

/// Line and column of the byte offset `at`, both counted from 1, columns in characters. As in the reports of the parser, the end of the text
/// is the column after its last character, even if that is a newline.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let at = (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
    let (before, is_end) = match text[..at].char_indices().last() {
        Some((last, _)) if at == text.len() => (&text[..last], true),
        _ => (&text[..at], false),
    };
    let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column + usize::from(is_end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_are_those_of_the_parser() {
        for text in
            ["model = [\n", "a = 1\nb = = 2\n", "a = 1\n\nü = [ü]\n", "a", "a = 1\r\n[b\r\n", "= 1", "a = 1\n= 1"]
        {
            let error = text.parse::<Table>().unwrap_err();
            let (line, column) = line_and_column(text, error.span().unwrap().start);
            let report = error.to_string();
            assert!(report.starts_with(&format!("TOML parse error at line {line}, column {column}\n")), "{report}");
        }
    }

    #[test]
    fn a_deeply_nested_document_is_refused() {
        for deep in [format!("a = {}", "[".repeat(100_000)), format!("a{} = 1", ".a".repeat(100_000))] {
            assert!(parse(&deep, Path::new("/f"), FileRole::Config).is_err());
        }
    }
}
