//! A link on virtual time: who may do what in each state, and what the shell is told to do.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const LOST: &str = "exec-server transport disconnected: reset";

/// A link, its clock, and what it has asked for.
struct Scene {
    link: Link,
    start: Instant,
    now: Instant,
}

impl Scene {
    fn new(policy: LinkPolicy) -> Self {
        let now = Instant::now();
        Self { link: Link::connected(policy, now), start: now, now }
    }

    /// With round numbers: waits of 1, 2, 4, 4 ... seconds, and 25 s for everything.
    fn usual() -> Self {
        Self::new(LinkPolicy {
            backoff: Backoff { first: SECOND, longest: 4 * SECOND },
            stable_after: SECOND,
            ..LinkPolicy::default()
        })
    }

    /// A connection that has held, and was then lost.
    fn lost() -> Self {
        let mut scene = Self::usual();
        scene.pass(10 * SECOND);
        scene.lose(0);
        scene
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.link.handle_timeout(self.now);
    }

    fn lose(&mut self, generation: u64) {
        self.link.disconnected(Generation(generation), Some("reset"), self.now, most());
    }

    fn fail_attempt(&mut self, generation: u64, error: &str) {
        self.link.attempt_failed(Generation(generation), error, true, self.now, most());
    }

    fn succeed(&mut self, generation: u64) {
        self.link.attempt_succeeded(Generation(generation), self.now);
    }

    fn settle(&mut self) {
        self.link.start_settled(self.now);
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.link.poll_action()).collect()
    }

    /// When it wants to be woken, from now.
    fn wakes_in(&self) -> Option<Duration> {
        self.link.poll_timeout().map(|at| at - self.now)
    }

    fn admits(&self) -> [Admission; 2] {
        [self.link.admit(WhenRecovering::Wait), self.link.admit(WhenRecovering::FailFast)]
    }
}

/// The longest wait that chance can bring.
fn most() -> Chance {
    Chance::new(1.0)
}

fn fail_streams() -> Action {
    Action::FailStreams(LOST.to_owned())
}

fn attempt(generation: u64) -> Action {
    Action::Attempt(Generation(generation))
}

fn abandon(generation: u64) -> Action {
    Action::Abandon(Generation(generation))
}

fn connected(generation: u64) -> Action {
    Action::Connected(Generation(generation))
}

fn failed(error: &str) -> Action {
    Action::Fail(format!("{LOST}; failed to resume exec-server session: {error}"))
}

#[test]
fn a_new_link_is_connected_and_wants_nothing() {
    let mut scene = Scene::usual();
    assert_eq!(scene.link.current(), Some(Generation(0)));
    assert_eq!(scene.admits(), [Admission::Go(Generation(0)), Admission::Go(Generation(0))]);
    scene.pass(1000 * SECOND);
    assert_eq!((scene.actions(), scene.wakes_in(), scene.link.failure()), (vec![], None, None));
}

#[test]
fn streams_fail_first_and_the_first_attempt_is_made_at_once() {
    let mut scene = Scene::lost();
    assert_eq!(scene.actions(), [fail_streams(), attempt(1)]);
    assert_eq!((scene.link.current(), scene.wakes_in()), (None, Some(25 * SECOND)));
    assert_eq!(scene.admits(), [Admission::Wait, Admission::Refused(Refusal::Recovering)]);
    scene.succeed(1);
    assert_eq!(scene.actions(), [connected(1)]);
    assert_eq!((scene.link.current(), scene.wakes_in()), (Some(Generation(1)), None));
    assert_eq!(scene.admits(), [Admission::Go(Generation(1)), Admission::Go(Generation(1))]);
}

#[test]
fn a_loss_without_a_reason_is_told_without_one() {
    let mut scene = Scene::usual();
    scene.link.disconnected(Generation(0), None, scene.now, most());
    assert_eq!(scene.actions()[0], Action::FailStreams("exec-server transport disconnected".to_owned()));
}

#[test]
fn only_the_loss_of_the_current_connection_counts() {
    let mut scene = Scene::usual();
    scene.lose(7);
    assert_eq!(scene.actions(), []);
    scene.lose(0);
    scene.actions();
    scene.lose(0);
    assert_eq!(scene.actions(), [], "the second word of the same loss");
    scene.succeed(1);
    scene.actions();
    scene.lose(0);
    assert_eq!((scene.actions(), scene.link.current()), (vec![], Some(Generation(1))));
    scene.lose(1);
    assert_eq!(scene.actions()[0], fail_streams());
}

#[test]
fn without_a_way_to_reconnect_the_loss_itself_is_the_failure() {
    let mut scene = Scene::new(LinkPolicy { can_reconnect: false, has_session: false, ..LinkPolicy::default() });
    assert!(scene.link.start_began(Generation(0)));
    scene.lose(0);
    assert_eq!(scene.actions(), [fail_streams(), Action::Fail(LOST.to_owned())]);
    assert_eq!((scene.link.failure(), scene.wakes_in()), (Some(LOST), None));
    let refused = Admission::Refused(Refusal::Failed(LOST.to_owned()));
    assert_eq!(scene.admits(), [refused.clone(), refused]);
    scene.settle();
    assert_eq!(scene.actions(), []);
}

#[test]
fn without_a_session_there_is_nothing_to_resume() {
    let mut scene = Scene::new(LinkPolicy { has_session: false, ..LinkPolicy::default() });
    scene.lose(0);
    assert_eq!(scene.actions(), [fail_streams(), failed("missing session id")]);
}

#[test]
fn starts_in_flight_delay_the_first_attempt_until_the_last_has_settled() {
    let mut scene = Scene::usual();
    assert!(scene.link.start_began(Generation(0)));
    assert!(scene.link.start_began(Generation(0)));
    scene.lose(0);
    assert_eq!((scene.actions(), scene.wakes_in()), (vec![fail_streams()], Some(25 * SECOND)));
    scene.pass(2 * SECOND);
    scene.settle();
    assert_eq!((scene.actions(), scene.wakes_in()), (vec![], Some(23 * SECOND)));
    scene.settle();
    assert_eq!(scene.actions(), [attempt(1)]);
}

#[test]
fn starts_that_never_settle_end_the_recovery_at_its_deadline() {
    let mut scene = Scene::usual();
    assert!(scene.link.start_began(Generation(0)));
    scene.lose(0);
    scene.pass(25 * SECOND - Duration::from_nanos(1));
    assert_eq!(scene.actions(), [fail_streams()]);
    scene.pass(Duration::from_nanos(1));
    assert_eq!(scene.actions(), [failed("recovery timed out after 25s")]);
    scene.settle();
    assert_eq!((scene.actions(), scene.wakes_in()), (vec![], None));
}

#[test]
fn a_start_that_settles_after_the_deadline_does_not_begin_an_attempt() {
    let mut scene = Scene::usual();
    assert!(scene.link.start_began(Generation(0)));
    scene.lose(0);
    scene.now += 26 * SECOND;
    scene.settle();
    assert_eq!(scene.actions(), [fail_streams(), failed("recovery timed out after 25s")]);
}

#[test]
fn a_start_begins_only_over_the_current_connection() {
    let mut scene = Scene::lost();
    assert!(!scene.link.start_began(Generation(0)), "lost");
    assert!(!scene.link.start_began(Generation(1)), "not there yet");
    scene.succeed(1);
    assert!(!scene.link.start_began(Generation(0)));
    assert!(scene.link.start_began(Generation(1)));
    scene.actions();
    scene.lose(1);
    assert_eq!(scene.actions(), [fail_streams()], "a refused start is not waited for, one that began is");
    scene.settle();
    assert_eq!(scene.actions(), [], "the connection had not held");
    scene.pass(SECOND);
    assert_eq!(scene.actions(), [attempt(2)]);
}

#[test]
fn waits_grow_up_to_the_longest_and_an_attempt_has_a_new_number() {
    let mut scene = Scene::lost();
    scene.actions();
    for (number, wait) in [(1, 1), (2, 2), (3, 4), (4, 4)] {
        scene.fail_attempt(number, "refused");
        assert_eq!(scene.wakes_in(), Some(wait * SECOND));
        scene.pass(wait * SECOND - Duration::from_nanos(1));
        assert_eq!(scene.actions(), []);
        scene.pass(Duration::from_nanos(1));
        assert_eq!(scene.actions(), [attempt(number + 1)]);
    }
}

#[test]
fn half_of_a_wait_is_left_to_chance() {
    let wait = |chance| {
        let mut scene = Scene::lost();
        scene.link.attempt_failed(Generation(1), "refused", true, scene.now, Chance::new(chance));
        scene.wakes_in()
    };
    assert_eq!([0.0, 0.5].map(wait), [Some(SECOND / 2), Some(SECOND * 3 / 4)]);
}

#[test]
fn a_connection_that_breaks_at_once_is_no_reason_to_hammer_the_server() {
    let mut scene = Scene::lost();
    for (number, wait) in [(1, 1), (2, 2), (3, 4), (4, 4)] {
        assert_eq!(scene.actions().last(), Some(&attempt(number)));
        scene.succeed(number);
        scene.pass(SECOND - Duration::from_nanos(1));
        scene.lose(number);
        assert_eq!(scene.actions(), [connected(number), fail_streams()]);
        assert_eq!(scene.wakes_in(), Some(wait * SECOND));
        scene.pass(wait * SECOND);
    }
}

#[test]
fn a_connection_that_held_makes_the_next_attempt_the_first_again() {
    let mut scene = Scene::lost();
    scene.fail_attempt(1, "refused");
    scene.pass(SECOND);
    scene.succeed(2);
    scene.pass(SECOND);
    scene.actions();
    scene.lose(2);
    assert_eq!(scene.actions(), [fail_streams(), attempt(3)]);
    scene.fail_attempt(3, "refused");
    assert_eq!(scene.wakes_in(), Some(SECOND));
}

#[test]
fn each_loss_has_the_whole_budget_and_its_own_last_error() {
    let mut scene = Scene::lost();
    scene.fail_attempt(1, "refused");
    scene.pass(20 * SECOND);
    scene.succeed(2);
    scene.pass(SECOND);
    scene.actions();
    scene.lose(2);
    assert_eq!(scene.wakes_in(), Some(25 * SECOND));
    scene.pass(25 * SECOND);
    assert_eq!(scene.actions(), [fail_streams(), attempt(3), abandon(3), failed("recovery timed out after 25s")],);
}

#[test]
fn a_permanent_error_ends_the_recovery() {
    let mut scene = Scene::lost();
    scene.link.attempt_failed(Generation(1), "unknown session id s", false, scene.now, most());
    assert_eq!(scene.actions(), [fail_streams(), attempt(1), failed("unknown session id s")]);
    assert_eq!(scene.wakes_in(), None);
}

#[test]
fn the_deadline_ends_a_wait() {
    let mut scene = Scene::lost();
    scene.actions();
    scene.pass(25 * SECOND - SECOND / 2);
    scene.fail_attempt(1, "refused");
    assert_eq!(scene.wakes_in(), Some(SECOND / 2), "sooner than the next attempt");
    scene.link.handle_timeout(scene.start);
    assert_eq!(scene.actions(), [], "time does not go back");
    scene.pass(SECOND / 2);
    assert_eq!(scene.actions(), [failed("recovery timed out after 25s: refused")]);
}

#[test]
fn the_deadline_abandons_a_running_attempt_and_its_answer_comes_too_late() {
    let mut scene = Scene::lost();
    scene.actions();
    scene.pass(25 * SECOND);
    assert_eq!(scene.actions(), [abandon(1), failed("recovery timed out after 25s")]);
    scene.succeed(1);
    scene.fail_attempt(1, "refused");
    scene.lose(1);
    scene.pass(SECOND);
    assert_eq!((scene.actions(), scene.link.current()), (vec![], None));
}

#[test]
fn an_attempt_that_fails_after_the_deadline_is_the_last() {
    let mut scene = Scene::lost();
    scene.actions();
    scene.now += 25 * SECOND;
    scene.fail_attempt(1, "refused");
    assert_eq!(scene.actions(), [failed("recovery timed out after 25s: refused")]);
}

#[test]
fn an_attempt_that_beats_the_timer_counts() {
    let mut scene = Scene::lost();
    scene.actions();
    scene.now += 25 * SECOND;
    scene.succeed(1);
    scene.pass(SECOND);
    assert_eq!(scene.actions(), [connected(1)]);
}

#[test]
fn only_the_running_attempt_has_a_say() {
    let mut scene = Scene::lost();
    scene.fail_attempt(1, "refused");
    scene.succeed(1);
    scene.fail_attempt(1, "refused again");
    assert_eq!((scene.link.current(), scene.wakes_in()), (None, Some(SECOND)));
    scene.pass(SECOND);
    scene.succeed(1);
    scene.link.attempt_failed(Generation(1), "unknown session", false, scene.now, most());
    assert_eq!(scene.actions(), [fail_streams(), attempt(1), attempt(2)]);
    scene.succeed(2);
    assert_eq!(scene.actions(), [connected(2)]);
}

#[test]
fn a_connection_that_is_lost_while_it_catches_up_is_not_taken() {
    let mut scene = Scene::lost();
    scene.actions();
    scene.lose(1);
    assert_eq!((scene.actions(), scene.wakes_in()), (vec![], Some(25 * SECOND)), "the attempt itself is to say");
    scene.succeed(1);
    assert_eq!((scene.actions(), scene.link.current(), scene.wakes_in()), (vec![], None, Some(SECOND)));
    scene.pass(SECOND);
    scene.succeed(2);
    assert_eq!(scene.actions(), [attempt(2), connected(2)], "the next one is its own");
}

#[test]
fn an_attempt_that_fails_for_good_is_believed_though_its_connection_was_lost() {
    let mut scene = Scene::lost();
    scene.actions();
    scene.lose(1);
    scene.link.attempt_failed(Generation(1), "unknown session", false, scene.now, most());
    assert_eq!(scene.actions(), [failed("unknown session")]);
}

#[test]
fn closing_a_connected_link_fails_what_waits() {
    let mut scene = Scene::usual();
    scene.link.close("closed by its user");
    assert_eq!(scene.actions(), [Action::Fail("closed by its user".to_owned())]);
    scene.link.close("again");
    scene.lose(0);
    assert_eq!((scene.actions(), scene.link.failure()), (vec![], Some("closed by its user")));
}

#[test]
fn closing_drops_what_was_under_way() {
    let closed = || Action::Fail("closed".to_owned());

    let mut settling = Scene::usual();
    assert!(settling.link.start_began(Generation(0)));
    settling.lose(0);
    settling.link.close("closed");
    settling.settle();
    assert_eq!(settling.actions(), [fail_streams(), closed()]);

    let mut attempting = Scene::lost();
    attempting.link.close("closed");
    attempting.succeed(1);
    assert_eq!(attempting.actions(), [fail_streams(), attempt(1), abandon(1), closed()]);

    let mut waiting = Scene::lost();
    waiting.fail_attempt(1, "refused");
    waiting.actions();
    waiting.link.close("closed");
    waiting.pass(SECOND);
    assert_eq!((waiting.actions(), waiting.wakes_in()), (vec![closed()], None));

    let mut failed_before = Scene::lost();
    failed_before.pass(25 * SECOND);
    failed_before.actions();
    failed_before.link.close("closed");
    assert_eq!(failed_before.actions(), []);
    assert!(failed_before.link.failure().is_some_and(|text| text.ends_with("timed out after 25s")));
}

#[test]
fn a_budget_is_told_in_its_own_unit() {
    let mut scene = Scene::new(LinkPolicy { budget: Duration::from_millis(1500), ..LinkPolicy::default() });
    scene.lose(0);
    scene.pass(2 * SECOND);
    assert_eq!(scene.actions().last(), Some(&failed("recovery timed out after 1.5s")));
}

#[test]
fn a_budget_without_end_is_possible() {
    let forever = Backoff { first: Duration::MAX, longest: Duration::MAX };
    let mut scene = Scene::new(LinkPolicy { budget: Duration::MAX, backoff: forever, ..LinkPolicy::default() });
    scene.lose(0);
    scene.fail_attempt(1, "refused");
    scene.pass(1000 * SECOND);
    assert_eq!(scene.actions(), [fail_streams(), attempt(1)]);
    assert!(scene.wakes_in().is_some_and(|wait| wait > 1000 * SECOND));
}

#[test]
fn a_session_that_was_taken_is_not_asked_for_again() {
    let mut scene = Scene::usual();
    scene.link.taken_over(Generation(7), "an old connection");
    assert_eq!(scene.actions(), []);
    scene.link.taken_over(Generation(0), "taken");
    assert_eq!(scene.actions(), [Action::Fail("taken".to_owned())]);
    assert_eq!(scene.admits()[0], Admission::Refused(Refusal::Failed("taken".to_owned())));
    assert_eq!(scene.wakes_in(), None);
    scene.lose(0);
    assert_eq!(scene.actions(), [], "the end of that connection is no news");
}

#[test]
fn an_attempt_that_brings_something_gives_the_client_its_whole_time_again() {
    let mut scene = Scene::lost();
    let mut attempt = 1;
    // Far longer than the budget: every connection breaks, and every one has brought a part.
    for _ in 0..20 {
        scene.pass(5 * SECOND);
        scene.link.attempt_progressed(Generation(attempt), scene.now);
        scene.fail_attempt(attempt, "reset");
        assert_eq!(scene.link.failure(), None, "attempt {attempt}");
        attempt += 1;
        // No longer than after the first failure.
        scene.pass(SECOND);
        let actions = scene.actions();
        assert_eq!(actions.last(), Some(&Action::Attempt(Generation(attempt))), "{actions:?}");
    }
    // One that brings nothing does not, and neither does one that is over.
    scene.link.attempt_progressed(Generation(attempt - 1), scene.now);
    scene.pass(25 * SECOND);
    assert!(scene.link.failure().is_some());
}
