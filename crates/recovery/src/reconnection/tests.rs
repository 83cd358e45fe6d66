//! Tests of a reconnection on virtual time: which calls are admitted in each state, and which actions the caller
//! gets.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const LOST: &str = "exec-server transport disconnected: reset";

/// A reconnection and its virtual clock.
struct Scene {
    reconnection: Reconnection,
    start: Instant,
    now: Instant,
}

impl Scene {
    fn new(policy: ReconnectPolicy) -> Self {
        let now = Instant::now();
        Self { reconnection: Reconnection::connected(policy, now), start: now, now }
    }

    /// Waits of 1, 2, 4, 4 ... seconds between attempts, and a budget of 25 s.
    fn usual() -> Self {
        Self::new(ReconnectPolicy {
            backoff: Backoff { first: SECOND, longest: 4 * SECOND },
            stable_after: SECOND,
            ..ReconnectPolicy::default()
        })
    }

    /// The usual policy, after the loss of a connection that lasted longer than `stable_after`.
    fn lost() -> Self {
        let mut scene = Self::usual();
        scene.pass(10 * SECOND);
        scene.lose(0);
        scene
    }

    /// Lets this much time pass.
    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.reconnection.handle_timeout(self.now);
    }

    /// Reports that the connection with this number is lost.
    fn lose(&mut self, generation: u64) {
        self.reconnection.disconnected(Generation(generation), Some("reset"), self.now, longest_wait());
    }

    /// Reports that the attempt has failed and that another attempt may succeed.
    fn fail_attempt(&mut self, generation: u64, error: &str) {
        self.reconnection.attempt_failed(Generation(generation), error, true, self.now, longest_wait());
    }

    /// Reports that the attempt has succeeded.
    fn succeed(&mut self, generation: u64) {
        self.reconnection.attempt_succeeded(Generation(generation), self.now);
    }

    fn finish_start(&mut self) {
        self.reconnection.note_start_finished(self.now);
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.reconnection.poll_action()).collect()
    }

    /// Time from now until the next timeout.
    fn wakes_in(&self) -> Option<Duration> {
        self.reconnection.poll_timeout().map(|at| at - self.now)
    }

    /// Whether a call may be sent that would wait for the next connection, and one that would fail fast.
    fn admissions(&self) -> [CallAdmission; 2] {
        [self.reconnection.admit(WhenRecovering::Wait), self.reconnection.admit(WhenRecovering::FailFast)]
    }
}

/// The random number that makes every wait as long as it can be.
fn longest_wait() -> Chance {
    Chance::new(1.0)
}

fn fail_streams() -> Action {
    Action::FailBodyStreams(LOST.to_owned())
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
fn a_new_client_is_connected_and_has_no_action() {
    let mut scene = Scene::usual();
    assert_eq!(scene.reconnection.current(), Some(Generation(0)));
    assert_eq!(scene.admissions(), [CallAdmission::Send(Generation(0)), CallAdmission::Send(Generation(0))]);
    scene.pass(1000 * SECOND);
    assert_eq!((scene.actions(), scene.wakes_in(), scene.reconnection.failure()), (vec![], None, None));
}

#[test]
fn after_a_loss_streams_fail_first_and_the_first_attempt_does_not_wait() {
    let mut scene = Scene::lost();
    assert_eq!(scene.actions(), [fail_streams(), attempt(1)]);
    assert_eq!((scene.reconnection.current(), scene.wakes_in()), (None, Some(25 * SECOND)));
    assert_eq!(scene.admissions(), [CallAdmission::Wait, CallAdmission::Refused(CallRefusal::Recovering)]);
    scene.succeed(1);
    assert_eq!(scene.actions(), [connected(1)]);
    assert_eq!((scene.reconnection.current(), scene.wakes_in()), (Some(Generation(1)), None));
    assert_eq!(scene.admissions(), [CallAdmission::Send(Generation(1)), CallAdmission::Send(Generation(1))]);
}

#[test]
fn the_error_of_a_loss_without_a_reason_has_no_reason() {
    let mut scene = Scene::usual();
    scene.reconnection.disconnected(Generation(0), None, scene.now, longest_wait());
    assert_eq!(scene.actions()[0], Action::FailBodyStreams("exec-server transport disconnected".to_owned()));
}

#[test]
fn only_the_loss_of_the_current_connection_counts() {
    let mut scene = Scene::usual();
    scene.lose(7);
    assert_eq!(scene.actions(), []);
    scene.lose(0);
    scene.actions();
    scene.lose(0);
    assert_eq!(scene.actions(), [], "the same loss is reported a second time");
    scene.succeed(1);
    scene.actions();
    scene.lose(0);
    assert_eq!((scene.actions(), scene.reconnection.current()), (vec![], Some(Generation(1))));
    scene.lose(1);
    assert_eq!(scene.actions()[0], fail_streams());
}

#[test]
fn a_client_that_cannot_reconnect_fails_when_its_connection_is_lost() {
    let mut scene =
        Scene::new(ReconnectPolicy { can_reconnect: false, has_session: false, ..ReconnectPolicy::default() });
    assert!(scene.reconnection.note_start_sent(Generation(0)));
    scene.lose(0);
    assert_eq!(scene.actions(), [fail_streams(), Action::Fail(LOST.to_owned())]);
    assert_eq!((scene.reconnection.failure(), scene.wakes_in()), (Some(LOST), None));
    let refused = CallAdmission::Refused(CallRefusal::Failed(LOST.to_owned()));
    assert_eq!(scene.admissions(), [refused.clone(), refused]);
    scene.finish_start();
    assert_eq!(scene.actions(), []);
}

#[test]
fn a_client_without_a_session_fails_when_its_connection_is_lost() {
    let mut scene = Scene::new(ReconnectPolicy { has_session: false, ..ReconnectPolicy::default() });
    scene.lose(0);
    assert_eq!(scene.actions(), [fail_streams(), failed("missing session id")]);
}

#[test]
fn starts_in_flight_delay_the_first_attempt_until_the_last_has_finished() {
    let mut scene = Scene::usual();
    assert!(scene.reconnection.note_start_sent(Generation(0)));
    assert!(scene.reconnection.note_start_sent(Generation(0)));
    scene.lose(0);
    assert_eq!((scene.actions(), scene.wakes_in()), (vec![fail_streams()], Some(25 * SECOND)));
    scene.pass(2 * SECOND);
    scene.finish_start();
    assert_eq!((scene.actions(), scene.wakes_in()), (vec![], Some(23 * SECOND)));
    scene.finish_start();
    assert_eq!(scene.actions(), [attempt(1)]);
}

#[test]
fn starts_that_never_finish_end_the_recovery_at_its_deadline() {
    let mut scene = Scene::usual();
    assert!(scene.reconnection.note_start_sent(Generation(0)));
    scene.lose(0);
    scene.pass(25 * SECOND - Duration::from_nanos(1));
    assert_eq!(scene.actions(), [fail_streams()]);
    scene.pass(Duration::from_nanos(1));
    assert_eq!(scene.actions(), [failed("recovery timed out after 25s")]);
    scene.finish_start();
    assert_eq!((scene.actions(), scene.wakes_in()), (vec![], None));
}

#[test]
fn a_start_that_finishes_after_the_deadline_does_not_begin_an_attempt() {
    let mut scene = Scene::usual();
    assert!(scene.reconnection.note_start_sent(Generation(0)));
    scene.lose(0);
    scene.now += 26 * SECOND;
    scene.finish_start();
    assert_eq!(scene.actions(), [fail_streams(), failed("recovery timed out after 25s")]);
}

#[test]
fn a_start_is_sent_only_over_the_current_connection() {
    let mut scene = Scene::lost();
    assert!(!scene.reconnection.note_start_sent(Generation(0)), "this connection was lost");
    assert!(!scene.reconnection.note_start_sent(Generation(1)), "this connection is not made yet");
    scene.succeed(1);
    assert!(!scene.reconnection.note_start_sent(Generation(0)));
    assert!(scene.reconnection.note_start_sent(Generation(1)));
    scene.actions();
    scene.lose(1);
    assert_eq!(scene.actions(), [fail_streams()], "the client waits for the start that was sent");
    scene.finish_start();
    assert_eq!(scene.actions(), [], "the connection was too short to reset the backoff");
    scene.pass(SECOND);
    assert_eq!(scene.actions(), [attempt(2)]);
}

#[test]
fn waits_grow_up_to_the_longest_and_each_attempt_has_a_new_number() {
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
fn half_of_a_wait_is_random() {
    let wait = |chance| {
        let mut scene = Scene::lost();
        scene.reconnection.attempt_failed(Generation(1), "refused", true, scene.now, Chance::new(chance));
        scene.wakes_in()
    };
    assert_eq!([0.0, 0.5].map(wait), [Some(SECOND / 2), Some(SECOND * 3 / 4)]);
}

#[test]
fn connections_that_break_early_do_not_reset_the_backoff() {
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
fn a_connection_that_lasts_resets_the_backoff() {
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
    scene.reconnection.attempt_failed(Generation(1), "unknown session id s", false, scene.now, longest_wait());
    assert_eq!(scene.actions(), [fail_streams(), attempt(1), failed("unknown session id s")]);
    assert_eq!(scene.wakes_in(), None);
}

#[test]
fn the_deadline_ends_a_wait() {
    let mut scene = Scene::lost();
    scene.actions();
    scene.pass(25 * SECOND - SECOND / 2);
    scene.fail_attempt(1, "refused");
    assert_eq!(scene.wakes_in(), Some(SECOND / 2), "the deadline is before the next attempt");
    scene.reconnection.handle_timeout(scene.start);
    assert_eq!(scene.actions(), [], "an early call does no harm");
    scene.pass(SECOND / 2);
    assert_eq!(scene.actions(), [failed("recovery timed out after 25s: refused")]);
}

#[test]
fn the_deadline_abandons_a_running_attempt_whose_success_then_changes_nothing() {
    let mut scene = Scene::lost();
    scene.actions();
    scene.pass(25 * SECOND);
    assert_eq!(scene.actions(), [abandon(1), failed("recovery timed out after 25s")]);
    scene.succeed(1);
    scene.fail_attempt(1, "refused");
    scene.lose(1);
    scene.pass(SECOND);
    assert_eq!((scene.actions(), scene.reconnection.current()), (vec![], None));
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
fn an_attempt_that_succeeds_at_the_deadline_counts_if_the_timer_has_not_fired() {
    let mut scene = Scene::lost();
    scene.actions();
    scene.now += 25 * SECOND;
    scene.succeed(1);
    scene.pass(SECOND);
    assert_eq!(scene.actions(), [connected(1)]);
}

#[test]
fn only_reports_about_the_running_attempt_count() {
    let mut scene = Scene::lost();
    scene.fail_attempt(1, "refused");
    scene.succeed(1);
    scene.fail_attempt(1, "refused again");
    assert_eq!((scene.reconnection.current(), scene.wakes_in()), (None, Some(SECOND)));
    scene.pass(SECOND);
    scene.succeed(1);
    scene.reconnection.attempt_failed(Generation(1), "unknown session", false, scene.now, longest_wait());
    assert_eq!(scene.actions(), [fail_streams(), attempt(1), attempt(2)]);
    scene.succeed(2);
    assert_eq!(scene.actions(), [connected(2)]);
}

#[test]
fn a_connection_that_is_lost_while_it_catches_up_is_not_used() {
    let mut scene = Scene::lost();
    scene.actions();
    scene.lose(1);
    assert_eq!((scene.actions(), scene.wakes_in()), (vec![], Some(25 * SECOND)), "the attempt reports its own end");
    scene.succeed(1);
    assert_eq!((scene.actions(), scene.reconnection.current(), scene.wakes_in()), (vec![], None, Some(SECOND)));
    scene.pass(SECOND);
    scene.succeed(2);
    assert_eq!(scene.actions(), [attempt(2), connected(2)], "the next attempt is not affected");
}

#[test]
fn a_permanent_error_counts_although_the_connection_of_its_attempt_was_lost() {
    let mut scene = Scene::lost();
    scene.actions();
    scene.lose(1);
    scene.reconnection.attempt_failed(Generation(1), "unknown session", false, scene.now, longest_wait());
    assert_eq!(scene.actions(), [failed("unknown session")]);
}

#[test]
fn a_connected_client_that_is_closed_fails_once_with_the_text_of_the_first_close() {
    let mut scene = Scene::usual();
    scene.reconnection.close("closed by its user");
    assert_eq!(scene.actions(), [Action::Fail("closed by its user".to_owned())]);
    scene.reconnection.close("again");
    scene.lose(0);
    assert_eq!((scene.actions(), scene.reconnection.failure()), (vec![], Some("closed by its user")));
}

#[test]
fn closing_ends_a_recovery_in_every_step_and_does_not_replace_an_earlier_failure() {
    let closed = || Action::Fail("closed".to_owned());

    let mut awaiting_starts = Scene::usual();
    assert!(awaiting_starts.reconnection.note_start_sent(Generation(0)));
    awaiting_starts.lose(0);
    awaiting_starts.reconnection.close("closed");
    awaiting_starts.finish_start();
    assert_eq!(awaiting_starts.actions(), [fail_streams(), closed()]);

    let mut attempting = Scene::lost();
    attempting.reconnection.close("closed");
    attempting.succeed(1);
    assert_eq!(attempting.actions(), [fail_streams(), attempt(1), abandon(1), closed()]);

    let mut waiting = Scene::lost();
    waiting.fail_attempt(1, "refused");
    waiting.actions();
    waiting.reconnection.close("closed");
    waiting.pass(SECOND);
    assert_eq!((waiting.actions(), waiting.wakes_in()), (vec![closed()], None));

    let mut failed_before = Scene::lost();
    failed_before.pass(25 * SECOND);
    failed_before.actions();
    failed_before.reconnection.close("closed");
    assert_eq!(failed_before.actions(), []);
    assert!(failed_before.reconnection.failure().is_some_and(|text| text.ends_with("timed out after 25s")));
}

#[test]
fn the_error_names_the_budget_in_a_readable_unit() {
    let mut scene = Scene::new(ReconnectPolicy { budget: Duration::from_millis(1500), ..ReconnectPolicy::default() });
    scene.lose(0);
    scene.pass(2 * SECOND);
    assert_eq!(scene.actions().last(), Some(&failed("recovery timed out after 1.5s")));
}

#[test]
fn an_infinite_budget_and_backoff_do_not_panic() {
    let forever = Backoff { first: Duration::MAX, longest: Duration::MAX };
    let mut scene =
        Scene::new(ReconnectPolicy { budget: Duration::MAX, backoff: forever, ..ReconnectPolicy::default() });
    scene.lose(0);
    scene.fail_attempt(1, "refused");
    scene.pass(1000 * SECOND);
    assert_eq!(scene.actions(), [fail_streams(), attempt(1)]);
    assert!(scene.wakes_in().is_some_and(|wait| wait > 1000 * SECOND));
}

#[test]
fn a_session_that_was_taken_over_is_not_resumed() {
    let mut scene = Scene::usual();
    scene.reconnection.taken_over(Generation(7), "an old connection");
    assert_eq!(scene.actions(), []);
    scene.reconnection.taken_over(Generation(0), "taken");
    assert_eq!(scene.actions(), [Action::Fail("taken".to_owned())]);
    assert_eq!(scene.admissions()[0], CallAdmission::Refused(CallRefusal::Failed("taken".to_owned())));
    assert_eq!(scene.wakes_in(), None);
    scene.lose(0);
    assert_eq!(scene.actions(), [], "the end of that connection changes nothing");
}

#[test]
fn an_attempt_that_receives_missing_events_starts_the_deadline_and_the_backoff_again() {
    let mut scene = Scene::lost();
    let mut attempt = 1;
    // Every connection breaks after it has received some events. Together the attempts take far longer than the budget.
    for _ in 0..20 {
        scene.pass(5 * SECOND);
        scene.reconnection.attempt_progressed(Generation(attempt), scene.now);
        scene.fail_attempt(attempt, "reset");
        assert_eq!(scene.reconnection.failure(), None, "attempt {attempt}");
        attempt += 1;
        // The wait is as short as after a first failure.
        scene.pass(SECOND);
        let actions = scene.actions();
        assert_eq!(actions.last(), Some(&Action::Attempt(Generation(attempt))), "{actions:?}");
    }
    // An attempt that receives nothing does not extend the deadline, and neither does a report about an earlier attempt.
    scene.reconnection.attempt_progressed(Generation(attempt - 1), scene.now);
    scene.pass(25 * SECOND);
    assert!(scene.reconnection.failure().is_some());
}
