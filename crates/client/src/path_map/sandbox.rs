//! Maps the paths in the JSON text of a sandbox object. Only the strings with a mapped path are replaced in the text.
//! Everything else stays as it is: the order of the members, unknown members, and all digits of a number.

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

use protocol::{MAX_DEPTH, PathUri};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Pair, PathMap, PathMapError, pattern};

pub(super) fn map(paths: &PathMap, sandbox: &RawValue) -> Result<Box<RawValue>, PathMapError> {
    let mut edits = Edits { paths, text: sandbox.get(), replacements: Vec::new() };
    edits.visit_sandbox(sandbox)?;
    RawValue::from_string(edits.applied()).map_err(unreadable)
}

/// The strings of `text` to replace, in the order in which they occur.
struct Edits<'a> {
    paths: &'a PathMap,
    text: &'a str,
    /// Each JSON string to replace, and its replacement.
    replacements: Vec<(&'a str, String)>,
}

impl<'a> Edits<'a> {
    fn visit_sandbox(&mut self, sandbox: &'a RawValue) -> Result<(), PathMapError> {
        for (name, value) in members(sandbox)? {
            match name.as_str() {
                "cwd" => self.visit_path(value)?,
                "workspaceRoots" => items(value)?.into_iter().try_for_each(|root| self.visit_path(root))?,
                "permissions" => self.visit_permissions(value)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn visit_permissions(&mut self, permissions: &'a RawValue) -> Result<(), PathMapError> {
        for file_system in members_named(permissions, "file_system")? {
            for entries in members_named(file_system, "entries")? {
                for entry in items(entries)? {
                    members_named(entry, "path")?.into_iter().try_for_each(|path| self.visit_entry_path(path, 0))?;
                }
            }
        }
        Ok(())
    }

    /// Maps every path and pattern in this value, also in nested arrays and objects, so that kinds of paths which are
    /// newer than this code are mapped too. Fails if the value is nested more deeply than [`MAX_DEPTH`].
    fn visit_entry_path(&mut self, value: &'a RawValue, depth: usize) -> Result<(), PathMapError> {
        match value.get().as_bytes().first() {
            Some(b'{' | b'[') if depth == MAX_DEPTH => Err(PathMapError::Sandbox("it is nested too deeply".into())),
            Some(b'[') => items(value)?.into_iter().try_for_each(|item| self.visit_entry_path(item, depth + 1)),
            Some(b'{') => members(value)?.into_iter().try_for_each(|(name, member)| match name.as_str() {
                "pattern" => self.visit_pattern(member),
                _ => self.visit_entry_path(member, depth + 1),
            }),
            _ => self.visit_path(value),
        }
    }

    fn visit_path(&mut self, value: &'a RawValue) -> Result<(), PathMapError> {
        let Some(text) = string(value)? else { return Ok(()) };
        if let Ok(uri) = text.parse::<PathUri>() {
            let mapped = self.paths.to_remote(&uri);
            if mapped != uri {
                self.replace(value, mapped.as_str())?;
            }
        } else if text.starts_with('/')
            && let Some(mapped) = self.paths.map_native(Path::new(&text), Pair::outward)
        {
            let Some(mapped) = mapped.to_str() else {
                return Err(PathMapError::NotText { path: text, root: mapped });
            };
            self.replace(value, mapped)?;
        }
        Ok(())
    }

    fn visit_pattern(&mut self, value: &'a RawValue) -> Result<(), PathMapError> {
        let Some(text) = string(value)? else { return Ok(()) };
        match pattern::to_remote(&self.paths.pairs, &text)? {
            Some(mapped) => self.replace(value, &mapped),
            None => Ok(()),
        }
    }

    fn replace(&mut self, value: &'a RawValue, text: &str) -> Result<(), PathMapError> {
        self.replacements.push((value.get(), serde_json::to_string(text).map_err(unreadable)?));
        Ok(())
    }

    /// The text with all replacements.
    fn applied(self) -> String {
        let mut out = String::with_capacity(self.text.len());
        let mut copied = 0;
        for (old, new) in self.replacements {
            // Each value borrows from the text, so the difference of the two addresses is its offset.
            let at = old.as_ptr().addr() - self.text.as_ptr().addr();
            out.push_str(&self.text[copied..at]);
            out.push_str(&new);
            copied = at + old.len();
        }
        out.push_str(&self.text[copied..]);
        out
    }
}

/// The members of an object in their order, including repeated members. Empty for a value that is no object: the
/// server refuses such a value with its own error.
fn members(value: &RawValue) -> Result<Vec<(String, &RawValue)>, PathMapError> {
    if !value.get().starts_with('{') {
        return Ok(Vec::new());
    }
    serde_json::from_str(value.get()).map(|ObjectMembers(members)| members).map_err(unreadable)
}

fn members_named<'a>(object: &'a RawValue, wanted: &str) -> Result<Vec<&'a RawValue>, PathMapError> {
    Ok(members(object)?.into_iter().filter(|(name, _)| name == wanted).map(|(_, value)| value).collect())
}

fn items(value: &RawValue) -> Result<Vec<&RawValue>, PathMapError> {
    if !value.get().starts_with('[') {
        return Ok(Vec::new());
    }
    serde_json::from_str(value.get()).map_err(unreadable)
}

fn string(value: &RawValue) -> Result<Option<String>, PathMapError> {
    if !value.get().starts_with('"') {
        return Ok(None);
    }
    serde_json::from_str(value.get()).map(Some).map_err(unreadable)
}

fn unreadable(error: serde_json::Error) -> PathMapError {
    PathMapError::Sandbox(error.to_string())
}

struct ObjectMembers<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for ObjectMembers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectMembersVisitor(PhantomData))
    }
}

struct ObjectMembersVisitor<'a>(PhantomData<&'a ()>);

impl<'de: 'a, 'a> Visitor<'de> for ObjectMembersVisitor<'a> {
    type Value = ObjectMembers<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(ObjectMembers(members))
    }
}
