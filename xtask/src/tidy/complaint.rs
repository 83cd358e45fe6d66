//! The result of a check: a place in the project, and a sentence that says what is wrong there or what to do.

use std::fmt;

/// One violation of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    path: String,
    line: Option<usize>,
    message: String,
}

impl Complaint {
    /// A complaint about a whole file or folder.
    pub(super) fn about(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), line: None, message: message.into() }
    }

    /// A complaint about one line. Lines are counted from 1.
    pub(super) fn at(path: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        Self { line: Some(line), ..Self::about(path, message) }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.message),
            None => write!(f, "{}: {}", self.path, self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_shown_as_path_line_and_message() {
        let shown = [Complaint::at("a.rs", 3, "do this").to_string(), Complaint::about("b", "do that").to_string()];
        assert_eq!(shown, ["a.rs:3: do this", "b: do that"]);
    }
}
