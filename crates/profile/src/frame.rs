//! What the frames of a group are made of, and how fast they come: for DPDK ports.

use crate::bounded;
use crate::ceiling::{LAYERS, VARIED};
use crate::error::{BAD_VALUE, CONFLICT, OUT_OF_RANGE};
use crate::text::capital;
use crate::{Error, Group, Profile, Role, Transport};
use packet::frame::{ChecksumOffload, Devices, FrameError, Layer, Program, Recipe, Sizes, Vary, compose_for};
use packet::{FCS, Flow, ethernet, ipv4, ipv6, udp};
use protocol::unit::{BitRate, Interval, Rate, Share, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes that a frame takes on the wire besides itself: preamble, start delimiter and the least gap.
pub const WIRE_OVERHEAD: u64 = 20;
/// Frame sizes of simple IMIX, with FCS, and how often each comes.
const IMIX: [(u64, u32); 3] = [(64, 7), (594, 4), (1518, 1)];

/// The frames of a group. All devices of the group send them in turn; each device is a stream of its own, with its
/// own sequence numbers, and its own source port and address where nothing is said about these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Frame {
    /// What they are made of, from the outside in. Default: Ethernet, IP and UDP towards the target.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "bounded::list::<_, _, LAYERS>")]
    #[schemars(length(max = 64))]
    pub layers: Vec<Layer>,
    /// Fields that change from frame to frame. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "bounded::list::<_, _, VARIED>")]
    #[schemars(length(max = 64))]
    pub vary: Vec<Vary>,
    /// Sizes of the frames. Default: the model's `size`, with headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<FrameSize>,
    /// How fast, over all devices of the group. Default: the model's rate for each device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<FrameRate>,
    /// How the gaps between frames, or between bursts, are spread. Default constant.
    pub gaps: Gaps,
    /// How long after the start of the run the first frame is due. Default 0s: at once.
    pub after: Interval,
    /// Which group goes first when a port cannot take all: higher numbers do, 0 to 7. Default 0.
    #[schemars(range(max = 7))]
    pub priority: u8,
    /// Whether every frame carries a signature, to be measured by. Frames too small for it need `false`: they
    /// are then only counted. Default true.
    pub measured: bool,
    /// Frames of a recording in place of `layers`, `vary` and `size`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
}

impl Default for Frame {
    fn default() -> Self {
        Self {
            layers: Vec::new(),
            vary: Vec::new(),
            size: None,
            rate: None,
            gaps: Gaps::Constant,
            after: no_time(),
            priority: 0,
            measured: true,
            replay: None,
        }
    }
}

impl Frame {
    /// Whether nothing is said about what frames are made of: then they are UDP towards the target.
    pub fn is_plain(&self) -> bool {
        self.layers.is_empty() && self.vary.is_empty() && self.replay.is_none()
    }

    /// Whether frames are segmented.
    pub fn is_segmented(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer, Layer::Tcp(tcp) if tcp.segment.is_some()))
    }

    /// Whether it says how fast frames come, over all devices.
    pub fn is_paced(&self) -> bool {
        self.rate.is_some() || self.replay.as_ref().is_some_and(|replay| replay.own_timing)
    }
}

/// Sizes of frames, all with FCS, as RFC 2544 has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FrameSize {
    /// All alike.
    Fixed(Size),
    /// Each as often as its weight says, evenly spread.
    Mix(Vec<SizeShare>),
    /// In the order of an IMIX genome (RFC 6985): a 64, b 128, c 256, d 512, e 1024, f 1280, g 1518, h 2112,
    /// i 9000, j 16000 bytes, z 1518; such as `"aaaaaaaddddg"`.
    Genome(String),
    /// Simple IMIX: 64, 594 and 1518 bytes, 7 to 4 to 1.
    Imix {},
    /// Any size between two, both included.
    Random(SizeRange),
}

/// A size and how often it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SizeShare {
    /// Bytes, with FCS.
    pub size: Size,
    /// How often, against the others.
    #[schemars(range(min = 1, max = 1000))]
    pub weight: u32,
}

/// Two sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SizeRange {
    /// The smallest, with FCS.
    pub from: Size,
    /// The largest, with FCS.
    pub to: Size,
}

/// How fast frames come.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FrameRate {
    /// Frames per second.
    Frames(Rate),
    /// Bits per second on the wire, with preamble and gap (layer 1).
    L1(BitRate),
    /// Bits per second of frames with FCS (layer 2).
    L2(BitRate),
    /// Share of the port's speed, like `"50%"`.
    Line(Share),
}

impl FrameRate {
    /// Frames per second, for frames of `mean` bytes without FCS on a port of `speed` bit/s.
    pub fn frames(self, mean: f64, speed: Option<f64>) -> Option<f64> {
        let l2 = (mean + FCS as f64) * 8.0;
        let l1 = l2 + (WIRE_OVERHEAD * 8) as f64;
        match self {
            Self::Frames(rate) => Some(rate.0),
            Self::L1(bits) => Some(bits.bits() / l1),
            Self::L2(bits) => Some(bits.bits() / l2),
            Self::Line(share) => speed.map(|speed| share.probability() * speed / l1),
        }
    }
}

/// How gaps are spread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Gaps {
    /// All alike.
    #[default]
    Constant,
    /// Exponential: a Poisson process.
    Poisson,
}

/// A recording to send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// A pcap or pcapng file of Ethernet frames.
    #[schemars(extend("format" = "file"))]
    pub file: String,
    /// Keep the recording's own gaps; then no rate is given. Default false: at the rate given.
    #[serde(default)]
    pub own_timing: bool,
    /// With `own_timing`: rest between the end of the recording and its next round. Default 0s.
    #[serde(default = "no_time")]
    pub rest: Interval,
}

fn no_time() -> Interval {
    Interval::secs(0)
}

impl FrameSize {
    /// Sizes without FCS, or what is wrong with them.
    pub fn sizes(&self) -> Result<Sizes, String> {
        let bare = |size: u64| match usize::try_from(size).ok().and_then(|size| size.checked_sub(FCS)) {
            Some(bare) => Ok(bare),
            None => Err(format!("{size}B is no size of a frame")),
        };
        match self {
            Self::Fixed(size) => Ok(Sizes::Cycle(vec![bare(size.0)?])),
            Self::Imix {} => {
                let mix = IMIX.map(|(size, weight)| (size as usize - FCS, weight));
                Ok(Sizes::weighted(&mix))
            }
            Self::Mix(shares) => {
                if let Some(share) = shares.iter().find(|share| !(1..=1000).contains(&share.weight)) {
                    return Err(format!("{} is no weight; use 1 to 1000", share.weight));
                }
                if shares.is_empty() || shares.len() > 64 {
                    return Err("a mix has 1 to 64 sizes".to_owned());
                }
                let mix = shares.iter().map(|share| Ok((bare(share.size.0)?, share.weight)));
                Ok(Sizes::weighted(&mix.collect::<Result<Vec<_>, String>>()?))
            }
            Self::Genome(letters) => {
                let size = |letter| match letter {
                    'a' => Ok(64),
                    'b' => Ok(128),
                    'c' => Ok(256),
                    'd' => Ok(512),
                    'e' => Ok(1024),
                    'f' => Ok(1280),
                    'g' | 'z' => Ok(1518),
                    'h' => Ok(2112),
                    'i' => Ok(9000),
                    'j' => Ok(16_000),
                    other => Err(format!("{other:?} is no letter of an IMIX genome; use a to j and z")),
                };
                let sizes = letters.chars().map(|letter| size(letter).map(|size| size - FCS));
                match sizes.collect::<Result<Vec<_>, _>>()? {
                    sizes if (1..=1024).contains(&sizes.len()) => Ok(Sizes::Cycle(sizes)),
                    _ => Err("a genome has 1 to 1024 letters".to_owned()),
                }
            }
            Self::Random(between) if between.from > between.to => Err("from is larger than to".to_owned()),
            Self::Random(between) => Ok(Sizes::Random(bare(between.from.0)?, bare(between.to.0)?)),
        }
    }
}

/// Bytes in the headers of a group that says nothing about its frames.
pub fn plain_headers(ipv6: bool) -> usize {
    ethernet::LEN + if ipv6 { ipv6::LEN } else { ipv4::LEN } + udp::LEN
}

/// Sizes of a group's frames, without FCS. `ipv6`: its target has such an address.
pub fn sizes(group: &Group, ipv6: bool) -> Result<Sizes, String> {
    if let Some(size) = group.frame.as_ref().and_then(|frame| frame.size.as_ref()) {
        return size.sizes();
    }
    let size = group.model.stateless().map_or(0, |stream| stream.size);
    Ok(Sizes::Cycle(vec![size.saturating_add(plain_headers(ipv6))]))
}

/// What writes a group's frames, for a port that makes the checksums of `offload`; where it cannot be made, the fault's place below the group is named.
pub fn program(
    group: &Group,
    sizes: &Sizes,
    flow: &Flow,
    devices: Devices<'_>,
    seed: u64,
    offload: ChecksumOffload,
) -> Result<Program, FrameError> {
    let frame = group.frame.as_ref();
    let plain = Layer::udp(flow.destination.is_ipv6());
    let layers = frame.map(|frame| &frame.layers).filter(|layers| !layers.is_empty());
    let recipe = Recipe {
        layers: layers.map_or(&plain[..], |layers| &layers[..]),
        vary: frame.map_or(&[], |frame| &frame.vary[..]),
        sizes,
        measured: frame.is_none_or(|frame| frame.measured),
        flow,
        devices,
        seed,
    };
    compose_for(&recipe, offload).map_err(|why| {
        let at = match (frame.map(|frame| &frame.size), why.at.as_str()) {
            (None | Some(None), "size") => "model.stream.size".to_owned(),
            (_, at) => format!("frame.{at}"),
        };
        FrameError { at, ..why }
    })
}

/// Compose the group's frames as a run would, with addresses that stand in for those that only a run knows.
fn check_composed(profile: &Profile, group: &Group, at: &str) -> Option<Error> {
    let Transport::Dpdk(dpdk) = &profile.transport else { return None };
    let mut ports = dpdk.ports.iter().filter(|port| port.role == Role::Generator);
    let port = ports.find(|port| group.port.as_ref().is_none_or(|name| *name == port.name))?;
    let target = profile.target(group).ok()?;
    let pools =
        group.source.iter().map(|text| crate::source::Pool::read(text)).collect::<Result<Vec<_>, _>>();
    let sources: Vec<IpAddr> = pools.ok()?.iter().flat_map(crate::source::Pool::addresses).take(2).collect();
    let plain = group.frame.as_ref().is_none_or(|frame| frame.layers.is_empty());
    let composed = |destination: IpAddr| {
        // whether the port has an address to reach it from is for the run to say where no layer asks for one
        let own = if plain { destination } else { port.ip.towards(destination) };
        let flow = Flow {
            source_mac: [0; 6],
            destination_mac: [0; 6],
            source: SocketAddr::new(sources.first().copied().unwrap_or(own), 0),
            destination: SocketAddr::new(destination, 0),
        };
        let sizes = match sizes(group, destination.is_ipv6()) {
            // what fits the smallest and the largest fits those between
            Ok(Sizes::Random(from, to)) => Sizes::Cycle(vec![from, to]),
            Ok(sizes) => sizes,
            Err(what) => {
                let fix = "Give sizes with FCS, like {\"fixed\": \"64B\"}";
                return Err((BAD_VALUE, FrameError { at: "frame.size".to_owned(), what, fix }));
            }
        };
        let devices = Devices { count: group.devices.min(2), ports: 2, sources: &sources };
        program(group, &sizes, &flow, devices, 0, ChecksumOffload::None).map_err(|why| (CONFLICT, why))
    };
    let composed = match target.host.parse() {
        Ok(address) => composed(address),
        // a name may stand for either kind
        Err(_) => composed(Ipv4Addr::LOCALHOST.into())
            .or_else(|why| composed(Ipv6Addr::LOCALHOST.into()).map_err(|_| why)),
    };
    let (code, why) = composed.err()?;
    Some(Error::new(code, format!("{at}.{}", why.at), why.what, capital(why.fix)))
}

/// What is wrong with a group's frames.
pub fn check(profile: &Profile, group: &Group, at: &str, add: &mut impl FnMut(Option<Error>)) {
    let is_replay = group.frame.as_ref().is_some_and(|frame| frame.replay.is_some());
    let is_composed = group.model.stateless().is_some() && !profile.has_devices();
    if is_composed && group.model.check().is_ok() && !is_replay {
        add(check_composed(profile, group, at));
    }
    let Some(frame) = &group.frame else { return };
    let at = format!("{at}.frame");
    let mut error = |code, key: &str, what: String, fix: &str| {
        add(Some(Error::new(code, format!("{at}.{key}"), what, fix)));
    };
    if frame.priority > 7 {
        error(OUT_OF_RANGE, "priority", format!("{} is no priority", frame.priority), "Use 0 to 7");
    }
    match frame.rate {
        Some(FrameRate::Line(Share::NONE)) => {
            error(OUT_OF_RANGE, "rate.line", "nothing is sent at this rate".into(), "Use more than \"0%\"");
        }
        Some(FrameRate::Frames(rate)) if rate.0 <= 0.0 => {
            error(
                OUT_OF_RANGE,
                "rate.frames",
                "nothing is sent at this rate".into(),
                "Use more than \"0/s\"",
            );
        }
        _ => {}
    }
    let paced =
        group.model.stateless().is_some_and(|stream| stream.rate.is_some() || stream.interval.is_some());
    if frame.rate.is_some() && paced {
        let what = "the model has a rate or an interval, too".to_owned();
        error(CONFLICT, "rate", what, "Leave one of them out");
    }
    if let Some(replay) = &frame.replay {
        if !(frame.layers.is_empty() && frame.vary.is_empty() && frame.size.is_none()) {
            let what = "layers, vary and size are not used beside a recording".to_owned();
            error(CONFLICT, "replay", what, "Leave them out");
        }
        if replay.own_timing && (frame.rate.is_some() || paced) {
            let what = "the recording's own timing and a rate are given".to_owned();
            error(CONFLICT, "replay.own_timing", what, "Leave one of them out");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_what_line_rate_tables_say() {
        let ten = Some(10e9);
        let gbit: BitRate = "1Gbit/s".parse().expect("a rate");
        let frames = |rate: FrameRate, size: f64| rate.frames(size - 4.0, ten).expect("a rate").round();
        // RFC 2544's and everybody's figures for 10 Gbit/s.
        assert_eq!(frames(FrameRate::Line(Share::ALL), 64.0), 14_880_952.0);
        assert_eq!(frames(FrameRate::Line(Share::ALL), 1518.0), 812_744.0);
        assert_eq!(frames(FrameRate::L1(gbit), 64.0), 1_488_095.0);
        assert_eq!(frames(FrameRate::L2(gbit), 64.0), 1_953_125.0);
        assert_eq!(FrameRate::Line(Share::ALL).frames(60.0, None), None);
    }

    #[test]
    fn sizes_are_read_as_written() {
        let sizes = |json: &str| serde_json::from_str::<FrameSize>(json).expect(json).sizes();
        assert_eq!(sizes(r#"{"fixed": "64B"}"#), Ok(Sizes::Cycle(vec![60])));
        assert_eq!(sizes(r#"{"genome": "agz"}"#), Ok(Sizes::Cycle(vec![60, 1514, 1514])));
        assert_eq!(sizes(r#"{"random": {"from": "64B", "to": "70B"}}"#), Ok(Sizes::Random(60, 66)));
        let Ok(Sizes::Cycle(imix)) = sizes(r#"{"imix": {}}"#) else { unreachable!("a cycle") };
        assert_eq!(imix.len(), 12);
        for bad in [
            r#"{"genome": "k"}"#,
            r#"{"genome": ""}"#,
            r#"{"mix": []}"#,
            r#"{"mix": [{"size": "64B", "weight": 0}]}"#,
            r#"{"fixed": "3B"}"#,
            r#"{"random": {"from": "70B", "to": "64B"}}"#,
        ] {
            assert!(sizes(bad).is_err(), "{bad}");
        }
    }
}
