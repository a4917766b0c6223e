//! The end of packets in a pcapng file.
//!
//! ```text
//!  worker       Recorder ──ring──┐          copies frames, and frees them
//!  nd-capture                    └─► file   writes them, with the wall's time
//! ```

use crate::capture::{compile, wall};
use crate::capture_ring::{CaptureRingRx, CaptureRingTx, capture_ring};
use crate::kind::{Build, ElementKind};
use capture::{Capture, Packet, Source, SourceState};
use dpdk::Batch;
use engine::{Clock, Cx, Element, ElementInfo};
use pcap_file::DataLink;
use profile::Error as SetupError;
use protocol::problem::Problem;
use protocol::unit::Size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of the ring: at full rate some milliseconds.
const RING: usize = 16 << 20;
/// Packets handed over in one poll, so that a stop is noticed under any load.
const POLL_MAX: usize = 1024;
/// How often our clock is compared with the wall's.
const ALIGN: Duration = Duration::from_secs(1);
/// The ring has no room: the file's writer cannot keep up.
const RING_FULL: usize = 0;
/// The file has reached its limit, or cannot be written any more.
const FILE_FULL: usize = 1;

/// Writes packets into a pcapng file with nanosecond stamps, and is their end. A thread of its own writes the file; packets that
/// it cannot keep up with are counted as `ring_full`, those after the file's limit as `file_full`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The file; it must not be there yet. Relative to where the command runs.
    pub file: String,
    /// The file's size at most. Default 16MiB.
    #[serde(default = "limit")]
    pub limit: Size,
    /// Bytes kept of each packet, 64 to 262144. Default 65535.
    #[serde(default = "snap")]
    pub snap: u32,
    /// Which packets, in the language of pcap-filter(7); the others end here unwritten. Default: all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub filter: String,
}

fn limit() -> Size {
    profile::Capture::default().limit
}

fn snap() -> u32 {
    profile::Capture::default().snap
}

impl Options {
    fn settings(&self) -> profile::Capture {
        profile::Capture { filter: self.filter.clone(), interface: None, limit: self.limit, snap: self.snap }
    }
}

impl ElementKind for Options {
    const KIND: &'static str = "capture";
    const DROPS: &'static [&'static str] = &["ring_full", "file_full"];
    const REPLICABLE: bool = false;
    const EXAMPLE: &'static str = r#"{"file": "denied.pcapng", "limit": "64MiB"}"#;

    fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.file.is_empty() || self.file.contains('\0') {
            let what = format!("{:?} cannot be a file", self.file);
            problems.push(Problem::new("file", what, "Name one, like denied.pcapng"));
        }
        if let Err(why) = profile::check_capture(&self.settings(), "") {
            problems.push(Problem::new(why.at.trim_start_matches('.'), why.what, why.fix));
        } else if let Err(why) = compile(&self.filter, "filter") {
            problems.push(Problem::new("filter", why.what, why.fix));
        }
        problems
    }

    fn outputs(&self) -> Vec<String> {
        Vec::new()
    }

    fn files(&mut self) -> Vec<(&'static str, &mut String)> {
        vec![("file", &mut self.file)]
    }

    fn build(&self, cx: &mut Build<'_>) -> Result<Box<dyn Element>, SetupError> {
        let at = format!("elements.{}", cx.name);
        let filter = Some(&self.filter).filter(|text| !text.is_empty());
        let filter = filter.map(|text| compile(text, &format!("{at}.filter"))).transpose()?;
        let (to, from) = capture_ring(RING);
        let over = Arc::new(AtomicBool::new(false));
        let clock = Clock::get();
        let frames = Frames {
            name: cx.name.to_owned(),
            ring: from,
            clock,
            aligned: (wall(&clock), Instant::now()),
            stopped: false,
            over: Arc::clone(&over),
            data: Vec::new(),
        };
        let capture = Capture::start_from(Box::new(frames), &self.settings(), Path::new(&self.file));
        let at_key = |why: SetupError| SetupError { at: format!("{at}.file"), ..why };
        cx.captures.push(capture.map_err(at_key)?);
        let snap = usize::try_from(self.snap).unwrap_or(usize::MAX);
        Ok(Box::new(Recorder { ring: to, over, filter, snap }))
    }
}

/// Element: copies packets into the ring, and frees them.
pub struct Recorder {
    ring: CaptureRingTx,
    /// Nobody reads the ring any more.
    over: Arc<AtomicBool>,
    filter: Option<pcap::BpfProgram>,
    snap: usize,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

impl Element for Recorder {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: Options::KIND, takes: true, outputs: &[], drops: Options::DROPS, polled: false }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        if self.over.load(Ordering::Relaxed) {
            return cx.discard(batch, FILE_FULL);
        }
        let filter = self.filter.as_ref();
        let wanted = |frame: &[u8]| filter.is_none_or(|filter| filter.filter(frame));
        let frames = batch.frames().iter().map(|frame| (frame.data(), frame.len()));
        let staged = self.ring.stage(frames, cx.now(), self.snap, wanted);
        let missed = self.ring.commit(&staged, batch.len());
        if missed > 0 {
            cx.count(RING_FULL, missed.into());
        }
        cx.consume(batch);
    }
}

/// The other side of the ring.
struct Frames {
    name: String,
    ring: CaptureRingRx,
    clock: Clock,
    /// Nanoseconds from the engine's time zero to the wall's, and when that was found out.
    aligned: (u64, Instant),
    stopped: bool,
    over: Arc<AtomicBool>,
    data: Vec<u8>,
}

impl Source for Frames {
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
        for _ in 0..POLL_MAX {
            let Some(head) = self.ring.take(&mut self.data) else {
                let over = self.stopped || self.ring.is_over();
                return Ok(if over { SourceState::Ended } else { SourceState::Idle });
            };
            let packet = Packet {
                stamp: Duration::from_nanos(self.aligned.0.saturating_add(head.stamp)),
                len: head.len,
                data: &self.data,
                direction: None,
            };
            if keep(&packet).is_break() {
                return Ok(SourceState::Ended);
            }
        }
        Ok(SourceState::Busy)
    }

    fn stop(&mut self) {
        self.stopped = true;
    }

    fn dropped(&mut self) -> u64 {
        self.ring.missed()
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_options_are_named() {
        for (text, key) in [
            (r#"{"file": ""}"#, "file"),
            (r#"{"file": "x", "snap": 63}"#, "snap"),
            (r#"{"file": "x", "filter": "tcp prot 1"}"#, "filter"),
        ] {
            let options: Options = serde_json::from_str(text).expect("options");
            let problems = options.check();
            assert_eq!(
                problems.first().map(|problem| problem.key.as_str()),
                Some(key),
                "{text}: {problems:?}"
            );
        }
        assert!(serde_json::from_str::<Options>("{}").is_err());
    }

    #[test]
    fn the_ring_is_read_to_its_end_and_who_writes_learns_of_it() {
        let (mut to, from) = capture_ring(1 << 16);
        let (over, clock) = (Arc::new(AtomicBool::new(false)), Clock::get());
        let mut frames = Frames {
            name: "log".into(),
            ring: from,
            clock,
            aligned: (1_000, Instant::now()),
            stopped: false,
            over: Arc::clone(&over),
            data: Vec::new(),
        };
        let bytes = [7u8; 100];
        let staged = to.stage(std::iter::once((&bytes[..], 100)), 5, 64, |_| true);
        assert_eq!(to.commit(&staged, 1), 0);
        let mut seen = Vec::new();
        let mut keep = |packet: &Packet<'_>| {
            seen.push((packet.stamp.as_nanos(), packet.len, packet.data.len()));
            ControlFlow::Continue(())
        };
        assert_eq!(frames.poll(&mut keep), Ok(SourceState::Idle));
        frames.stop();
        assert_eq!(frames.poll(&mut keep), Ok(SourceState::Ended));
        assert_eq!(seen, [(1_005, 100, 64)]);
        assert!(!over.load(Ordering::Relaxed));
        drop(frames);
        assert!(over.load(Ordering::Relaxed));
    }
}
