//! Checks that the fields of `environments.toml` have values of the right types, before serde reads the file. The errors
//! of serde show the value, which may be a secret; the errors of this module name only the field. Which fields exist
//! and which of them go together is decided elsewhere.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::Problem;
use super::file::LocatedProblem;

const STRING: &str = "a string";

/// Checks the types of all fields that this client knows. Unknown fields are left alone.
pub(super) fn check(document: &DeTable<'_>) -> Result<(), LocatedProblem> {
    for (field, value) in document {
        let (field, expected) = match (field.get_ref().as_ref(), value.get_ref()) {
            ("default" | "service", DeValue::String(_)) | ("include_local", DeValue::Boolean(_)) => continue,
            ("environments", DeValue::Array(tables)) if tables.iter().all(|table| table.get_ref().is_table()) => {
                tables.iter().filter_map(|table| table.get_ref().as_table()).try_for_each(check_environment)?;
                continue;
            }
            ("default", _) => ("default", STRING),
            ("service", _) => ("service", STRING),
            ("include_local", _) => ("include_local", "`true` or `false`"),
            ("environments", _) => ("environments", "a list of tables"),
            _ => continue,
        };
        return Err(wrong_type(field, expected, value));
    }
    Ok(())
}

/// Checks the fields of one `[[environments]]` table.
fn check_environment(table: &DeTable<'_>) -> Result<(), LocatedProblem> {
    for (field, value) in table {
        let is_string = |value: &Spanned<DeValue<'_>>| value.get_ref().is_str();
        let field = field.get_ref().as_ref();
        let found = value.get_ref();
        let (fits, expected) = match field {
            "id" | "url" | "ca_file" | "token_file" | "program" | "cwd" | "ssh" | "local_root" | "remote_root"
            | "remote" | "environment_id" | "pinned_key" => (found.is_str(), STRING),
            "args" => (found.as_array().is_some_and(|values| values.iter().all(is_string)), "a list of strings"),
            "env" => (found.as_table().is_some_and(|values| values.values().all(is_string)), "a table of strings"),
            "connect_timeout_sec" | "initialize_timeout_sec" | "silence_timeout_sec" => {
                (found.is_integer() || found.is_float(), "a number")
            }
            _ => continue,
        };
        if !fits {
            return Err(wrong_type(field, expected, value));
        }
    }
    Ok(())
}

fn wrong_type(field: &str, expected: &'static str, value: &Spanned<DeValue<'_>>) -> LocatedProblem {
    LocatedProblem { at: value.span().start, problem: Problem::WrongType { field: field.to_owned(), expected } }
}
