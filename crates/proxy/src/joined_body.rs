//! Joins the small frames of a body. hyper makes a frame of each chunk, and writes to the socket after nearly each frame.
//! A peer that sends chunks of one byte would otherwise cause one system call for each byte.
//! Start with [`JoinedBody`].

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};

use crate::limits::HTTP_READ_BYTES;

/// Frames are joined until they have this many bytes. A full read without chunks has this size, and is passed on without
/// a copy.
const JOINED_FRAME_BYTES: usize = HTTP_READ_BYTES;

/// How often the task of a connection was polled. Clones are about the same connection.
#[derive(Clone, Default)]
pub(crate) struct PollCount(Arc<AtomicUsize>);

impl PollCount {
    pub(crate) fn increase(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn current(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A body whose frames are those of another body, joined as long as the next one is ready at once.
///
/// The same task reads a request from the program and sends it to the target, and hyper hands over one frame at a time.
/// So the next frame can be ready only when the task is polled again. The body asks for that poll, and gives its bytes
/// away if the poll brings no further frame.
pub(crate) struct JoinedBody<B: Body> {
    body: B,
    polls: PollCount,
    joined: BytesMut,
    /// The count of polls when the last bytes were joined.
    joined_at: usize,
    /// What the body has returned after the joined bytes: trailers, an error, or the end (`Some(None)`).
    following: Option<Option<Result<Frame<Bytes>, B::Error>>>,
}

impl<B: Body<Data = Bytes> + Unpin> JoinedBody<B> {
    pub(crate) fn new(body: B, polls: PollCount) -> Self {
        Self { body, polls, joined: BytesMut::new(), joined_at: 0, following: None }
    }

    fn take_joined(&mut self) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Poll::Ready(Some(Ok(Frame::data(self.joined.split().freeze()))))
    }
}

// No field is pinned in place.
impl<B: Body + Unpin> Unpin for JoinedBody<B> {}

impl<B: Body<Data = Bytes> + Unpin> Body for JoinedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        if let Some(following) = this.following.take() {
            return Poll::Ready(following);
        }
        while !this.body.is_end_stream() {
            let following = match Pin::new(&mut this.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) if this.joined.is_empty() && bytes.len() >= JOINED_FRAME_BYTES => {
                        return Poll::Ready(Some(Ok(Frame::data(bytes))));
                    }
                    Ok(bytes) => {
                        this.joined.extend_from_slice(&bytes);
                        this.joined_at = this.polls.current();
                        if this.joined.len() >= JOINED_FRAME_BYTES {
                            return this.take_joined();
                        }
                        continue;
                    }
                    Err(trailers) => Some(Ok(trailers)),
                },
                Poll::Ready(following) => following,
                Poll::Pending if this.joined.is_empty() => return Poll::Pending,
                Poll::Pending if this.joined_at == this.polls.current() => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Pending => return this.take_joined(),
            };
            if this.joined.is_empty() {
                return Poll::Ready(following);
            }
            this.following = Some(following);
            return this.take_joined();
        }
        if this.joined.is_empty() { Poll::Ready(None) } else { this.take_joined() }
    }

    fn is_end_stream(&self) -> bool {
        self.joined.is_empty() && self.following.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, joined) = (self.body.size_hint(), self.joined.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + joined);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + joined);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::Waker;

    use http::{HeaderMap, HeaderValue};

    use super::*;

    type ScriptedPoll = Poll<Option<Result<Frame<Bytes>, &'static str>>>;

    /// Returns one of these at each poll, and then the end.
    struct ScriptedBody(VecDeque<ScriptedPoll>);

    impl Body for ScriptedBody {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> ScriptedPoll {
            self.0.pop_front().unwrap_or(Poll::Ready(None))
        }
    }

    fn data(text: &str) -> ScriptedPoll {
        Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(text.as_bytes())))))
    }

    fn trailers() -> ScriptedPoll {
        let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("x"))]);
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    /// What each poll of the joined body returns, up to the end. The task is polled again after each one.
    fn polls_of(script: Vec<ScriptedPoll>) -> Vec<String> {
        let polls = PollCount::default();
        let mut body = JoinedBody::new(ScriptedBody(script.into()), polls.clone());
        let mut cx = Context::from_waker(Waker::noop());
        let mut seen = Vec::new();
        loop {
            polls.increase();
            seen.push(match Pin::new(&mut body).poll_frame(&mut cx) {
                Poll::Pending => "pending".to_owned(),
                Poll::Ready(None) => return seen,
                Poll::Ready(Some(Err(error))) => error.to_owned(),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                    Err(_) => "trailers".to_owned(),
                },
            });
        }
    }

    #[test]
    fn frames_are_joined_until_a_poll_brings_no_further_frame() {
        let script = vec![
            data("a"),
            data("b"),
            Poll::Pending,
            data("c"),
            Poll::Pending,
            Poll::Pending,
            Poll::Pending,
            data("d"),
        ];
        assert_eq!(polls_of(script), ["pending", "pending", "abc", "pending", "d"]);
    }

    #[test]
    fn trailers_and_errors_come_after_the_bytes_before_them() {
        assert_eq!(polls_of(vec![data("a"), Poll::Pending, data("b"), trailers()]), ["pending", "ab", "trailers"]);
        let error = Poll::Ready(Some(Err("broken")));
        assert_eq!(polls_of(vec![data("a"), data("b"), error]), ["ab", "broken"]);
    }

    #[test]
    fn a_joined_frame_is_given_away_when_it_is_large() {
        let half = "x".repeat(JOINED_FRAME_BYTES / 2);
        let whole = "y".repeat(JOINED_FRAME_BYTES);
        assert_eq!(
            polls_of(vec![data(&half), data(&half), data(&whole), data("z")]),
            [half.repeat(2), whole, "z".to_owned()]
        );
    }

    #[test]
    fn several_polls_of_the_body_within_one_poll_of_the_task_give_nothing_away() {
        let polls = PollCount::default();
        let script = [data("a"), Poll::Pending, Poll::Pending, Poll::Pending];
        let mut body = JoinedBody::new(ScriptedBody(script.into()), polls.clone());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut body).poll_frame(&mut cx).is_pending());
        assert!(Pin::new(&mut body).poll_frame(&mut cx).is_pending());
        polls.increase();
        assert!(Pin::new(&mut body).poll_frame(&mut cx).is_ready());
    }
}
