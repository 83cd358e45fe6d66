//! The two ends of a session in one simulation: the server's `session::Delivery` and the client's crate `recovery`,
//! joined by a network that breaks, on virtual time. Start reading at `schedule.rs`, which says what can happen, then
//! `simulation.rs`.
//!
//! An event is a piece of output, the exit or the close of the simulated process. Whatever the network, the process
//! and the clients do: a client that can reconnect gets every event once and in order, or learns that output was
//! lost, and no client waits for ever. The simulation leaves out clients that close their connection on purpose,
//! reads that return a part of a chunk, processes that are started paused, and the shutdown of the server; those
//! rules have unit tests in `session`. To play more schedules:
//! `PROPTEST_CASES=1000000 cargo test -p recovery --release --test pair`.

mod client;
mod schedule;
mod server;
mod simulation;
mod truth;

use proptest::prelude::*;

use schedule::schedule;
use simulation::PairSimulation;

/// Schedules that a run of the test plays, unless `PROPTEST_CASES` asks for more.
const SCHEDULES: u32 = 10_000;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(SCHEDULES),
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn events_are_handed_out_once_and_in_order_or_their_loss_is_reported(schedule in schedule()) {
        PairSimulation::new(schedule).run();
    }
}
