//! Whatever the network does: everything that a process said is handed out once and in order, or its loss is told, and no client
//! waits for ever.

mod server;
mod world;

use proptest::collection::vec;
use proptest::prelude::*;
use protocol::Stream;

use server::Kind;
use world::{BUDGET, Cut, Deed, Outcome, Plan, World};

fn writes(most: usize) -> impl Strategy<Value = Vec<(u64, Deed)>> {
    let stream = prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)];
    let write = (stream, vec(any::<u8>(), 1..12)).prop_map(|(stream, bytes)| Deed::Write(stream, bytes));
    vec((0_u64..300, write), 0..most)
}

/// Output, and for most processes an exit, late output and an end.
fn deeds() -> impl Strategy<Value = Vec<(u64, Deed)>> {
    let exit = (0..3, any::<bool>(), any::<bool>()).prop_map(|(code, sandbox_denied, timed_out)| Deed::Exit {
        code,
        sandbox_denied,
        timed_out,
    });
    let pauses = (0_u64..300, 0_u64..300);
    (writes(30), exit, writes(4), pauses, 0..6).prop_map(
        |(mut deeds, exit, late, (before_exit, before_end), ends)| {
            if ends > 0 {
                deeds.push((before_exit, exit));
                deeds.extend(late);
            }
            if ends > 1 {
                deeds.push((before_end, Deed::Close));
            }
            deeds
        },
    )
}

fn cut() -> impl Strategy<Value = Cut> {
    (0_u64..8000, 0_u64..200, any::<bool>()).prop_map(|(at, noticed_after, loses_what_is_in_flight)| Cut {
        at,
        noticed_after,
        loses_what_is_in_flight,
    })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        30 => Just(Outcome::Connects),
        10 => Just(Outcome::Refused),
        1 => Just(Outcome::Forbidden),
        1 => Just(Outcome::Hangs),
    ]
}

fn plan() -> impl Strategy<Value = Plan> {
    let kind = prop_oneof![Just(Kind::Ours), Just(Kind::Reference), Just(Kind::Old)];
    let starts = vec((0_u64..5000, prop_oneof![9 => 0_u64..300, 1 => 0..2 * BUDGET]), 0..4);
    let network = (vec(cut(), 0..6), vec(outcome(), 1..8), starts, vec(any::<u16>(), 1..64));
    (kind, prop_oneof![1 => 8_usize..60, 1 => Just(1000)], 4_usize..200, deeds(), network).prop_map(
        |(kind, retain_bytes, page_bytes, deeds, (cuts, outcomes, starts, dice))| Plan {
            kind,
            retain_bytes,
            page_bytes,
            deeds,
            cuts,
            outcomes,
            starts,
            dice,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn events_are_handed_out_once_in_order_or_their_loss_is_told(plan in plan()) {
        World::new(plan).run();
    }
}
