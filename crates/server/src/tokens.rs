//! Bearer tokens from a file: who may connect from elsewhere.

use std::path::{Path, PathBuf};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use parking_lot::RwLock;
use subtle::{Choice, ConstantTimeEq as _};

/// A file that is read again and has more bytes than this is no token file. Enough for 10,000 long tokens.
const LARGEST_TOKEN_FILE: u64 = 1 << 20;

/// Shorter ones could be guessed.
const SHORTEST_TOKEN: usize = 16;

/// The tokens that are accepted now.
#[derive(Debug)]
pub struct Tokens {
    file: PathBuf,
    accepted: RwLock<Vec<Vec<u8>>>,
}

/// Why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The operating system refused.
    #[error("cannot read the token file {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Nothing in it.
    #[error("the token file {} holds no token; write one per line", .0.display())]
    Empty(PathBuf),
    /// Too easy to guess.
    #[error(
        "line {line} of the token file {} is shorter than {SHORTEST_TOKEN} characters; make one with `openssl rand -hex 32`",
        path.display()
    )]
    Short {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
    },
}

/// Why a request is not let in. Neither says anything of what the request held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenRefusal {
    /// There is no `Authorization` header.
    #[error("it sent no token")]
    Missing,
    /// The header is there and says something else than `Bearer TOKEN`.
    #[error("its Authorization header is not `Bearer TOKEN`")]
    Malformed,
    /// No line of the token file.
    #[error("its token is not in the token file")]
    Wrong,
}

impl Tokens {
    /// Reads the file: one token a line, empty lines and lines that begin with `#` are skipped.
    pub fn load(file: &Path) -> Result<Self, TokenError> {
        let text = std::fs::read(file).map_err(|source| TokenError::Read { path: file.to_owned(), source })?;
        let accepted = RwLock::new(parse(&text, file)?);
        Ok(Self { file: file.to_owned(), accepted })
    }

    /// Reads the file again. On failure the old tokens stay. Blocks for as long as the file system does, but never on a FIFO or a device:
    /// by now the file must be a regular one.
    pub fn reload(&self) -> Result<(), TokenError> {
        let text = files::read_file(&self.file, files::Follow::Yes, LARGEST_TOKEN_FILE).map_err(|error| {
            let source = std::io::Error::new(error.kind(), error);
            TokenError::Read { path: self.file.clone(), source }
        })?;
        *self.accepted.write() = parse(&text, &self.file)?;
        Ok(())
    }

    /// Whether the request carries one of the tokens. Takes the same time whichever it is.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), TokenRefusal> {
        let value = headers.get(AUTHORIZATION).ok_or(TokenRefusal::Missing)?;
        let given = bearer(value.as_bytes()).ok_or(TokenRefusal::Malformed)?;
        let accepted = self.accepted.read();
        let is_accepted = accepted.iter().fold(Choice::from(0), |any, token| any | token.as_slice().ct_eq(given));
        if is_accepted.into() { Ok(()) } else { Err(TokenRefusal::Wrong) }
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

fn parse(text: &[u8], file: &Path) -> Result<Vec<Vec<u8>>, TokenError> {
    let mut tokens = Vec::new();
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let token = line.trim_ascii();
        if token.is_empty() || token.starts_with(b"#") {
            continue;
        }
        if token.len() < SHORTEST_TOKEN {
            return Err(TokenError::Short { path: file.to_owned(), line: index + 1 });
        }
        tokens.push(token.to_vec());
    }
    if tokens.is_empty() {
        return Err(TokenError::Empty(file.to_owned()));
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
    }

    #[test]
    fn accepts_any_of_its_tokens_and_follows_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# laptop\nfirst-token-of-mine\n\n  second-token-of-mine \n").unwrap();
        let tokens = Tokens::load(file.path()).unwrap();
        assert_eq!(tokens.check(&headers("Bearer first-token-of-mine")), Ok(()));
        assert_eq!(tokens.check(&headers("bearer second-token-of-mine")), Ok(()));
        for (bad, refusal) in [
            ("Bearer first-token-of-min", TokenRefusal::Wrong),
            ("Bearer ", TokenRefusal::Wrong),
            ("first-token-of-mine", TokenRefusal::Malformed),
            ("Basic first-token-of-mine", TokenRefusal::Malformed),
            ("Bearer", TokenRefusal::Malformed),
        ] {
            assert_eq!(tokens.check(&headers(bad)), Err(refusal), "{bad}");
        }
        assert_eq!(tokens.check(&HeaderMap::new()), Err(TokenRefusal::Missing));

        std::fs::write(file.path(), "third-token-of-mine\n").unwrap();
        tokens.reload().unwrap();
        assert_eq!(tokens.check(&headers("Bearer first-token-of-mine")), Err(TokenRefusal::Wrong));
        assert_eq!(tokens.check(&headers("Bearer third-token-of-mine")), Ok(()));

        std::fs::write(file.path(), "short\n").unwrap();
        assert!(tokens.reload().unwrap_err().to_string().starts_with("line 1 of the token file"));
        assert_eq!(tokens.check(&headers("Bearer third-token-of-mine")), Ok(()), "a bad file changes nothing");
    }

    #[test]
    fn an_empty_or_missing_file_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(Tokens::load(file.path()), Err(TokenError::Empty(_))));
        assert!(matches!(Tokens::load(Path::new("/nonexistent/tokens")), Err(TokenError::Read { .. })));
    }
}
