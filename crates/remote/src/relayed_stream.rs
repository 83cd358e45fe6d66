//! One stream of this end: the [`RelayStream`] with everything that waits for it. The task of a socket hands over frames
//! that have arrived and takes those that are to be sent; the task of the connection reads and writes bytes
//! ([`StreamIo`](crate::stream_io)). Both sides lock the stream for the time of one record at most.
//!
//! Encryption and decryption happen in the task of the connection, so a stream with much output does not keep the task
//! of the socket busy.

mod direct_route;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use relay::{
    Channel, EncodedFrame, Features, Frame, FrameBody, MAX_RECORD_BYTES, RelayStream, StreamFailure, TAG_BYTES,
};
use tokio::sync::Notify;
use transport::length_prefix::{ControlKind, LengthPrefixSplitter, write_control};

use crate::outgoing::OutgoingFrames;
use crate::stream_timers::StreamTimers;
pub(crate) use direct_route::DirectRoute;

/// A record is at most this long, so that a length prefix that was cut fits as well.
const FILLED_RECORD_BYTES: usize = MAX_RECORD_BYTES - 3;

/// Pings that may wait for their receipt. A further ping replaces the newest one.
const MAX_WAITING_PINGS: usize = 512;

/// A peer that has finished its handshake has to send its first record within this time. Before that, nothing proves that
/// the handshake is not a copy of an earlier one.
pub(crate) const FIRST_RECORD_TIMEOUT: Duration = Duration::from_secs(20);

/// Called with the kind and the payload of a control frame that is for this crate and not for the reader of the stream.
pub(crate) type ControlHandler = Box<dyn Fn(&Arc<RelayedStream>, u8, &[u8]) + Send + Sync>;

/// A stream and the parts of it that both sides use.
pub(crate) struct RelayedStream {
    id: String,
    state: Mutex<SlotState>,
    timers: Arc<StreamTimers>,
    ended: Notify,
    /// Notified when the stream has changed its route: the relay, or a direct path.
    moved: Notify,
    on_control: Option<ControlHandler>,
}

struct SlotState {
    stream: RelayStream,
    features: Features,
    /// Why the stream can carry nothing more.
    end: Option<StreamFailure>,
    splitter: LengthPrefixSplitter,
    /// Finds the control frames of the peer in the decrypted bytes. None: there is no handler for them.
    control_finder: Option<LengthPrefixSplitter>,
    /// An encoded control frame that is sent as soon as the current message is complete and there is credit for a
    /// record.
    waiting_control: Option<Vec<u8>>,
    /// Bytes that were decrypted and not taken.
    decrypted: BytesMut,
    pings: VecDeque<WaitingPing>,
    /// None after the first record of the peer.
    first_record_due: Option<Instant>,
    /// The queue of the socket to the relay.
    relay: Arc<OutgoingFrames>,
    has_relay_socket: bool,
    /// Whether a frame of this stream was queued for the current socket to the relay, so that the relay learns its id.
    relay_knows_stream: bool,
    /// The direct path, if the stream uses one.
    direct: Option<Arc<DirectRoute>>,
    is_queued: bool,
    /// When the timers of this stream fire. The last one fires next. A timer is added only if it fires before all
    /// others, so there are few.
    timers: Vec<Instant>,
    wakers: Wakers,
}

/// The tasks that wait for something.
#[derive(Default)]
struct Wakers {
    reader: Option<Waker>,
    writer: Option<Waker>,
    receipts: Option<Waker>,
}

/// A ping that the peer does not see: it is answered when everything before it is acknowledged.
struct WaitingPing {
    payload: Bytes,
    /// Bytes that were written before the ping.
    after_bytes: u64,
    /// If everything was acknowledged when the ping came, only a later frame of the peer answers it: this
    /// is the number of frames before it.
    heard_before: Option<u64>,
}

/// What a new stream has.
pub(crate) struct NewStream {
    pub(crate) id: String,
    pub(crate) channel: Channel,
    /// What the peer has announced in its handshake.
    pub(crate) features: Features,
    /// Whether the peer has to prove soon that it made the handshake.
    pub(crate) awaits_first_record: bool,
    /// Gets the control frames of the peer that are not for the reader of the stream.
    pub(crate) on_control: Option<ControlHandler>,
}

impl RelayedStream {
    pub(crate) fn new(new: NewStream, relay: Arc<OutgoingFrames>, timers: Arc<StreamTimers>) -> Arc<Self> {
        let now = Instant::now();
        let NewStream { id, channel, features, awaits_first_record, on_control } = new;
        let slot = Arc::new(Self {
            state: Mutex::new(SlotState {
                stream: RelayStream::new(id.clone(), channel, features, now),
                features,
                end: None,
                splitter: LengthPrefixSplitter::default(),
                control_finder: on_control.as_ref().map(|_| LengthPrefixSplitter::default()),
                waiting_control: None,
                decrypted: BytesMut::new(),
                pings: VecDeque::new(),
                first_record_due: awaits_first_record.then_some(now + FIRST_RECORD_TIMEOUT),
                relay,
                has_relay_socket: true,
                relay_knows_stream: true,
                direct: None,
                is_queued: false,
                timers: Vec::new(),
                wakers: Wakers::default(),
            }),
            id,
            timers,
            ended: Notify::new(),
            moved: Notify::new(),
            on_control,
        });
        slot.update_timer(&mut slot.state.lock());
        slot
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Why the stream has ended.
    pub(crate) fn end(&self) -> Option<StreamFailure> {
        self.state.lock().end.clone()
    }

    /// A frame of this stream has arrived over the relay.
    pub(crate) fn handle_frame(self: &Arc<Self>, frame: Frame, now: Instant) {
        let mut state = self.state.lock();
        if state.end.is_none() && self.accept_relayed(&mut state, &frame, now) {
            self.deliver(&mut state, frame, now);
        }
    }

    fn deliver(self: &Arc<Self>, state: &mut SlotState, frame: Frame, now: Instant) {
        let is_data = matches!(frame.body, FrameBody::Data { .. });
        if let Err(failure) = state.stream.handle(frame, now) {
            self.end_with(state, failure);
            return;
        }
        if is_data {
            state.wakers.wake_reader();
        }
        self.after_change(state);
    }

    /// The socket to the relay was lost. A stream that used it and cannot be resumed ends.
    pub(crate) fn handle_lost_socket(self: &Arc<Self>, now: Instant) {
        let mut state = self.state.lock();
        state.has_relay_socket = false;
        if state.direct.is_some() {
            return;
        }
        state.is_queued = false;
        if let Err(failure) = state.stream.socket_lost(now) {
            self.end_with(&mut state, failure);
        }
        self.update_timer(&mut state);
    }

    /// There is a new socket to the relay. Unless the stream uses a direct path, it uses this socket from now on. It
    /// first sends everything again that the peer has not acknowledged.
    pub(crate) fn handle_new_socket(self: &Arc<Self>, relay: &Arc<OutgoingFrames>, now: Instant) {
        let mut state = self.state.lock();
        if state.end.is_some() {
            return;
        }
        state.relay = Arc::clone(relay);
        state.has_relay_socket = true;
        state.relay_knows_stream = state.direct.is_none();
        if state.direct.is_some() {
            return;
        }
        state.is_queued = false;
        state.stream.socket_replaced(now);
        self.queue(&mut state);
        self.update_timer(&mut state);
    }

    /// One of the [`SlotState::timers`] has fired.
    pub(crate) fn handle_timer(self: &Arc<Self>, now: Instant) {
        let mut state = self.state.lock();
        if state.end.is_some() {
            return;
        }
        while state.timers.pop_if(|timer| *timer <= now).is_some() {}
        let checked = match state.first_record_due {
            Some(due) if due <= now => Err(StreamFailure::Silent),
            _ => state.stream.check(now),
        };
        if let Err(failure) = checked {
            self.end_with(&mut state, failure);
            return;
        }
        self.queue(&mut state);
        self.update_timer(&mut state);
    }

    /// Ends the stream from outside.
    pub(crate) fn fail(&self, failure: StreamFailure) {
        self.end_with(&mut self.state.lock(), failure);
    }

    /// Waits until the stream has ended.
    pub(crate) async fn wait_for_end(&self) {
        loop {
            let ended = self.ended.notified();
            if self.state.lock().end.is_some() {
                return;
            }
            ended.await;
        }
    }

    fn end_with(&self, state: &mut SlotState, failure: StreamFailure) {
        state.fail(failure);
        self.ended.notify_waiters();
    }

    /// Hands frames to `take` until there are none or `take` returns false. Returns whether there may be more. `from` is
    /// the socket that asks; a stream that has moved to another socket has nothing for it.
    pub(crate) fn take_frames(
        self: &Arc<Self>,
        from: &Arc<OutgoingFrames>,
        now: Instant,
        mut take: impl FnMut(&EncodedFrame) -> bool,
    ) -> bool {
        let mut state = self.state.lock();
        if !Arc::ptr_eq(state.outgoing(), from) {
            return false;
        }
        let mut goes_on = true;
        while goes_on {
            let next = if state.end.is_some() { None } else { state.stream.next_frame(now) };
            let Some(frame) = next else {
                state.is_queued = false;
                break;
            };
            goes_on = take(&frame.prepare());
        }
        state.wake_writer_if_ready();
        state.wake_receipts_if_ready();
        self.update_timer(&mut state);
        state.is_queued
    }

    /// Decrypted bytes of the peer. `Ok(None)`: the stream has ended in order.
    pub(crate) fn poll_read(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut BytesMut),
    ) -> Poll<Result<(), StreamFailure>> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let mut control = None;
        while state.decrypted.is_empty() {
            match state.stream.read(now) {
                Ok(Some(bytes)) => {
                    state.first_record_due = None;
                    control = state.last_control(&bytes).or(control);
                    state.decrypted = bytes;
                }
                Ok(None) => {
                    if let Some(end) = &state.end {
                        return Poll::Ready(Err(end.clone()));
                    }
                    state.wakers.reader = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                Err(failure) => {
                    self.end_with(&mut state, failure.clone());
                    return Poll::Ready(Err(failure));
                }
            }
        }
        take(&mut state.decrypted);
        if state.stream.has_urgent_frame() {
            self.queue(&mut state);
        }
        self.update_timer(&mut state);
        drop(state);
        if let (Some((kind, payload)), Some(handle)) = (control, &self.on_control) {
            handle(self, kind, &payload);
        }
        Poll::Ready(Ok(()))
    }

    /// Sends a control frame to the other end of the stream, as soon as no message is half sent. It replaces an earlier
    /// control frame that is still waiting.
    pub(crate) fn send_control(self: &Arc<Self>, kind: u8, payload: &[u8]) {
        let mut state = self.state.lock();
        let mut frame = Vec::new();
        write_control(&mut frame, ControlKind::Other(kind), payload);
        state.waiting_control = Some(frame);
        self.write_waiting_control(&mut state);
        self.update_timer(&mut state);
    }

    fn write_waiting_control(self: &Arc<Self>, state: &mut SlotState) {
        let can_be_written =
            state.end.is_none() && state.splitter.is_between_messages() && state.stream.writable_records() > 0;
        if can_be_written && let Some(frame) = state.waiting_control.take() {
            match state.stream.write_record(frame) {
                Ok(()) => self.queue(state),
                Err(failure) => self.end_with(state, failure),
            }
        }
    }

    /// Encrypts bytes for the peer, as much as one record holds. Returns how many bytes of `bytes` were taken.
    pub(crate) fn poll_write(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        mut bytes: &[u8],
    ) -> Poll<Result<usize, StreamFailure>> {
        let mut state = self.state.lock();
        if let Some(end) = &state.end {
            return Poll::Ready(Err(end.clone()));
        }
        if state.stream.writable_records() == 0 {
            state.wakers.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let all_bytes = bytes.len();
        let mut record = Vec::with_capacity(all_bytes.min(MAX_RECORD_BYTES) + TAG_BYTES);
        let control = state.splitter.split(&mut bytes, &mut record, FILLED_RECORD_BYTES);
        // This program writes its own control frames, and they are short.
        let control = control.unwrap_or_default();
        if let Some((kind, payload)) = &control
            && state.features.includes(Features::CONTROLS)
            && *kind != ControlKind::Ping
        {
            // A close is a few bytes, so the record stays short enough.
            if record.len() + payload.len() + TAG_BYTES > FILLED_RECORD_BYTES
                && let Err(failure) = state.stream.write_record(std::mem::take(&mut record))
            {
                self.end_with(&mut state, failure.clone());
                return Poll::Ready(Err(failure));
            }
            write_control(&mut record, *kind, payload);
        }
        if !record.is_empty()
            && let Err(failure) = state.stream.write_record(record)
        {
            self.end_with(&mut state, failure.clone());
            return Poll::Ready(Err(failure));
        }
        if let Some((ControlKind::Ping, payload)) = control {
            state.add_ping(payload);
        }
        self.write_waiting_control(&mut state);
        self.queue(&mut state);
        self.update_timer(&mut state);
        Poll::Ready(Ok(all_bytes - bytes.len()))
    }

    /// Waits until the peer has everything that was written.
    pub(crate) fn poll_received(&self, cx: &mut Context<'_>) -> Poll<Result<(), StreamFailure>> {
        let mut state = self.state.lock();
        let (written, received) = state.stream.progress();
        match &state.end {
            _ if written == received => Poll::Ready(Ok(())),
            Some(end) => Poll::Ready(Err(end.clone())),
            None => {
                state.wakers.writer = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The payload of the next ping whose receipt has come.
    pub(crate) fn poll_receipt(&self, cx: &mut Context<'_>) -> Poll<Bytes> {
        let mut state = self.state.lock();
        if state.first_ping_is_answered()
            && let Some(ping) = state.pings.pop_front()
        {
            return Poll::Ready(ping.payload);
        }
        state.wakers.receipts = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Puts the stream into the queue of its socket.
    fn queue(self: &Arc<Self>, state: &mut SlotState) {
        if !std::mem::replace(&mut state.is_queued, true) {
            state.outgoing().push_stream(Arc::clone(self));
        }
    }

    fn after_change(self: &Arc<Self>, state: &mut SlotState) {
        state.wake_writer_if_ready();
        state.wake_receipts_if_ready();
        if state.stream.has_urgent_frame() {
            self.queue(state);
        }
        self.update_timer(state);
    }

    /// Adds a timer if none fires early enough.
    fn update_timer(self: &Arc<Self>, state: &mut SlotState) {
        if state.end.is_some() {
            return;
        }
        // A queued stream already waits for its socket, so a timer could not send its frames earlier. It can still
        // fail.
        let stream_due = if state.is_queued { state.stream.failure_deadline() } else { state.stream.deadline() };
        let Some(due) = [stream_due, state.first_record_due].into_iter().flatten().min() else { return };
        if state.timers.last().is_some_and(|next| *next <= due) {
            return;
        }
        state.timers.push(due);
        self.timers.add(due, Arc::downgrade(self));
    }
}

impl SlotState {
    /// The last control frame in these bytes that is not for the reader of the stream. It replaces earlier ones.
    fn last_control(&mut self, mut bytes: &[u8]) -> Option<(u8, Bytes)> {
        let finder = self.control_finder.as_mut()?;
        let mut last = None;
        loop {
            match finder.find_control(&mut bytes) {
                Ok(Some((ControlKind::Other(kind), payload))) => last = Some((kind, payload)),
                Ok(Some(_)) => {}
                Ok(None) => return last,
                Err(_) => {
                    // The reader of the stream finds the same error and reports it.
                    self.control_finder = None;
                    return last;
                }
            }
        }
    }

    fn fail(&mut self, failure: StreamFailure) {
        self.end.get_or_insert(failure);
        self.wakers.wake_reader();
        self.wakers.wake_writer();
        self.wakers.wake_receipts();
    }

    fn add_ping(&mut self, payload: Bytes) {
        let (after_bytes, received) = self.stream.progress();
        let can_be_asked = self.stream.can_resume();
        let heard_before = (received == after_bytes && can_be_asked).then(|| self.stream.heard_frames());
        if heard_before.is_some() {
            self.stream.ask_for_life();
        }
        if self.pings.len() >= MAX_WAITING_PINGS {
            self.pings.pop_back();
        }
        self.pings.push_back(WaitingPing { payload, after_bytes, heard_before });
        self.wake_receipts_if_ready();
    }

    fn first_ping_is_answered(&self) -> bool {
        let (_, received) = self.stream.progress();
        self.end.is_none()
            && self.pings.front().is_some_and(|ping| {
                let heard = ping.heard_before.is_none_or(|before| self.stream.heard_frames() > before);
                heard && received >= ping.after_bytes && self.stream.is_reachable()
            })
    }

    fn wake_receipts_if_ready(&mut self) {
        if self.first_ping_is_answered() {
            self.wakers.wake_receipts();
        }
    }

    fn wake_writer_if_ready(&mut self) {
        if self.wakers.writer.is_some() {
            let (written, received) = self.stream.progress();
            if self.stream.writable_records() > 0 || written == received {
                self.wakers.wake_writer();
            }
        }
    }
}

impl Wakers {
    fn wake_reader(&mut self) {
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    fn wake_writer(&mut self) {
        self.writer.take().into_iter().for_each(Waker::wake);
    }

    fn wake_receipts(&mut self) {
        self.receipts.take().into_iter().for_each(Waker::wake);
    }
}

/// Only the id: everything else changes or is secret.
impl fmt::Debug for RelayedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayedStream").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use relay::{ExecutorHandshake, HarnessHandshake, RelayIdentity, StreamBinding};

    use super::*;

    /// The harness end and the executor end of a stream with our extensions. The socket of the executor takes no
    /// frames.
    fn pair() -> (RelayStream, Arc<RelayedStream>) {
        let binding = StreamBinding { environment_id: "e", registration_id: "r", stream_id: "s" };
        let [harness, executor] = [(); 2].map(|()| RelayIdentity::generate().unwrap());
        let (waiting, first) = HarnessHandshake::begin(&harness, &executor.public_key(), binding, "grant").unwrap();
        let (second, channel) = ExecutorHandshake::read(&executor, binding, &first).unwrap().accept().unwrap();
        let harness = RelayStream::new("s", waiting.finish(&second).unwrap(), Features::OURS, Instant::now());
        let new = NewStream {
            id: "s".to_owned(),
            channel,
            features: Features::OURS,
            awaits_first_record: true,
            on_control: None,
        };
        (harness, RelayedStream::new(new, Arc::default(), Arc::default()))
    }

    #[test]
    fn a_busy_stream_keeps_few_timers() {
        let (mut harness, executor) = pair();
        let (timers, outgoing) = (Arc::clone(&executor.timers), Arc::clone(&executor.state.lock().relay));
        let mut now = Instant::now();
        for _ in 0..10_000 {
            now += Duration::from_millis(100);
            harness.write(b"x").unwrap();
            while let Some(frame) = harness.next_frame(now) {
                executor.handle_frame(frame, now);
            }
            let read = executor.poll_read(&mut Context::from_waker(Waker::noop()), BytesMut::clear);
            assert!(read.is_ready());
            now += Duration::from_millis(30);
            while let Some(stream) = timers.take_due(now) {
                stream.upgrade().unwrap().handle_timer(now);
            }
            let mut frames = Vec::new();
            outgoing.gather(now, |frame| {
                let mut message = Vec::new();
                frame.append_to(&mut message);
                frames.push(Frame::decode(message.into()).unwrap());
                true
            });
            frames.into_iter().for_each(|frame| harness.handle(frame, now).unwrap());
        }
        assert!(timers.len() < 10, "{}", timers.len());
    }

    #[test]
    fn a_frame_that_is_due_waits_for_its_socket_without_another_timer() {
        let (mut harness, executor) = pair();
        let now = Instant::now();
        harness.write(b"x").unwrap();
        executor.handle_frame(harness.next_frame(now).unwrap(), now);
        let due = *executor.state.lock().timers.last().expect("an acknowledgement is due");
        executor.handle_timer(due);
        let next = *executor.state.lock().timers.last().expect("the stream can still fail");
        assert!(next > due, "the timer would fire again and again until the socket takes the frame");
    }
}
