//! Everything that is random in one simulation: the kind of server, the limits, what the process, the clients and the
//! server do, the breaks of the network, and all delays.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use protocol::Stream;
use session::{MemoryPressure, ReclaimStep};

/// Milliseconds: a duration, or a moment counted from the beginning of the simulation.
pub(crate) type Time = u64;

/// How long the client tries to reconnect before it fails.
pub(crate) const RECOVERY_BUDGET: Time = 5000;

/// Which server the client is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerKind {
    /// The server of this project: reports gaps, answers in pages, and sends no events after a resume until the
    /// client has read once. If the retained output is full, the process waits until the client has received a part
    /// of it.
    Ours,
    /// The reference implementation of the protocol: reports neither gaps nor the sequence number of the exit, and
    /// sends an event only to a client that is attached when the event happens.
    Reference,
    /// An older version of the reference implementation: its close has no sequence number, and its exit does not say
    /// whether the sandbox denied something. The simulation never lets it drop output, because its client could not
    /// notice that.
    Old,
}

/// One thing that the process does.
#[derive(Clone, Debug)]
pub(crate) enum ProcessAct {
    Write(Stream, Vec<u8>),
    Exit { code: i32, sandbox_denied: bool, timed_out: bool },
    Close,
}

/// How an attempt to connect ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AttemptFate {
    Connects,
    Refused,
    /// The server refuses the client in a way that makes another attempt useless.
    Forbidden,
    /// The attempt gets no answer.
    Hangs,
}

/// The connection breaks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) at: Time,
    pub(crate) client_notices_after: Time,
    /// `None` if the connection breaks silently, so that the server gives it up much later.
    pub(crate) server_notices_after: Option<Time>,
    pub(crate) loses_messages_in_flight: bool,
}

/// The client pauses the process, so that the server sends no events to the client, and resumes the process later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    pub(crate) at: Time,
    pub(crate) lasts: Time,
}

/// The server is short of memory and drops output that it retains for the client. `step` says which output may be
/// dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reclaim {
    pub(crate) at: Time,
    pub(crate) step: ReclaimStep,
    pub(crate) pressure: MemoryPressure,
    /// Bytes of memory that the retained output may still occupy. Ignored in the step `SentAndClosed`.
    pub(crate) kept_bytes: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pub(crate) kind: ServerKind,
    /// Bytes of output that the server retains. An old server retains 1 MiB instead.
    pub(crate) retain_bytes: usize,
    /// Bytes of output in the largest event, if a quarter of `retain_bytes` is not less.
    pub(crate) max_chunk_bytes: usize,
    /// Bytes of output in one answer of our server to a read. The other kinds of server answer without this limit.
    pub(crate) page_bytes: usize,
    /// Bytes of output after which the server sends no further event in the same batch.
    pub(crate) batch_bytes: usize,
    /// How long the process waits for a lost client.
    pub(crate) hold: Time,
    /// Each act with the time since the act before it.
    pub(crate) process: Vec<(Time, ProcessAct)>,
    pub(crate) cuts: Vec<Cut>,
    /// How the attempts to connect end, one after the other, and then from the beginning again.
    pub(crate) attempts: Vec<AttemptFate>,
    /// Beginning and duration of starts of other processes over the same connection.
    pub(crate) starts: Vec<(Time, Time)>,
    pub(crate) pauses: Vec<Pause>,
    pub(crate) reclaims: Vec<Reclaim>,
    /// When another client takes the session over.
    pub(crate) takeover: Option<Time>,
    /// When a connection begins to watch the process, and the number of the event after which it begins.
    pub(crate) watcher: Option<(Time, u64)>,
    /// Random numbers for all delays, used one after the other, and then from the beginning again.
    pub(crate) dice: Vec<u16>,
}

pub(crate) fn schedule() -> impl Strategy<Value = Schedule> {
    let kind = prop_oneof![4 => Just(ServerKind::Ours), 1 => Just(ServerKind::Reference), 1 => Just(ServerKind::Old)];
    let limits =
        (prop_oneof![2 => 8_usize..60, 1 => Just(1000)], 1_usize..40, 4_usize..200, 1_usize..600, 0_u64..4000);
    let starts = vec((0_u64..5000, prop_oneof![9 => 0_u64..300, 1 => 0..2 * RECOVERY_BUDGET]), 0..3);
    let network = (vec(cut(), 0..6), vec(attempt(), 1..8), starts, vec(any::<u16>(), 1..64));
    let interventions = (vec(pause(), 0..4), vec(reclaim(), 0..3), option::weighted(0.3, 0_u64..5000), watcher());
    (kind, limits, process(), network, interventions).prop_map(|(kind, limits, process, network, interventions)| {
        let (retain_bytes, max_chunk_bytes, page_bytes, batch_bytes, hold) = limits;
        let (cuts, attempts, starts, dice) = network;
        let (pauses, reclaims, takeover, watcher) = interventions;
        Schedule {
            kind,
            retain_bytes,
            max_chunk_bytes,
            page_bytes,
            batch_bytes,
            hold,
            process,
            cuts,
            attempts,
            starts,
            pauses,
            reclaims,
            takeover,
            watcher,
            dice,
        }
    })
}

/// Fewer than `limit` writes, each with the time since the act before it.
fn writes(limit: usize) -> impl Strategy<Value = Vec<(Time, ProcessAct)>> {
    let stream = prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)];
    let write = (stream, vec(any::<u8>(), 1..12)).prop_map(|(stream, bytes)| ProcessAct::Write(stream, bytes));
    vec((prop_oneof![1 => Just(0_u64), 2 => 0_u64..300], write), 0..limit)
}

/// Output, and for most processes an exit, late output of descendants and a close. One process in six never exits,
/// and one in six exits but is never closed.
fn process() -> impl Strategy<Value = Vec<(Time, ProcessAct)>> {
    let exit = (0..3, any::<bool>(), any::<bool>()).prop_map(|(code, sandbox_denied, timed_out)| ProcessAct::Exit {
        code,
        sandbox_denied,
        timed_out,
    });
    let waits = (0_u64..300, 0_u64..300);
    (writes(30), exit, writes(4), waits, 0..6).prop_map(
        |(mut acts, exit, late, (before_exit, before_close), ends)| {
            if ends > 0 {
                acts.push((before_exit, exit));
                acts.extend(late);
            }
            if ends > 1 {
                acts.push((before_close, ProcessAct::Close));
            }
            acts
        },
    )
}

fn cut() -> impl Strategy<Value = Cut> {
    (0_u64..8000, 0_u64..200, option::of(0_u64..400), any::<bool>()).prop_map(
        |(at, client_notices_after, server_notices_after, loses_messages_in_flight)| Cut {
            at,
            client_notices_after,
            server_notices_after,
            loses_messages_in_flight,
        },
    )
}

fn attempt() -> impl Strategy<Value = AttemptFate> {
    prop_oneof![
        30 => Just(AttemptFate::Connects),
        10 => Just(AttemptFate::Refused),
        1 => Just(AttemptFate::Forbidden),
        1 => Just(AttemptFate::Hangs),
    ]
}

fn pause() -> impl Strategy<Value = Pause> {
    (0_u64..6000, 0_u64..3000).prop_map(|(at, lasts)| Pause { at, lasts })
}

fn reclaim() -> impl Strategy<Value = Reclaim> {
    let step =
        prop_oneof![Just(ReclaimStep::SentAndClosed), Just(ReclaimStep::Acknowledged), Just(ReclaimStep::Anything),];
    let pressure = prop_oneof![Just(MemoryPressure::High), Just(MemoryPressure::Extreme)];
    (0_u64..8000, step, pressure, 0_usize..2000).prop_map(|(at, step, pressure, kept_bytes)| Reclaim {
        at,
        step,
        pressure,
        kept_bytes,
    })
}

fn watcher() -> impl Strategy<Value = Option<(Time, u64)>> {
    option::weighted(0.3, (0_u64..8000, 0_u64..5))
}
