//! Interactive changes, recorded as a timeline that can be played again.

use crate::spec::{LinkSpec, STEPS_MAX, Step, Timeline};
use protocol::unit::Interval;
use std::time::Duration;

/// The parameters of a link since it began.
#[derive(Debug, Clone)]
pub struct Recording {
    first: LinkSpec,
    /// Steps that were made, or are still to come from the timeline.
    steps: Vec<Step>,
    /// The repeating timeline under way: when it began, and the steps of one round.
    round: Option<(Duration, Duration, Vec<Step>)>,
}

impl Recording {
    /// A link begins with `spec`.
    pub fn new(spec: &LinkSpec) -> Self {
        let first = LinkSpec { timeline: Timeline::default(), ..spec.clone() };
        let mut recording = Self { first, steps: Vec::new(), round: None };
        recording.follow(Duration::ZERO, spec);
        recording
    }

    /// At `at` since it began, `spec` was set.
    pub fn set(&mut self, at: Interval, spec: &LinkSpec) {
        self.unroll(at.0);
        self.steps.push(now(at.0, spec));
        self.follow(at.0, spec);
    }

    /// One specification for what happened up to `at`; of very many short rounds only the first are kept.
    pub fn until(&self, at: Interval) -> LinkSpec {
        let mut whole = self.clone();
        whole.unroll(at.0);
        LinkSpec { timeline: Timeline { steps: whole.steps, repeat: None }, ..whole.first }
    }

    fn follow(&mut self, at: Duration, spec: &LinkSpec) {
        let Timeline { steps, repeat } = &spec.timeline;
        self.steps.extend(steps.iter().map(|step| shifted(step, at)));
        // A round begins with what held before its first step.
        self.round = repeat.map(|repeat| (at, repeat.0, [&[now(Duration::ZERO, spec)], &**steps].concat()));
    }

    /// Write out the rounds up to `end`, and forget what would come after.
    fn unroll(&mut self, end: Duration) {
        if let Some((began, length, steps)) = self.round.take() {
            let mut round = began + length;
            while round <= end && !length.is_zero() && self.steps.len() < STEPS_MAX {
                self.steps.extend(steps.iter().map(|step| shifted(step, round)));
                round += length;
            }
        }
        self.steps.retain(|step| step.at.0 <= end);
        self.steps.truncate(STEPS_MAX);
    }
}

/// All that `spec` says for now.
fn now(at: Duration, spec: &LinkSpec) -> Step {
    Step { at: Interval(at), a_to_b: Some(spec.a_to_b.clone()), b_to_a: Some(spec.b_to_a.clone()) }
}

fn shifted(step: &Step, by: Duration) -> Step {
    Step { at: Interval(step.at.0 + by), ..step.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    fn way(ms: u64) -> Value {
        json!({"delay": {"constant": format!("{ms}ms")}})
    }

    fn spec(ms: u64, timeline: Value) -> LinkSpec {
        from_value(json!({"a_to_b": way(ms), "timeline": timeline})).expect("a specification")
    }

    /// Time and delay of each step from a to b, in ms.
    fn steps(spec: &LinkSpec) -> Vec<(u64, u64)> {
        spec.check().expect("what is recorded makes sense");
        let delay = |way: &crate::spec::Impairment| match way.delay {
            crate::spec::Delay::Constant(delay) => delay.ns() / 1_000_000,
            _ => panic!("constants only"),
        };
        let steps = spec.timeline.steps.iter();
        let steps = steps.filter_map(|step| Some((step.at.ns() / 1_000_000, delay(step.a_to_b.as_ref()?))));
        std::iter::once((0, delay(&spec.a_to_b))).chain(steps).collect()
    }

    #[test]
    fn changes_are_kept_with_their_times() {
        let mut recording = Recording::new(&spec(1, json!({})));
        recording.set(Interval::ms(500), &spec(2, json!({})));
        recording.set(Interval::ms(700), &spec(3, json!({})));
        assert_eq!(steps(&recording.until(Interval::ms(600))), [(0, 1), (500, 2)]);
        assert_eq!(steps(&recording.until(Interval::ms(700))), [(0, 1), (500, 2), (700, 3)]);
    }

    #[test]
    fn a_change_ends_the_timeline_before_it_and_rounds_are_written_out() {
        let rounds = json!({"steps": [{"at": "10ms", "a_to_b": way(2)}], "repeat": "30ms"});
        let mut recording = Recording::new(&spec(1, rounds));
        assert_eq!(steps(&recording.until(Interval::ms(45))), [(0, 1), (10, 2), (30, 1), (40, 2)]);
        recording.set(Interval::ms(35), &spec(5, json!({"steps": [{"at": "10ms", "a_to_b": way(6)}]})));
        let all = [(0, 1), (10, 2), (30, 1), (35, 5), (45, 6)];
        assert_eq!(steps(&recording.until(Interval::secs(9))), all);
    }
}
