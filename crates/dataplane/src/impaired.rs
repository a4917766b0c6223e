//! Ports at the end of a bad path: what comes in goes through an `impair` element before anything else.

use dpdk::Mempool;
use element::kind::{Build, ElementKind, KindEntry, kind};
use engine::Element;
use impair::spec::{DirectionStep, Step, Timeline};
use impair::{Direction, DirectionControl, Impair, LinkSpec};
use profile::{DirectionTimeline, Error as SetupError, Impairment};
use protocol::problem::Problem;
use run::graph::{ImpairedPort, PortImpairment};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};

/// The kind of element.
pub const KIND: &str = "impair";
/// The kinds of elements that are here.
pub const KINDS: &[KindEntry] = &[kind::<Options>()];

/// Passes packets on as a bad path would: late, lost, doubled, changed, in another order, or no faster than a bottleneck allows.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// What happens to packets. Default: nothing.
    #[serde(default)]
    pub impair: Impairment,
    /// How that changes with time. Default: it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub impair_timeline: Option<DirectionTimeline>,
    /// Added to the run's seed: the same seed gives the same decisions for the same packets. Default: a number made of the
    /// element's name, so that what several elements do is independent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// A number of a name's own: FNV-1a, the same for ever, as results are to be repeated.
fn number_of(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl ElementKind for Options {
    const KIND: &'static str = KIND;
    const DROPS: &'static [&'static str] = Impair::DROPS;
    const REPLICABLE: bool = false;
    const EXAMPLE: &'static str =
        r#"{"impair": {"delay": {"constant": "20ms"}, "loss": {"independent": "1%"}}}"#;

    fn check(&self) -> Vec<Problem> {
        let impairment =
            PortImpairment { impair: self.impair.clone(), impair_timeline: self.impair_timeline.clone() };
        impairment.check().err().into_iter().collect()
    }

    fn build(&self, cx: &mut Build<'_>) -> Result<Box<dyn Element>, SetupError> {
        let impairment =
            PortImpairment { impair: self.impair.clone(), impair_timeline: self.impair_timeline.clone() };
        let missing = cx.fault("kind", "there is no room for packets on their way");
        let all = cx.extensions.get_mut::<ImpairedElements>().ok_or(missing)?;
        // One that serves a port is known by the port's name.
        let name = cx.name.strip_suffix(".impair").unwrap_or(cx.name);
        let own = self.seed.unwrap_or_else(|| number_of(cx.name));
        let handle = Impaired::new(name, impairment, all.seed.wrapping_add(own));
        let element = handle.element(cx.pool, all.capacity);
        all.handles.push(handle);
        Ok(Box::new(element))
    }
}

/// What a graph's `impair` elements share, and the handles by which they are changed.
#[derive(Debug)]
pub struct ImpairedElements {
    seed: u64,
    capacity: usize,
    /// One for each element.
    pub handles: Vec<Impaired>,
}

impl ImpairedElements {
    /// Each with room for `capacity` packets on their way.
    pub fn new(seed: u64, capacity: usize) -> Self {
        Self { seed, capacity, handles: Vec::new() }
    }
}

/// Bytes of a packet's memory besides the room for its frame, at most: head room, DPDK's own, alignment.
const EXTRA: u64 = 512;

/// The packets that a pool has in `memory` for frames of `room` bytes, and how many of them each of so many impaired
/// `ways` may hold. Without any it needs but `base`.
pub fn packets(memory: u64, ways: usize, room: u64, base: u32) -> (u32, usize) {
    if ways == 0 {
        return (base, 0);
    }
    // An eighth is for rings, queues and cables.
    let most = memory / 8 * 7 / (room + EXTRA);
    let all = u32::try_from(most).unwrap_or(u32::MAX).max(base);
    (all, (all - base).max(base / 2) as usize / ways)
}

/// As one way of a link.
fn spec(impairment: PortImpairment, seed: u64) -> LinkSpec {
    let step = |step: DirectionStep| Step { at: step.at, a_to_b: Some(step.impair), b_to_a: None };
    let timeline = impairment.impair_timeline.map(|timeline| Timeline {
        steps: timeline.steps.into_iter().map(step).collect(),
        repeat: timeline.repeat,
    });
    let timeline = timeline.unwrap_or_default();
    LinkSpec { seed, a_to_b: impairment.impair, timeline, ..LinkSpec::default() }
}

/// A port's `impair` element and how to change it. Clones change the same one.
#[derive(Debug, Clone)]
pub struct Impaired {
    /// The port's name, or the element's.
    pub port: String,
    live: DirectionControl,
    /// With the timeline, whose times are the run's.
    spec: Arc<LinkSpec>,
    /// Something else has been said since; held while it is.
    changed: Arc<Mutex<bool>>,
}

impl Impaired {
    /// Of an element, known by this name. The same seed and frames give the same decisions.
    pub fn new(name: &str, impairment: PortImpairment, seed: u64) -> Self {
        let spec = spec(impairment, seed);
        let first = LinkSpec { timeline: Timeline::default(), ..spec.clone() };
        let live = DirectionControl::new(&first, Direction::AToB);
        Self { port: name.to_owned(), live, spec: Arc::new(spec), changed: Arc::default() }
    }

    /// The element: room for `capacity` frames on their way; duplicates come from `pool`.
    pub fn element(&self, pool: &Mempool, capacity: usize) -> Impair {
        Impair::new(self.live.clone(), pool.clone(), capacity)
    }

    /// The run begins now.
    pub fn begin(&self) {
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if !*changed && !self.spec.timeline.steps.is_empty() {
            self.live.set(&self.spec);
        }
    }
}

impl ImpairedPort for Impaired {
    fn port(&self) -> &str {
        &self.port
    }

    fn set(&self, impairment: PortImpairment) {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        *changed = true;
        self.live.set(&spec(impairment, self.spec.seed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use impair::{Burst, PacketStore, Path};
    use serde_json::{from_value, json};

    /// Frames that only are.
    struct Nothing;

    impl PacketStore for Nothing {
        type Load = ();
        fn burst(&self, (): &()) -> Burst {
            Burst::single(60)
        }
        fn split(&mut self, (): &mut (), _: u32) -> Option<()> {
            None
        }
        fn copy(&mut self, (): &()) -> Option<()> {
            Some(())
        }
        fn corrupt(&mut self, (): &mut (), _: u64) {}
        fn free(&mut self, (): ()) {}
    }

    #[test]
    fn each_name_has_a_number_of_its_own_for_ever() {
        assert_eq!(number_of(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(number_of("a"), 0xaf63_dc4c_8601_ec8c);
        assert_ne!(number_of("there"), number_of("back"));
    }

    #[test]
    fn what_was_said_by_hand_stays_when_the_run_begins() {
        let all_lost = json!({"steps": [{"at": "0s", "impair": {"loss": {"periodic": 1}}}]});
        let first: PortImpairment =
            from_value(json!({"impair": {}, "impair_timeline": all_lost})).expect("an impairment");
        for (by_hand, lost) in [(false, 4), (true, 2)] {
            let one = Impaired::new("b", first.clone(), 1);
            let every_second =
                from_value(json!({"impair": {"loss": {"periodic": 2}}})).expect("an impairment");
            if by_hand {
                one.clone().set(every_second);
            }
            one.begin();
            let mut path = Path::new(one.live.clone(), 8);
            for now in 1..5 {
                path.advance(now, &mut Nothing);
                path.offer(now, (), &mut Nothing);
            }
            assert_eq!(one.live.stats().lost, lost);
        }
    }
}
