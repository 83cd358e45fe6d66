//! A value that is obtained from outside and expires: a token, or the task of an agent. Concurrent callers share one
//! attempt to obtain it, and an attempt goes on if its callers give up. This module knows no requests and no files.
//! Start with [`Renewed::get`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::clock::WallClock;
use crate::error::CredentialError;

/// After a failed attempt, a value that is still valid is used for this long before the next attempt. Otherwise
/// every request would wait for the timeout of an issuer that does not answer.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(10);

/// A value that a [`Renewed`] can hold.
pub(crate) trait Renewable: Clone + Send + 'static {
    /// Text that tells this value from others, and by which a service refuses it.
    fn identity(&self) -> &str;

    /// Whether a new value must be obtained before this one is used.
    fn is_due(&self, now: SystemTime) -> bool;

    /// Whether the value may still be used when no new one can be obtained.
    fn is_valid(&self, now: SystemTime) -> bool;
}

/// What an attempt to obtain a value gets.
pub(crate) struct Earlier<T> {
    /// The value so far, whether valid or not.
    pub(crate) value: Option<T>,
    /// Whether a service has refused that value.
    pub(crate) is_refused: bool,
}

/// A value that is renewed when it is due, or when a service has refused it.
pub(crate) struct Renewed<T> {
    clock: Arc<dyn WallClock>,
    /// Number of attempts that have ended. It tells a caller that an attempt ended while it waited.
    attempts: AtomicU64,
    /// The attempt that is under way. Who holds the lock waits for it.
    attempt: tokio::sync::Mutex<Option<AttemptTask<T>>>,
    known: Mutex<KnownValue<T>>,
}

struct KnownValue<T> {
    value: Option<T>,
    refusal: Option<TokenRefusalState>,
    /// The error of the last attempt, if it has failed.
    failure: Option<CredentialError>,
    /// Until then no attempt is made while the value is valid.
    rest_until: Option<SystemTime>,
}

struct TokenRefusalState {
    /// The identity of the value that a service has refused.
    identity: String,
    /// Whether a later attempt has obtained the same value again.
    is_confirmed: bool,
}

/// A task that ends with this value.
struct AttemptTask<T>(JoinHandle<Result<T, CredentialError>>);

impl<T> Drop for AttemptTask<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T: Renewable> Renewed<T> {
    pub(crate) fn new(clock: Arc<dyn WallClock>, value: Option<T>) -> Self {
        let known = KnownValue { value, refusal: None, failure: None, rest_until: None };
        Self { clock, attempts: AtomicU64::new(0), attempt: tokio::sync::Mutex::new(None), known: Mutex::new(known) }
    }

    /// The last value that was obtained, valid or not.
    pub(crate) fn latest(&self) -> Option<T> {
        self.known.lock().value.clone()
    }

    /// A value that can be used now. If none is known, `obtain` is called, and its future runs as a task.
    pub(crate) async fn get<F>(&self, obtain: impl FnOnce(Earlier<T>) -> F) -> Result<T, CredentialError>
    where
        F: Future<Output = Result<T, CredentialError>> + Send + 'static,
    {
        let attempts_before = self.attempts.load(Ordering::Acquire);
        let mut attempt = self.attempt.lock().await;
        if attempt.is_none() {
            let ended_meanwhile = self.attempts.load(Ordering::Acquire) != attempts_before;
            let earlier = match self.known.lock().decide(self.clock.now(), ended_meanwhile) {
                NextStep::Return(outcome) => return outcome,
                NextStep::Obtain(earlier) => earlier,
            };
            *attempt = Some(AttemptTask(tokio::spawn(obtain(earlier))));
        }
        let Some(AttemptTask(task)) = &mut *attempt else {
            return Err(CredentialError::Machine { reason: "a task has vanished".to_owned() });
        };
        let outcome = match task.await {
            Ok(outcome) => outcome,
            Err(_) => Err(CredentialError::Machine { reason: "a task has panicked or was stopped".to_owned() }),
        };
        *attempt = None;
        let outcome = self.known.lock().accept(outcome, self.clock.now());
        self.attempts.fetch_add(1, Ordering::AcqRel);
        outcome
    }

    /// A service has refused the value of this identity. Returns true if the next [`get`](Self::get) may return
    /// another one.
    pub(crate) fn refuse(&self, identity: &str) -> bool {
        let mut known = self.known.lock();
        match &known.value {
            Some(value) if value.identity() != identity => return true,
            Some(_) => {}
            None => return true,
        }
        match &known.refusal {
            Some(refusal) if refusal.identity == identity => !refusal.is_confirmed,
            _ => {
                known.refusal = Some(TokenRefusalState { identity: identity.to_owned(), is_confirmed: false });
                true
            }
        }
    }
}

/// What [`Renewed::get`] does when no attempt is under way.
enum NextStep<T> {
    Return(Result<T, CredentialError>),
    Obtain(Earlier<T>),
}

impl<T: Renewable> KnownValue<T> {
    /// `ended_meanwhile`: an attempt has ended while the caller waited, so its outcome is also that of the caller.
    fn decide(&self, now: SystemTime, ended_meanwhile: bool) -> NextStep<T> {
        let is_refused = self.is_refused();
        if let Some(value) = &self.value
            && !is_refused
        {
            let rests = self.rest_until.is_some_and(|until| now < until && now + REST_AFTER_FAILURE >= until);
            if !value.is_due(now) || ((rests || ended_meanwhile) && value.is_valid(now)) {
                return NextStep::Return(Ok(value.clone()));
            }
        }
        match &self.failure {
            Some(failure) if ended_meanwhile => NextStep::Return(Err(failure.clone())),
            _ => NextStep::Obtain(Earlier { value: self.value.clone(), is_refused }),
        }
    }

    /// Takes the outcome of an attempt, and returns what the callers get.
    fn accept(&mut self, outcome: Result<T, CredentialError>, now: SystemTime) -> Result<T, CredentialError> {
        match outcome {
            Ok(value) => {
                self.refusal = self.refusal.take().filter(|refusal| refusal.identity == value.identity());
                if let Some(refusal) = &mut self.refusal {
                    refusal.is_confirmed = true;
                }
                (self.failure, self.rest_until) = (None, None);
                self.value = Some(value.clone());
                Ok(value)
            }
            Err(error) => {
                self.failure = Some(error.clone());
                match &self.value {
                    Some(value) if error.is_retryable() && !self.is_refused() && value.is_valid(now) => {
                        tracing::warn!(%error, "cannot renew a credential; the old one is used while it is valid");
                        self.rest_until = Some(now + REST_AFTER_FAILURE);
                        Ok(value.clone())
                    }
                    _ => Err(error),
                }
            }
        }
    }

    /// Whether a service has refused the value, and no attempt was made since.
    fn is_refused(&self) -> bool {
        self.refusal.as_ref().is_some_and(|refusal| !refusal.is_confirmed)
    }
}

impl<T> fmt::Debug for Renewed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewed").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::Notify;

    use super::*;
    use crate::clock::fake::FakeClock;

    /// A token that is due 10 s before it expires.
    #[derive(Clone, Debug, PartialEq)]
    struct Token {
        name: &'static str,
        expires: u64,
    }

    impl Renewable for Token {
        fn identity(&self) -> &str {
            self.name
        }

        fn is_due(&self, now: SystemTime) -> bool {
            crate::clock::unix_seconds(now) + 10 >= self.expires
        }

        fn is_valid(&self, now: SystemTime) -> bool {
            crate::clock::unix_seconds(now) < self.expires
        }
    }

    fn failure(is_retryable: bool) -> CredentialError {
        CredentialError::Issuer { issuer: "it".into(), problem: "fails".into(), is_retryable }
    }

    fn renewed() -> (Arc<FakeClock>, Arc<Renewed<Token>>) {
        let clock = Arc::new(FakeClock::at(1000));
        (Arc::clone(&clock), Arc::new(Renewed::new(clock, None)))
    }

    async fn obtained(renewed: &Renewed<Token>, name: &'static str, expires: u64) -> &'static str {
        renewed.get(|_| async move { Ok(Token { name, expires }) }).await.unwrap().name
    }

    async fn failed(renewed: &Renewed<Token>, is_retryable: bool) -> Option<&'static str> {
        renewed.get(|_| async move { Err(failure(is_retryable)) }).await.ok().map(|token| token.name)
    }

    #[tokio::test]
    async fn a_value_is_kept_until_it_is_due() {
        let (clock, renewed) = renewed();
        assert_eq!(obtained(&renewed, "a", 1100).await, "a");
        clock.set(1089);
        assert_eq!(obtained(&renewed, "b", 1200).await, "a");
        clock.set(1090);
        assert_eq!(obtained(&renewed, "b", 1200).await, "b");
    }

    #[tokio::test]
    async fn a_valid_value_is_used_when_no_new_one_can_be_had_and_the_next_attempt_comes_later() {
        let (clock, renewed) = renewed();
        obtained(&renewed, "a", 1100).await;
        clock.set(1090);
        assert_eq!(failed(&renewed, true).await, Some("a"));
        assert_eq!(obtained(&renewed, "b", 1200).await, "a", "no attempt so soon");
        clock.set(1099);
        assert_eq!(failed(&renewed, true).await, Some("a"), "no attempt so soon");
        clock.set(1100);
        assert_eq!(failed(&renewed, true).await, None, "expired");
        assert_eq!(obtained(&renewed, "b", 1200).await, "b");
        clock.set(1195);
        assert_eq!(failed(&renewed, false).await, None, "a refusal of the issuer is final");
    }

    #[tokio::test]
    async fn concurrent_callers_share_an_attempt_and_its_failure() {
        for outcome in [Ok(Token { name: "a", expires: 2000 }), Err(failure(true))] {
            let (_, renewed) = renewed();
            let (attempts, proceed) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
            let callers: Vec<_> = (0..5)
                .map(|_| {
                    let (renewed, attempts, proceed) =
                        (Arc::clone(&renewed), Arc::clone(&attempts), Arc::clone(&proceed));
                    let outcome = outcome.clone();
                    tokio::spawn(async move {
                        let obtain = |_: Earlier<Token>| async move {
                            attempts.fetch_add(1, Ordering::SeqCst);
                            proceed.notified().await;
                            outcome
                        };
                        renewed.get(obtain).await
                    })
                })
                .collect();
            // Each caller runs until it waits.
            tokio::task::yield_now().await;
            proceed.notify_one();
            for caller in callers {
                assert_eq!(caller.await.unwrap(), outcome);
            }
            assert_eq!(attempts.load(Ordering::SeqCst), 1);
        }
    }

    #[tokio::test]
    async fn an_attempt_goes_on_when_its_caller_gives_up() {
        let (_, renewed) = renewed();
        let (started, proceed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (task_started, task_proceed) = (Arc::clone(&started), Arc::clone(&proceed));
        let given_up = renewed.get(|_| async move {
            task_started.notify_one();
            task_proceed.notified().await;
            Ok(Token { name: "first", expires: 2000 })
        });
        tokio::select! {
            _ = given_up => panic!("nothing was obtained yet"),
            () = started.notified() => {}
        }
        proceed.notify_one();
        assert_eq!(obtained(&renewed, "second", 2000).await, "first");
    }

    #[tokio::test]
    async fn a_refused_value_is_obtained_again_once() {
        let (_, renewed) = renewed();
        obtained(&renewed, "a", 2000).await;
        assert!(renewed.refuse("a"));
        assert!(renewed.refuse("a"), "no attempt was made yet");
        assert_eq!(obtained(&renewed, "a", 2000).await, "a");
        assert!(!renewed.refuse("a"), "there is no other value");
        assert_eq!(obtained(&renewed, "b", 2000).await, "a", "no attempt for a confirmed value");

        let (_, renewed) = self::renewed();
        obtained(&renewed, "a", 2000).await;
        assert!(renewed.refuse("a"));
        assert_eq!(obtained(&renewed, "b", 2000).await, "b");
        assert!(renewed.refuse("a"), "there is a newer value already");
        assert_eq!(obtained(&renewed, "c", 2000).await, "b");
        assert!(renewed.refuse("b"), "another value is refused");
    }

    #[tokio::test]
    async fn a_refused_value_is_not_used_when_no_new_one_can_be_had() {
        let (_, renewed) = renewed();
        obtained(&renewed, "a", 2000).await;
        renewed.refuse("a");
        assert_eq!(failed(&renewed, true).await, None);
    }
}
