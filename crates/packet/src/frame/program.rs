//! Frames, one after the other.

use super::compose::{Devices, Recipe, Sizes, compose};
use super::vary::Values;
use super::{Flow, FrameError, Layer};
use crate::checksum::Sum;
use crate::ethernet::Tags;
use crate::signature::{self, Signature};
use crate::take_mut;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Checksums that may have to be made for each frame.
pub(super) const TARGETS: usize = 8;

/// A frame of one size, ready but for what varies.
#[derive(Debug, Clone)]
pub(super) struct Variant {
    /// All of it; fields that vary are zero.
    pub bytes: Box<[u8]>,
    /// What each checksum covers, summed without what varies.
    pub sums: [Sum; TARGETS],
    /// Where the signature goes, if the frame has one.
    pub signature: Option<usize>,
}

/// A field that varies.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// Where its window begins.
    pub at: usize,
    /// Bytes in the window: 2, 4 or 8.
    pub width: u8,
    /// Bits of the window below the field.
    pub shift: u8,
    /// The bits of the window that are the field's.
    pub mask: u64,
    /// The other bits, where they are the same in every frame: then the window need not be read.
    pub rest: Option<u64>,
    /// Checksums that cover it, one bit each.
    pub covered: u8,
    /// Its values.
    pub values: Values,
}

/// A checksum that is made for each frame.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Target {
    /// Where it stands.
    pub at: usize,
    /// Later checksums that cover it, one bit each.
    pub covered: u8,
    /// Zero would mean that there is none (RFC 768).
    pub zero_is_none: bool,
    /// Whether it covers the signature.
    pub signature: bool,
}

/// Which variant comes next.
#[derive(Debug, Clone)]
pub(super) enum Order {
    /// These, and again.
    Cycle { numbers: Box<[u16]>, at: usize },
    /// Any below this number.
    Random { below: usize, rng: SmallRng },
}

impl Order {
    /// These, and again.
    pub fn cycle(numbers: Box<[u16]>) -> Self {
        Self::Cycle { numbers, at: 0 }
    }

    /// Any below `below`.
    pub fn random(seed: u64, below: usize) -> Self {
        Self::Random { below: below.max(1), rng: SmallRng::seed_from_u64(!seed) }
    }

    fn first(&mut self) -> usize {
        match self {
            Self::Cycle { numbers, .. } => numbers.first().map_or(0, |number| usize::from(*number)),
            Self::Random { below, rng } => rng.random_range(0..*below),
        }
    }

    #[inline]
    fn next(&mut self) -> usize {
        match self {
            Self::Cycle { numbers, at } => {
                *at = if *at + 1 >= numbers.len() { 0 } else { *at + 1 };
                numbers.get(*at).map_or(0, |number| usize::from(*number))
            }
            Self::Random { below, rng } => rng.random_range(0..*below),
        }
    }
}

/// A frame without end: what [`compose`](super::compose()) makes.
#[derive(Debug, Clone)]
pub struct Program {
    variants: Box<[Variant]>,
    order: Order,
    /// Number of the variant that comes next.
    next: usize,
    steps: Box<[Step]>,
    /// From the inside out.
    targets: Box<[Target]>,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The frame, with its signature.
    Signed,
    /// The frame; it has no room for a signature.
    Plain,
    /// Nothing: the place has another length than [`Program::next_len`].
    Nothing,
}

impl Program {
    /// From what was composed.
    pub(super) fn new(
        variants: Box<[Variant]>,
        mut order: Order,
        steps: Box<[Step]>,
        targets: Box<[Target]>,
    ) -> Self {
        let next = order.first();
        Self { variants, order, next, steps, targets }
    }

    /// Frames as they are, one after the other and again, such as those of a recording; at most 65,536.
    pub fn replay(frames: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let variant =
            |bytes: Vec<u8>| Variant { bytes: bytes.into(), sums: [Sum::ZERO; TARGETS], signature: None };
        let variants: Box<[Variant]> = frames.into_iter().take(1 << 16).map(variant).collect();
        let order = Order::cycle((0..variants.len()).map(|number| number as u16).collect());
        Self::new(variants, order, Box::new([]), Box::new([]))
    }

    /// UDP over IP from one end of `flow` to the other, every frame `size` bytes long without FCS and nothing in
    /// it but the signature.
    pub fn udp(flow: &Flow, size: usize) -> Result<Self, FrameError> {
        let (layers, sizes) = (Layer::udp(flow.destination.is_ipv6()), Sizes::Cycle(vec![size]));
        let devices = Devices::default();
        compose(&Recipe { layers: &layers, vary: &[], sizes: &sizes, measured: true, flow, devices, seed: 0 })
    }

    /// The same frames, each with these tags behind its Ethernet addresses, and longer by them.
    #[must_use]
    pub fn tagged(mut self, tags: &Tags) -> Self {
        const AT: usize = 12;
        let more = tags.bytes();
        let moved = |at: usize| if at < AT { at } else { at + more.len() };
        for variant in &mut self.variants {
            let (addresses, rest) = variant.bytes.split_at(AT.min(variant.bytes.len()));
            variant.bytes = [addresses, more, rest].concat().into();
            variant.signature = variant.signature.map(moved);
        }
        for step in &mut self.steps {
            step.at = moved(step.at);
            // The window of the source address reaches into what now is a tag.
            step.rest = step.rest.filter(|_| step.at > AT || step.at + usize::from(step.width) <= AT);
        }
        self.targets.iter_mut().for_each(|target| target.at = moved(target.at));
        self
    }

    /// Bytes in the next frame, without FCS.
    #[inline]
    pub fn next_len(&self) -> usize {
        self.variants.get(self.next).map_or(0, |variant| variant.bytes.len())
    }

    /// Bytes in the longest frame, without FCS.
    pub fn longest(&self) -> usize {
        self.variants.iter().map(|variant| variant.bytes.len()).max().unwrap_or(0)
    }

    /// Bytes in a frame on average, without FCS.
    pub fn mean_len(&self) -> f64 {
        let len = |number: usize| self.variants.get(number).map_or(0.0, |variant| variant.bytes.len() as f64);
        match &self.order {
            Order::Cycle { numbers, .. } => {
                numbers.iter().map(|number| len(usize::from(*number))).sum::<f64>()
                    / numbers.len().max(1) as f64
            }
            Order::Random { below, .. } => (0..*below).map(len).sum::<f64>() / *below as f64,
        }
    }

    /// Whether every frame carries a signature.
    pub fn is_signed(&self) -> bool {
        self.variants.iter().all(|variant| variant.signature.is_some())
    }

    /// Write the next frame, which `device` sends, with `signature` over `out`, which has [`Program::next_len`]
    /// bytes.
    #[inline]
    pub fn write(&mut self, out: &mut [u8], device: u32, signature: &Signature) -> Written {
        let Some(variant) = self.variants.get(self.next) else { return Written::Nothing };
        if out.len() != variant.bytes.len() {
            return Written::Nothing;
        }
        copy(out, &variant.bytes);
        let mut sums = variant.sums;
        for step in &mut self.steps {
            let value = (step.values.next(device) << step.shift) & step.mask;
            let sum = store(out, step, value);
            add(&mut sums, step.covered, sum);
        }
        let mut written = Written::Plain;
        if let Some(place) = variant.signature.and_then(|at| take_mut::<{ signature::LEN }>(out, at)) {
            let sum = signature.emit(place);
            written = Written::Signed;
            for (target, total) in self.targets.iter().zip(&mut sums) {
                if target.signature {
                    *total = total.plus(sum);
                }
            }
        }
        for (number, target) in self.targets.iter().enumerate() {
            let Some(sum) = sums.get(number) else { break };
            let mut checksum = sum.checksum();
            if checksum == 0 && target.zero_is_none {
                checksum = 0xffff;
            }
            if let Some(place) = take_mut(out, target.at) {
                *place = checksum.to_be_bytes();
            }
            if target.covered != 0 {
                add(&mut sums, target.covered, Sum::ZERO.field(checksum));
            }
        }
        if self.variants.len() > 1 {
            self.next = self.order.next();
        }
        written
    }
}

/// `bytes` to `out`, of the same length. Small frames go in two pieces that overlap, without a call.
#[inline]
fn copy(out: &mut [u8], bytes: &[u8]) {
    const HALF: usize = 32;
    if (HALF..=2 * HALF).contains(&bytes.len())
        && let (Some(first), Some(last)) = (bytes.first_chunk::<HALF>(), bytes.last_chunk::<HALF>())
    {
        out.first_chunk_mut::<HALF>().into_iter().for_each(|out| *out = *first);
        out.last_chunk_mut::<HALF>().into_iter().for_each(|out| *out = *last);
        return;
    }
    out.copy_from_slice(bytes);
}

/// Put `value` over the zero bits of its window; its sum.
#[inline]
fn store(out: &mut [u8], step: &Step, value: u64) -> Sum {
    match step.width {
        2 => {
            if let Some(window) = take_mut(out, step.at) {
                let rest = step.rest.map_or_else(|| u16::from_be_bytes(*window), |rest| rest as u16);
                *window = (rest | value as u16).to_be_bytes();
            }
            Sum::ZERO.field(value as u16)
        }
        4 => {
            if let Some(window) = take_mut(out, step.at) {
                let rest = step.rest.map_or_else(|| u32::from_be_bytes(*window), |rest| rest as u32);
                *window = (rest | value as u32).to_be_bytes();
            }
            Sum::ZERO.wide(value)
        }
        _ => {
            if let Some(window) = take_mut(out, step.at) {
                let rest = step.rest.unwrap_or_else(|| u64::from_be_bytes(*window));
                *window = (rest | value).to_be_bytes();
            }
            Sum::ZERO.wide(value)
        }
    }
}

#[inline]
fn add(sums: &mut [Sum; TARGETS], which: u8, sum: Sum) {
    let mut which = which;
    while which != 0 {
        let number = which.trailing_zeros() as usize;
        if let Some(total) = sums.get_mut(number) {
            *total = total.plus(sum);
        }
        which &= which - 1;
    }
}
