//! Reads certificates and keys from PEM files. Each error names the file, because a user can pass several files.

use std::path::{Path, PathBuf};
use std::{fs, io};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The reason why a file with certificates or a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PemFileError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The file is not valid PEM.
    #[error("{} is not a valid PEM file: {source}", path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// The error of the PEM parser.
        source: pem::Error,
    },
    /// A file that should hold certificates contains none. Holds the path of the file.
    #[error("{} has no certificate in it; expected a section `BEGIN CERTIFICATE`", .0.display())]
    NoCertificate(PathBuf),
    /// A file that should hold a key contains no unencrypted private key. Holds the path of the file.
    #[error("{} has no private key in it; expected an unencrypted section `BEGIN PRIVATE KEY`", .0.display())]
    NoKey(PathBuf),
}

/// Reads all certificates of a PEM file. Fails if there is none.
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PemFileError> {
    let certificates = CertificateDer::pem_slice_iter(&read(path)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| PemFileError::Malformed { path: path.into(), source })?;
    if certificates.is_empty() { Err(PemFileError::NoCertificate(path.into())) } else { Ok(certificates) }
}

/// Reads the first unencrypted private key of a PEM file.
pub fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, PemFileError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|source| match source {
        pem::Error::NoItemsFound => PemFileError::NoKey(path.into()),
        source => PemFileError::Malformed { path: path.into(), source },
    })
}

fn read(path: &Path) -> Result<Vec<u8>, PemFileError> {
    fs::read(path).map_err(|source| PemFileError::Unreadable { path: path.into(), source })
}
