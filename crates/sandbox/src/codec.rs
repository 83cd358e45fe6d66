//! Writes and reads the values that messages between server and launcher consist of: numbers in native byte order, and
//! byte strings and lists after their length. Both ends are the same program on the same machine. The reader trusts
//! nothing all the same: it never reads beyond the message, and allocates at most a small multiple of its size.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A message ended early, has bytes after its end, or has a value that its type does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message between server and sandbox launcher is malformed")]
pub struct MalformedMessage;

/// Collects the bytes of a message.
#[derive(Default)]
pub(crate) struct MessageWriter {
    bytes: Vec<u8>,
}

impl MessageWriter {
    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn byte(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(crate) fn flag(&mut self, value: bool) {
        self.byte(u8::from(value));
    }

    pub(crate) fn number(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) {
        self.number(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    pub(crate) fn path(&mut self, value: &Path) {
        self.bytes(value.as_os_str().as_bytes());
    }

    pub(crate) fn list<T>(&mut self, values: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.number(values.len() as u64);
        values.iter().for_each(|value| write(self, value));
    }

    pub(crate) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }
}

/// Reads a message from its beginning. Call [`Self::end`] after the last value.
pub(crate) struct MessageReader<'a> {
    rest: &'a [u8],
}

impl<'a> MessageReader<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    pub(crate) fn end(self) -> Result<(), MalformedMessage> {
        if self.rest.is_empty() { Ok(()) } else { Err(MalformedMessage) }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], MalformedMessage> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(MalformedMessage)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, MalformedMessage> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn flag(&mut self) -> Result<bool, MalformedMessage> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(MalformedMessage),
        }
    }

    pub(crate) fn number(&mut self) -> Result<u64, MalformedMessage> {
        self.take(8)?.try_into().map(u64::from_ne_bytes).map_err(|_| MalformedMessage)
    }

    /// A number that must fit into the type `T`.
    pub(crate) fn number_as<T: TryFrom<u64>>(&mut self) -> Result<T, MalformedMessage> {
        T::try_from(self.number()?).map_err(|_| MalformedMessage)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], MalformedMessage> {
        let count = self.number_as()?;
        self.take(count)
    }

    pub(crate) fn c_string(&mut self) -> Result<CString, MalformedMessage> {
        CString::new(self.bytes()?).map_err(|_nul| MalformedMessage)
    }

    pub(crate) fn path(&mut self) -> Result<PathBuf, MalformedMessage> {
        let bytes = self.bytes()?;
        if bytes.contains(&0) {
            return Err(MalformedMessage);
        }
        Ok(PathBuf::from(OsStr::from_bytes(bytes)))
    }

    pub(crate) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, MalformedMessage>,
    ) -> Result<Vec<T>, MalformedMessage> {
        let count: usize = self.number_as()?;
        // Every value has at least one byte, so a longer list cannot be read.
        if count > self.rest.len() {
            return Err(MalformedMessage);
        }
        (0..count).map(|_| read(self)).collect()
    }

    pub(crate) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, MalformedMessage>,
    ) -> Result<Option<T>, MalformedMessage> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }
}
