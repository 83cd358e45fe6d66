//! A clock that a test sets, and a directory in which credentials are looked for.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use credentials::{
    AuthHeaders, Credential, CredentialError, CredentialSettings, SurveyedCredential, WallClock, choose_at, survey,
};
use fetch::{Fetcher, FetcherConfig};
use tempfile::TempDir;

/// A service on this machine. Nothing listens there.
pub(crate) const LOCAL_SERVICE: &str = "http://127.0.0.1:9";

/// The time at which every [`TestClock`] begins, in seconds after the beginning of 1970.
pub(crate) const NOW: u64 = 1_787_378_083;

/// A clock that a test sets.
#[derive(Debug)]
pub(crate) struct TestClock(AtomicU64);

impl TestClock {
    /// Sets the clock to so many seconds after [`NOW`].
    pub(crate) fn set(&self, seconds: u64) {
        self.0.store(NOW + seconds, Ordering::SeqCst);
    }
}

impl WallClock for TestClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

/// Everything in which credentials are looked for: variables, and a directory for each program.
pub(crate) struct Places {
    folder: TempDir,
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) use_agent_identity: bool,
    pub(crate) clock: Arc<TestClock>,
}

impl Places {
    pub(crate) fn new(variables: &[(&str, &str)]) -> Self {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let folder = tempfile::tempdir().unwrap();
        for home in ["own", "codex"] {
            std::fs::create_dir(folder.path().join(home)).unwrap();
        }
        Self { folder, variables, use_agent_identity: false, clock: Arc::new(TestClock(AtomicU64::new(NOW))) }
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// The path of a file in the directory of this program (`own`) or of codex (`codex`).
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        std::fs::write(self.path(file), text).unwrap();
    }

    pub(crate) fn settings(&self) -> CredentialSettings {
        CredentialSettings {
            environment: self.variables.clone(),
            exec_server_home: Some(self.path("own")),
            codex_home: Some(self.path("codex")),
            use_agent_identity: self.use_agent_identity,
            fetcher: Fetcher::new(FetcherConfig::default()).unwrap(),
        }
    }

    pub(crate) fn choose(&self, service: &str) -> Result<Arc<dyn Credential>, CredentialError> {
        choose_at(self.settings(), service, Arc::clone(&self.clock) as Arc<dyn WallClock>)
    }

    /// What [`Places::choose`] refuses, as a text.
    pub(crate) fn refusal(&self, service: &str) -> String {
        self.choose(service).unwrap_err().to_string()
    }

    pub(crate) fn survey(&self, service: Option<&str>) -> Vec<SurveyedCredential> {
        survey(&self.settings(), service).unwrap()
    }
}

/// The headers as a list.
pub(crate) fn listed(headers: &AuthHeaders) -> Vec<(String, String)> {
    headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The value of `Authorization` for [`LOCAL_SERVICE`].
pub(crate) async fn authorization(credential: &Arc<dyn Credential>) -> String {
    let headers = credential.headers(LOCAL_SERVICE).await.unwrap();
    headers.iter().find(|(name, _)| *name == "Authorization").unwrap().1.to_owned()
}
