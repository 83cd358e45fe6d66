//! `file:` URIs, the form of paths on the wire. Exceptions with native paths are `command/exec`, the path of the
//! shell in `environment/info`, and the targets of symbolic links.
//!
//! Parsing follows the URL standard and accepts the same URIs on every host. It refuses URIs that are not a path of
//! any host: those with a NUL byte or an invalid opaque form. Whether a parsed URI is a path of this host is decided
//! by [`PathUri::to_native`], which assumes a POSIX host. This file does not look at the file system.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use url::Url;

use crate::base64_bytes::CowText;

/// Begins the path of a URI in *opaque form*, which is for native paths that no other URI can express. The base64 of
/// the bytes of the native path follows.
const OPAQUE_PREFIX: &str = "/%00/bad/path/";

/// Begins the canonical text of every path URI.
const SCHEME: &str = "file://";

/// A path on the wire, as the canonical text of a `file:` URI.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathUri(Box<str>);

/// Why a text is not a path URI, or why a path URI is not a path of this host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathUriError {
    /// The URL parser refused the text.
    #[error("invalid URI: {0}")]
    Parse(#[from] url::ParseError),
    /// The URI has another scheme than `file`.
    #[error("unsupported path URI scheme `{0}`")]
    Scheme(String),
    /// The URI has a part that path URIs must not have: credentials, a port, a query or a fragment.
    #[error("{0} are not allowed in path URIs")]
    Part(&'static str),
    /// The path contains a NUL byte, has an invalid opaque form, or belongs to another kind of host.
    #[error("'{uri}' is invalid on '{os}'", os = std::env::consts::OS)]
    NotNative {
        /// The URI that is not a path of this host.
        uri: String,
    },
}

impl PathUri {
    /// The canonical text of the URI.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The URI of an absolute native path. None for a relative path.
    pub fn from_native(path: &Path) -> Option<Self> {
        let bytes = path.as_os_str().as_bytes();
        if is_plain(bytes) {
            return std::str::from_utf8(bytes).ok().map(|path| Self([SCHEME, path].concat().into()));
        }
        if !path.is_absolute() {
            return None;
        }
        let encoded = Url::from_file_path(path).ok().map(|url| Self(String::from(url).into()));
        if let Some(uri) = encoded
            && uri.to_native().is_ok_and(|native| native == path)
        {
            return Some(uri);
        }
        let payload = URL_SAFE_NO_PAD.encode(bytes);
        Some(Self([SCHEME, OPAQUE_PREFIX, &payload].concat().into()))
    }

    /// The native path. Escapes are decoded before the path is split at `/`, so `%2F` is a separator. Then `.` and
    /// `..` are removed without looking at the file system, so a symbolic link before a `..` is not followed.
    pub fn to_native(&self) -> Result<PathBuf, PathUriError> {
        let (host, path) = self.host_and_path();
        if host.is_empty() && is_plain(path.as_bytes()) {
            return Ok(PathBuf::from(path));
        }
        let decoded = match self.opaque_payload() {
            Some(bytes) => bytes.filter(|bytes| bytes.starts_with(b"/")).ok_or_else(|| self.not_native())?,
            None if !host.is_empty() || self.starts_with_drive() => return Err(self.not_native()),
            None => percent_decode(path),
        };
        if decoded.contains(&0) {
            return Err(self.not_native());
        }
        Ok(normalize(&decoded))
    }

    fn host_and_path(&self) -> (&str, &str) {
        let rest = self.0.strip_prefix(SCHEME).unwrap_or_default();
        rest.split_at(rest.find('/').unwrap_or(rest.len()))
    }

    /// The bytes of a URI in opaque form. None if the URI has another form; `Some(None)` if the base64 is invalid or empty.
    fn opaque_payload(&self) -> Option<Option<Vec<u8>>> {
        let payload = self.host_and_path().1.strip_prefix(OPAQUE_PREFIX)?;
        Some(URL_SAFE_NO_PAD.decode(payload).ok().filter(|bytes| !bytes.is_empty()))
    }

    fn starts_with_drive(&self) -> bool {
        let first = self.host_and_path().1.split('/').find(|segment| !segment.is_empty());
        let first = first.map(percent_decode).unwrap_or_default();
        matches!(first.as_slice(), [letter, b':'] if letter.is_ascii_alphabetic())
    }

    fn not_native(&self) -> PathUriError {
        PathUriError::NotNative { uri: self.as_str().to_owned() }
    }
}

impl FromStr for PathUri {
    type Err = PathUriError;

    fn from_str(text: &str) -> Result<Self, PathUriError> {
        if text.strip_prefix(SCHEME).is_some_and(|path| is_plain(path.as_bytes())) {
            return Ok(Self(text.into()));
        }
        let mut url = Url::parse(text)?;
        if url.scheme() != "file" {
            return Err(PathUriError::Scheme(url.scheme().to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(PathUriError::Part("credentials"));
        }
        if url.port().is_some() {
            return Err(PathUriError::Part("ports"));
        }
        if url.query().is_some() {
            return Err(PathUriError::Part("query parameters"));
        }
        if url.fragment().is_some() {
            return Err(PathUriError::Part("fragments"));
        }
        if url.has_host() {
            // If a path begins with a Windows drive, the parser drops the host. It fails to do so if the drive comes
            // to the beginning only because dot segments before it are removed. Then a second parse drops the host.
            url = Url::parse(url.as_str())?;
        }
        uppercase_drive(&mut url);
        let uri = Self(String::from(url).into());
        match uri.opaque_payload() {
            Some(Some(_)) => Ok(uri),
            Some(None) => Err(uri.not_native()),
            None if percent_decode(uri.host_and_path().1).contains(&0) => Err(uri.not_native()),
            None => Ok(uri),
        }
    }
}

/// Whether a native path is also the canonical path of its URI: no byte to escape, no segment to resolve, and nothing that
/// looks like a Windows drive. Nearly all paths are plain, and these skip the URL parser.
fn is_plain(path: &[u8]) -> bool {
    let Some(path) = path.strip_prefix(b"/") else { return false };
    let is_safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-._~+@,=".contains(byte);
    let is_name = |part: &[u8]| !matches!(part, b"" | b"." | b"..");
    path.is_empty() || (path.iter().all(is_safe) && path.split(|&byte| byte == b'/').all(is_name))
}

fn uppercase_drive(url: &mut Url) {
    let path = url.path();
    if let [b'/', letter @ b'a'..=b'z', b':', rest @ ..] = path.as_bytes()
        && matches!(rest.first(), None | Some(b'/'))
    {
        let upper = format!("/{}{}", letter.to_ascii_uppercase() as char, &path[2..]);
        url.set_path(&upper);
    }
}

fn percent_decode(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        if byte == b'%'
            && let [high, low, tail @ ..] = tail
            && let (Some(high), Some(low)) = ((*high as char).to_digit(16), (*low as char).to_digit(16))
        {
            out.push((high * 16 + low) as u8);
            rest = tail;
        } else {
            out.push(byte);
            rest = tail;
        }
    }
    out
}

fn normalize(bytes: &[u8]) -> PathBuf {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in bytes.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let mut out = Vec::with_capacity(bytes.len() + 1);
    for part in parts {
        out.push(b'/');
        out.extend_from_slice(part);
    }
    if out.is_empty() {
        out.push(b'/');
    }
    PathBuf::from(OsString::from_vec(out))
}

impl fmt::Display for PathUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for PathUri {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for PathUri {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let CowText(text) = CowText::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
