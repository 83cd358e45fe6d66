//! Limits that keep a small message from costing much memory: the number of values and the depth of nesting. An
//! object that has the same key twice is refused here too.
//!
//! The check follows the structure of text that is already known to be valid JSON. It does not recurse, so that a deeply nested
//! message cannot overflow the stack.

use std::borrow::Cow;
use std::collections::HashSet;

use super::DecodeError;
use crate::shortened;

/// Largest number of values in one message. Objects, arrays and scalars count; keys do not. A decoded value can need much more
/// memory than its text.
pub const MAX_VALUES: usize = 256 * 1024;

/// Largest number of arrays and objects inside each other, the message itself included. The JSON library could not
/// decode deeper params either.
pub const MAX_DEPTH: usize = 128;

/// Up to this number of keys, a new key is compared with each earlier one. The keys of larger objects are kept in a set.
const FEW_KEYS: usize = 16;

/// An array or object whose end is not reached yet.
enum Container<'a> {
    Array,
    Object(ObjectKeys<'a>),
}

/// The keys of an object so far: in `few`, or all in `many` if there are more than [`FEW_KEYS`].
#[derive(Default)]
struct ObjectKeys<'a> {
    few: Vec<Cow<'a, str>>,
    many: HashSet<Cow<'a, str>>,
}

impl<'a> ObjectKeys<'a> {
    /// Remembers a key. Returns false if the object already has it.
    fn insert(&mut self, key: Cow<'a, str>) -> bool {
        if !self.many.is_empty() {
            return self.many.insert(key);
        }
        if self.few.contains(&key) {
            return false;
        }
        self.few.push(key);
        if self.few.len() > FEW_KEYS {
            self.many.extend(self.few.drain(..));
        }
        true
    }
}

/// Checks that `text` keeps the limits and has no duplicate keys. `text` must be valid JSON.
pub fn check_json(text: &str) -> Result<(), DecodeError> {
    let bytes = text.as_bytes();
    let mut values = 0usize;
    let mut open: Vec<Container<'_>> = Vec::new();
    let mut expecting_key = false;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => {
                let end = string_end(bytes, at);
                match open.last_mut() {
                    Some(Container::Object(keys)) if expecting_key => {
                        let key = unescape(&text[at..end]);
                        if !keys.insert(key.clone()) {
                            return Err(DecodeError::DuplicateKey(shortened(&key).into_owned()));
                        }
                        expecting_key = false;
                    }
                    _ => count(&mut values)?,
                }
                at = end;
                continue;
            }
            b'{' | b'[' => {
                count(&mut values)?;
                if open.len() == MAX_DEPTH {
                    return Err(DecodeError::TooDeep);
                }
                expecting_key = byte == b'{';
                open.push(if expecting_key { Container::Object(ObjectKeys::default()) } else { Container::Array });
            }
            b'}' | b']' => {
                open.pop();
                expecting_key = false;
            }
            b',' => expecting_key = matches!(open.last(), Some(Container::Object(_))),
            b':' | b' ' | b'\n' | b'\r' | b'\t' => {}
            _ => {
                count(&mut values)?;
                at = scalar_end(bytes, at);
                continue;
            }
        }
        at += 1;
    }
    Ok(())
}

/// Counts one more value. Fails if there are more than [`MAX_VALUES`].
fn count(values: &mut usize) -> Result<(), DecodeError> {
    *values += 1;
    if *values > MAX_VALUES { Err(DecodeError::TooManyValues) } else { Ok(()) }
}

/// The index after the closing quote of the string that opens at `start`.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(offset) = memchr::memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default()) {
        at += offset;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}

fn scalar_end(bytes: &[u8], start: usize) -> usize {
    bytes[start..]
        .iter()
        .position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t'))
        .map_or(bytes.len(), |offset| start + offset)
}

/// Removes the quotes and resolves the escapes of a key, because `"k"` and `"\u006b"` are the same key.
fn unescape(quoted: &str) -> Cow<'_, str> {
    let inner = &quoted[1..quoted.len().max(2) - 1];
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    // An escaped lone surrogate is not Unicode text. Such a key is compared as it is spelled.
    serde_json::from_str::<String>(quoted).map_or(Cow::Borrowed(inner), Cow::Owned)
}
