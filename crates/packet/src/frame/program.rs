//! Frames, one after the other; some at a time, field by field rather than frame by frame: what is decided of a field is
//! decided once for all, and sums are made for several frames at once.

use super::carried::Carried;
use super::segmentation::Segmentation;
use super::vary::Values;
use crate::checksum::{Sum, complement, halves};
use crate::ethernet::Tags;
use crate::signature::{self, Row, Rows, Signature};
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

/// A window of which something varies.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// Where the window begins.
    pub at: usize,
    /// Bytes in the window: 2, 4 or 8.
    pub width: u8,
    /// The fields in it that vary.
    pub parts: Vec<Part>,
    /// The other bits, where they are the same in every frame: then the window need not be read.
    pub rest: Option<u64>,
    /// Checksums that cover it, one bit each.
    pub covered: u8,
}

/// A field that varies.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// Bits of the window below the field.
    pub shift: u8,
    /// The bits of the window that are the field's.
    pub mask: u64,
    /// Its values.
    pub values: Values,
}

impl Step {
    /// Take the window that follows this one into it, if both are written alike: one wide write costs as much as a
    /// narrow one.
    pub fn join(&mut self, next: &mut Step) -> bool {
        let (Some(high), Some(low)) = (self.rest, next.rest) else { return false };
        let follows = next.at == self.at + usize::from(self.width);
        if !follows || next.width != self.width || self.width > 4 || next.covered != self.covered {
            return false;
        }
        let bits = 8 * self.width;
        self.rest = Some(high << bits | low);
        for part in &mut self.parts {
            part.shift += bits;
            part.mask <<= bits;
        }
        self.parts.append(&mut next.parts);
        self.width *= 2;
        true
    }
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
pub(super) enum VariantOrder {
    /// These, and again.
    Cycle { numbers: Box<[u16]>, at: usize },
    /// Any below this number.
    Random { below: usize, rng: SmallRng },
}

impl VariantOrder {
    /// These, and again.
    pub fn cycle(numbers: Box<[u16]>) -> Self {
        Self::Cycle { numbers, at: 0 }
    }

    /// Any below `below`.
    pub fn random(seed: u64, below: usize) -> Self {
        Self::Random { below: below.max(1), rng: SmallRng::seed_from_u64(!seed) }
    }

    #[inline]
    fn next(&mut self) -> u16 {
        match self {
            Self::Cycle { numbers, at } => {
                let number = numbers.get(*at).copied().unwrap_or(0);
                *at = if *at + 1 < numbers.len() { *at + 1 } else { 0 };
                number
            }
            Self::Random { below, rng } => rng.random_range(0..*below) as u16,
        }
    }
}

/// Most frames that are written at a time.
pub const ROWS: usize = 128;

/// Vectorised loops over frames run over a multiple of so many rows, whether or not there are as many frames.
const LANES: usize = 16;

/// The device that sends each frame, and its signature, if it is measured.
#[derive(Debug, Clone)]
pub struct Marks {
    /// Number of the device, for fields that are its own.
    pub devices: [u32; ROWS],
    /// See [`Signature::stream`].
    pub streams: [u32; ROWS],
    /// See [`Signature::sequence`].
    pub sequences: [u64; ROWS],
    /// See [`Signature::sent_ns`].
    pub sent_ns: [u64; ROWS],
}

impl Marks {
    /// Nobody's.
    pub const NONE: Self =
        Self { devices: [0; ROWS], streams: [0; ROWS], sequences: [0; ROWS], sent_ns: [0; ROWS] };

    /// Say what the frame of that number is.
    #[inline]
    pub fn set(&mut self, row: usize, device: u32, signature: &Signature) {
        self.devices[row] = device;
        self.streams[row] = signature.stream;
        self.sequences[row] = signature.sequence;
        self.sent_ns[row] = signature.sent_ns;
    }
}

/// A frame without end: what [`compose`](super::compose()) makes.
#[derive(Debug, Clone)]
pub struct Program {
    variants: Box<[Variant]>,
    order: VariantOrder,
    /// Numbers of the variants that come next; the first `picked` are chosen, and one always is.
    picks: [u16; ROWS],
    picked: usize,
    steps: Box<[Step]>,
    /// From the inside out.
    targets: Box<[Target]>,
    /// Sums for each target, by frame: used while frames are written, kept so as not to be made each time.
    sums: Box<[[u32; ROWS]]>,
    /// The same for what is put into a window, and for the values of one field.
    scratch: Box<[[u64; ROWS]; 2]>,
    /// Where the checksums are that the port or the segmenter fills in.
    offloaded: Option<Carried>,
    /// How frames are segmented.
    segmentation: Option<Segmentation>,
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
        mut order: VariantOrder,
        steps: Box<[Step]>,
        targets: Box<[Target]>,
    ) -> Self {
        let mut picks = [0; ROWS];
        picks[0] = order.next();
        let sums = vec![[0; ROWS]; targets.len()].into();
        let scratch = Box::new([[0; ROWS]; 2]);
        Self {
            variants,
            order,
            picks,
            picked: 1,
            steps,
            targets,
            sums,
            scratch,
            offloaded: None,
            segmentation: None,
        }
    }

    /// The same, whose checksums there the port makes, and which are segmented so.
    pub(super) fn offloading(self, offloaded: Carried, segmentation: Option<Segmentation>) -> Self {
        Self { offloaded: Some(offloaded), segmentation, ..self }
    }

    /// How frames are to be segmented, by the port or by the generator.
    pub fn segmentation(&self) -> Option<Segmentation> {
        self.segmentation
    }

    /// The headers whose checksums are left to the port that sends the frames.
    pub fn offloaded(&self) -> Option<Carried> {
        self.offloaded
    }

    /// Frames as they are, one after the other and again, such as those of a recording; at most 65,536.
    pub fn replay(frames: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let variant =
            |bytes: Vec<u8>| Variant { bytes: bytes.into(), sums: [Sum::ZERO; TARGETS], signature: None };
        let variants: Box<[Variant]> = frames.into_iter().take(1 << 16).map(variant).collect();
        let order = VariantOrder::cycle((0..variants.len()).map(|number| number as u16).collect());
        Self::new(variants, order, Box::new([]), Box::new([]))
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
        self.offloaded = self.offloaded.map(|at| Carried { ip: moved(at.ip), l4: moved(at.l4), ..at });
        self.segmentation = self.segmentation.map(|segmentation| segmentation.shifted(more.len()));
        self
    }

    /// Bytes in the next frame, without FCS.
    #[inline]
    pub fn next_len(&self) -> usize {
        self.len_of(0)
    }

    /// Bytes in the frame that comes after `ahead` others, without FCS; at most [`ROWS`] are looked at.
    #[inline]
    pub fn len_ahead(&mut self, ahead: usize) -> usize {
        if self.variants.len() == 1 {
            return self.len_of(0);
        }
        while self.picked <= ahead.min(ROWS - 1) {
            self.picks[self.picked] = self.order.next();
            self.picked += 1;
        }
        self.len_of(ahead.min(ROWS - 1))
    }

    /// Whether all frames have the same length.
    pub fn is_even(&self) -> bool {
        self.variants.len() == 1
    }

    #[inline]
    fn len_of(&self, ahead: usize) -> usize {
        self.variants.get(usize::from(self.picks[ahead])).map_or(0, |variant| variant.bytes.len())
    }

    /// Bytes in the longest frame, without FCS.
    pub fn longest(&self) -> usize {
        self.variants.iter().map(|variant| variant.bytes.len()).max().unwrap_or(0)
    }

    /// Bytes in a packet on average, without FCS.
    pub fn mean_len(&self) -> f64 {
        if let Some(segmentation) = &self.segmentation {
            return segmentation.bytes() as f64 / segmentation.packets() as f64;
        }
        let len = |number: usize| self.variants.get(number).map_or(0.0, |variant| variant.bytes.len() as f64);
        match &self.order {
            VariantOrder::Cycle { numbers, .. } => {
                numbers.iter().map(|number| len(usize::from(*number))).sum::<f64>()
                    / numbers.len().max(1) as f64
            }
            VariantOrder::Random { below, .. } => (0..*below).map(len).sum::<f64>() / *below as f64,
        }
    }

    /// Whether every frame carries a signature.
    pub fn is_signed(&self) -> bool {
        self.variants.iter().all(|variant| variant.signature.is_some())
    }

    /// Whether anything in the frames depends on their marks.
    pub fn is_marked(&self) -> bool {
        self.variants.iter().any(|variant| variant.signature.is_some())
            || self.steps.iter().flat_map(|step| &step.parts).any(|part| part.values.is_of_devices())
    }

    /// Write the next frame, which `device` sends, with `signature` over `out`, which has [`Program::next_len`]
    /// bytes.
    pub fn write(&mut self, out: &mut [u8], device: u32, signature: &Signature) -> Written {
        let Some(variant) = self.variants.get(usize::from(self.picks[0])) else { return Written::Nothing };
        if out.len() != variant.bytes.len() {
            return Written::Nothing;
        }
        let written = if variant.signature.is_some() { Written::Signed } else { Written::Plain };
        let mut marks = Marks::NONE;
        marks.set(0, device, signature);
        self.write_all(&mut [out], &marks);
        written
    }

    /// Write the next frames, at most [`ROWS`] of them, each with its mark, over places that have the lengths
    /// [`Program::len_ahead`] told. A place of another length is left as it is.
    #[inline]
    pub fn write_all(&mut self, frames: &mut [&mut [u8]], marks: &Marks) {
        let rows = frames.len().min(ROWS);
        let Some(frames) = frames.get_mut(..rows).filter(|frames| !frames.is_empty()) else { return };
        // So that as many are chosen.
        self.len_ahead(rows - 1);
        self.write_constants(frames);
        let lanes = rows.next_multiple_of(LANES);
        let [window, values] = &mut *self.scratch;
        let (window, values) = (&mut window[..lanes], &mut values[..lanes]);
        for step in &mut self.steps {
            for (number, part) in step.parts.iter_mut().enumerate() {
                part.values.fill(&mut values[..rows], &marks.devices);
                let (shift, mask) = (part.shift, part.mask);
                let put = |value: &u64| (*value << shift) & mask;
                if number == 0 {
                    window.iter_mut().zip(&*values).for_each(|(window, value)| *window = put(value));
                } else {
                    window.iter_mut().zip(&*values).for_each(|(window, value)| *window |= put(value));
                }
            }
            store(frames, step, window);
            add(&mut self.sums, step.covered, 0, window);
        }
        self.sign(frames, marks);
        self.check(frames);
        if self.variants.len() > 1 {
            self.picks.copy_within(rows..self.picked, 0);
            self.picked -= rows;
            self.len_ahead(0);
        }
    }

    /// What does not vary, and its sums.
    #[inline]
    fn write_constants(&mut self, frames: &mut [&mut [u8]]) {
        if let [variant] = &*self.variants {
            frames.iter_mut().for_each(|frame| copy(frame, &variant.bytes));
            for (sums, sum) in self.sums.iter_mut().zip(&variant.sums) {
                sums[..frames.len()].fill(sum.folded());
            }
            return;
        }
        for (row, (frame, pick)) in frames.iter_mut().zip(self.picks).enumerate() {
            let Some(variant) = self.variants.get(usize::from(pick)) else { continue };
            copy(frame, &variant.bytes);
            for (sums, sum) in self.sums.iter_mut().zip(&variant.sums) {
                sums[row] = sum.folded();
            }
        }
    }

    /// The signatures, where frames have them.
    #[inline]
    fn sign(&mut self, frames: &mut [&mut [u8]], marks: &Marks) {
        if self.variants.iter().all(|variant| variant.signature.is_none()) {
            return;
        }
        let mut rows = Rows::NONE;
        let streams = marks.streams.as_chunks::<LANES>().0.iter();
        let times = marks.sequences.as_chunks::<LANES>().0.iter().zip(marks.sent_ns.as_chunks::<LANES>().0);
        for (some, (frames, (streams, (sequences, sent_ns)))) in
            frames.chunks_mut(LANES).zip(streams.zip(times)).enumerate()
        {
            rows.fill(streams, sequences, sent_ns);
            let from = some * LANES;
            if let [Variant { signature: Some(at), .. }] = &*self.variants {
                for (frame, (row, _)) in frames.iter_mut().zip(rows.iter()) {
                    sign(frame, *at, &row);
                }
            } else {
                let picks = &self.picks[from..];
                for ((frame, (row, sum)), pick) in frames.iter_mut().zip(rows.iter()).zip(picks) {
                    match self.variants.get(usize::from(*pick)).and_then(|variant| variant.signature) {
                        Some(at) => sign(frame, at, &row),
                        None => *sum = 0,
                    }
                }
            }
            let covering = self.targets.iter().zip(&mut self.sums).filter(|(target, _)| target.signature);
            covering.for_each(|(_, total)| plus(&mut total[from..], &rows.sums));
        }
    }

    /// The checksums.
    #[inline]
    fn check(&mut self, frames: &mut [&mut [u8]]) {
        for (number, target) in self.targets.iter().enumerate() {
            let none = if target.zero_is_none { 0xffff } else { 0 };
            for (some, frames) in frames.chunks_mut(LANES).enumerate() {
                let from = some * LANES;
                let Some(sums) = self.sums.get(number).and_then(|sums| sums[from..].first_chunk::<LANES>())
                else {
                    break;
                };
                let checksums = sums.map(|sum| match complement(sum) {
                    0 => none,
                    checksum => checksum,
                });
                for (frame, checksum) in frames.iter_mut().zip(&checksums) {
                    update_field(frame, target.at, |_| checksum.to_ne_bytes());
                }
                if target.covered != 0 {
                    add(&mut self.sums, target.covered, from, &checksums.map(u64::from));
                }
            }
        }
    }
}

/// `bytes` to `out`, if that has the same length. Small frames go in two pieces that overlap, without a call.
#[inline]
fn copy(out: &mut [u8], bytes: &[u8]) {
    const HALF: usize = 32;
    if out.len() != bytes.len() {
        return;
    }
    if (HALF..=2 * HALF).contains(&bytes.len())
        && let (Some(first), Some(last)) = (bytes.first_chunk::<HALF>(), bytes.last_chunk::<HALF>())
    {
        out.first_chunk_mut::<HALF>().into_iter().for_each(|out| *out = *first);
        out.last_chunk_mut::<HALF>().into_iter().for_each(|out| *out = *last);
        return;
    }
    out.copy_from_slice(bytes);
}

/// Put each value over the zero bits of its frame's window; what is left in `values` are the sums of what was put.
#[inline]
fn store(frames: &mut [&mut [u8]], step: &Step, values: &mut [u64]) {
    let at = step.at;
    let rows = frames.iter_mut().zip(&*values);
    match (step.width, step.rest) {
        (2, Some(rest)) => rows.for_each(|(f, v)| update_field(f, at, |_| ((rest | v) as u16).to_be_bytes())),
        (4, Some(rest)) => rows.for_each(|(f, v)| update_field(f, at, |_| ((rest | v) as u32).to_be_bytes())),
        (_, Some(rest)) => rows.for_each(|(f, v)| update_field(f, at, |_| (rest | v).to_be_bytes())),
        (2, None) => {
            rows.for_each(|(f, v)| update_field(f, at, |w| (u16::from_be_bytes(w) | *v as u16).to_be_bytes()))
        }
        (4, None) => {
            rows.for_each(|(f, v)| update_field(f, at, |w| (u32::from_be_bytes(w) | *v as u32).to_be_bytes()))
        }
        (_, None) => {
            rows.for_each(|(f, v)| update_field(f, at, |w| (u64::from_be_bytes(w) | *v).to_be_bytes()))
        }
    }
    match step.width {
        2 => values.iter_mut().for_each(|value| *value = u64::from((*value as u16).to_be())),
        4 => values.iter_mut().for_each(|value| *value = halves(u64::from((*value as u32).to_be()))),
        _ => values.iter_mut().for_each(|value| *value = halves(value.to_be())),
    }
}

/// Write a signature at `at`, if the frame reaches that far.
#[inline]
fn sign(frame: &mut [u8], at: usize, row: &Row) {
    let place = frame.get_mut(at..at + signature::LEN).and_then(|place| place.first_chunk_mut());
    place.into_iter().for_each(|place| row.write(place));
}

/// Write what stands at `at` anew, if the frame reaches that far.
#[inline]
fn update_field<const N: usize>(frame: &mut [u8], at: usize, anew: impl FnOnce([u8; N]) -> [u8; N]) {
    if let Some(place) = frame.get_mut(at..at + N).and_then(|place| place.first_chunk_mut::<N>()) {
        *place = anew(*place);
    }
}

/// Add what the frames from `from` on have to their sums for the targets `which`, one bit each.
#[inline]
fn add(sums: &mut [[u32; ROWS]], which: u8, from: usize, values: &[u64]) {
    let mut which = which;
    while which != 0 {
        if let Some(sums) = sums.get_mut(which.trailing_zeros() as usize) {
            plus(&mut sums[from..], values);
        }
        which &= which - 1;
    }
}

#[inline]
fn plus(sums: &mut [u32], values: &[u64]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        // Of what is put into a frame, each part is below 2^18, and there are few.
        *sum = sum.wrapping_add(*value as u32);
    }
}
