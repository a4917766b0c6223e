//! Holds traffic to a rate: the single-rate three-colour marker of RFC 2697, colour-blind.

use crate::kind::{Build, ElementKind};
use dpdk::{Batch, Mbuf};
use engine::{Cx, Element, ElementInfo};
use packet::ethernet::Tags;
use profile::Error as SetupError;
use protocol::problem::Problem;
use protocol::unit::{BitRate, Rate, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// VLAN numbers, and one more place for what has no tag.
const VLANS: usize = 4096;
const UNTAGGED: usize = VLANS;
/// Largest burst, bytes or packets: in tokens it fits in 64 bits.
const MOST: u64 = 1 << 30;
/// Fastest rate, bits or packets in a second.
const FASTEST: f64 = 1e13;
/// Nanoseconds in a second: a token is a bit, or a packet, times this.
const SECOND: u64 = 1_000_000_000;
/// Beyond what is committed and, if there is such a burst, the excess.
const POLICED: usize = 0;

/// Holds traffic to a rate with a token bucket (RFC 2697): all of it, or each VLAN by itself. What is within the rate and
/// the burst leaves by `out`; with an `excess_burst`, what is within that by `yellow`; the rest is dropped as `policed`, or leaves
/// by `exceeded`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The limit for all, or for each VLAN that `vlans` does not name. Default: none, these pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// What has a bucket of its own. Default all.
    #[serde(default)]
    pub per: Per,
    /// With `per: vlan`: limits of single VLANs, by the number of the outer tag.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vlans: BTreeMap<u16, Limit>,
    /// What becomes of packets beyond the limit. Default drop.
    #[serde(default)]
    pub exceeded: Exceeded,
    /// Bytes that each packet counts besides those from its Ethernet header to its end: 24 for FCS, preamble and gap. Default 0.
    #[serde(default)]
    pub overhead: u16,
}

/// How fast, and how much at once. Either in bits, or in packets.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limit {
    /// The committed rate in bits, like `10Mbit/s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
    /// The committed burst, like `64KiB`. Default: 10 ms of the rate, and 16KiB at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<Size>,
    /// The excess burst. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excess_burst: Option<Size>,
    /// In place of these: packets in a second, like `1k/s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<Rate>,
    /// Packets at once. Default: 10 ms of the rate, and 32 at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_packets: Option<u64>,
}

/// What has a bucket of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// All traffic shares one.
    #[default]
    All,
    /// Each VLAN has one, by the number of its outer tag, and what has no tag.
    Vlan,
}

/// What becomes of packets beyond the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Exceeded {
    /// They are dropped as `policed`.
    #[default]
    Drop,
    /// They leave by `exceeded`.
    Output,
}

impl Limit {
    fn check(&self, at: &str, problems: &mut Vec<Problem>) {
        let mut add = |key: &str, what: &str, fix: &str| {
            problems.push(Problem::new(format!("{at}.{key}"), what, fix));
        };
        let rate = match (self.rate, self.packets) {
            (Some(bits), None) => bits.bits(),
            (None, Some(packets)) => packets.0,
            _ => return add("rate", "a limit has one rate", "Give rate, or packets, and not both"),
        };
        if !(1.0..=FASTEST).contains(&rate) {
            add(
                if self.rate.is_some() { "rate" } else { "packets" },
                "no such rate can be kept",
                "Use 1/s to 10 T/s",
            );
        }
        if self.rate.is_some() && self.burst_packets.is_some() {
            add("burst_packets", "the rate is in bits, the burst in packets", "Give burst");
        }
        if self.packets.is_some() && (self.burst.is_some() || self.excess_burst.is_some()) {
            add("burst", "the rate is in packets, the burst in bytes", "Give burst_packets");
        }
        let bursts = [("burst", self.burst.map(|size| size.0)), ("burst_packets", self.burst_packets)];
        for (key, burst) in bursts {
            if burst.is_some_and(|burst| !(1..=MOST).contains(&burst)) {
                add(key, "such a burst cannot be counted", "Use 1 to 1GiB, or as many packets");
            }
        }
        if self.excess_burst.is_some_and(|burst| burst.0 > MOST) {
            add("excess_burst", "such a burst cannot be counted", "Use at most 1GiB");
        }
    }

    fn bucket(&self) -> Bucket {
        let ten_ms = |rate: f64, least: u64| ((rate / 100.0) as u64).clamp(least, MOST);
        let (rate, unit, committed) = match (self.rate, self.packets) {
            (Some(rate), _) => {
                let default = || ten_ms(rate.bits() / 8.0, 16 << 10);
                (rate.bits(), 8, self.burst.map_or_else(default, |burst| burst.0))
            }
            (None, packets) => {
                let rate = packets.map_or(1.0, |packets| packets.0);
                (rate, 1, self.burst_packets.unwrap_or_else(|| ten_ms(rate, 32)))
            }
        };
        let tokens = |burst: u64| burst.min(MOST) * unit * SECOND;
        let (committed, excess) = (tokens(committed), tokens(self.excess_burst.map_or(0, |burst| burst.0)));
        Bucket {
            // RFC 2697 section 3: both buckets are full at first.
            committed,
            excess,
            most: [committed, excess],
            rate: rate as u64,
            part: rate.fract(),
            rest: 0.0,
            by_packet: self.rate.is_none(),
            filled: None,
        }
    }
}

impl Options {
    fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.limit.iter().chain(self.vlans.values())
    }

    /// Whether there are yellow packets.
    fn yellow(&self) -> bool {
        self.limits().any(|limit| limit.excess_burst.is_some())
    }

    fn policer(&self) -> Policer {
        let index = |vlan: usize| u16::try_from(vlan).ok().and_then(|vlan| self.vlans.get(&vlan));
        let buckets = match self.per {
            Per::All => vec![self.limit.as_ref().map(Limit::bucket)],
            Per::Vlan => (0..=VLANS)
                .map(|vlan| {
                    index(vlan).filter(|_| vlan != UNTAGGED).or(self.limit.as_ref()).map(Limit::bucket)
                })
                .collect(),
        };
        let outputs: &'static [&'static str] = match (self.yellow(), self.exceeded) {
            (false, Exceeded::Drop) => &["out"],
            (false, Exceeded::Output) => &["out", "exceeded"],
            (true, Exceeded::Drop) => &["out", "yellow"],
            (true, Exceeded::Output) => &["out", "yellow", "exceeded"],
        };
        Policer {
            buckets,
            outputs,
            red: (self.exceeded == Exceeded::Output).then_some(outputs.len() - 1),
            overhead: self.overhead.into(),
        }
    }
}

impl ElementKind for Options {
    const KIND: &'static str = "police";
    const DROPS: &'static [&'static str] = &["policed"];
    const REPLICABLE: bool = false;
    const EXAMPLE: &'static str = r#"{"per": "vlan", "limit": {"rate": "10Mbit/s", "burst": "64KiB"}, "vlans": {"100": {"packets": "1k/s"}}}"#;

    fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.limits().next().is_none() {
            problems.push(Problem::new("limit", "there is no limit", "Give limit, or vlans"));
        }
        if self.per == Per::All && !self.vlans.is_empty() {
            let what = "one bucket for all knows no VLANs";
            problems.push(Problem::new("vlans", what, "Add per: vlan, or leave it out"));
        }
        if let Some(limit) = &self.limit {
            limit.check("limit", &mut problems);
        }
        for (vlan, limit) in &self.vlans {
            if usize::from(*vlan) >= VLANS {
                let what = format!("{vlan} is no VLAN");
                problems.push(Problem::new(format!("vlans.{vlan}"), what, "Use 0 to 4095"));
            }
            limit.check(&format!("vlans.{vlan}"), &mut problems);
        }
        problems
    }

    fn outputs(&self) -> Vec<String> {
        self.policer().outputs.iter().map(|name| (*name).to_owned()).collect()
    }

    fn build(&self, _: &mut Build<'_>) -> Result<Box<dyn Element>, SetupError> {
        Ok(Box::new(self.policer()))
    }
}

/// RFC 2697 section 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Colour {
    Green,
    Yellow,
    Red,
}

/// Two token buckets that fill at one rate.
#[derive(Debug, Clone)]
struct Bucket {
    committed: u64,
    excess: u64,
    /// What the two hold at most.
    most: [u64; 2],
    /// Bits or packets in a second, which is tokens in a nanosecond.
    rate: u64,
    /// The part of one more, as of 90 packets in a minute.
    part: f64,
    /// What that has given and is no whole token yet.
    rest: f64,
    by_packet: bool,
    /// Up to when.
    filled: Option<u64>,
}

impl Bucket {
    /// The colour of a packet of so many bytes at `now`, ns.
    #[inline]
    fn colour(&mut self, now: u64, bytes: u64) -> Colour {
        let before = self.filled.replace(now).unwrap_or(now);
        let passed = now.saturating_sub(before);
        if passed > 0 {
            // The committed bucket first; what it cannot hold goes into the other (RFC 2697 section 3).
            let part = self.part * passed as f64 + self.rest;
            self.rest = part.fract();
            let new = self.rate.saturating_mul(passed).saturating_add(part as u64);
            let room = self.most[0] - self.committed;
            self.committed += new.min(room);
            self.excess = self.excess.saturating_add(new.saturating_sub(room)).min(self.most[1]);
        }
        let cost = if self.by_packet { SECOND } else { bytes.saturating_mul(8 * SECOND) };
        if cost <= self.committed {
            self.committed -= cost;
            Colour::Green
        } else if cost <= self.excess {
            self.excess -= cost;
            Colour::Yellow
        } else {
            Colour::Red
        }
    }
}

/// Element: lets pass what is within the limits.
#[derive(Debug)]
pub struct Policer {
    /// One, or one for each VLAN and what has none. `None`: no limit.
    buckets: Vec<Option<Bucket>>,
    outputs: &'static [&'static str],
    /// The output of what is beyond the limit; `None`: it is dropped.
    red: Option<usize>,
    overhead: u64,
}

impl Policer {
    #[inline]
    fn colour(&mut self, mbuf: &Mbuf, now: u64) -> Colour {
        let at = match self.buckets.len() {
            1 => 0,
            _ => vlan(mbuf),
        };
        match self.buckets.get_mut(at) {
            Some(Some(bucket)) => bucket.colour(now, mbuf.len() as u64 + self.overhead),
            _ => Colour::Green,
        }
    }
}

/// Number of the outer VLAN.
#[inline]
fn vlan(mbuf: &Mbuf) -> usize {
    let control = match mbuf.meta() {
        Some(meta) => (meta.tagged > 0).then_some(meta.tags[0]),
        None => Tags::of(mbuf.data()).bytes().get(2..4).map(|tag| u16::from_be_bytes([tag[0], tag[1]])),
    };
    control.map_or(UNTAGGED, |control| usize::from(control & 0x0fff))
}

impl Element for Policer {
    fn about(&self) -> ElementInfo {
        ElementInfo {
            kind: Options::KIND,
            takes: true,
            outputs: self.outputs,
            drops: Options::DROPS,
            polled: false,
        }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        let now = cx.now();
        batch.filter_map(|mbuf| {
            match (self.colour(&mbuf, now), self.red) {
                (Colour::Green, _) => return Some(mbuf),
                (Colour::Yellow, _) => cx.emit(1, mbuf),
                (Colour::Red, Some(output)) => cx.emit(output, mbuf),
                (Colour::Red, None) => cx.count(POLICED, 1),
            }
            None
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{from_value, json};

    fn bucket(rate: &str, burst: u64, excess: u64) -> Bucket {
        let limit = json!({"rate": rate, "burst": format!("{burst}B"), "excess_burst": format!("{excess}B")});
        from_value::<Limit>(limit).expect("a limit").bucket()
    }

    #[test]
    fn what_is_within_the_burst_passes_and_the_rest_waits_for_tokens() {
        // 1000 bytes in a millisecond.
        let mut bucket = bucket("8Mbit/s", 3000, 1000);
        let colours: Vec<_> = (0..5).map(|_| bucket.colour(7, 1000)).collect();
        assert_eq!(colours, [Colour::Green, Colour::Green, Colour::Green, Colour::Yellow, Colour::Red]);
        assert_eq!(bucket.colour(7 + 999_999, 1000), Colour::Red);
        assert_eq!(bucket.colour(7 + 1_000_000, 1000), Colour::Green);
        // The excess bucket fills when the committed one is full.
        assert_eq!(bucket.colour(7 + 4_000_000, 3000), Colour::Green);
        assert_eq!(bucket.colour(7 + 4_000_000, 1), Colour::Red);
        assert_eq!(bucket.colour(7 + 8_000_000, 3000), Colour::Green);
        assert_eq!(bucket.colour(7 + 8_000_000, 1000), Colour::Yellow);
        // Neither a clock that stands still nor one that jumps breaks it.
        assert_eq!(bucket.colour(0, 1), Colour::Red);
        assert_eq!(bucket.colour(u64::MAX, 3000), Colour::Green);
    }

    #[test]
    fn packets_are_counted_whatever_their_length() {
        let limit: Limit = from_value(json!({"packets": "1k/s", "burst_packets": 2})).expect("a limit");
        let mut bucket = limit.bucket();
        let colours = [9000, 60, 60].map(|bytes| bucket.colour(1, bytes));
        assert_eq!(colours, [Colour::Green, Colour::Green, Colour::Red]);
        assert_eq!(bucket.colour(1_000_001, 60), Colour::Green);
    }

    #[test]
    fn a_rate_is_kept_to_its_fraction() {
        for (rate, an_hour) in [("90/min", 5400), ("100/min", 6000), ("1.9/s", 6840), ("2/s", 7200)] {
            let limit = json!({"packets": rate, "burst_packets": 1});
            let mut bucket = from_value::<Limit>(limit).expect("a limit").bucket();
            // One more is there at first. Not at even times: what a stretch leaves over counts in the next.
            let times = (0..3600 * 1000).map(|n| n * 1_000_000 + n % 7);
            let green = times.filter(|now| bucket.colour(*now, 60) == Colour::Green).count();
            // A packet waits for the next millisecond.
            assert!((an_hour - an_hour / 500..=an_hour + 1).contains(&green), "{rate}: {green}");
        }
    }

    #[test]
    fn each_vlan_has_a_bucket_of_its_own() {
        let options: Options = serde_json::from_str(Options::EXAMPLE).expect("options");
        let policer = options.policer();
        assert_eq!(policer.buckets.len(), VLANS + 1);
        assert!(policer.buckets[100].as_ref().is_some_and(|bucket| bucket.by_packet));
        assert!(policer.buckets[UNTAGGED].as_ref().is_some_and(|bucket| !bucket.by_packet));
        let only: Options =
            from_value(json!({"per": "vlan", "vlans": {"5": {"packets": "1/s"}}})).expect("options");
        let limited = only.policer().buckets.iter().filter(|bucket| bucket.is_some()).count();
        assert_eq!(limited, 1);
    }

    #[test]
    fn outputs_are_those_that_can_be_left_by() {
        let outputs =
            |value: serde_json::Value| ElementKind::outputs(&from_value::<Options>(value).expect("options"));
        assert_eq!(outputs(json!({"limit": {"rate": "1Mbit/s"}})), ["out"]);
        assert_eq!(outputs(json!({"limit": {"rate": "1Mbit/s"}, "exceeded": "output"})), ["out", "exceeded"]);
        let yellow = json!({"rate": "1Mbit/s", "excess_burst": "1KiB"});
        assert_eq!(outputs(json!({"limit": yellow, "exceeded": "output"})), ["out", "yellow", "exceeded"]);
        assert_eq!(outputs(json!({"limit": yellow})), ["out", "yellow"]);
    }

    #[test]
    fn wrong_limits_are_named() {
        for (options, key) in [
            (json!({}), "limit"),
            (json!({"limit": {}}), "limit.rate"),
            (json!({"limit": {"rate": "1Mbit/s", "packets": "1/s"}}), "limit.rate"),
            (json!({"limit": {"rate": "1Mbit/s", "burst_packets": 5}}), "limit.burst_packets"),
            (json!({"limit": {"packets": "1/s", "burst": "5KiB"}}), "limit.burst"),
            (json!({"limit": {"packets": "0/s"}}), "limit.packets"),
            (json!({"limit": {"rate": "1Mbit/s", "burst": "2GiB"}}), "limit.burst"),
            (json!({"vlans": {"5": {"packets": "1/s"}}}), "vlans"),
            (json!({"per": "vlan", "vlans": {"4096": {"packets": "1/s"}}}), "vlans.4096"),
        ] {
            let problems = from_value::<Options>(options.clone()).expect("options").check();
            assert_eq!(problems.first().map(|problem| problem.key.as_str()), Some(key), "{options}");
        }
        let most = json!({"limit": {"rate": "1Mbit/s", "burst": "1GiB", "excess_burst": "1GiB"}});
        assert!(from_value::<Options>(most).expect("options").check().is_empty());
    }

    proptest! {
        /// Over any stretch of time no more is green than the burst and what the rate gives in it, and no less than that
        /// while there is more to send.
        #[test]
        fn never_more_than_the_rate_and_the_burst(
            steps in proptest::collection::vec((0u64..3_000_000, 60u64..1500), 1..200),
            burst in 1500u64..20_000,
            mbits in 1u64..1000,
        ) {
            let mut bucket = bucket(&format!("{mbits}Mbit/s"), burst, 0);
            let mut now = 5;
            let mut green: Vec<(u64, u64)> = Vec::new();
            for (passed, bytes) in steps {
                now += passed;
                if bucket.colour(now, bytes) == Colour::Green {
                    green.push((now, bytes));
                }
            }
            for (i, (from, _)) in green.iter().enumerate() {
                let mut sum = 0;
                for (until, bytes) in &green[i..] {
                    sum += bytes * 8 * SECOND;
                    prop_assert!(sum <= burst * 8 * SECOND + mbits * 1_000_000 * (until - from));
                }
            }
        }
    }
}
