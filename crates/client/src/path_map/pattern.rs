//! Maps the glob patterns of a sandbox object. Patterns deny access, so a wrongly mapped pattern could allow access.
//! A pattern is refused if a wildcard or `..` leaves open whether the pattern matches in a root, the local directory
//! of a pair.

use std::path::{Component, Path};

use super::{Pair, PathMapError};

/// The characters that have a special meaning in a pattern.
const SPECIAL_CHARACTERS: &[char] = &['*', '?', '[', ']', '{', '}', '\\'];

/// The pattern for the server. `None` if the pattern stays as it is. Relative patterns always do.
pub(super) fn to_remote(pairs: &[Pair], pattern: &str) -> Result<Option<String>, PathMapError> {
    if !pattern.starts_with('/') {
        return Ok(None);
    }
    let parts: Vec<&str> = pattern.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let mut best: Option<(usize, &Pair)> = None;
    for pair in pairs {
        let depth = match reach(&parts, &pair.local) {
            Reach::NeedsNoMapping => continue,
            Reach::InRoot(depth) => depth,
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

/// Where a pattern can match, compared with a root.
enum Reach {
    /// The pattern matches nothing in the root, or it also matches in every other directory.
    NeedsNoMapping,
    /// The pattern matches only at or below the root, which has this many components.
    InRoot(usize),
    /// A wildcard or `..` leaves open whether the pattern matches in the root.
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
            // A pattern that begins with `**` matches below the remote root too, so it needs no mapping, unless it
            // has the name of a component of the local root.
            Some(&"**") if depth == 0 && !names_a_component(parts, root) => return Reach::NeedsNoMapping,
            Some(part) => match literal(part) {
                None => return Reach::Unclear,
                Some(text) if name.to_str() == Some(&text) => depth += 1,
                Some(_) => return Reach::NeedsNoMapping,
            },
            None => return Reach::NeedsNoMapping,
        }
    }
    // A `..` behind the root may leave the root again.
    if parts.contains(&"..") { Reach::Unclear } else { Reach::InRoot(depth) }
}

/// Whether a part of a pattern is the name of a component of the root.
fn names_a_component(parts: &[&str], root: &Path) -> bool {
    let mut literals = parts.iter().filter_map(|part| literal(part));
    literals.any(|text| root.components().any(|component| component.as_os_str() == text.as_str()))
}

/// The one name that a part of a pattern matches. `None` for `..`, and if the part can match several names. `\*` and
/// `[*]` are literal stars.
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
            c if SPECIAL_CHARACTERS.contains(&c) => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

/// The pattern that matches only this text.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str(r"\\"),
            c if SPECIAL_CHARACTERS.contains(&c) => out.extend(['[', c, ']']),
            c => out.push(c),
        }
    }
    out
}
