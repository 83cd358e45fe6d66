//! Bearer tokens from a file (`--token-file`). A listener with a token file admits only requests that carry one of its tokens. The name of
//! the token identifies the client. The syntax of the file is in `tokens/lines.rs`.

mod lines;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use parking_lot::RwLock;
use subtle::{ConditionallySelectable as _, ConstantTimeEq as _};

use crate::limits::MAX_TOKEN_FILE_BYTES;
use lines::{token_lines, valid_name};

/// Shortest token that is accepted, in bytes. Shorter tokens could be guessed.
const SHORTEST_TOKEN: usize = 16;

/// Beginning of the names that tokens without a name get. No line may give a name that begins with it.
const UNNAMED_PREFIX: &str = "line-";

/// The tokens that are accepted now.
#[derive(Debug)]
pub struct Tokens {
    file: PathBuf,
    accepted: RwLock<AcceptedTokens>,
}

/// Why a token file cannot be used. No message contains text of the file, because that may be a token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The operating system refused to open or read the file.
    #[error("cannot read the token file {}: {source}", path.display())]
    Read {
        /// Path of the token file.
        path: PathBuf,
        /// The error of the system call.
        source: std::io::Error,
    },
    /// Every line is blank or a comment.
    #[error("the token file {} holds no token; write one per line", .0.display())]
    Empty(PathBuf),
    /// A line breaks a rule. The rest of the file is not used either.
    #[error("line {line} of the token file {} {fault}", path.display())]
    Line {
        /// Path of the token file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The rule that the line breaks.
        fault: TokenLineFault,
    },
}

/// The rule that a line of a token file breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenLineFault {
    /// The token is so short that it could be guessed.
    #[error("has a token of fewer than {SHORTEST_TOKEN} bytes; make one with `openssl rand -hex 32`")]
    ShortToken,
    /// The text before the colon is no name.
    #[error("has no valid name before its colon; a name has 1 to 64 letters, digits, or one of `-_.@`")]
    InvalidName,
    /// The name begins like the names that unnamed tokens get.
    #[error("has a name that begins with `{UNNAMED_PREFIX}`; such names are reserved for tokens without a name")]
    ReservedName,
    /// The same token has another name in an earlier line.
    #[error("repeats the token of line {earlier_line} under another name")]
    TwoNames {
        /// Number of the earlier line, from 1.
        earlier_line: usize,
    },
}

/// Why a request is refused. The text contains nothing of what the request sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenRefusal {
    /// There is no `Authorization` header.
    #[error("it sent no token")]
    Missing,
    /// The header is there, and its value is not `Bearer TOKEN`.
    #[error("its Authorization header is not `Bearer TOKEN`")]
    Malformed,
    /// The token is on no line of the token file.
    #[error("its token is not in the token file")]
    Wrong,
}

#[derive(Debug)]
struct AcceptedTokens {
    tokens: Vec<AcceptedToken>,
    /// The number of reloads that have succeeded.
    reload_count: u64,
}

struct AcceptedToken {
    token: Vec<u8>,
    name: Arc<str>,
    is_named: bool,
    line: usize,
}

impl Tokens {
    /// Reads the file, which must be a regular file of at most 1 MiB. A line is `TOKEN` or `NAME: TOKEN`; blank lines and lines that begin
    /// with `#` are skipped.
    pub fn load(file: &Path) -> Result<Self, TokenError> {
        let accepted = RwLock::new(AcceptedTokens::read(file)?);
        Ok(Self { file: file.to_owned(), accepted })
    }

    /// Reads the file again. On failure the old tokens stay valid. The call blocks while the file system does.
    pub fn reload(&self) -> Result<(), TokenError> {
        let mut parsed = AcceptedTokens::read(&self.file)?;
        let mut accepted = self.accepted.write();
        parsed.keep_names_of(&accepted);
        *accepted = parsed;
        Ok(())
    }

    /// The first token in the text of a token file, without its name. A client on the machine of its server uses the same file.
    pub fn first_in(text: &str) -> Option<&str> {
        token_lines(text.as_bytes()).next().and_then(|line| std::str::from_utf8(line.token).ok())
    }

    /// The name of the token that the request carries. The time of the comparison does not depend on how many bytes
    /// of the token are right.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<Arc<str>, TokenRefusal> {
        let given = bearer_bytes(headers)?;
        let accepted = self.accepted.read();
        let mut found = u64::MAX;
        for (index, candidate) in (0..).zip(&accepted.tokens) {
            found.conditional_assign(&index, candidate.token.as_slice().ct_eq(given));
        }
        let found = usize::try_from(found).ok().and_then(|index| accepted.tokens.get(index));
        found.map(|found| Arc::clone(&found.name)).ok_or(TokenRefusal::Wrong)
    }
}

impl AcceptedTokens {
    /// Reads and parses a token file. Other kinds of files are refused, so that a FIFO or a device cannot block the call for ever.
    fn read(file: &Path) -> Result<Self, TokenError> {
        let text = files::read_file(files::FileRoot::host(), file, files::Follow::Yes, MAX_TOKEN_FILE_BYTES)
            .map_err(|error| {
                let source = std::io::Error::new(error.kind(), error);
                TokenError::Read { path: file.to_owned(), source }
            })?;
        Self::parse(&text, file)
    }

    fn parse(text: &[u8], file: &Path) -> Result<Self, TokenError> {
        let mut tokens: Vec<AcceptedToken> = Vec::new();
        let mut indexes: HashMap<&[u8], usize> = HashMap::new();
        for line in token_lines(text) {
            let refuse = |fault| TokenError::Line { path: file.to_owned(), line: line.number, fault };
            if line.token.len() < SHORTEST_TOKEN {
                return Err(refuse(TokenLineFault::ShortToken));
            }
            let name = match line.name {
                None => format!("{UNNAMED_PREFIX}{}", line.number),
                Some(name) => valid_name(name).ok_or_else(|| refuse(TokenLineFault::InvalidName))?.to_owned(),
            };
            if line.name.is_some() && name.starts_with(UNNAMED_PREFIX) {
                return Err(refuse(TokenLineFault::ReservedName));
            }
            let is_named = line.name.is_some();
            match indexes.get(line.token).map(|&index| &tokens[index]) {
                None => {}
                Some(earlier) if (is_named || earlier.is_named) && *earlier.name != *name => {
                    return Err(refuse(TokenLineFault::TwoNames { earlier_line: earlier.line }));
                }
                Some(_) => continue,
            }
            indexes.insert(line.token, tokens.len());
            let token = line.token.to_vec();
            tokens.push(AcceptedToken { token, name: name.into(), is_named, line: line.number });
        }
        if tokens.is_empty() {
            return Err(TokenError::Empty(file.to_owned()));
        }
        Ok(Self { tokens, reload_count: 0 })
    }

    /// Gives each unnamed token the name that it had before the reload, even if its line has moved. An unnamed token that is new gets a
    /// name that no token had before, so that it is never taken for the token that was on its line.
    fn keep_names_of(&mut self, before: &Self) {
        self.reload_count = before.reload_count + 1;
        let unnamed = before.tokens.iter().filter(|known| !known.is_named);
        let names: HashMap<&[u8], &Arc<str>> = unnamed.map(|known| (known.token.as_slice(), &known.name)).collect();
        for token in self.tokens.iter_mut().filter(|token| !token.is_named) {
            token.name = match names.get(token.token.as_slice()) {
                Some(&name) => Arc::clone(name),
                None => format!("{UNNAMED_PREFIX}{}-of-reload-{}", token.line, self.reload_count).into(),
            };
        }
    }
}

impl std::fmt::Debug for AcceptedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AcceptedToken").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The token of the header `Authorization: Bearer TOKEN`.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Result<&str, TokenRefusal> {
    std::str::from_utf8(bearer_bytes(headers)?).map_err(|_| TokenRefusal::Malformed)
}

fn bearer_bytes(headers: &HeaderMap) -> Result<&[u8], TokenRefusal> {
    let value = headers.get(AUTHORIZATION).ok_or(TokenRefusal::Missing)?;
    bearer(value.as_bytes()).ok_or(TokenRefusal::Malformed)
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A token file that a test can overwrite.
    struct TokenFile(tempfile::NamedTempFile);

    impl TokenFile {
        fn new(text: &str) -> Self {
            let file = Self(tempfile::NamedTempFile::new().unwrap());
            file.write(text);
            file
        }

        fn write(&self, text: &str) {
            std::fs::write(self.0.path(), text).unwrap();
        }

        fn load(&self) -> Result<Tokens, TokenError> {
            Tokens::load(self.0.path())
        }
    }

    fn check(tokens: &Tokens, authorization: &str) -> Result<String, TokenRefusal> {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, authorization.parse().unwrap())]);
        tokens.check(&headers).map(|name| name.to_string())
    }

    fn name_of(tokens: &Tokens, token: &str) -> Option<String> {
        check(tokens, &format!("Bearer {token}")).ok()
    }

    #[test]
    fn only_tokens_of_the_file_are_accepted_and_a_reload_without_errors_replaces_them() {
        let file =
            TokenFile::new("# laptop\nfirst-token-of-mine\n\n  second-token-of-mine \nci: third-token-of-mine\n");
        let tokens = file.load().unwrap();
        assert_eq!(check(&tokens, "Bearer first-token-of-mine").as_deref(), Ok("line-2"));
        assert_eq!(check(&tokens, "bearer second-token-of-mine").as_deref(), Ok("line-4"));
        assert_eq!(check(&tokens, "Bearer third-token-of-mine").as_deref(), Ok("ci"));
        for (bad, refusal) in [
            ("Bearer first-token-of-min", TokenRefusal::Wrong),
            ("Bearer ci: third-token-of-mine", TokenRefusal::Wrong),
            ("Bearer ", TokenRefusal::Wrong),
            ("first-token-of-mine", TokenRefusal::Malformed),
            ("Basic first-token-of-mine", TokenRefusal::Malformed),
            ("Bearer", TokenRefusal::Malformed),
        ] {
            assert_eq!(check(&tokens, bad), Err(refusal), "{bad}");
        }
        assert_eq!(tokens.check(&HeaderMap::new()), Err(TokenRefusal::Missing));

        file.write("other-token-of-mine\n");
        tokens.reload().unwrap();
        assert_eq!(name_of(&tokens, "first-token-of-mine"), None);
        assert!(name_of(&tokens, "other-token-of-mine").is_some());

        file.write("short\n");
        assert!(tokens.reload().unwrap_err().to_string().starts_with("line 1 of the token file"));
        assert!(name_of(&tokens, "other-token-of-mine").is_some(), "a bad file changes nothing");
    }

    #[test]
    fn a_reload_keeps_known_names_and_gives_new_unnamed_tokens_unused_names() {
        let file = TokenFile::new("first-token-of-mine\nci: second-token-of-mine\n");
        let tokens = file.load().unwrap();
        file.write("ci: rotated-token-of-mine\nci: second-token-of-mine\nother-token-of-mine\nfirst-token-of-mine\n");
        tokens.reload().unwrap();
        assert_eq!(name_of(&tokens, "second-token-of-mine").as_deref(), Some("ci"));
        assert_eq!(name_of(&tokens, "rotated-token-of-mine").as_deref(), Some("ci"));
        assert_eq!(name_of(&tokens, "first-token-of-mine").as_deref(), Some("line-1"), "its line has moved");
        assert_eq!(name_of(&tokens, "other-token-of-mine").as_deref(), Some("line-3-of-reload-1"));

        file.write("new-token-on-line-1\n");
        tokens.reload().unwrap();
        assert_eq!(name_of(&tokens, "new-token-on-line-1").as_deref(), Some("line-1-of-reload-2"));
    }

    #[test]
    fn an_error_names_the_number_of_a_bad_line_but_not_its_text() {
        for (line, message) in [
            ("ci: short-secret", "has a token of fewer than 16 bytes; make one with `openssl rand -hex 32`"),
            ("short-secret", "has a token of fewer than 16 bytes"),
            ("two words: the-secret-0123456789", "has no valid name before its colon; a name has 1 to 64 letters"),
            (": the-secret-0123456789", "has no valid name before its colon"),
            ("line-7: the-secret-0123456789", "has a name that begins with `line-`"),
            ("ci: first-secret-of-mine", "repeats the token of line 1 under another name"),
        ] {
            let file = TokenFile::new(&format!("first-secret-of-mine\n\n{line}\n"));
            let error = file.load().unwrap_err().to_string();
            assert!(error.starts_with("line 3 of the token file ") && error.contains(message), "{line}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_token_may_be_repeated_if_its_name_stays_the_same() {
        let file =
            TokenFile::new("ci: first-token-of-mine\nci: first-token-of-mine\nunnamed-token-x1\nunnamed-token-x1\n");
        let tokens = file.load().unwrap();
        assert_eq!(name_of(&tokens, "first-token-of-mine").as_deref(), Some("ci"));
        assert_eq!(name_of(&tokens, "unnamed-token-x1").as_deref(), Some("line-3"));
    }

    #[test]
    fn an_empty_or_missing_file_is_refused() {
        assert!(matches!(TokenFile::new("").load(), Err(TokenError::Empty(_))));
        assert!(matches!(Tokens::load(Path::new("/nonexistent/tokens")), Err(TokenError::Read { .. })));
    }

    #[test]
    fn first_in_skips_comments_and_the_name_of_the_token() {
        assert_eq!(Tokens::first_in("# mine\n\nlaptop: first-token\nsecond-token\n"), Some("first-token"));
        assert_eq!(Tokens::first_in("first-token\n"), Some("first-token"));
        assert_eq!(Tokens::first_in("# nothing\n"), None);
    }

    #[test]
    fn the_debug_text_of_a_token_does_not_contain_it() {
        let tokens = TokenFile::new("ci: first-token-of-mine\n").load().unwrap();
        assert!(!format!("{tokens:?}").contains("first-token"));
    }
}
