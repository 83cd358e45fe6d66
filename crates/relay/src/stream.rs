//! One end of a stream after its handshake, as a value on virtual time: bytes to send become records, frames of the peer
//! become bytes.
//!
//! If both ends acknowledge records, a record is kept until the peer has it. It is sent again, as the same ciphertext,
//! when the peer reports a gap, when no acknowledgement moves forward for a while, and when a socket was replaced. So a
//! stream needs no new handshake after a lost socket. A peer of the published protocol never acknowledges. To such a
//! peer, this end sends each record once and keeps no copy, and the stream ends with its socket.
//!
//! Acknowledgements are not encrypted, but have a tag that only the peer can make. They say which records have arrived,
//! so that the sender can drop its copies. Their credit says which records were decrypted. Only decrypted bytes count
//! as received ([`RelayStream::progress`]), because a record that has arrived may be one that the relay made up.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use crate::acknowledgement::Acknowledgement;
use crate::frame::{Features, Frame, FrameBody};
use crate::handshake::Channel;
use crate::limits::{
    CREDIT_RECORDS, MAX_NOISE_BYTES, MAX_RECORD_BYTES, MAX_REORDER_BYTES, MAX_WAITING_BYTES, PEER_LOST,
    PROGRESS_LIMIT, RESUME_LIMIT, SILENCE_LIMIT, TAG_BYTES,
};
use crate::ordered_records::{Arrival, OrderedRecords};
use crate::record::RecordFailure;
use crate::unacknowledged::UnacknowledgedRecords;

/// An acknowledgement waits this long for a record that can carry it. Not longer, because the peer may send no further
/// output before it arrives: a server sends only as much unacknowledged output as it retains.
const ACK_DELAY: Duration = Duration::from_millis(5);

/// After this many records have arrived, the acknowledgement does not wait.
const RECORDS_PER_ACK: u64 = 16;

/// After this many records were decrypted, the acknowledgement does not wait. A server retains by default as much
/// output as fits into about 20 records, and continues as soon as a part of it is acknowledged.
const DECRYPTED_PER_ACK: u64 = 8;

/// An end that has heard nothing for this time asks for an acknowledgement.
const HEARTBEAT_AFTER: Duration = Duration::from_secs(10);

/// The same for a peer of which the relay says that it has no socket.
const HEARTBEAT_WHILE_AWAY: Duration = Duration::from_secs(1);

/// Why a stream has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamFailure {
    /// The relay or the peer has ended the stream.
    #[error("the relay or the peer has reset the stream")]
    Reset,
    /// A record is altered or too long, or all numbers are used.
    #[error(transparent)]
    Record(#[from] RecordFailure),
    /// Records were lost, and the peer does not send them again.
    #[error("the relay has lost or mixed up records")]
    Gap,
    /// A peer that knows nothing of credit has sent more than [`MAX_WAITING_BYTES`] that were not read.
    #[error("the other end sends faster than this one reads")]
    Overrun,
    /// An acknowledgement has a wrong tag, or is for records that were never sent.
    #[error("the relay has altered an acknowledgement, or records were acknowledged that were never sent")]
    Acknowledgement,
    /// Nothing was heard from the peer for [`SILENCE_LIMIT`].
    #[error("the other end has not answered for {} s", SILENCE_LIMIT.as_secs())]
    Silent,
    /// No acknowledgement has moved forward for [`PROGRESS_LIMIT`], although records were sent.
    #[error("the other end has received nothing for {} s", PROGRESS_LIMIT.as_secs())]
    Stalled,
    /// The socket was lost, and the stream was not resumed within [`RESUME_LIMIT`], or cannot be resumed.
    #[error("the connection to the relay was lost")]
    SocketLost,
}

/// When an acknowledgement has to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingAck {
    No,
    At(Instant),
    Now,
}

/// The sending half.
#[derive(Debug)]
enum Sender {
    /// The peer acknowledges.
    Keeping(UnacknowledgedRecords),
    /// The peer does not acknowledge.
    Forgetting { to_send: VecDeque<Bytes>, next: u64, sent_bytes: u64 },
}

/// Whether frames can reach the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reachability {
    Open,
    /// This end has no socket, since this time.
    NoSocket(Instant),
    /// The relay says that the peer has no socket, since this time.
    PeerAway(Instant),
}

/// One end of an encrypted stream. The caller moves frames: it sends what [`RelayStream::next_frame`] returns and passes
/// what arrives to [`RelayStream::handle`].
#[derive(Debug)]
pub struct RelayStream {
    stream_id: String,
    channel: Channel,
    sender: Sender,
    written_bytes: u64,
    incoming: OrderedRecords,
    pending_ack: PendingAck,
    /// Number of records that the last frame acknowledged, and the credit that it granted.
    last_ack_sent: u64,
    last_credit_sent: u64,
    reachability: Reachability,
    must_send_resume: bool,
    heard_at: Instant,
    heartbeat_sent_at: Option<Instant>,
    must_send_heartbeat: bool,
    heard_frames: u64,
}

impl RelayStream {
    /// A stream whose handshake has just ended. `peer` is what the handshake frame of the peer said.
    pub fn new(stream_id: impl Into<String>, channel: Channel, peer: Features, now: Instant) -> Self {
        let (sender, max_early_bytes) = if peer.includes(Features::ACKNOWLEDGES) {
            // All records that the peer may send fit, so that none has to be sent again because of an earlier one.
            let credit_bytes = CREDIT_RECORDS as usize * (MAX_RECORD_BYTES + TAG_BYTES);
            (Sender::Keeping(UnacknowledgedRecords::new(CREDIT_RECORDS)), credit_bytes)
        } else {
            (Sender::Forgetting { to_send: VecDeque::new(), next: 0, sent_bytes: 0 }, MAX_REORDER_BYTES)
        };
        Self {
            stream_id: stream_id.into(),
            channel,
            sender,
            written_bytes: 0,
            incoming: OrderedRecords::new(max_early_bytes),
            pending_ack: PendingAck::No,
            last_ack_sent: 0,
            last_credit_sent: CREDIT_RECORDS,
            reachability: Reachability::Open,
            must_send_resume: false,
            heard_at: now,
            heartbeat_sent_at: None,
            must_send_heartbeat: false,
            heard_frames: 0,
        }
    }

    /// Whether the stream survives a lost socket. The peer acknowledges then.
    pub fn can_resume(&self) -> bool {
        matches!(self.sender, Sender::Keeping(_))
    }

    /// How many records can be written now. Writing more is allowed, and then the memory of this end grows.
    pub fn writable_records(&self) -> usize {
        let kept = match &self.sender {
            Sender::Keeping(records) => records.len(),
            Sender::Forgetting { to_send, .. } => to_send.len(),
        };
        (CREDIT_RECORDS as usize).saturating_sub(kept)
    }

    /// How many bytes were written, and how many of them the peer has decrypted. If the peer does not acknowledge, all
    /// sent bytes count as decrypted.
    pub fn progress(&self) -> (u64, u64) {
        let arrived = match &self.sender {
            Sender::Keeping(records) => records.decrypted_bytes(),
            Sender::Forgetting { sent_bytes, .. } => *sent_bytes,
        };
        (self.written_bytes, arrived)
    }

    /// Asks the peer for a sign of life. A peer that does not acknowledge cannot be asked.
    pub fn ask_for_life(&mut self) {
        self.must_send_heartbeat = self.can_resume();
    }

    /// How many frames have come from the peer.
    pub fn heard_frames(&self) -> u64 {
        self.heard_frames
    }

    /// Whether [`RelayStream::next_frame`] returns a frame now for another reason than a timer.
    pub fn has_urgent_frame(&self) -> bool {
        let has_record = match &self.sender {
            Sender::Keeping(records) => records.has_next(),
            Sender::Forgetting { to_send, .. } => !to_send.is_empty(),
        };
        match self.reachability {
            Reachability::Open => {
                let is_asked = self.pending_ack == PendingAck::Now || self.must_send_heartbeat;
                has_record || is_asked || self.must_send_resume
            }
            Reachability::PeerAway(_) => self.must_send_resume || self.must_send_heartbeat,
            Reachability::NoSocket(_) => false,
        }
    }

    /// Whether a frame of this end can reach the peer now, as far as is known.
    pub fn is_reachable(&self) -> bool {
        self.reachability == Reachability::Open
    }

    /// Bytes of ciphertext that have arrived and were not read.
    pub fn waiting_bytes(&self) -> usize {
        self.incoming.ready_bytes()
    }

    /// Encrypts bytes for the peer, in records of at most [`MAX_RECORD_BYTES`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StreamFailure> {
        for piece in bytes.chunks(MAX_RECORD_BYTES) {
            let mut record = Vec::with_capacity(piece.len() + TAG_BYTES);
            record.extend_from_slice(piece);
            self.write_record(record)?;
        }
        Ok(())
    }

    /// As [`RelayStream::write`], for at most [`MAX_RECORD_BYTES`] that become one record. They are encrypted in their
    /// place, and [`TAG_BYTES`] are appended.
    pub fn write_record(&mut self, mut text: Vec<u8>) -> Result<(), StreamFailure> {
        let text_bytes = text.len() as u64;
        self.channel.sealer.seal(&mut text)?;
        self.written_bytes += text_bytes;
        match &mut self.sender {
            Sender::Keeping(records) => records.push(text.into(), self.written_bytes),
            Sender::Forgetting { to_send, .. } => to_send.push_back(text.into()),
        }
        Ok(())
    }

    /// The next bytes of the peer, decrypted. They may be empty; None means that nothing has arrived. Call
    /// [`RelayStream::next_frame`] afterwards, because the peer may wait for credit.
    pub fn read(&mut self, now: Instant) -> Result<Option<BytesMut>, StreamFailure> {
        let Some(record) = self.incoming.take() else { return Ok(None) };
        // The record is a part of the message that arrived. It is decrypted in place if nobody else has the message.
        let mut record = record.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        let length = self.channel.opener.open(&mut record)?.len();
        record.truncate(length);
        if self.can_resume() {
            self.note_decrypted(now);
        }
        Ok(Some(record))
    }

    /// Plans an acknowledgement after a record was decrypted, because the peer may wait for it before it sends more.
    fn note_decrypted(&mut self, now: Instant) {
        if self.new_credit() >= self.last_credit_sent + DECRYPTED_PER_ACK {
            self.pending_ack = PendingAck::Now;
        } else if self.pending_ack == PendingAck::No {
            self.pending_ack = PendingAck::At(now + ACK_DELAY);
        }
    }

    /// The next frame to send, if there is one. Call again until it returns none, after each [`RelayStream::write`],
    /// [`RelayStream::read`] and [`RelayStream::handle`], and at the [`RelayStream::deadline`].
    pub fn next_frame(&mut self, now: Instant) -> Option<Frame> {
        let body = match self.reachability {
            Reachability::Open => self.next_body(now)?,
            // The relay may be wrong about the peer, so the peer is asked. Records would be wasted if the relay is right.
            Reachability::PeerAway(_) => self.take_resume().or_else(|| self.take_heartbeat(now))?,
            Reachability::NoSocket(_) => return None,
        };
        let mut frame = Frame::new(self.stream_id.clone(), body);
        if self.can_resume() {
            self.last_ack_sent = self.incoming.received();
            self.last_credit_sent = self.new_credit();
            self.pending_ack = PendingAck::No;
            frame.ack = wire_number(self.last_ack_sent);
            frame.ack_bits = self.incoming.early_bits();
            frame.credit = wire_number(self.last_credit_sent);
            frame.ack_tag = self.channel.sent_acks.tag(acknowledgement(&frame));
        }
        Some(frame)
    }

    fn next_body(&mut self, now: Instant) -> Option<FrameBody> {
        if let Some(resume) = self.take_resume() {
            return Some(resume);
        }
        match &mut self.sender {
            Sender::Forgetting { to_send, next, sent_bytes } => {
                let record = to_send.pop_front()?;
                let seq = wire_number(*next);
                *next += 1;
                *sent_bytes += (record.len() - TAG_BYTES) as u64;
                return Some(FrameBody::Data { seq, record });
            }
            Sender::Keeping(records) => {
                if let Some((number, record)) = records.next(now) {
                    return Some(FrameBody::Data { seq: wire_number(number), record });
                }
            }
        }
        let is_ack_due = match self.pending_ack {
            PendingAck::No => false,
            PendingAck::At(due) => due <= now,
            PendingAck::Now => true,
        };
        if is_ack_due {
            return Some(FrameBody::Ack);
        }
        self.take_heartbeat(now)
    }

    fn take_heartbeat(&mut self, now: Instant) -> Option<FrameBody> {
        if !std::mem::take(&mut self.must_send_heartbeat) && self.heartbeat_due() > now {
            return None;
        }
        self.heartbeat_sent_at = Some(now);
        Some(FrameBody::Heartbeat)
    }

    fn take_resume(&mut self) -> Option<FrameBody> {
        let next_seq = wire_number(self.incoming.received());
        std::mem::take(&mut self.must_send_resume).then_some(FrameBody::Resume { next_seq })
    }

    fn new_credit(&self) -> u64 {
        self.incoming.taken() + CREDIT_RECORDS
    }

    fn heartbeat_due(&self) -> Instant {
        let pause = if self.reachability == Reachability::Open { HEARTBEAT_AFTER } else { HEARTBEAT_WHILE_AWAY };
        self.heartbeat_sent_at.unwrap_or(self.heard_at) + pause
    }

    /// When [`RelayStream::check`] and [`RelayStream::next_frame`] have to be called although nothing has happened. None:
    /// no timer runs.
    pub fn deadline(&self) -> Option<Instant> {
        let Sender::Keeping(records) = &self.sender else { return None };
        let failure = self.failure_due(records).0;
        match (self.reachability, self.pending_ack) {
            (Reachability::NoSocket(_), _) => Some(failure),
            (Reachability::PeerAway(_), _) => Some(failure.min(self.heartbeat_due())),
            (Reachability::Open, pending) => {
                let ack = if let PendingAck::At(due) = pending { Some(due) } else { None };
                [ack, records.retry_at()].into_iter().flatten().chain([failure, self.heartbeat_due()]).min()
            }
        }
    }

    /// The time at which [`RelayStream::check`] fails if nothing happens before. None: there is no such time, because
    /// the peer does not acknowledge.
    pub fn failure_deadline(&self) -> Option<Instant> {
        let Sender::Keeping(records) = &self.sender else { return None };
        Some(self.failure_due(records).0)
    }

    /// Fails if the peer was silent, made no progress or had no socket for too long.
    pub fn check(&self, now: Instant) -> Result<(), StreamFailure> {
        let Sender::Keeping(records) = &self.sender else { return Ok(()) };
        let (due, failure) = self.failure_due(records);
        if due <= now { Err(failure) } else { Ok(()) }
    }

    /// When the stream fails if nothing happens, and how.
    fn failure_due(&self, records: &UnacknowledgedRecords) -> (Instant, StreamFailure) {
        let silent = self.heard_at + SILENCE_LIMIT;
        match (self.reachability, records.waiting_since().map(|since| since + PROGRESS_LIMIT)) {
            (Reachability::NoSocket(since) | Reachability::PeerAway(since), _) => {
                (since + RESUME_LIMIT, StreamFailure::SocketLost)
            }
            (Reachability::Open, Some(stalled)) if stalled < silent => (stalled, StreamFailure::Stalled),
            (Reachability::Open, _) => (silent, StreamFailure::Silent),
        }
    }

    /// The socket of this end was lost. Frames that were sent on it may not have arrived. Fails if the stream cannot be
    /// resumed.
    pub fn socket_lost(&mut self, now: Instant) -> Result<(), StreamFailure> {
        if !self.can_resume() {
            return Err(StreamFailure::SocketLost);
        }
        if !matches!(self.reachability, Reachability::NoSocket(_)) {
            self.reachability = Reachability::NoSocket(now);
        }
        Ok(())
    }

    /// This end has a new socket. Everything that the peer has not acknowledged is sent again.
    pub fn socket_replaced(&mut self, now: Instant) {
        self.must_send_resume = true;
        self.open_route(now);
        if let Sender::Keeping(records) = &mut self.sender {
            records.send_again();
        }
    }

    /// Frames can reach the peer from now on. The time before does not count as its silence.
    fn open_route(&mut self, now: Instant) {
        self.reachability = Reachability::Open;
        self.heard_at = now;
        self.heartbeat_sent_at = None;
    }

    /// Whether the tag of this frame proves that the peer made it. False for a reset, and for each frame of a peer that
    /// does not acknowledge, because such frames have no proof.
    pub fn is_proven(&self, frame: &Frame) -> bool {
        let is_reset = matches!(frame.body, FrameBody::Reset { .. });
        self.can_resume() && !is_reset && self.channel.peer_acks.tag(acknowledgement(frame)) == frame.ack_tag
    }

    /// Handles a frame of this stream. After a failure the stream has to end.
    pub fn handle(&mut self, frame: Frame, now: Instant) -> Result<(), StreamFailure> {
        let said = acknowledgement(&frame);
        let Frame { ack, ack_bits, credit, ack_tag, body, .. } = frame;
        if let FrameBody::Reset { reason } = body {
            if !self.can_resume() || reason != PEER_LOST {
                return Err(StreamFailure::Reset);
            }
            if self.reachability == Reachability::Open {
                self.reachability = Reachability::PeerAway(now);
            }
            return Ok(());
        }
        // The first frames of a stream have no tag, because there was no key yet. A copy of one may arrive late. It is
        // ignored, and does not count as a sign of life.
        let is_first_resume = ack_tag == 0 && matches!(body, FrameBody::Resume { next_seq: 0 });
        if is_first_resume || matches!(body, FrameBody::Handshake(_)) {
            return Ok(());
        }
        // A frame that the relay made up must not keep a stream alive.
        if self.can_resume() && self.channel.peer_acks.tag(said) != ack_tag {
            return Err(StreamFailure::Acknowledgement);
        }
        self.heard_frames += 1;
        // Whatever the relay has said, the peer is there.
        if !matches!(self.reachability, Reachability::NoSocket(_)) {
            self.open_route(now);
        }
        if let Sender::Keeping(records) = &mut self.sender {
            records.acknowledge(ack.into(), ack_bits, now).map_err(|_| StreamFailure::Acknowledgement)?;
            records.grant(credit.into());
        }
        match body {
            FrameBody::Data { seq, record } => self.receive(seq, record, now),
            FrameBody::Resume { next_seq } => {
                self.peer_resumes(next_seq);
                Ok(())
            }
            FrameBody::Heartbeat => {
                self.pending_ack = PendingAck::Now;
                Ok(())
            }
            FrameBody::Ack | FrameBody::Handshake(_) | FrameBody::Reset { .. } => Ok(()),
        }
    }

    fn peer_resumes(&mut self, next_seq: u32) {
        // A peer that does not acknowledge names the stream with this frame, and asks for nothing.
        let Sender::Keeping(records) = &mut self.sender else { return };
        self.pending_ack = PendingAck::Now;
        // A frame that comes late asks for records that the peer has acknowledged since.
        if u64::from(next_seq) >= records.first() {
            records.send_again();
        }
    }

    fn receive(&mut self, seq: u32, record: Bytes, now: Instant) -> Result<(), StreamFailure> {
        if record.len() > MAX_NOISE_BYTES {
            return Err(RecordFailure::Length.into());
        }
        if !self.can_resume() {
            self.incoming.insert(seq, record).map_err(|_| StreamFailure::Gap)?;
            return if self.waiting_bytes() > MAX_WAITING_BYTES { Err(StreamFailure::Overrun) } else { Ok(()) };
        }
        // A record beyond the credit, or too early, is dropped. The peer sends it again, because it is not acknowledged.
        let arrival = if u64::from(seq) < self.new_credit() { self.incoming.insert(seq, record).ok() } else { None };
        let is_one_of_many = self.incoming.received() < self.last_ack_sent + RECORDS_PER_ACK;
        self.pending_ack = match (arrival, self.pending_ack) {
            (Some(Arrival::Next), PendingAck::No) if is_one_of_many => PendingAck::At(now + ACK_DELAY),
            (Some(Arrival::Next), pending @ PendingAck::At(_)) if is_one_of_many => pending,
            _ => PendingAck::Now,
        };
        Ok(())
    }
}

fn acknowledgement(frame: &Frame) -> Acknowledgement {
    let Frame { ack, ack_bits, credit, .. } = *frame;
    Acknowledgement { ack, ack_bits, credit }
}

/// The number of a record, or a count of records, on the wire. A stream ends before one needs more than 32 bits.
fn wire_number(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
