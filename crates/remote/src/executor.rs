//! The executor: it registers, connects to the relay, and serves the streams of harnesses over one socket. Each stream
//! becomes a message stream, which the host of the executor serves like a local connection. Start with
//! [`Executor::register`] and [`Executor::run`].
//!
//! Nothing here ends the program. A lost socket is replaced, and streams of harnesses that acknowledge continue over the
//! next socket. `streams` decides what a frame means, `handshakes` admits harnesses, and `schedule` says how long to wait.

mod handshakes;
mod schedule;
mod stream_table;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use relay::{Frame, FrameBody, FrameError, RelayIdentity, RelayPublicKey, StreamFailure};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transport::{MessageLimits, MessageStream, TlsRoots};

use crate::chance::chance;
use crate::dial::{DialRemedy, dial};
use crate::direct::{DirectDoor, DirectListeners, DirectTickets};
use crate::outgoing::OutgoingFrames;
use crate::registry::{Registration, Registry, RegistryError};
use crate::relay_socket;
use crate::relayed_stream::RelayedStream;
use crate::stream_timers::StreamTimers;
use handshakes::HarnessAdmission;
use schedule::{ConnectionUse, RedialSchedule};
use stream_table::{FrameVerdict, StreamTable};

/// How long the last frames may take to leave when the executor ends.
const LAST_FRAMES_TIMEOUT: Duration = Duration::from_secs(1);

/// The reason of every reset that an executor sends, as in the published implementation.
const PROTOCOL_ERROR: &str = "noise_relay_protocol_error";

/// Where an executor registers, and who it is.
#[derive(Clone, Debug)]
pub struct ExecutorSettings {
    /// The environment, in its registry.
    pub registry: Registry,
    /// The keys by which harnesses recognise the executor.
    pub identity: Arc<RelayIdentity>,
    /// A name for people. Registries that do not know it ignore it.
    pub name: Option<String>,
    /// Root certificates for the relay.
    pub tls_roots: TlsRoots,
    /// Limits for the messages of harnesses.
    pub limits: MessageLimits,
    /// The listeners whose addresses are offered to harnesses for a direct path.
    pub direct: DirectListeners,
}

/// The program behind an executor.
pub trait ExecutorHost: Send + Sync + 'static {
    /// Serves a stream of the harness that has this key. The stream ends when it is dropped. Must not wait.
    fn serve(&self, stream: MessageStream, harness: &RelayPublicKey);

    /// Something has happened that is worth a log line or a metric.
    fn note(&self, event: ExecutorEvent<'_>);
}

/// What happens between an executor and its service.
#[derive(Debug)]
pub enum ExecutorEvent<'a> {
    /// An attempt to register has ended.
    Registered {
        /// Why it failed. None if it did not.
        failure: Option<&'a RegistryError>,
        /// How long it took.
        took: Duration,
    },
    /// An attempt to connect to the relay has ended.
    Dialled {
        /// Why it failed. None if it did not.
        failure: Option<String>,
        /// How long it took.
        took: Duration,
    },
    /// The executor connects to the relay again, for this reason.
    Reconnects(&'static str),
    /// A harness was refused.
    HarnessRefused {
        /// What to tell the operator of the executor.
        reason: &'static str,
    },
    /// A stream has moved to a direct path.
    DirectPathUsed,
    /// A stream that used a direct path has ended, or has moved back to the relay.
    DirectPathLeft,
}

/// An executor that is registered.
pub struct Executor {
    shared: Arc<ExecutorShared>,
}

/// What the socket, the handshakes and the streams share.
pub(crate) struct ExecutorShared {
    pub(crate) settings: ExecutorSettings,
    pub(crate) host: Arc<dyn ExecutorHost>,
    /// The unused tickets for the direct path.
    pub(crate) tickets: Mutex<DirectTickets<Weak<RelayedStream>>>,
    registration: Mutex<Registration>,
    streams: Mutex<StreamTable<Arc<RelayedStream>>>,
    admission: Mutex<HarnessAdmission>,
    outgoing: Arc<OutgoingFrames>,
    timers: Arc<StreamTimers>,
    tasks: TaskTracker,
    pub(crate) closing: CancellationToken,
}

/// Why a socket to the relay has ended, and what it was used for.
struct ServedSocket {
    end_reason: &'static str,
    connection_use: ConnectionUse,
}

impl Executor {
    /// Registers. A failure that may pass is retried until `closing` is cancelled, and every other one is returned. None:
    /// it was cancelled.
    pub async fn register(
        settings: ExecutorSettings,
        host: Arc<dyn ExecutorHost>,
        closing: CancellationToken,
    ) -> Result<Option<Self>, RegistryError> {
        let mut schedule = RedialSchedule::new();
        let registration = loop {
            let Some(registered) = closing.run_until_cancelled(register(&settings, &*host)).await else {
                return Ok(None);
            };
            match registered {
                Ok(registration) => break registration,
                Err(error) if !error.is_retryable() => return Err(error),
                Err(error) => schedule.registration_failed(error.wait()),
            }
            let wait = tokio::time::sleep(schedule.wait(chance()));
            if closing.run_until_cancelled(wait).await.is_none() {
                return Ok(None);
            }
        };
        let shared = Arc::new(ExecutorShared {
            settings,
            host,
            tickets: Mutex::default(),
            registration: Mutex::new(registration),
            streams: Mutex::default(),
            admission: Mutex::new(HarnessAdmission::new(Instant::now())),
            outgoing: Arc::default(),
            timers: Arc::default(),
            tasks: TaskTracker::new(),
            closing,
        });
        Ok(Some(Self { shared }))
    }

    /// Checks tickets for the listeners of a direct path. `None`: this executor offers no direct path, so there are no
    /// tickets.
    pub fn direct_door(&self) -> Option<DirectDoor> {
        self.shared.settings.direct.can_offer().then(|| DirectDoor::new(&self.shared))
    }

    /// Serves harnesses until `leave` is done. From the moment at which the token of [`Executor::register`] is
    /// cancelled, no harness is admitted; the streams that exist go on until `leave` is done.
    pub async fn run(self, leave: impl Future<Output = ()>) {
        let leave = async {
            leave.await;
            let last_frames = self.shared.outgoing.wait_until_empty();
            let _ = tokio::time::timeout(LAST_FRAMES_TIMEOUT, last_frames).await;
        };
        tokio::select! {
            () = self.serve_sockets() => {}
            () = self.shared.timers.run() => {}
            () = leave => {}
        }
        self.shared.end_all();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    async fn serve_sockets(&self) {
        let shared = &self.shared;
        let mut schedule = RedialSchedule::new();
        loop {
            let url = shared.registration.lock().url.clone();
            let began = Instant::now();
            let dialled = dial(&url, &shared.settings.tls_roots).await;
            let failure = dialled.as_ref().err().map(ToString::to_string);
            shared.host.note(ExecutorEvent::Dialled { failure, took: began.elapsed() });
            let reason = match dialled {
                Ok(socket) => {
                    let connected = Instant::now();
                    let served = shared.serve_socket(socket).await;
                    schedule.connection_ended(connected.elapsed(), served.connection_use);
                    served.end_reason
                }
                Err(error) => {
                    let remedy = error.remedy();
                    schedule.dial_failed(remedy);
                    if schedule.needs_new_url() {
                        self.register_again(&mut schedule).await;
                    }
                    if remedy == DialRemedy::NewUrl { "registration_rejected" } else { "connect_failed" }
                }
            };
            shared.host.note(ExecutorEvent::Reconnects(reason));
            tokio::time::sleep(schedule.wait(chance())).await;
        }
    }

    /// Asks the registry for another URL. After any failure the executor goes on with the old URL, and asks again after
    /// the next failed connection. The executor does not end, because local clients and detached sessions must outlive
    /// an outage of the service.
    async fn register_again(&self, schedule: &mut RedialSchedule) {
        match register(&self.shared.settings, &*self.shared.host).await {
            Ok(registration) => {
                self.shared.adopt(registration);
                schedule.url_renewed();
            }
            Err(error) => schedule.registration_failed(error.wait()),
        }
    }
}

async fn register(settings: &ExecutorSettings, host: &dyn ExecutorHost) -> Result<Registration, RegistryError> {
    let began = Instant::now();
    let key = settings.identity.public_key();
    let registered = settings.registry.register(&key, settings.name.as_deref()).await;
    host.note(ExecutorEvent::Registered { failure: registered.as_ref().err(), took: began.elapsed() });
    registered
}

impl ExecutorShared {
    /// Serves a socket until it ends.
    async fn serve_socket(self: &Arc<Self>, socket: MessageStream) -> ServedSocket {
        let now = Instant::now();
        for stream in self.streams.lock().all() {
            stream.handle_new_socket(&self.outgoing, now);
        }
        let mut carried = false;
        let end = relay_socket::run(socket, &self.outgoing, relay_socket::SILENCE_TIMEOUT, |frame| {
            carried |= self.handle(frame);
        })
        .await;
        self.outgoing.clear();
        let now = Instant::now();
        let mut connection_use = if carried { ConnectionUse::Carried } else { ConnectionUse::Idle };
        for stream in self.streams.lock().all() {
            stream.handle_lost_socket(now);
            if !carried {
                connection_use = ConnectionUse::Awaited;
            }
        }
        ServedSocket { end_reason: end.as_str(), connection_use }
    }

    /// Takes over a new registration. Under another registration id the relay knows none of the existing streams, so
    /// they end, and their harnesses connect with new ones.
    fn adopt(&self, new: Registration) {
        let old = std::mem::replace(&mut *self.registration.lock(), new.clone());
        if old.executor_registration_id != new.executor_registration_id {
            self.end_all();
        }
    }

    /// Returns whether the frame belongs to a stream.
    fn handle(self: &Arc<Self>, frame: Result<Frame, FrameError>) -> bool {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                tracing::debug!(%error, "a frame was dropped");
                return false;
            }
        };
        let now = Instant::now();
        let verdict = self.streams.lock().handle(&frame);
        match verdict {
            FrameVerdict::Deliver(stream) => {
                stream.handle_frame(frame, now);
                return true;
            }
            FrameVerdict::Begin(number) => match frame.body {
                FrameBody::Handshake(message)
                    if self.admission.lock().may_begin(now) && !self.closing.is_cancelled() =>
                {
                    let shared = Arc::clone(self);
                    self.tasks.spawn(handshakes::run(shared, number, frame.stream_id, message, frame.features));
                }
                _ => self.refuse(&frame.stream_id, number, "too many handshakes"),
            },
            FrameVerdict::Reset(reason) => {
                self.host.note(ExecutorEvent::HarnessRefused { reason });
                self.push_reset(&frame.stream_id);
            }
            FrameVerdict::Ignore => {}
        }
        false
    }

    /// Forgets a handshake, and tells the harness.
    fn refuse(&self, stream_id: &str, number: u64, reason: &'static str) {
        if self.streams.lock().forget_handshake(stream_id, number) {
            self.host.note(ExecutorEvent::HarnessRefused { reason });
            self.push_reset(stream_id);
        }
    }

    fn push_reset(&self, stream_id: &str) {
        self.outgoing.push_control(Frame::new(stream_id, FrameBody::Reset { reason: PROTOCOL_ERROR.to_owned() }));
    }

    /// A message stream was dropped.
    fn forget(&self, stream: &RelayedStream) {
        let is_known = self.streams.lock().remove(stream.id(), |known| std::ptr::eq(&raw const **known, stream));
        let ended_by_peer = stream.end() == Some(StreamFailure::Reset);
        if is_known && !ended_by_peer {
            stream.push_reset(PROTOCOL_ERROR);
        }
        stream.fail(StreamFailure::Reset);
    }

    fn end_all(&self) {
        for stream in self.streams.lock().all() {
            stream.fail(StreamFailure::SocketLost);
        }
    }
}
