//! Admits harnesses: reads the first message of a handshake, asks the registry about the harness, and answers. Each
//! handshake has a task, so neither cryptography nor a slow registry delays the socket.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use recovery::Backoff;
use relay::{ExecutorHandshake, Features, Frame, FrameBody, StreamBinding};
use transport::PeerLabel;

use super::ExecutorShared;
use crate::chance::chance;
use crate::registry::{Registry, RegistryError};
use crate::relayed_stream::{ControlHandler, NewStream, RelayedStream};
use crate::stream_io::message_stream;

/// Handshakes in a second, in the long run. Each costs about half a millisecond of computing.
const HANDSHAKES_PER_SECOND: f64 = 100.0;

/// Handshakes at once, after a pause.
const HANDSHAKE_BURST: f64 = 200.0;

/// After so many refusals, the registry is not asked about a harness for a while.
const MAX_REFUSALS: u32 = 8;

/// How long the refusals of a harness count.
const REFUSALS_COUNT_FOR: Duration = Duration::from_secs(60);

/// Most harnesses whose refusals are counted. The oldest are forgotten.
const MAX_COUNTED_HARNESSES: usize = 1024;

/// How long all attempts to ask the registry about one harness may take together. The harness waits a little longer.
const ASK_TIMEOUT: Duration = Duration::from_secs(8);

/// The waits between two attempts to ask the registry about one harness.
const ASK_WAITS: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(1) };

/// Decides whether a handshake may go on, as a value: so many in a second, and no more from a harness that the registry
/// has refused again and again. A harness costs itself only.
#[derive(Debug)]
pub(super) struct HarnessAdmission {
    allowance: f64,
    filled_at: Instant,
    /// By the fingerprint of the key: the refusals, and when the first of them came.
    refusals: HashMap<String, (u32, Instant)>,
}

impl HarnessAdmission {
    pub(super) fn new(now: Instant) -> Self {
        Self { allowance: HANDSHAKE_BURST, filled_at: now, refusals: HashMap::new() }
    }

    /// Whether another handshake may be computed now.
    pub(super) fn may_begin(&mut self, now: Instant) -> bool {
        let filled = now.saturating_duration_since(self.filled_at).as_secs_f64() * HANDSHAKES_PER_SECOND;
        self.allowance = (self.allowance + filled).min(HANDSHAKE_BURST);
        self.filled_at = now;
        let may = self.allowance >= 1.0;
        if may {
            self.allowance -= 1.0;
        }
        may
    }

    /// Whether the registry may be asked about this harness.
    fn may_ask(&mut self, fingerprint: &str, now: Instant) -> bool {
        self.refusals.retain(|_, (_, since)| now.saturating_duration_since(*since) < REFUSALS_COUNT_FOR);
        self.refusals.get(fingerprint).is_none_or(|(count, _)| *count < MAX_REFUSALS)
    }

    /// The registry has refused this harness.
    fn note_refusal(&mut self, fingerprint: String, now: Instant) {
        if self.refusals.len() >= MAX_COUNTED_HARNESSES
            && !self.refusals.contains_key(&fingerprint)
            && let Some(oldest) =
                self.refusals.iter().min_by_key(|(_, (_, since))| *since).map(|(key, _)| key.clone())
        {
            self.refusals.remove(&oldest);
        }
        self.refusals.entry(fingerprint).or_insert((0, now)).0 += 1;
    }
}

/// Runs the handshake with this number to its end.
pub(super) async fn run(
    shared: Arc<ExecutorShared>,
    number: u64,
    stream_id: String,
    message: Bytes,
    features: Features,
) {
    let admitted = admit(&shared, number, &stream_id, &message, features);
    match shared.closing.run_until_cancelled(admitted).await {
        Some(Ok(())) => {}
        Some(Err(reason)) => shared.refuse(&stream_id, number, reason),
        None => shared.refuse(&stream_id, number, "the executor ends"),
    }
}

async fn admit(
    shared: &Arc<ExecutorShared>,
    number: u64,
    stream_id: &str,
    message: &[u8],
    features: Features,
) -> Result<(), &'static str> {
    let settings = &shared.settings;
    let registration_id = shared.registration.lock().executor_registration_id.clone();
    let binding = StreamBinding {
        environment_id: settings.registry.environment_id(),
        registration_id: &registration_id,
        stream_id,
    };
    let handshake = ExecutorHandshake::read(&settings.identity, binding, message).map_err(|failure| {
        tracing::debug!(%failure, "a handshake cannot be read");
        "unreadable handshake"
    })?;
    let fingerprint = handshake.harness_key().fingerprint();
    if !shared.admission.lock().may_ask(&fingerprint, Instant::now()) {
        return Err("refused too often");
    }
    match ask(&settings.registry, &registration_id, &handshake).await {
        Ok(Authorization::Given) => {}
        Ok(Authorization::Refused) => {
            shared.admission.lock().note_refusal(fingerprint, Instant::now());
            return Err("not authorized");
        }
        Ok(Authorization::RefusedAfterFailure) => return Err("not authorized"),
        Err(error) => {
            // The fault may be that of the registry, so it does not count against the harness.
            tracing::debug!(%error, "the registry does not say whether a harness is authorized");
            return Err("the registry gave no answer");
        }
    }
    if shared.registration.lock().executor_registration_id != registration_id {
        return Err("the executor was registered again");
    }
    let harness_key = handshake.harness_key().clone();
    let (answer, channel) = handshake.accept().map_err(|_| "unusable handshake")?;
    let offers_direct_path = settings.direct.can_offer();
    let on_control =
        (offers_direct_path && features.includes(Features::OURS.with(Features::DIRECT_PATH))).then(|| {
            let shared = Arc::downgrade(shared);
            Box::new(move |stream: &Arc<RelayedStream>, kind, _: &[u8]| {
                if let Some(shared) = shared.upgrade() {
                    shared.handle_control(stream, kind);
                }
            }) as ControlHandler
        });
    let new = NewStream { id: stream_id.to_owned(), channel, features, awaits_first_record: true, on_control };
    let stream = RelayedStream::new(new, Arc::clone(&shared.outgoing), Arc::clone(&shared.timers));
    let mut frame = Frame::new(stream_id, FrameBody::Handshake(answer.into()));
    frame.features = if offers_direct_path { Features::OURS.with(Features::DIRECT_PATH) } else { Features::OURS };
    {
        let mut streams = shared.streams.lock();
        if !streams.finish_handshake(stream_id, number, Arc::clone(&stream)) {
            drop(streams);
            // Either the harness has given up, or it has to learn that there are too many streams.
            shared.push_reset(stream_id);
            return Err("too many streams");
        }
    }
    shared.outgoing.push_control(frame);
    let peer = PeerLabel::new(format_args!("relay {fingerprint}"));
    let forget = {
        let shared = Arc::clone(shared);
        move |stream: &RelayedStream| shared.forget(stream)
    };
    let messages = message_stream(stream, peer, settings.limits, forget);
    shared.host.serve(messages, &harness_key);
    Ok(())
}

/// The answer of the registry to the question whether a harness may connect.
enum Authorization {
    Given,
    Refused,
    /// The registry has refused the harness after an earlier attempt to ask had failed. The failed attempt may have
    /// used up the authorization, which works once, so this refusal does not count against the harness.
    RefusedAfterFailure,
}

/// Asks the registry whether a harness may connect. Asks again after a temporary failure, until [`ASK_TIMEOUT`] is
/// over.
async fn ask(
    registry: &Registry,
    registration_id: &str,
    handshake: &ExecutorHandshake,
) -> Result<Authorization, RegistryError> {
    let ends = Instant::now() + ASK_TIMEOUT;
    let mut failed = 0;
    loop {
        let answer = registry.validate(registration_id, handshake.harness_key(), handshake.authorization()).await;
        let error = match answer {
            Ok(true) => return Ok(Authorization::Given),
            Ok(false) if failed == 0 => return Ok(Authorization::Refused),
            Ok(false) => return Ok(Authorization::RefusedAfterFailure),
            Err(error) => error,
        };
        failed += 1;
        let wait = ASK_WAITS.after(failed, chance()).max(error.wait().unwrap_or_default());
        if !error.is_retryable() || Instant::now() + wait >= ends {
            return Err(error);
        }
        tokio::time::sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_in_a_second_are_limited_and_a_pause_allows_a_burst() {
        let mut now = Instant::now();
        let mut admission = HarnessAdmission::new(now);
        let admitted =
            |admission: &mut HarnessAdmission, now| (0..10_000).filter(|_| admission.may_begin(now)).count();
        assert_eq!(admitted(&mut admission, now), HANDSHAKE_BURST as usize);
        now += Duration::from_millis(100);
        assert_eq!(admitted(&mut admission, now), 10);
        now += Duration::from_secs(3600);
        assert_eq!(admitted(&mut admission, now), HANDSHAKE_BURST as usize);
    }

    #[test]
    fn the_refusals_of_a_harness_count_for_that_harness_and_for_a_while() {
        let mut now = Instant::now();
        let mut admission = HarnessAdmission::new(now);
        for _ in 0..MAX_REFUSALS {
            assert!(admission.may_ask("bad", now));
            admission.note_refusal("bad".to_owned(), now);
            now += Duration::from_secs(1);
        }
        assert!(!admission.may_ask("bad", now));
        assert!(admission.may_ask("good", now));
        now += REFUSALS_COUNT_FOR;
        assert!(admission.may_ask("bad", now));
    }

    #[test]
    fn the_number_of_counted_harnesses_is_limited() {
        let now = Instant::now();
        let mut admission = HarnessAdmission::new(now);
        for number in 0..MAX_COUNTED_HARNESSES * 2 {
            admission.note_refusal(number.to_string(), now);
        }
        assert_eq!(admission.refusals.len(), MAX_COUNTED_HARNESSES);
    }
}
