//! One WebSocket to a relay: it reads frames, sends the frames of an [`OutgoingFrames`], and notices a relay that is gone.
//! It knows no streams.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use recovery::{LifeSigns, Silence};
use relay::{Frame, FrameError};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use transport::{Framing, MessageStream, ReadEvent, Reader, WriteProgress, Writer};

use crate::outgoing::OutgoingFrames;

/// A socket to a relay counts as lost when nothing has arrived on it for this time. The relay is pinged after half of
/// it.
pub(crate) const SILENCE_TIMEOUT: Duration = Duration::from_secs(20);

/// A socket counts as lost when the relay takes no byte for this time.
const BLOCKED_TIMEOUT: Duration = Duration::from_secs(60);

/// Frames are gathered until the buffer for the socket holds so many bytes.
const BATCH_BYTES: usize = 256 << 10;

/// Capacity that the buffer of an idle socket keeps.
const IDLE_BUFFER_BYTES: usize = 64 << 10;

/// After so many frames the other tasks of the thread have their turn.
const FRAMES_BETWEEN_YIELDS: u32 = 64;

/// Pings of the relay that wait for their pongs. Further ones are not answered.
const MAX_WAITING_PONGS: usize = 16;

/// Why a socket has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketEnd {
    /// The relay has sent a close frame.
    PeerClose,
    /// The socket has ended without a close frame, or the relay broke the rules of WebSockets.
    ReadError,
    /// Nothing can be written any more, or the relay takes nothing.
    WriteError,
    /// The relay has not answered a ping.
    PongTimeout,
}

impl SocketEnd {
    /// The reason in logs and metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::PeerClose => "peer_close",
            Self::ReadError => "read_error",
            Self::WriteError => "write_error",
            Self::PongTimeout => "pong_timeout",
        }
    }
}

/// Control frames of the WebSocket that the reader wants to send.
enum WantedControl {
    Ping,
    Pong(Bytes),
}

/// Serves a socket until it ends, or until nothing has arrived for `silence_timeout`. `handle` gets each frame that
/// arrives.
pub(crate) async fn run(
    socket: MessageStream,
    outgoing: &Arc<OutgoingFrames>,
    silence_timeout: Duration,
    handle: impl FnMut(Result<Frame, FrameError>),
) -> SocketEnd {
    let MessageStream { reader, writer, framing, .. } = socket;
    let (wanted, wanted_controls) = mpsc::channel(MAX_WAITING_PONGS);
    let progress = Mutex::new(Instant::now());
    tokio::select! {
        end = read(reader, outgoing, silence_timeout, handle, &wanted, &progress) => end,
        _failed = write(writer, framing, outgoing, wanted_controls, &progress) => SocketEnd::WriteError,
    }
}

async fn read(
    mut reader: Reader,
    outgoing: &Arc<OutgoingFrames>,
    silence_timeout: Duration,
    mut handle: impl FnMut(Result<Frame, FrameError>),
    wanted: &mpsc::Sender<WantedControl>,
    write_progress: &Mutex<Instant>,
) -> SocketEnd {
    let mut life_signs = LifeSigns::new(silence_timeout, Instant::now().into_std());
    let mut silence_check = pin!(sleep_until(life_signs.poll_timeout().into()));
    let mut frames = 0_u32;
    loop {
        outgoing.wait_for_room().await;
        tokio::select! {
            biased;
            event = reader.next() => match event {
                Ok(ReadEvent::Message(message)) => {
                    handle(Frame::decode(message));
                    frames = frames.wrapping_add(1);
                    if frames.is_multiple_of(FRAMES_BETWEEN_YIELDS) {
                        tokio::task::yield_now().await;
                    }
                }
                Ok(ReadEvent::TooLarge { .. }) => handle(Err(FrameError::Undecodable)),
                Ok(ReadEvent::Ping(payload)) => {
                    // A relay that takes no pongs gets none.
                    let _dropped_if_full = wanted.try_send(WantedControl::Pong(payload));
                }
                Ok(ReadEvent::Pong(_)) => {}
                Ok(ReadEvent::Closed(Some(_))) => return SocketEnd::PeerClose,
                Ok(ReadEvent::Closed(None)) | Err(_) => return SocketEnd::ReadError,
            },
            () = &mut silence_check => {
                life_signs.handle_sign(reader.last_received().into_std());
                life_signs.handle_sign(write_progress.lock().into_std());
                match life_signs.handle_timeout(Instant::now().into_std()) {
                    Silence::Short => {}
                    Silence::Ping => {
                        let _dropped_if_full = wanted.try_send(WantedControl::Ping);
                    }
                    Silence::TooLong => return SocketEnd::PongTimeout,
                }
                silence_check.as_mut().reset(life_signs.poll_timeout().into());
            }
        }
    }
}

async fn write(
    mut writer: Writer,
    framing: Framing,
    outgoing: &Arc<OutgoingFrames>,
    mut wanted: mpsc::Receiver<WantedControl>,
    progress: &Mutex<Instant>,
) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        tokio::select! {
            Some(control) = wanted.recv() => match control {
                WantedControl::Ping => {
                    framing.ping(&mut buffer, b"");
                }
                WantedControl::Pong(payload) => {
                    framing.pong(&mut buffer, &payload);
                }
            },
            () = outgoing.wait() => {}
        }
        outgoing.gather(Instant::now().into_std(), |frame| {
            framing.frame(&mut buffer, frame.message_bytes(), |out| frame.append_to(out));
            buffer.len() < BATCH_BYTES
        });
        write_batch(&mut writer, &buffer, progress).await?;
        outgoing.note_written();
        // The next batch of a busy socket is large again.
        if buffer.len() <= IDLE_BUFFER_BYTES {
            buffer.shrink_to(IDLE_BUFFER_BYTES);
        }
        buffer.clear();
    }
}

/// Fails if the relay takes no byte for [`BLOCKED_TIMEOUT`].
async fn write_batch(writer: &mut Writer, batch: &[u8], progress: &Mutex<Instant>) -> io::Result<()> {
    let began = Instant::now();
    let moved = Mutex::new(began);
    let mut written = pin!(writer.write_all_watched(batch, |change| {
        if change == WriteProgress::Resumed {
            let now = Instant::now();
            *moved.lock() = now;
            // A socket that takes bytes again shows that the relay reads.
            *progress.lock() = now;
        }
    }));
    loop {
        let deadline = *moved.lock() + BLOCKED_TIMEOUT;
        tokio::select! {
            written = &mut written => return written,
            () = sleep_until(deadline) => if *moved.lock() + BLOCKED_TIMEOUT <= Instant::now() {
                return Err(io::ErrorKind::TimedOut.into());
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use transport::{MessageLimits, PeerLabel, ProofOfReceipt};

    use super::*;

    /// The end under test and the relay's end of a socket in memory.
    fn socket() -> (MessageStream, MessageStream) {
        let (ours, of_relay) = tokio::io::duplex(1 << 16);
        let stream = |io, framing| {
            let (read, write) = tokio::io::split(io);
            let (peer, limits) = (PeerLabel::new("a test"), MessageLimits::default());
            MessageStream::new(read, write, framing, ProofOfReceipt::Pong, peer, limits)
        };
        (stream(ours, Framing::BinaryWebSocketClient), stream(of_relay, Framing::BinaryWebSocketServer))
    }

    #[tokio::test(start_paused = true)]
    async fn a_relay_that_answers_no_ping_is_given_up() {
        let (socket, _relay) = socket();
        let began = Instant::now();
        assert_eq!(run(socket, &Arc::default(), SILENCE_TIMEOUT, |_| {}).await, SocketEnd::PongTimeout);
        assert_eq!(began.elapsed().as_secs(), SILENCE_TIMEOUT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_relay_that_answers_pings_is_kept_and_gets_answers_to_its_own() {
        let (socket, mut relay) = socket();
        let relay = async move {
            let mut frames = Vec::new();
            relay.framing.ping(&mut frames, b"relay");
            relay.writer.write_all(&frames).await.unwrap();
            let mut answers = Vec::new();
            for _ in 0..20 {
                match relay.reader.next().await.unwrap() {
                    ReadEvent::Ping(payload) => {
                        let mut pong = Vec::new();
                        relay.framing.pong(&mut pong, &payload);
                        relay.writer.write_all(&pong).await.unwrap();
                    }
                    ReadEvent::Pong(payload) => answers.push(payload),
                    _ => panic!("an idle end sends nothing else"),
                }
            }
            answers
        };
        let (began, outgoing) = (Instant::now(), Arc::default());
        let (end, answers) = tokio::join!(run(socket, &outgoing, SILENCE_TIMEOUT, |_| {}), relay);
        assert_eq!((end, answers), (SocketEnd::ReadError, vec![Bytes::from_static(b"relay")]));
        assert!(began.elapsed() > SILENCE_TIMEOUT * 5, "{:?}", began.elapsed());
    }
}
