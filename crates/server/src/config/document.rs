//! The text of `docs/limits.md`, generated from the lists of limits. A test fails if the file differs from this text.

use super::{ADJUSTABLE_LIMITS, Limit, Minimum};
use crate::limits::{FIXED_LIMITS, FixedLimit, LimitUnit};

const HEAD: &str = "\
# Limits

Everything that clients can use up is limited. This file is generated from the lists in `crates/server/src/config.rs` and
`crates/server/src/limits/fixed.rs`. To change this file, change a list and run `WRITE_LIMITS=1 cargo test -p server limits_md`.

## Limits that can be changed

Each limit has a flag and an environment variable of the same name: `--max-wait 5m` is `EXEC_SERVER_MAX_WAIT=5m`. If a request is refused
because of a limit, the error names the flag, unless the published protocol prescribes the error text. A count is a number from 1 to
4294967295. A size is written like `1MiB`, `64KiB` or `1000`, a time like `250ms`, `30s`, `5m`, `2h` or `7d`. `exec-server --help-limits`
shows this list too.

| flag | default | what is limited | at the limit |
|---|---|---|---|
";

const FIXED_HEAD: &str = "
## Limits that are fixed

The last column says why there is no flag.
";

const FIXED_COLUMNS: &str = "| what is limited | limit | at the limit | why it is fixed |\n|---|---|---|---|\n";

/// The text of `docs/limits.md`.
pub fn limits_document() -> String {
    let mut text = HEAD.to_owned();
    text.extend(ADJUSTABLE_LIMITS.iter().map(adjustable_row));
    text.push_str(FIXED_HEAD);
    let tables = FIXED_LIMITS.iter().flat_map(|part| part.chunk_by(|limit, next| limit.group == next.group));
    for table in tables {
        let group = table.first().map_or("", |limit| limit.group);
        text.push_str(&format!("\n### {group}\n\n{FIXED_COLUMNS}"));
        text.extend(table.iter().map(fixed_row));
    }
    text
}

fn adjustable_row(limit: &Limit) -> String {
    let flag = limit.name.replace('_', "-");
    let default = limit.default_value().map_or("none".to_owned(), |value| format!("`{value}`"));
    let minimum = match (limit.minimum, limit.unit) {
        (Minimum::OfUnit, _) => String::new(),
        (Minimum::Refused { below, .. }, LimitUnit::Count | LimitUnit::Bytes) => format!(" At least {below}."),
        (Minimum::Refused { below, .. }, LimitUnit::Milliseconds) => format!(" At least {below} ms."),
        (Minimum::Raised(least), LimitUnit::Milliseconds) => format!(" A smaller value counts as {least} ms."),
        (Minimum::Raised(least), _) => format!(" A smaller value counts as {least}."),
    };
    format!("| `--{flag}` | {default} | {} | {}{minimum} |\n", limit.help, limit.at_limit)
}

fn fixed_row(limit: &FixedLimit) -> String {
    format!("| {} | {} | {} | {} |\n", limit.what, limit.value, limit.at_limit, limit.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_limits_md_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md");
        if std::env::var_os("WRITE_LIMITS").is_some() {
            std::fs::write(path, limits_document()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == limits_document(),
            "docs/limits.md is out of date; run `WRITE_LIMITS=1 cargo test -p server limits_md`"
        );
    }

    #[test]
    fn a_group_of_fixed_limits_is_one_table() {
        let headings = limits_document().lines().filter(|line| line.starts_with("### ")).count();
        let groups: std::collections::HashSet<_> =
            FIXED_LIMITS.iter().copied().flatten().map(|limit| limit.group).collect();
        assert_eq!(headings, groups.len());
    }
}
