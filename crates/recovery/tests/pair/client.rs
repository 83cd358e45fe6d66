//! The client's end of the simulation: an `EventOrder`, and the check of every event that it hands out.

use protocol::ReadResult;
use recovery::{CatchUpError, Event, EventOrder, OrderLimits};

use crate::schedule::ServerKind;
use crate::server::{Push, SimulatedServer};
use crate::truth::Truth;

pub(crate) struct SimulatedClient {
    order: EventOrder,
    /// How many symbols of the [`Truth`] were handed out. A symbol is a byte of output, the exit or the close.
    position: usize,
    received_bytes: u64,
    /// An unnumbered close that came while the answer to a read was awaited.
    held_close: bool,
    failure: Option<CatchUpError>,
}

impl SimulatedClient {
    pub(crate) fn new() -> Self {
        Self {
            order: EventOrder::new(OrderLimits::default()),
            position: 0,
            received_bytes: 0,
            held_close: false,
            failure: None,
        }
    }

    /// The last event that was handed out.
    pub(crate) fn last(&self) -> u64 {
        self.order.last()
    }

    /// Whether an event waits for an earlier event that did not come.
    pub(crate) fn has_hole(&self) -> bool {
        !self.has_failed() && self.order.has_hole()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    pub(crate) fn take_push(&mut self, push: Push, awaits_answer: bool) {
        match push {
            _ if self.has_failed() => {}
            Push::Event(seq, event) => self.order.handle_event(seq, event).expect("the limit is not reached"),
            Push::UnnumberedClose if awaits_answer => self.held_close = true,
            Push::UnnumberedClose => self.order.handle_unnumbered_close(),
            Push::Ping(_) => {}
        }
    }

    /// Takes the answer to a read after [`SimulatedClient::last`]. If the client reports a loss, the server must have dropped output.
    pub(crate) fn take_answer(
        &mut self,
        answer: ReadResult,
        dropped_bytes: u64,
        kind: ServerKind,
        server: &SimulatedServer,
    ) {
        if self.has_failed() || self.order.is_closed() {
            return;
        }
        let through = answer.next_seq - 1;
        let ends_in_output = answer.chunks.last().is_some_and(|chunk| chunk.seq == through);
        let missed_bytes = dropped_bytes.saturating_sub(self.received_bytes);
        match self.order.handle_read(answer.clone(), self.received_bytes) {
            Ok(()) => {
                if std::mem::take(&mut self.held_close) {
                    self.order.handle_unnumbered_close();
                }
            }
            Err(CatchUpError::OutputLost { through: reported, lost_bytes }) => {
                assert!(server.may_lose_output, "output was lost that the process should have waited for");
                assert!(answer.gap && reported == through);
                let lost_bytes = lost_bytes.expect("our server says how much it has dropped");
                assert!((1..=missed_bytes).contains(&lost_bytes), "{lost_bytes} of {missed_bytes} bytes");
                self.failure = Some(CatchUpError::OutputLost { through, lost_bytes: Some(lost_bytes) });
            }
            Err(error @ CatchUpError::NotRetained(_)) => {
                assert!(kind != ServerKind::Ours && missed_bytes > 0, "{error} after {} of {answer:?}", self.last());
                self.failure = Some(error);
            }
            Err(error @ CatchUpError::CloseConflict(_)) => {
                assert!(kind == ServerKind::Old && answer.closed && ends_in_output, "{error}: {answer:?}");
                self.failure = Some(error);
            }
            Err(error) => panic!("{error} after {} of {answer:?}", self.last()),
        }
    }

    /// Takes the answer to the first read of a client that does not know the process. If there is a gap, the client begins after the gap.
    pub(crate) fn begin(&mut self, answer: ReadResult, truth: &Truth) {
        if answer.gap {
            let first = answer.chunks.first().map_or(answer.next_seq, |chunk| chunk.seq);
            self.order = EventOrder::after(first - 1, OrderLimits::default());
            self.received_bytes = answer.dropped_bytes.expect("our server says how much it has dropped");
            self.position = match answer.chunks.is_empty() {
                // A closed process that has no output left is handed out as a close and nothing else.
                true => truth.len() - usize::from(answer.closed),
                false => truth.after_bytes(self.received_bytes),
            };
        }
        self.order.handle_read(answer, self.received_bytes).expect("the answer has every event after the gap");
    }

    pub(crate) fn deliver_events(&mut self, truth: &Truth) {
        if self.has_failed() {
            return;
        }
        while let Some((_, event)) = self.order.poll_event() {
            self.position = truth.check_next(self.position, &event);
            self.received_bytes += event.bytes() as u64;
            assert_eq!(self.order.is_closed(), event == Event::Closed);
        }
    }

    /// Whether everything that the process did was handed out.
    pub(crate) fn is_complete(&self, truth: &Truth) -> bool {
        self.position == truth.len() && self.order.is_closed() == truth.is_closed() && !self.order.has_hole()
    }
}
