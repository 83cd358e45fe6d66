//! The two ends of a session in one simulation: the server's `session::Delivery` and the client's `recovery`, joined by a network that
//! breaks, on virtual time. Start reading at `schedule.rs`, which says what can happen, then `simulation.rs`.
//!
//! Whatever the network, the process and the readers do: every event is handed out once and in order, or its loss is reported, and no
//! client waits for ever. The simulation leaves out goodbyes, reads of parts of a chunk, processes that are started paused, and the end
//! of the server; those rules have unit tests in `session`. To play more schedules than the tests do:
//! `PROPTEST_CASES=1000000 cargo test -p recovery --release --test pair`.

mod client;
mod schedule;
mod server;
mod simulation;
mod truth;

use proptest::prelude::*;

use schedule::schedule;
use simulation::PairSimulation;

/// Schedules that every run of the tests plays.
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
