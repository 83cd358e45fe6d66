//! What the process really did, to compare with the events that clients and watchers get.

use std::collections::BTreeMap;

use protocol::{ExitResources, Stream};
use recovery::{Event, Exit};

/// The smallest thing that a process does: it writes one byte, exits or closes. The server decides how bytes are cut
/// into chunks, so bytes are compared one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Symbol {
    Byte(Stream, u8),
    /// `sandbox_denied` is `None` for a server that does not say it when it sends the event.
    Exited {
        code: i32,
        sandbox_denied: Option<bool>,
        timed_out: bool,
        resources: ExitResources,
    },
    Closed,
}

/// Everything that the process did, and every event that the server has sent.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    symbols: Vec<Symbol>,
    /// Each event by its number, as it was sent first, without `sandbox_denied`.
    events: BTreeMap<u64, Event>,
}

impl Truth {
    pub(crate) fn note_written(&mut self, stream: Stream, bytes: &[u8]) {
        self.symbols.extend(bytes.iter().map(|byte| Symbol::Byte(stream, *byte)));
    }

    pub(crate) fn note_exited(
        &mut self,
        code: i32,
        sandbox_denied: Option<bool>,
        timed_out: bool,
        resources: ExitResources,
    ) {
        self.symbols.push(Symbol::Exited { code, sandbox_denied, timed_out, resources });
    }

    pub(crate) fn note_closed(&mut self) {
        self.symbols.push(Symbol::Closed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.symbols.last() == Some(&Symbol::Closed)
    }

    pub(crate) fn len(&self) -> usize {
        self.symbols.len()
    }

    /// Position of the first byte of output that follows `bytes` bytes of output. If there is none, the end.
    pub(crate) fn after_bytes(&self, bytes: u64) -> usize {
        let is_byte = |symbol: &Symbol| matches!(symbol, Symbol::Byte(..));
        let mut positions = (0..self.symbols.len()).filter(|position| is_byte(&self.symbols[*position]));
        positions.nth(bytes as usize).unwrap_or(self.symbols.len())
    }

    /// Checks that an event that is sent now is the same as every event that was sent before with this number.
    pub(crate) fn check_same(&mut self, seq: u64, event: &Event) {
        let first = self.events.entry(seq).or_insert_with(|| without_sandbox_denied(event));
        assert_eq!(*first, without_sandbox_denied(event), "event {seq} was sent with another content before");
    }

    /// Checks that an event is what the process did at `position`, and returns the position after it.
    pub(crate) fn check_next(&self, position: usize, event: &Event) -> usize {
        let symbols: Vec<Symbol> = match event {
            Event::Output { stream, chunk } => chunk.iter().map(|byte| Symbol::Byte(*stream, *byte)).collect(),
            Event::Exited(Exit { code, sandbox_denied, timed_out, resources, .. }) => {
                // An old server says `sandbox_denied` only in the answer to a read.
                let is_pushed =
                    !matches!(self.symbols.get(position), Some(Symbol::Exited { sandbox_denied: None, .. }));
                let sandbox_denied = sandbox_denied.filter(|_| is_pushed);
                vec![Symbol::Exited { code: *code, sandbox_denied, timed_out: *timed_out, resources: *resources }]
            }
            Event::Closed => vec![Symbol::Closed],
        };
        let end = position + symbols.len();
        assert_eq!(self.symbols.get(position..end), Some(&symbols[..]), "not what the process did next");
        end
    }
}

/// The event without `sandbox_denied`, which an old server says only in the answer to a read.
fn without_sandbox_denied(event: &Event) -> Event {
    match event {
        Event::Exited(exit) => Event::Exited(Exit { sandbox_denied: None, ..exit.clone() }),
        event => event.clone(),
    }
}
