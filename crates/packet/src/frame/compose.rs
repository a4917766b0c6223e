//! From layers to a program: headers laid out, fields found, sums made.

use super::error::FrameError;
use super::flow::Flow;
use super::headers::{self, Placed, Site};
use super::layer::Layer;
use super::program::{Part, Program, Step, TARGETS, Target, Variant, VariantOrder};
use super::recipe::{Devices, Recipe, Sizes};
use super::segmentation::{self, Segmentation};
use super::select::{self, Selected};
use crate::bytes::take_mut;
use crate::checksum::Sum;
use crate::signature;
use std::ops::Range;

/// The smallest Ethernet frame, and the largest that ports are known to take; without FCS.
const SHORTEST: usize = 60;
const LONGEST: usize = 16_380;

/// Which checksums the port makes that sends the frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ChecksumOffload {
    /// None.
    #[default]
    None,
    /// Those of UDP and TCP in the outermost IP.
    Transport,
    /// And that of this IP's header.
    All,
}

/// Make the program.
pub fn compose(recipe: &Recipe<'_>) -> Result<Program, FrameError> {
    compose_for(recipe, ChecksumOffload::None)
}

impl Program {
    /// UDP over IP from one end of `flow` to the other, every frame `size` bytes long without FCS and nothing in
    /// it but the signature.
    pub fn udp(flow: &Flow, size: usize) -> Result<Self, FrameError> {
        let (layers, sizes) = (Layer::udp(flow.destination.is_ipv6()), Sizes::Cycle(vec![size]));
        let devices = Devices::default();
        compose(&Recipe { layers: &layers, vary: &[], sizes: &sizes, measured: true, flow, devices, seed: 0 })
    }
}

/// Make the program for a port that makes checksums. Of frames that it does not support, none is left to it:
/// [`Program::offloaded`] says so.
pub fn compose_for(recipe: &Recipe<'_>, offload: ChecksumOffload) -> Result<Program, FrameError> {
    let placed = headers::place(recipe.layers)?;
    let mut selected = select::select(recipe.vary, &placed, recipe.seed)?;
    let steady = !selected.iter().any(|one| one.field.name == "protocol");
    let carried = headers::checksummed_headers(&placed).filter(|_| steady);
    let segmentation = Segmentation::of(recipe, &placed, &selected, carried.filter(|carried| carried.tcp))?;
    // What is segmented gets its checksums then.
    let offload = if segmentation.is_some() && offload == ChecksumOffload::None {
        ChecksumOffload::Transport
    } else {
        offload
    };
    let carried = carried.filter(|_| offload != ChecksumOffload::None);
    let makes = carried.map_or([None; 2], |carried| {
        let ip = (offload == ChecksumOffload::All && !carried.v6).then_some(carried.ip + 10);
        [Some(carried.l4 + if carried.tcp { 16 } else { 6 }), ip]
    });
    select::devices(&mut selected, &placed, recipe.flow, &recipe.devices);
    let sizes = recipe.sizes.distinct();
    if sizes.is_empty() {
        return Err(FrameError::new("size", "no size is given", "Give at least one size"));
    }
    let mut targets = Vec::new();
    let mut variants = Vec::new();
    for size in &sizes {
        let (variant, made) = variant(recipe, &placed, &selected, (*size, makes))?;
        variants.push(variant);
        targets = made;
    }
    let windows: Vec<Range<usize>> = selected.iter().map(Selected::window).collect();
    let step = |(number, selected): (usize, Selected)| {
        let window = &windows[number];
        let shared = windows.iter().enumerate().any(|(other, at)| other != number && overlap(at, window));
        let mut rests = variants.iter().map(|variant| rest(&variant.bytes, window));
        let first = rests.next();
        let rest = first.filter(|first| !shared && rests.all(|rest| rest == *first));
        let covers =
            |(number, (_, site)): (usize, &(Target, Site))| u8::from(site.covers(selected.at)) << number;
        let covered = targets.iter().enumerate().map(covers).sum();
        let Selected { at, field, values, .. } = selected;
        let part = Part { shift: field.shift, mask: field.mask(), values };
        Step { at, width: field.width, parts: vec![part], rest, covered }
    };
    let mut steps: Vec<Step> = selected.into_iter().enumerate().map(step).collect();
    steps.sort_by_key(|step| step.at);
    steps.dedup_by(|next, step| step.join(next));
    let order = match recipe.sizes {
        Sizes::Cycle(cycle) => {
            let number = |size: &usize| sizes.binary_search(size).unwrap_or(0) as u16;
            VariantOrder::cycle(cycle.iter().map(number).collect())
        }
        Sizes::Random(..) => VariantOrder::random(recipe.seed, sizes.len()),
    };
    let targets = targets.into_iter().map(|(target, _)| target).collect();
    let program = Program::new(variants.into(), order, steps.into(), targets);
    Ok(match carried {
        Some(carried) => program.offloading(carried, segmentation),
        None => program,
    })
}

/// The frame of one size, and the checksums to make for each: the same for all sizes. `left`: where those are that the port
/// makes.
fn variant(
    recipe: &Recipe<'_>,
    placed: &[Placed<'_>],
    selected: &[Selected],
    (size, left): (usize, [Option<usize>; 2]),
) -> Result<(Variant, Vec<(Target, Site)>), FrameError> {
    let longest =
        if segmentation::segmenting_layer(placed).is_some() { segmentation::LONGEST } else { LONGEST };
    if !(SHORTEST..=longest).contains(&size) {
        let what = format!("a frame of {size} bytes (without FCS) is not between {SHORTEST} and {longest}");
        return Err(FrameError::new("size", what, "Choose another size; 64B is the smallest with FCS"));
    }
    let mut bytes = headers::build_frame(placed, size, recipe.flow, recipe.seed)?;
    let signature = match recipe.measured {
        true => Some(mark(placed, size)?),
        false => None,
    };
    for one in selected {
        let window = one.window();
        let clash = signature.is_some_and(|at| overlap(&window, &(at..at + signature::LEN)));
        if window.end > size || clash {
            let what = format!("a frame of {size} bytes has no room for it before the signature at its end");
            return Err(FrameError::new(&one.name, what, "Choose larger frames or an earlier place"));
        }
        if let Some(prefix) = one.prefix
            && let Some(place) = take_mut(&mut bytes, one.at.saturating_sub(8))
        {
            *place = prefix.to_be_bytes();
        }
    }
    selected.iter().for_each(|one| one.clear(&mut bytes));
    let mark = signature.and_then(|at| bytes.get_mut(at..at + signature::LEN));
    mark.into_iter().for_each(|mark| mark.fill(0));
    let mut variant = Variant { bytes: bytes.into(), sums: [Sum::ZERO; TARGETS], signature };
    let mut live: Vec<(Target, Site)> = Vec::new();
    // From the inside out: what an inner checksum is, an outer one covers.
    let ours = |site: &Site| !left.contains(&Some(site.at));
    for site in headers::sites(placed, size).into_iter().rev().filter(ours) {
        let signed = signature.is_some_and(|at| site.covers(at));
        let varies = selected.iter().any(|one| site.covers(one.at));
        let sum = site.sum(&variant.bytes);
        if !(signed || varies || live.iter().any(|(inner, _)| site.covers(inner.at))) {
            site.write(&mut variant.bytes, sum);
            continue;
        }
        let number = live.len();
        let Some(place) = variant.sums.get_mut(number) else {
            let what = format!("more than {TARGETS} checksums change from frame to frame");
            return Err(FrameError::new("layers", what, "Use fewer layers with checksums"));
        };
        *place = sum;
        for (inner, _) in live.iter_mut().filter(|(inner, _)| site.covers(inner.at)) {
            inner.covered |= 1 << number;
        }
        let target = Target { at: site.at, covered: 0, zero_is_none: site.zero_is_none, signature: signed };
        live.push((target, site));
    }
    Ok((variant, live))
}

/// Where the signature of a frame of `size` bytes goes: at its end, so that it stays there when headers are
/// added or taken away on the way; at an even place, as checksums see pairs.
fn mark(placed: &[Placed<'_>], size: usize) -> Result<usize, FrameError> {
    if let Some(arp) = placed.iter().find(|placed| matches!(placed.layer, Layer::Arp(_))) {
        let what = "ARP has no room for a signature, so it cannot be measured";
        return Err(FrameError::new(&arp.name, what, "Write \"measured\": false"));
    }
    let least = headers::header_bytes(placed)?.next_multiple_of(2);
    match signature::place(size).filter(|at| *at >= least) {
        Some(at) => Ok(at),
        None => {
            let what = format!(
                "a frame of {size} bytes is too short: headers and payload take {least}, the signature {} (all \
                 without FCS)",
                signature::LEN
            );
            Err(FrameError::new("size", what, "Choose larger frames, or write \"measured\": false"))
        }
    }
}

/// What stands in a window of at most eight bytes, where the fields that vary are zero.
fn rest(bytes: &[u8], window: &Range<usize>) -> u64 {
    let bytes = bytes.get(window.clone()).unwrap_or(&[]);
    bytes.iter().fold(0, |rest, byte| rest << 8 | u64::from(*byte))
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}
