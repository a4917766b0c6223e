//! From a group of the profile to its frames and their times.

use crate::expected::{PlainUdp, SOURCE_PORTS};
use crate::schedule::Timing;
use packet::frame::{ChecksumOffload, Devices, Layer, Program, Sizes};
use packet::{FCS, Flow};
use profile::ceiling::RATE;
use profile::frame::Replay;
use profile::{Frame, Load};
use protocol::describe::StatelessStream;
use protocol::pacer::Gaps;
use run::SetupError;
use run::plan::{GroupPlan, Plan};
use std::net::IpAddr;

fn refusal(index: usize, key: &str, what: impl Into<String>, fix: impl Into<String>) -> SetupError {
    SetupError::new("ND-104-07", format!("groups[{index}].{key}"), what.into(), fix.into())
}

/// The models that this transport carries.
fn supported_models() -> String {
    profile::models_where(|_, params| params.stateless().is_some())
}

fn model(plan: &Plan, index: usize) -> Option<StatelessStream> {
    plan.profile.groups.get(index)?.model.stateless()
}

fn frame(plan: &Plan, index: usize) -> Option<&Frame> {
    plan.profile.groups.get(index)?.frame.as_ref()
}

/// Whether the frames of each stream have the same addresses and ports all the time.
pub fn steady(plan: &Plan) -> bool {
    let stays = |frame: &profile::Frame| frame.vary.is_empty() && frame.replay.is_none();
    plan.profile.groups.iter().all(|group| group.frame.as_ref().is_none_or(stays))
}

/// Say what this transport does not carry.
pub fn refuse(index: usize, group: &GroupPlan, plan: &Plan) -> Result<(), SetupError> {
    if model(plan, index).is_none() {
        let what = format!("the dpdk transport does not carry {} yet", group.about.name);
        return Err(refusal(
            index,
            "model",
            what,
            format!("Use {}, or the sockets transport", supported_models()),
        ));
    }
    let Load::Closed(load) = &group.load else {
        let what = "the dpdk transport begins its streams by itself, not by arrivals";
        let devices = group.devices;
        let fix = format!(
            "Leave load out, or write \"load\": {{\"closed\": {{}}}}: each of the {devices} devices is a stream that \
             sends \"rate\" datagrams a second, as in \"model\": {{\"stream\": {{\"rate\": \"1k/s\"}}}}"
        );
        return Err(refusal(index, "load", what, fix));
    };
    if !load.stages.is_empty() {
        let what = "the dpdk transport cannot change the number of streams yet";
        let most = load.stages.iter().map(|stage| stage.devices).max().unwrap_or(group.devices);
        let over = load.stages.iter().map(|stage| stage.over.ns()).fold(0, u64::saturating_add) / 1_000_000;
        let fix = format!(
            "Write \"devices\": {most} and \"load\": {{\"closed\": {{\"ramp\": \"{over}ms\"}}}} in place of stages: \
             the streams begin one after the other over that time"
        );
        return Err(refusal(index, "load.closed.stages", what, fix));
    }
    Ok(())
}

/// Sizes of a group's frames, without FCS.
fn sizes(index: usize, group: &GroupPlan, plan: &Plan) -> Result<Sizes, SetupError> {
    let wrong = |what| refusal(index, "frame.size", what, "Give sizes with FCS, like {\"fixed\": \"64B\"}");
    profile::frame::sizes(&plan.profile.groups[index], group.address().is_ipv6()).map_err(wrong)
}

/// What frames of the group must be like, if they are plain: nothing is said about what they are made of.
pub fn plain(
    index: usize,
    group: &GroupPlan,
    plan: &Plan,
    source: IpAddr,
) -> Result<Option<PlainUdp>, SetupError> {
    let is_plain = frame(plan, index).is_none_or(Frame::is_plain);
    let Some(params) = model(plan, index).filter(|_| is_plain) else {
        return Ok(None);
    };
    let sources = if group.sources.is_empty() { vec![source] } else { group.sources.clone() };
    let headers = profile::frame::plain_headers(group.address().is_ipv6());
    let sizes = sizes(index, group, plan)?;
    Ok(Some(PlainUdp::new((sources, group.devices), group.address(), (&sizes, headers), params.echo)))
}

/// The longest packet of all groups, without FCS.
pub fn longest(plan: &Plan) -> Result<usize, SetupError> {
    let mut longest = 0;
    for (i, group) in plan.groups.iter().enumerate() {
        let frame = frame(plan, i);
        let own = match frame.and_then(|frame| frame.replay.as_ref()) {
            Some(replay) => recording(i, replay)?.0.longest(),
            None => match sizes(i, group, plan)? {
                Sizes::Cycle(sizes) => sizes.into_iter().max().unwrap_or(0),
                Sizes::Random(_, to) => to,
            },
        };
        let own = frame.map_or(own, |frame| packet::frame::longest_packet(&frame.layers, own));
        longest = longest.max(own);
    }
    Ok(longest)
}

/// Whether the group's frames say themselves whom they go to.
pub fn names_peer(group: &profile::Group) -> bool {
    group.frame.as_ref().is_some_and(|frame| {
        let first = frame.layers.first();
        frame.replay.is_some() || matches!(first, Some(Layer::Ethernet(e)) if e.destination.is_some())
    })
}

/// What the group sends on a port that makes the checksums `left` to it, and how many bytes of each frame are headers that do not count as sent.
pub fn program(
    index: usize,
    group: &GroupPlan,
    plan: &Plan,
    flow: &Flow,
    left: ChecksumOffload,
) -> Result<(Program, usize), SetupError> {
    let frame = frame(plan, index);
    if let Some(replay) = frame.and_then(|frame| frame.replay.as_ref()) {
        return Ok((recording(index, replay)?.0, 0));
    }
    let sizes = sizes(index, group, plan)?;
    let devices = Devices { count: group.devices, ports: SOURCE_PORTS, sources: &group.sources };
    let seed = plan.profile.seed.wrapping_add(index as u64);
    let program = profile::frame::program(&plan.profile.groups[index], &sizes, flow, devices, seed, left)
        .map_err(|why| refusal(index, &why.at, why.what, why.fix))?;
    let headers = profile::frame::plain_headers(group.address().is_ipv6());
    Ok((program, if frame.is_some() { 0 } else { headers }))
}

/// The frames of a recording, and the times between them, ns.
fn recording(index: usize, replay: &Replay) -> Result<(Program, Vec<u64>), SetupError> {
    let wrong = |what: String| {
        let fix = "Give a pcap or pcapng file of Ethernet frames, as tcpdump or Wireshark write it";
        SetupError::new("ND-104-08", format!("groups[{index}].frame.replay.file"), what, fix)
    };
    let frames = capture::read::frames(&replay.file).map_err(wrong)?;
    let mut gaps: Vec<u64> = frames.windows(2).map(|two| two[1].0.saturating_sub(two[0].0)).collect();
    gaps.push(replay.rest.ns());
    Ok((Program::replay(frames.into_iter().map(|(_, frame)| frame)), gaps))
}

/// Which of the group's delays is the time from sending to receiving: what is not reflected went one way.
pub fn delay(index: usize, plan: &Plan) -> Option<usize> {
    model(plan, index).map(|stream| stream.delay)
}

/// When the group sends.
pub fn timing(
    index: usize,
    group: &GroupPlan,
    plan: &Plan,
    program: &Program,
    speed: Option<f64>,
) -> Result<Timing, SetupError> {
    let (Some(params), Load::Closed(load)) = (model(plan, index), &group.load) else {
        return Err(refusal(index, "model", "it is not carried", format!("Use {}", supported_models())));
    };
    let frame = frame(plan, index);
    let devices = f64::from(group.devices.max(1));
    // Rates are of packets; a slot is a frame.
    let packets = program.segmentation().map_or(1.0, |segmentation| segmentation.packets() as f64);
    let interval_ns = match (frame.and_then(|frame| frame.rate), params.rate, params.interval) {
        (Some(rate), _, _) => match rate.frames(program.mean_len(), speed) {
            Some(frames) => packets * devices * 1e9 / (frames * plan.factor),
            None => {
                let what = "the port does not say how fast it is";
                return Err(refusal(index, "frame.rate.line", what, "Give transport.dpdk.ports[].speed"));
            }
        },
        (None, Some(rate), _) => packets * 1e9 / rate.0,
        (None, None, Some(interval)) => interval.ns() as f64,
        (None, None, None) => packets * 1e6,
    };
    if !(interval_ns > 0.0 && interval_ns.is_finite()) {
        return Err(refusal(index, "model.stream.interval", "an endless rate cannot be met", "Give a rate"));
    }
    if devices * 1e9 / interval_ns > RATE {
        let what =
            format!("{:e} frames a second are more than one each nanosecond", devices * 1e9 / interval_ns);
        return Err(refusal(index, "frame.rate", what, "Use at most \"1000M/s\""));
    }
    let gaps = match frame {
        Some(Frame { replay: Some(replay), .. }) if replay.own_timing => {
            let (_, gaps) = recording(index, replay)?;
            if gaps.iter().all(|gap| *gap == 0) {
                let what = "the recording takes no time at all";
                let fix = "Give a rate in place of own_timing, or a rest between rounds";
                return Err(refusal(index, "frame.replay.own_timing", what, fix));
            }
            Gaps::Given(gaps.into_iter().map(|gap| (gap as f64 / plan.factor) as u64).collect())
        }
        Some(Frame { gaps: profile::frame::Gaps::Poisson, .. }) => Gaps::Poisson,
        _ => Gaps::Constant,
    };
    Ok(Timing {
        devices: group.devices,
        interval_ns,
        burst: params.burst,
        count: params.count,
        flows: load.flows,
        rest_ns: load.flow_interval.ns(),
        ramp_ns: load.ramp.ns(),
        after_ns: frame.map_or(0, |frame| frame.after.ns()),
        gaps,
    })
}

const _: () = assert!(FCS == 4, "sizes in profiles are with FCS, sizes here without");
