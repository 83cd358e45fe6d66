//! Moves messages between a harness and the destination until one of them ends. Each direction has a loop that handles
//! the next message only when all earlier ones are written. So a slow reader makes the other end wait, and little is
//! buffered.
//!
//! The forwarder does not answer pings of the destination itself. It passes each ping to the stream of the harness, and
//! the stream answers when the harness has acknowledged everything before the ping. So a pong tells the destination the
//! same as without a forwarder: the client has received the output.

use std::io;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use transport::{CloseReason, Framing, MessageStream, ReadError, ReadEvent, Reader, Writer};

use super::READ_AHEAD_BYTES;

/// A longer message is sent to the destination in several frames. Published servers refuse frames over 16 MiB.
const MAX_FRAME_BYTES: usize = 8 * 1024 * 1024;

/// When the buffer holds this many bytes, it is written before further messages are added.
const BATCH_BYTES: usize = 256 * 1024;

/// Capacity kept after a write. A larger buffer, which a long message needed, is freed.
const KEPT_BUFFER_BYTES: usize = 2 * BATCH_BYTES;

/// The destination is pinged when nothing has arrived from it for this time.
const PING_AFTER: Duration = Duration::from_secs(25);
/// The destination counts as lost when nothing has arrived from it for this time.
const LOST_AFTER: Duration = Duration::from_secs(50);

/// How long the destination may take to receive the last messages of a harness that has left, and a close frame.
const DESTINATION_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a harness may take to receive the last messages of a destination that has left, and a close frame.
const HARNESS_CLOSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Codes of close frames.
const NORMAL: u16 = 1000;
const GOING_AWAY: u16 = 1001;
const PROTOCOL_ERROR: u16 = 1002;
const NO_STATUS: u16 = 1005;
const TOO_LARGE: u16 = 1009;
const INTERNAL_ERROR: u16 = 1011;

/// Payload of the pings with which the forwarder checks the destination.
const OUR_PING: &[u8] = b"forward";

/// Why no more messages are passed.
#[derive(Debug, PartialEq, Eq)]
enum PassingEnd {
    /// The harness has closed its stream with this reason. `None`: the stream has ended without a reason.
    HarnessLeft(Option<CloseReason>),
    /// The destination has closed its connection.
    DestinationClosed(CloseReason),
    /// The connection to the destination is lost. The text is sent to the harness.
    DestinationLost(&'static str),
    /// Both ends are still connected. This code and this reason are sent to both.
    Stopped(u16, &'static str),
}

/// Passes messages until one end leaves or `leaving` is cancelled. Then closes what is still open with a close frame.
pub(super) async fn pass(harness: MessageStream, destination: MessageStream, leaving: &CancellationToken) {
    let framing = match destination.framing {
        // Binary frames, as the published forwarder sends them, because a message may be any bytes.
        Framing::WebSocketClient => Framing::BinaryWebSocketClient,
        other => other,
    };
    let mut to_destination = Outlet::new(destination.writer, framing);
    let mut to_harness = Outlet::new(harness.writer, harness.framing);
    let (mut from_harness, mut from_destination) = (harness.reader, destination.reader);
    let ping_wanted = Notify::new();
    let end = tokio::select! {
        end = pass_to_destination(&mut from_harness, &mut to_destination, &ping_wanted) => end,
        end = pass_to_harness(&mut from_destination, &mut to_harness, &ping_wanted) => end,
        () = leaving.cancelled() => PassingEnd::Stopped(GOING_AWAY, "the forwarder is shutting down"),
    };
    match end {
        PassingEnd::HarnessLeft(Some(reason)) => to_destination.close_as(&reason, DESTINATION_CLOSE_TIMEOUT).await,
        // The stream was lost, so the destination is to see a lost connection: there is no close frame.
        PassingEnd::HarnessLeft(None) => {}
        PassingEnd::DestinationClosed(reason) => {
            to_destination.close_as(&reason, DESTINATION_CLOSE_TIMEOUT).await;
            drop((to_destination, from_destination));
            to_harness.close_as(&reason, HARNESS_CLOSE_TIMEOUT).await;
        }
        PassingEnd::DestinationLost(reason) => {
            drop((to_destination, from_destination));
            to_harness.close(INTERNAL_ERROR, reason, HARNESS_CLOSE_TIMEOUT).await;
        }
        PassingEnd::Stopped(code, reason) => {
            tokio::join!(
                to_destination.close(code, reason, DESTINATION_CLOSE_TIMEOUT),
                to_harness.close(code, reason, DESTINATION_CLOSE_TIMEOUT),
            );
        }
    }
}

/// Tells a harness why its stream ends.
pub(super) async fn refuse(harness: MessageStream, reason: &str) {
    Outlet::new(harness.writer, harness.framing).close(INTERNAL_ERROR, reason, HARNESS_CLOSE_TIMEOUT).await;
}

async fn pass_to_destination(from: &mut Reader, to: &mut Outlet, ping_wanted: &Notify) -> PassingEnd {
    loop {
        let event = tokio::select! {
            event = from.next() => Some(event),
            () = ping_wanted.notified() => None,
        };
        if event.is_none() {
            to.framing.ping(&mut to.buffer, OUR_PING);
        }
        match add_messages_of_harness(event, from, to).await {
            Ok(None) => {}
            Ok(Some(end)) => return end,
            Err(_) => {
                // The loop of the other direction usually learns the reason, such as a close frame. It gets time to end
                // first.
                tokio::time::sleep(DESTINATION_CLOSE_TIMEOUT).await;
                return PassingEnd::DestinationLost(DESTINATION_LOST);
            }
        }
    }
}

/// Writes the message of an event together with messages that are already buffered. Returns the reason to stop if one
/// of the events is one. `event` is `None` if only the ping in the buffer has to be written.
async fn add_messages_of_harness(
    mut event: Option<Result<ReadEvent, ReadError>>,
    from: &mut Reader,
    to: &mut Outlet,
) -> io::Result<Option<PassingEnd>> {
    let mut end = None;
    while let Some(next) = event {
        match next {
            Ok(ReadEvent::Message(message)) if message.len() > MAX_FRAME_BYTES => {
                write_while_reading(to, from).await?;
                for frame in to.framing.fragments(&fitting(message, to.framing), MAX_FRAME_BYTES) {
                    to.buffer = frame;
                    write_while_reading(to, from).await?;
                }
            }
            Ok(ReadEvent::Message(message)) => to.add(&fitting(message, to.framing)),
            // This answers a ping of the destination: the harness has received everything before that ping.
            Ok(ReadEvent::Pong(payload)) => {
                to.framing.pong(&mut to.buffer, &payload);
            }
            // The stream of the harness answers pings itself.
            Ok(ReadEvent::Ping(_)) => {}
            Ok(ReadEvent::TooLarge { .. }) => end = Some(PassingEnd::Stopped(TOO_LARGE, MESSAGE_TOO_LARGE)),
            Ok(ReadEvent::Closed(reason)) => end = Some(PassingEnd::HarnessLeft(reason)),
            Err(_) => end = Some(PassingEnd::HarnessLeft(None)),
        }
        event = if end.is_none() && to.buffer.len() < BATCH_BYTES { from.next_buffered() } else { None };
    }
    write_while_reading(to, from).await?;
    Ok(end)
}

/// The reason that both ends get when a message from either of them is larger than the limit of the forwarder.
const MESSAGE_TOO_LARGE: &str = "a message is larger than a forwarder passes on";

/// The reason that a harness gets when the connection to the destination breaks.
const DESTINATION_LOST: &str = "the forwarder has lost its connection to the server behind this environment";

/// The message in a form that the framing can carry. On a Unix socket each message is one line, so line breaks become
/// spaces. This does not change the meaning of JSON, which allows line breaks only where it allows spaces.
fn fitting(message: Bytes, framing: Framing) -> Bytes {
    if framing != Framing::Lines || !message.contains(&b'\n') {
        return message;
    }
    message.iter().map(|&byte| if byte == b'\n' { b' ' } else { byte }).collect()
}

/// Writes the buffer. Meanwhile reads a limited number of bytes ahead, to notice when the harness leaves. Then the
/// destination has [`DESTINATION_CLOSE_TIMEOUT`] to take the rest.
async fn write_while_reading(to: &mut Outlet, from: &mut Reader) -> io::Result<()> {
    let mut writing = pin!(to.write());
    tokio::select! {
        biased;
        written = &mut writing => written,
        () = from.wait_for_end(READ_AHEAD_BYTES) => {
            tokio::time::timeout(DESTINATION_CLOSE_TIMEOUT, writing).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
        }
    }
}

async fn pass_to_harness(from: &mut Reader, to: &mut Outlet, ping_wanted: &Notify) -> PassingEnd {
    loop {
        let Some(first) = next_of_destination(from, ping_wanted).await else {
            return PassingEnd::DestinationLost("the server behind this environment does not answer its forwarder");
        };
        let (mut event, mut end) = (Some(first), None);
        while let Some(next) = event {
            match next {
                Ok(ReadEvent::Message(message)) if message.is_empty() => {
                    end = Some(PassingEnd::Stopped(PROTOCOL_ERROR, "an empty message cannot be forwarded"));
                }
                Ok(ReadEvent::Message(message)) => to.add(&message),
                Ok(ReadEvent::Ping(payload)) => {
                    to.framing.ping(&mut to.buffer, &payload);
                }
                Ok(ReadEvent::Pong(_)) => {}
                Ok(ReadEvent::TooLarge { .. }) => end = Some(PassingEnd::Stopped(TOO_LARGE, MESSAGE_TOO_LARGE)),
                Ok(ReadEvent::Closed(Some(reason))) => end = Some(PassingEnd::DestinationClosed(reason)),
                Ok(ReadEvent::Closed(None)) | Err(_) => end = Some(PassingEnd::DestinationLost(DESTINATION_LOST)),
            }
            event = if end.is_none() && to.buffer.len() < BATCH_BYTES { from.next_buffered() } else { None };
        }
        if to.write().await.is_err() {
            return PassingEnd::HarnessLeft(None);
        }
        if let Some(end) = end {
            return end;
        }
    }
}

/// The next event of the destination. `None` if nothing arrives for [`LOST_AFTER`]. Only the time inside this call
/// counts, because nothing is read from the destination while the harness does not read.
async fn next_of_destination(from: &mut Reader, ping_wanted: &Notify) -> Option<Result<ReadEvent, ReadError>> {
    let began = Instant::now();
    let mut was_pinged = false;
    loop {
        let quiet_since = began.max(from.last_received());
        let due = quiet_since + if was_pinged { LOST_AFTER } else { PING_AFTER };
        tokio::select! {
            biased;
            event = from.next() => return Some(event),
            () = tokio::time::sleep_until(due) => {}
        }
        let quiet_for = began.max(from.last_received()).elapsed();
        if quiet_for >= LOST_AFTER {
            return None;
        }
        let is_due = quiet_for >= PING_AFTER;
        if is_due && !was_pinged {
            ping_wanted.notify_one();
        }
        was_pinged = is_due;
    }
}

/// The writing half of the connection to one end, with its buffer.
struct Outlet {
    writer: Writer,
    framing: Framing,
    buffer: Vec<u8>,
    /// False while a write is unfinished. If that write is dropped, a part of a frame may be sent, so no further frame
    /// can follow.
    is_usable: bool,
}

impl Outlet {
    fn new(writer: Writer, framing: Framing) -> Self {
        Self { writer, framing, buffer: Vec::new(), is_usable: true }
    }

    fn add(&mut self, message: &[u8]) {
        self.framing.frame(&mut self.buffer, message.len(), |out| out.extend_from_slice(message));
    }

    /// Writes and empties the buffer.
    async fn write(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.is_usable = false;
        self.writer.write_all(&self.buffer).await?;
        self.is_usable = true;
        self.buffer.clear();
        if self.buffer.capacity() > KEPT_BUFFER_BYTES {
            self.buffer = Vec::new();
        }
        Ok(())
    }

    async fn close_as(&mut self, reason: &CloseReason, timeout: Duration) {
        let code = if reason.code == NO_STATUS { NORMAL } else { reason.code };
        self.close(code, &reason.reason, timeout).await;
    }

    /// Sends a close frame, and shuts the connection down for writing. On the stream of a harness, the shutdown waits
    /// until the harness has received everything. Gives up after `timeout`.
    async fn close(&mut self, code: u16, reason: &str, timeout: Duration) {
        if !self.is_usable {
            return;
        }
        self.buffer.clear();
        self.framing.close(&mut self.buffer, code, reason);
        let closing = async {
            if self.write().await.is_ok() {
                self.writer.shutdown().await;
            }
        };
        let _ = tokio::time::timeout(timeout, closing).await;
    }
}

#[cfg(test)]
mod tests;
