//! The file in which a program keeps the secret of its keys. Pinned executors and the sessions of a harness need keys that
//! outlive the program.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use relay::{IdentitySeed, RelayIdentity};

/// Why the keys of a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityFileError {
    /// The file cannot be read or made.
    #[error("cannot use the key file {}: {source}", path.display())]
    Io {
        /// The path of the key file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Other users can read the file.
    #[error("the key file {} can be read by other users; run `chmod 600` on it, or remove it for new keys", .0.display())]
    Readable(PathBuf),
    /// The file has something else in it.
    #[error("the key file {} holds no keys; remove it for new ones", .0.display())]
    Malformed(PathBuf),
    /// The system has no randomness.
    #[error("cannot make keys: {0}")]
    Keys(#[from] relay::HandshakeFailure),
}

/// Reads the keys, or makes them if there is no file. Two programs that do this at once get the same keys.
pub fn load_or_create_identity(path: &Path) -> Result<RelayIdentity, IdentityFileError> {
    let failed = |source| IdentityFileError::Io { path: path.to_owned(), source };
    let seed = match read(path)? {
        Some(seed) => seed,
        None => {
            let seed = IdentitySeed::generate()?;
            create(path, &seed).map_err(failed)?;
            // Another program may have made the file first.
            read(path)?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?
        }
    };
    Ok(RelayIdentity::from_seed(&seed)?)
}

/// None: there is no file.
fn read(path: &Path) -> Result<Option<IdentitySeed>, IdentityFileError> {
    let failed = |source| IdentityFileError::Io { path: path.to_owned(), source };
    let mut file = match OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(IdentityFileError::Malformed(path.to_owned()));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(IdentityFileError::Readable(path.to_owned()));
    }
    // One byte more than a seed has, to notice a longer file.
    let mut bytes = zeroize::Zeroizing::new(Vec::with_capacity(IdentitySeed::BYTES + 1));
    io::Read::by_ref(&mut file).take(IdentitySeed::BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    IdentitySeed::from_bytes(&bytes).map(Some).ok_or_else(|| IdentityFileError::Malformed(path.to_owned()))
}

/// A FIFO in the place of the file must not block.
const NONBLOCK: i32 = 0o4000;

/// Makes the file with its whole contents at once. Does nothing if there is a file.
fn create(path: &Path, seed: &IdentitySeed) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let unfinished = directory.join(format!(".key-{}", uuid::Uuid::new_v4()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    let written = file.write_all(seed.as_bytes()).and_then(|()| file.sync_all());
    // A link, unlike a rename, does not replace a file that another program has made.
    let linked = written.and_then(|()| fs::hard_link(&unfinished, path));
    fs::remove_file(&unfinished)?;
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn keys_are_made_once_and_then_read_by_their_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/executor.key");
        let first = load_or_create_identity(&path).unwrap().public_key();
        assert_eq!(load_or_create_identity(&path).unwrap().public_key(), first);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn programs_that_start_together_get_the_same_keys() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("executor.key");
        let keys: Vec<_> = std::thread::scope(|scope| {
            let load = || load_or_create_identity(&path).unwrap().public_key();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(load)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
    }

    #[test]
    fn a_file_that_others_can_read_or_that_holds_something_else_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("executor.key");
        load_or_create_identity(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(load_or_create_identity(&path), Err(IdentityFileError::Readable(_))));
        for contents in [&b""[..], &[7; 95], &[7; 97]] {
            fs::write(&path, contents).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            assert!(matches!(load_or_create_identity(&path), Err(IdentityFileError::Malformed(_))));
        }
        assert!(matches!(load_or_create_identity(directory.path()), Err(IdentityFileError::Malformed(_))));
    }
}
