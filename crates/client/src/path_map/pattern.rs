//! Maps the glob patterns of a sandbox object. Patterns deny access, so a wrongly mapped pattern would allow access. A pattern is refused
//! if a wildcard leaves open whether the pattern matches in a mapped directory.

use std::path::{Component, Path};

use super::{Pair, PathMapError};

const WILDCARDS: &[char] = &['*', '?', '[', ']', '{', '}', '\\'];

/// The pattern for the server. `None` if the pattern stays as it is, as relative patterns do.
pub(super) fn moved(pairs: &[Pair], pattern: &str) -> Result<Option<String>, PathMapError> {
    if !pattern.starts_with('/') {
        return Ok(None);
    }
    let parts: Vec<&str> = pattern.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let mut best: Option<(usize, &Pair)> = None;
    for pair in pairs {
        let depth = match reach(&parts, &pair.local) {
            Reach::Outside => continue,
            Reach::Below(depth) => depth,
            Reach::Unclear => {
                return Err(PathMapError::Wildcard { pattern: pattern.to_owned(), root: pair.local.clone() });
            }
        };
        if best.is_none_or(|(deepest, _)| depth > deepest) {
            best = Some((depth, pair));
        }
    }
    let Some((depth, pair)) = best else { return Ok(None) };
    let root = pair.remote.to_str();
    let root = root.ok_or_else(|| PathMapError::NotText { path: pattern.to_owned(), root: pair.remote.clone() })?;
    let rest = parts[depth..].iter().flat_map(|part| ["/", part]);
    let mut moved = escaped(root.trim_end_matches('/'));
    moved.extend(rest);
    if moved.is_empty() || pattern.ends_with('/') {
        moved.push('/');
    }
    Ok(Some(moved))
}

/// Where a pattern can match, relative to a mapped directory.
enum Reach {
    /// Not in the directory.
    Outside,
    /// At or below the directory, which has this many components.
    Below(usize),
    /// A wildcard leaves open whether the pattern matches in the directory.
    Unclear,
}

fn reach(parts: &[&str], root: &Path) -> Reach {
    let names = root.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    let mut depth = 0;
    for name in names {
        match parts.get(depth) {
            // A pattern that begins with `**` matches below the remote directory too, unless it names a part of the local directory.
            Some(&"**") if depth == 0 && !names_part_of(root, parts) => return Reach::Outside,
            Some(part) => match literal(part) {
                None => return Reach::Unclear,
                Some(text) if name.to_str() == Some(&text) => depth += 1,
                Some(_) => return Reach::Outside,
            },
            None => return Reach::Outside,
        }
    }
    if parts.contains(&"..") { Reach::Unclear } else { Reach::Below(depth) }
}

fn names_part_of(root: &Path, parts: &[&str]) -> bool {
    let mut literals = parts.iter().filter_map(|part| literal(part));
    literals.any(|text| root.components().any(|component| component.as_os_str() == text.as_str()))
}

/// The one name that a part of a pattern matches. `None` if it can match several. `\*` and `[*]` are literal stars.
fn literal(part: &str) -> Option<String> {
    if part == ".." {
        return None;
    }
    let mut out = String::with_capacity(part.len());
    let mut rest = part.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => out.push(rest.next()?),
            '[' => {
                let inner = rest.next()?;
                // `[!` and `[^` begin a negated class.
                if matches!(inner, '!' | '^') || rest.next()? != ']' {
                    return None;
                }
                out.push(inner);
            }
            c if WILDCARDS.contains(&c) => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str(r"\\"),
            c if WILDCARDS.contains(&c) => out.extend(['[', c, ']']),
            c => out.push(c),
        }
    }
    out
}
