//! The file `credentials.json`, in which `exec-server login` keeps one key for each service. Only its user can read
//! it, and each change replaces it as a whole. Start with [`KeyStore`].

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use zeroize::Zeroizing;

use crate::destination::{AllowedHosts, PermittedServices, ServiceOrigin};
use crate::error::CredentialError;
use crate::file_reading::{FileTrust, read};
use crate::file_writing;
use crate::private_lock::PrivateLock;
use crate::secret::Secret;
use crate::variables::CredentialVariables;

const FILE_NAME: &str = "credentials.json";

/// The file, in the same directory, that is locked while `credentials.json` is changed. It is another file, because
/// each change replaces `credentials.json`.
const LOCK_NAME: &str = "credentials.json.lock";

/// How long another process may change the file. A change takes a few milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest file that is read.
const MAX_STORE_BYTES: u64 = 1024 * 1024;

/// Longest key, in bytes. Services limit the headers of a request to a few times as much.
const LONGEST_KEY: usize = 4096;

/// The keys that `exec-server login` has stored.
#[derive(Clone, Debug)]
pub struct KeyStore {
    path: PathBuf,
}

/// The result of [`KeyStore::store`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKeyReceipt {
    /// The origin of the service. The key is sent to this origin only.
    pub service: String,
    /// Whether there was a key for the service before.
    pub replaced: bool,
}

/// The content of the file: for each origin, such as `https://example.com`, its key.
type StoredKeys = BTreeMap<String, StoredKey>;

#[derive(Deserialize, Serialize)]
struct StoredKey {
    #[serde(rename = "apiKey", serialize_with = "expose")]
    api_key: Secret,
}

impl KeyStore {
    /// The store in `home`, or else in the directory that the variables name: `EXEC_SERVER_HOME`, or `exec-server` in
    /// the directory of the user for configuration. `None` if nothing names a directory, or if `EXEC_SERVER_HOME` is a
    /// relative path. Opens no file.
    pub fn locate(environment: &[(String, String)], home: Option<&Path>) -> Option<Self> {
        let home = home.map(Path::to_owned).or_else(|| CredentialVariables(environment).exec_server_home())?;
        Some(Self { path: home.join(FILE_NAME) })
    }

    /// The path of the file, which need not exist.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The origin of the service at `url`: scheme, host and port.
    pub fn service_of(url: &str) -> Result<String, CredentialError> {
        Ok(ServiceOrigin::of(url)?.to_string())
    }

    /// Checks that a key may be stored for the service at `url`, and returns the origin of the service.
    pub fn check_service(url: &str) -> Result<String, CredentialError> {
        let origin = ServiceOrigin::without_user(url)?;
        PermittedServices { service: None, hosts: AllowedHosts::Any }.check("a stored key", url)?;
        Ok(origin.as_str().to_owned())
    }

    /// Stores the key for the service at `url`, in place of an earlier one. White space around the key is removed.
    pub fn store(&self, url: &str, key: &str) -> Result<StoredKeyReceipt, CredentialError> {
        let origin = Self::check_service(url)?;
        let refuse = |problem: &str| Err(CredentialError::variable("the key", problem));
        let Some(api_key) = Secret::trimmed(key) else { return refuse("is empty") };
        if !api_key.is_header_word() {
            return refuse("must be one line of visible ASCII without spaces");
        }
        if api_key.expose().len() > LONGEST_KEY {
            return refuse(&format!("is longer than {LONGEST_KEY} bytes"));
        }
        let mut replaced = false;
        self.change(|keys| {
            replaced = keys.insert(origin.clone(), StoredKey { api_key }).is_some();
            true
        })?;
        Ok(StoredKeyReceipt { service: origin, replaced })
    }

    /// Removes the key of the service at `url`. Returns false if there was none.
    pub fn remove(&self, url: &str) -> Result<bool, CredentialError> {
        let origin = ServiceOrigin::of(url)?;
        if !self.read()?.contains_key(origin.as_str()) {
            return Ok(false);
        }
        self.change(|keys| keys.remove(origin.as_str()).is_some())
    }

    /// The origins of all services that have a key.
    pub fn services(&self) -> Result<Vec<String>, CredentialError> {
        Ok(self.read()?.into_keys().collect())
    }

    /// The key of a service.
    pub(crate) fn key(&self, service: &ServiceOrigin) -> Result<Option<Secret>, CredentialError> {
        Ok(self.read()?.remove(service.as_str()).map(|stored| stored.api_key))
    }

    fn read(&self) -> Result<StoredKeys, CredentialError> {
        let Some(bytes) = read(&self.path, MAX_STORE_BYTES, FileTrust::Private)? else {
            return Ok(StoredKeys::new());
        };
        serde_json::from_slice(&bytes).map_err(|_| {
            let problem = "is damaged; remove it, and store the keys again with `exec-server login`";
            CredentialError::file(&self.path, problem)
        })
    }

    /// Changes the file. `change` returns whether it has changed anything, which is also what this function returns.
    fn change(&self, change: impl FnOnce(&mut StoredKeys) -> bool) -> Result<bool, CredentialError> {
        let failed = |error: io::Error| CredentialError::file(&self.path, format!("cannot be written: {error}"));
        // Two commands that change the file at once must not undo each other's change.
        let directory = self.path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        let _lock = PrivateLock::acquire(&directory.join(LOCK_NAME), LOCK_TIMEOUT)?;
        let mut keys = self.read()?;
        if !change(&mut keys) {
            return Ok(false);
        }
        let mut text = Zeroizing::new(serde_json::to_vec_pretty(&keys).map_err(|error| failed(error.into()))?);
        text.push(b'\n');
        file_writing::replace(&self.path, &text).map_err(failed)?;
        Ok(true)
    }
}

fn expose<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    fn store_in(home: &Path) -> KeyStore {
        KeyStore::locate(&[], Some(home)).unwrap()
    }

    fn key(store: &KeyStore, url: &str) -> Option<String> {
        store.key(&ServiceOrigin::of(url).unwrap()).unwrap().map(|key| key.expose().to_owned())
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_key_is_kept_for_its_origin_only_and_only_the_user_can_read_it() {
        let receipt = |replaced| StoredKeyReceipt { service: "https://example.org".to_owned(), replaced };
        let folder = tempfile::tempdir().unwrap();
        let store = store_in(&folder.path().join("a/b"));
        assert_eq!(key(&store, "https://example.org"), None);
        assert_eq!(store.store(" https://Example.org/base?x ", " key-1\n").unwrap(), receipt(false));
        store.store("http://localhost:8080", "key-2").unwrap();
        assert_eq!(key(&store, "https://example.org:443/other").as_deref(), Some("key-1"));
        assert_eq!(key(&store, "https://example.org:8443"), None);
        assert_eq!(store.services().unwrap(), ["http://localhost:8080", "https://example.org"]);
        assert_eq!((mode(store.path()), mode(&folder.path().join("a/b"))), (0o600, 0o700));

        assert_eq!(store.store("https://example.org", "key-3").unwrap(), receipt(true));
        assert_eq!(key(&store, "https://example.org").as_deref(), Some("key-3"));
        assert!(store.remove("https://example.org/x").unwrap());
        assert!(!store.remove("https://example.org").unwrap());
        assert_eq!(store.services().unwrap(), ["http://localhost:8080"]);
        let files = fs::read_dir(folder.path().join("a/b")).unwrap().map(|file| file.unwrap().file_name());
        let files: std::collections::BTreeSet<_> = files.collect();
        assert!(files.iter().eq([FILE_NAME, LOCK_NAME]), "no file is left over: {files:?}");
    }

    #[test]
    fn keys_and_services_that_cannot_be_used_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let store = store_in(folder.path());
        for bad in ["", " \n", "two words", "a\nb", "ä", &"x".repeat(LONGEST_KEY + 1)] {
            let error = store.store("https://example.org", bad).unwrap_err().to_string();
            assert!(error.starts_with("the key ") && (bad.trim().is_empty() || !error.contains(bad)), "{error}");
        }
        for bad in ["http://example.org", "example.org", "ws://localhost", "https://me:secret@example.org", ""] {
            assert!(store.store(bad, "key").is_err(), "{bad}");
        }
        assert!(!store.path().exists());
    }

    #[test]
    fn a_file_that_is_damaged_or_open_to_others_is_neither_used_nor_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let store = store_in(folder.path());
        store.store("https://example.org", "key-1").unwrap();
        fs::set_permissions(store.path(), fs::Permissions::from_mode(0o644)).unwrap();
        let error = store.services().unwrap_err().to_string();
        assert!(error.contains("run `chmod 600 "), "{error}");
        assert!(store.store("https://example.org", "key-2").is_err());

        fs::set_permissions(store.path(), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(store.path(), "{\"https://example.org\": \"key-1\"").unwrap();
        let error = store.services().unwrap_err().to_string();
        assert!(error.contains("is damaged") && !error.contains("key-1"), "{error}");
        assert!(store.store("https://example.org", "key-2").is_err());
        assert!(fs::read_to_string(store.path()).unwrap().contains("key-1"));
    }

    #[test]
    fn a_link_in_place_of_the_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let other = store_in(&folder.path().join("other"));
        other.store("https://example.org", "key-1").unwrap();
        let store = store_in(folder.path());
        symlink(other.path(), store.path()).unwrap();
        assert!(store.services().unwrap_err().to_string().ends_with("is a symbolic link; put the file itself there"));
        assert!(store.store("https://example.org", "key-2").is_err());
        assert_eq!(key(&other, "https://example.org").as_deref(), Some("key-1"));
    }

    #[test]
    fn concurrent_changes_do_not_undo_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let store = store_in(folder.path());
        std::thread::scope(|scope| {
            for number in 0..8 {
                let store = &store;
                scope.spawn(move || store.store(&format!("https://host-{number}"), "key").unwrap());
            }
        });
        assert_eq!(store.services().unwrap().len(), 8);
    }

    #[test]
    fn the_variables_name_the_directory() {
        let path = |variables: &[(&str, &str)]| {
            let variables: Vec<_> =
                variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            KeyStore::locate(&variables, None).map(|store| store.path().display().to_string())
        };
        let home = ("HOME", "/h");
        assert_eq!(path(&[home]).as_deref(), Some("/h/.config/exec-server/credentials.json"));
        assert_eq!(path(&[home, ("XDG_CONFIG_HOME", "/x")]).as_deref(), Some("/x/exec-server/credentials.json"));
        assert_eq!(path(&[home, ("EXEC_SERVER_HOME", "/e")]).as_deref(), Some("/e/credentials.json"));
        assert_eq!(
            path(&[home, ("EXEC_SERVER_HOME", "")]).as_deref(),
            Some("/h/.config/exec-server/credentials.json")
        );
        assert_eq!(path(&[("HOME", "relative"), ("XDG_CONFIG_HOME", "")]), None);
        assert_eq!(path(&[home, ("EXEC_SERVER_HOME", "relative")]), None, "no other directory is used instead");
    }
}
