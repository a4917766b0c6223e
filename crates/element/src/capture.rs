//! Copies of the frames that pass a port, for Wireshark.
//!
//! ```text
//!  worker       Captured(rx) ─► …   … ─► Captured(tx)        copies frames while a capture is on
//!                    │ ring                   │ ring
//!  nd-capture        └────────► Ports ◄───────┘ ─► file      merges them by time, aligns the stamps
//! ```
//! [`Captured`] is an element around another one, a port's source or sink. It is not one between them, as then
//! the generator would not feel it when the port is full, and frames that the port refused would be in the
//! file. Off, it costs one relaxed load for each batch: counted by callgrind, 7 instructions each time the source is
//! polled and 4 each time the sink is pushed to, or a third of an instruction a packet with full batches. On, it
//! filters and copies; it never waits: frames for which the ring has no room are counted as lost to the capture, and
//! go their way all the same.

use crate::capture_ring::{CaptureRingRx, CaptureRingTx, capture_ring};
use capture::{Direction, Packet, Source, SourceState};
use dpdk::Batch;
use engine::{Clock, Cx, Element, ElementInfo, Mail};
use pcap_file::DataLink;
use profile::Capture as Settings;
use profile::Error as SetupError;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Bytes of the ring in each direction: at full rate some milliseconds, else much longer.
const RING: usize = 16 << 20;
/// Packets handed over in one poll, so that a stop is noticed under any load.
const POLL_MAX: usize = 1024;
/// How often our clock is compared with the wall's: they drift apart by some microseconds in that time.
const ALIGN: Duration = Duration::from_secs(1);

/// One direction of one port, where frames can be copied.
#[derive(Debug, Default)]
pub struct Tap {
    /// Number of the capture that is on; 0: none is.
    on: AtomicU64,
    /// On its way to the element, or back.
    place: Mutex<Option<Recorder>>,
}

/// Both directions of a port, by queue.
#[derive(Debug, Clone)]
pub struct Taps {
    /// What it receives.
    pub rx: Vec<Arc<Tap>>,
    /// What it sends.
    pub tx: Vec<Arc<Tap>>,
}

impl Taps {
    /// Of a port with up to so many queues in each direction.
    pub fn new(queues: usize) -> Self {
        let taps = || (0..queues).map(|_| Arc::default()).collect();
        Self { rx: taps(), tx: taps() }
    }

    fn all(&self) -> impl Iterator<Item = (&Tap, Direction)> {
        self.rx
            .iter()
            .map(|tap| (&**tap, Direction::In))
            .chain(self.tx.iter().map(|tap| (&**tap, Direction::Out)))
    }
}

/// What an element needs to record.
struct Recorder {
    /// Number of the capture it is for.
    capture: u64,
    ring: CaptureRingTx,
    filter: Option<pcap::BpfProgram>,
    snap: usize,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorder({})", self.capture)
    }
}

impl Tap {
    fn start(&self, capture: u64, ring: CaptureRingTx, settings: &Settings) -> Result<(), SetupError> {
        let filter = Some(&settings.filter)
            .filter(|text| !text.is_empty())
            .map(|text| compile(text, "capture.filter"));
        let snap = usize::try_from(settings.snap).unwrap_or(usize::MAX);
        let recorder = Recorder { capture, ring, filter: filter.transpose()?, snap };
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(recorder);
        self.on.store(capture, Ordering::Relaxed);
        Ok(())
    }

    /// End capture number `capture`, unless it ended before. What the element gives back is dropped by
    /// [`Tap::clear`].
    fn stop(&self, capture: u64) {
        let _another = self.on.compare_exchange(capture, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Drop what is in the place, if it belongs to capture number `capture`.
    fn clear(&self, capture: u64) {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        drop(place.take_if(|recorder| recorder.capture == capture));
    }
}

/// A filter in the language of pcap-filter(7).
pub fn compile(filter: &str, at: &str) -> Result<pcap::BpfProgram, SetupError> {
    let dead = pcap::Capture::dead(pcap::Linktype::ETHERNET);
    dead.and_then(|dead| dead.compile(filter, true)).map_err(|e| {
        let what = format!("{filter:?} is not a packet filter ({e})");
        SetupError::new("ND-104-04", at, what, "See pcap-filter(7)")
    })
}

/// Where frames pass that can be captured: the worker's end of a [`Tap`].
#[derive(Debug)]
pub struct TapEnd {
    tap: Arc<Tap>,
    recorder: Option<Recorder>,
}

impl TapEnd {
    /// A capture that is on already begins with the first frame.
    pub fn new(tap: Arc<Tap>) -> Self {
        let mut this = Self { tap, recorder: None };
        this.follow();
        this
    }

    /// What these frames are to be given to, if a capture is on.
    #[inline]
    fn recorder(&mut self) -> Option<&mut Recorder> {
        match self.tap.on.load(Ordering::Relaxed) {
            0 => None,
            on => self.recorder.as_mut().filter(|recorder| recorder.capture == on),
        }
    }

    /// Frames came.
    #[inline]
    pub fn received(&mut self, batch: &mut Batch) {
        if !batch.is_empty()
            && let Some(recorder) = self.recorder()
        {
            recorder.record(batch, Clock::get().now(), |batch| batch.len());
        }
    }

    /// Frames are sent by `send`, which leaves in the batch what it does not take.
    #[inline]
    pub fn sent(&mut self, batch: &mut Batch, send: impl FnOnce(&mut Batch)) {
        match self.recorder() {
            None => send(batch),
            Some(recorder) => recorder.record(batch, Clock::get().now(), |batch| {
                let before = batch.len();
                send(batch);
                before - batch.len().min(before)
            }),
        }
    }

    /// Take a recorder when a capture began, give it back when it ended. Off the packets' way, as it locks.
    pub fn follow(&mut self) {
        let on = self.tap.on.load(Ordering::Relaxed);
        if on != self.recorder.as_ref().map_or(0, |recorder| recorder.capture)
            && let Ok(mut place) = self.tap.place.try_lock()
            && (on == 0 || place.as_ref().is_some_and(|recorder| recorder.capture == on))
        {
            std::mem::swap(&mut *place, &mut self.recorder);
        }
    }
}

/// Element: the source or sink `E`, whose frames can be captured.
#[derive(Debug)]
pub struct Captured<E> {
    inner: E,
    tap: TapEnd,
}

impl<E: Element> Captured<E> {
    /// Around `inner`. A capture that is on already begins with the first frame.
    pub fn new(inner: E, tap: Arc<Tap>) -> Self {
        Self { inner, tap: TapEnd::new(tap) }
    }
}

impl Recorder {
    /// Copy what is in `batch`, let `pass` do its work on it, and keep the copies of the first frames, as many
    /// as `pass` says.
    #[cold]
    fn record(&mut self, batch: &mut Batch, now: u64, pass: impl FnOnce(&mut Batch) -> usize) {
        let filter = self.filter.as_ref();
        let wanted = |frame: &[u8]| filter.is_none_or(|filter| filter.filter(frame));
        let frames = batch.frames().iter().map(|frame| (frame.data(), frame.len()));
        let staged = self.ring.stage(frames, now, self.snap, wanted);
        let frames = pass(batch);
        let _counted = self.ring.commit(&staged, frames);
    }
}

impl<E: Element> Element for Captured<E> {
    fn about(&self) -> ElementInfo {
        self.inner.about()
    }

    fn counts_bytes(&self) -> bool {
        self.inner.counts_bytes()
    }

    fn control(&mut self, mail: Mail, now: u64) {
        self.inner.control(mail, now);
    }

    /// A sink: what it leaves in the batch it did not take, and was not sent.
    #[inline]
    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        match self.tap.recorder() {
            None => self.inner.push(batch, cx),
            Some(recorder) => recorder.record(batch, cx.now(), |batch| {
                let before = batch.len();
                self.inner.push(batch, cx);
                before - batch.len().min(before)
            }),
        }
    }

    /// A source: all that it puts into the batch was received.
    #[inline]
    fn poll(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        self.inner.poll(batch, cx);
        if !batch.is_empty()
            && let Some(recorder) = self.tap.recorder()
        {
            recorder.record(batch, cx.now(), |batch| batch.len());
        }
    }

    fn refused(&mut self, output: usize, batch: &mut Batch, cx: &mut Cx<'_>) {
        self.inner.refused(output, batch, cx);
    }

    fn tick(&mut self, now: u64) {
        self.tap.follow();
        self.inner.tick(now);
    }
}

/// The other side: the rings of a port.
pub struct PortCapture {
    name: String,
    number: u64,
    taps: Taps,
    rings: Vec<(CaptureRingRx, Direction)>,
    clock: Clock,
    /// Nanoseconds from the engine's time zero to the wall's, and when that was found out.
    aligned: (u64, Instant),
    stopped: bool,
    data: Vec<u8>,
}

impl PortCapture {
    /// Begin to capture on the port called `name`. One that is under way there ends.
    pub fn start(name: &str, taps: &Taps, settings: &Settings) -> Result<Self, SetupError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let clock = Clock::get();
        let mut this = Self {
            name: name.to_owned(),
            number,
            taps: taps.clone(),
            rings: Vec::new(),
            clock,
            aligned: (wall(&clock), Instant::now()),
            stopped: false,
            data: Vec::new(),
        };
        for (tap, direction) in taps.all() {
            let (to, from) = capture_ring(RING / taps.rx.len().max(1));
            this.rings.push((from, direction));
            tap.start(number, to, settings)?;
        }
        Ok(this)
    }

    /// Drop what the elements gave back.
    fn clear(&self) {
        self.taps.all().for_each(|(tap, _)| tap.clear(self.number));
    }
}

/// Nanoseconds from the engine's time zero to 1970.
pub(crate) fn wall(clock: &Clock) -> u64 {
    let one = || {
        let before = clock.now();
        let wall = SystemTime::now();
        let after = clock.now();
        let wall = wall.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        (after - before.min(after), wall.saturating_sub(before.midpoint(after)))
    };
    // Of a few tries, the one with the least time between the readings.
    (0..8).map(|_| one()).min().unwrap_or_default().1
}

impl Source for PortCapture {
    fn interface(&self) -> &str {
        &self.name
    }

    fn link(&self) -> DataLink {
        DataLink::ETHERNET
    }

    fn poll(&mut self, keep: &mut dyn FnMut(&Packet<'_>) -> ControlFlow<()>) -> Result<SourceState, String> {
        if self.aligned.1.elapsed() > ALIGN {
            self.aligned = (wall(&self.clock), Instant::now());
        }
        if self.stopped {
            self.clear();
        }
        for _ in 0..POLL_MAX {
            // What was received before what was sent at the same time, as they stand in the list.
            let next = self.rings.iter_mut().enumerate().filter_map(|(i, (ring, _))| Some((ring.peek()?, i)));
            let Some((_, first)) = next.min() else {
                let over = self.rings.iter_mut().all(|(ring, _)| ring.is_over());
                return Ok(if over { SourceState::Ended } else { SourceState::Idle });
            };
            let (ring, direction) = &mut self.rings[first];
            let Some(head) = ring.take(&mut self.data) else { continue };
            let packet = Packet {
                stamp: Duration::from_nanos(self.aligned.0.saturating_add(head.stamp)),
                len: head.len,
                data: &self.data,
                direction: Some(*direction),
            };
            if keep(&packet).is_break() {
                return Ok(SourceState::Ended);
            }
        }
        Ok(SourceState::Busy)
    }

    fn stop(&mut self) {
        self.taps.all().for_each(|(tap, _)| tap.stop(self.number));
        self.stopped = true;
    }

    fn dropped(&mut self) -> u64 {
        self.rings.iter().map(|(ring, _)| ring.missed()).sum()
    }
}

impl Drop for PortCapture {
    fn drop(&mut self) {
        self.stop();
        self.clear();
    }
}
