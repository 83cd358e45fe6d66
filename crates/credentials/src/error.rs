//! Why there are no headers for a request. The sentences say what to do next, and contain no secrets.

use std::path::PathBuf;

/// Why a credential cannot be used. No text of an error contains a secret, or the path or query of a URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialError {
    /// Nothing that could be a credential was found.
    #[error(
        "there is no credential for {service}; store a key with `exec-server login {service}`, or set EXEC_SERVER_API_KEY"
    )]
    NotFound {
        /// The origin of the service.
        service: String,
    },
    /// A variable has a value that cannot be used, or lacks one that is needed.
    #[error("{variable} {problem}")]
    Variable {
        /// The name of the variable.
        variable: String,
        /// The rest of the sentence: what is wrong, and what to do.
        problem: String,
    },
    /// A file cannot be read, or its content cannot be used.
    #[error("{} {problem}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The rest of the sentence: what is wrong, and what to do.
        problem: String,
    },
    /// The URL is no address of a service.
    #[error("the address of the service {problem}")]
    InvalidUrl {
        /// The rest of the sentence.
        problem: String,
    },
    /// The credential must not be sent to this service.
    #[error("{credential} is not sent to {service}: {rule}")]
    Destination {
        /// What is not sent, for people.
        credential: String,
        /// The origin of the URL.
        service: String,
        /// The rule as a sentence, and what to do.
        rule: String,
    },
    /// The credential has expired and cannot be renewed.
    #[error("{credential} has expired; {advice}")]
    Expired {
        /// What has expired, for people.
        credential: String,
        /// What to do.
        advice: String,
    },
    /// A new token belongs to another account than the first one.
    #[error(
        "{credential} now belongs to another account, user or kind of workspace; start again if the change is intended"
    )]
    AccountChanged {
        /// Whose account has changed, for people.
        credential: String,
    },
    /// The credential is the identity of an agent, and the caller has not asked for one.
    #[error(
        "{source_name} holds an agent identity, which is used only with --use-agent-identity-auth; give that flag, or another credential"
    )]
    AgentIdentityNotAsked {
        /// Where it was found.
        source_name: String,
    },
    /// The service that issues tokens or keys did not give what was asked of it.
    #[error("{issuer} {problem}")]
    Issuer {
        /// What was asked, with its host.
        issuer: String,
        /// The rest of the sentence.
        problem: String,
        /// Whether the same request may succeed later.
        is_retryable: bool,
    },
    /// This machine could not do the work, for example because it could not start a thread.
    #[error("cannot prepare the credential: {reason}")]
    Machine {
        /// The reason that the operating system gives.
        reason: String,
    },
}

impl CredentialError {
    /// Whether the same call may succeed later without any change by a person.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Issuer { is_retryable, .. } => *is_retryable,
            Self::Machine { .. } => true,
            _ => false,
        }
    }

    pub(crate) fn variable(name: &str, problem: impl Into<String>) -> Self {
        Self::Variable { variable: name.to_owned(), problem: problem.into() }
    }

    pub(crate) fn file(path: &std::path::Path, problem: impl Into<String>) -> Self {
        Self::File { path: path.to_owned(), problem: problem.into() }
    }
}
