//! The two ends of a session in one simulation: the server's `session::Delivery` and the client's `recovery`, joined by a network that
//! breaks, on virtual time.
//!
//! Whatever the network, the process and the readers do: every event is handed out once and in order, or its loss is reported, and no
//! client waits for ever. Not played are goodbyes, reads of parts of a chunk, processes that are started paused, and the end of the server;
//! those rules have unit tests in `session`. `PROPTEST_CASES=1000000 cargo test -p recovery --release --test pair` plays more schedules than the tests do.

mod client;
mod schedule;
mod server;
mod truth;
mod world;

use proptest::prelude::*;

use schedule::schedule;
use world::World;

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
        World::new(schedule).run();
    }
}
