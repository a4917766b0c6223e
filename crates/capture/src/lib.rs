//! Packets into a pcapng file, with nanosecond stamps, a filter and a limit.
//!
//! A [`Source`] has the packets: a kernel interface or a DPDK port. What is done with
//! them is the same for all.

mod file;
mod kernel;
pub mod read;

use file::Output;
use kernel::Kernel;
use pcap_file::DataLink;
use profile::Capture as Settings;
use profile::Error as SetupError;
use serde::Serialize;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// How long the writer sleeps when there is nothing to write.
const REST: Duration = Duration::from_millis(2);
/// How often the file has all that was captured, and the status with it: a daemon that is killed loses no more.
const SHOWN: Duration = Duration::from_millis(100);
/// How long a source may have nothing before it ends once it is stopped, and how much later than the stop packets may have
/// passed that it still hands over. How long we take to write them is not bounded: what passed before is in the file.
const PATIENCE: Duration = Duration::from_secs(1);

/// The status of a capture.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// The file.
    pub path: PathBuf,
    /// What is captured.
    pub interface: String,
    /// Packets written.
    pub packets: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Packets that the source or the disk could not keep up with.
    pub dropped: u64,
    /// `running`, `full` (the limit is reached), `stopped` or `failed`.
    pub state: &'static str,
    /// Why it failed.
    pub error: Option<String>,
}

/// Which way a packet went, as seen from the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    In,
    /// Sent.
    Out,
}

/// A packet to be written.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// When it passed, since 1970.
    pub stamp: Duration,
    /// Its length, bytes.
    pub len: u32,
    /// The bytes that are kept of it.
    pub data: &'a [u8],
    /// Which way it went, where that is known.
    pub direction: Option<Direction>,
}

/// Whether a source has more, after it was polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceState {
    /// There may be more now.
    Busy,
    /// There is nothing now.
    Idle,
    /// There will be nothing any more.
    Ended,
}

/// Where packets come from. The filter and the snap length are the source's to apply.
pub trait Source: Send {
    /// The interface's name.
    fn interface(&self) -> &str;

    /// What packets begin with.
    fn link(&self) -> DataLink;

    /// Hand some of the packets there are to `keep`, oldest first, until it breaks; then say [`SourceState::Ended`].
    fn poll(&mut self, keep: &mut dyn FnMut(&Packet<'_>) -> ControlFlow<()>) -> Result<SourceState, String>;

    /// The capture is to end: hand over what passed until now, then say [`SourceState::Ended`].
    fn stop(&mut self);

    /// Packets lost as they were not taken in time.
    fn dropped(&mut self) -> u64;
}

/// A capture under way. Dropping it ends it.
#[derive(Debug)]
pub struct Capture {
    status: Arc<Mutex<Status>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Capture {
    /// Begin to capture on a kernel interface into `path`. `towards` picks the interface when the settings
    /// name none.
    pub fn start(settings: &Settings, path: &Path, towards: Option<SocketAddr>) -> Result<Self, SetupError> {
        Self::start_from(Box::new(Kernel::open(settings, towards)?), settings, path)
    }

    /// Begin to capture what `source` has into `path`.
    pub fn start_from(source: Box<dyn Source>, settings: &Settings, path: &Path) -> Result<Self, SetupError> {
        let unwritable = |e: &dyn std::fmt::Display| {
            let what = format!("{} cannot be written ({e})", path.display());
            let fix =
                "Choose the name of a file that is not there yet, in a folder that is, on a disk with room";
            SetupError::new("ND-92-09", "capture.path", what, fix)
        };
        let interface = source.interface().to_owned();
        let output = Output::create(path, source.link(), &interface, settings.snap, settings.limit.0);
        let output = output.map_err(|e| unwritable(&e))?;
        let status = Arc::new(Mutex::new(Status {
            path: path.to_owned(),
            interface,
            packets: 0,
            bytes: 0,
            dropped: 0,
            state: "running",
            error: None,
        }));
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, asked) = (Arc::clone(&status), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("nd-capture".into())
            .spawn(move || copy(source, output, &shared, &asked))
            .map_err(|e| unwritable(&e))?;
        Ok(Self { status, stop, thread: Some(thread) })
    }

    /// Its status.
    pub fn status(&self) -> Status {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// End it; what was captured is in the file when this returns.
    pub fn stop(&mut self) -> Status {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
        self.status()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The writer's thread.
fn copy(mut source: Box<dyn Source>, mut output: Output, status: &Mutex<Status>, stop: &AtomicBool) {
    let (mut state, mut error) = ("stopped", None);
    let (mut shown, mut stopping) = (Instant::now(), None::<(Instant, Duration)>);
    let mut latest = Duration::ZERO;
    loop {
        let polled = source.poll(&mut |packet| {
            latest = packet.stamp;
            match output.write(packet) {
                Ok(true) => ControlFlow::Continue(()),
                Ok(false) => {
                    state = "full";
                    ControlFlow::Break(())
                }
                Err(e) => {
                    (state, error) = ("failed", Some(e.to_string()));
                    ControlFlow::Break(())
                }
            }
        });
        let is_idle = matches!(polled, Ok(SourceState::Idle));
        match polled {
            Ok(SourceState::Busy) => {}
            Ok(SourceState::Idle) => std::thread::sleep(REST),
            Ok(SourceState::Ended) => break,
            Err(e) => {
                (state, error) = ("failed", Some(e));
                break;
            }
        }
        if let Some((since, at)) = stopping {
            if is_idle && since.elapsed() > PATIENCE || latest > at + PATIENCE {
                break;
            }
        } else if stop.load(Ordering::Relaxed) {
            let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            stopping = Some((Instant::now(), wall));
            source.stop();
        }
        if shown.elapsed() > SHOWN {
            shown = Instant::now();
            if let Err(e) = output.flush() {
                (state, error) = ("failed", Some(e.to_string()));
                break;
            }
            let dropped = source.dropped();
            let mut shared = status.lock().unwrap_or_else(PoisonError::into_inner);
            (shared.packets, shared.bytes, shared.dropped) = (output.packets, output.bytes, dropped);
        }
    }
    let dropped = source.dropped();
    if let Err(e) = output.flush()
        && error.is_none()
    {
        (state, error) = ("failed", Some(e.to_string()));
    }
    if let Some(e) = &error {
        tracing::error!("the capture failed: {e}");
    }
    let mut shared = status.lock().unwrap_or_else(PoisonError::into_inner);
    (shared.packets, shared.bytes, shared.dropped) = (output.packets, output.bytes, dropped);
    (shared.state, shared.error) = (state, error);
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::unit::Size;
    use std::fs::File;
    use std::net::UdpSocket;

    fn on_lo(filter: &str, limit: u64) -> (Capture, tempfile::TempDir) {
        let dir = tempfile::tempdir().expect("a folder");
        let settings = Settings {
            filter: filter.to_owned(),
            interface: Some("lo".into()),
            limit: Size(limit),
            ..Settings::default()
        };
        (Capture::start(&settings, &dir.path().join("c.pcapng"), None).expect("capture on lo"), dir)
    }

    fn send(n: usize, to: u16) {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
        for _ in 0..n {
            socket.send_to(&[7; 100], ("127.0.0.1", to)).expect("send");
        }
    }

    #[test]
    fn what_passes_is_kept_with_its_nanoseconds() {
        let sink = UdpSocket::bind("127.0.0.1:0").expect("bind");
        let port = sink.local_addr().expect("bound").port();
        let (mut capture, dir) = on_lo(&format!("udp dst port {port}"), 1 << 20);
        send(5, port);
        std::thread::sleep(Duration::from_millis(250));
        let status = capture.stop();
        assert_eq!((status.packets, status.state, status.dropped), (5, "stopped", 0));
        let file = File::open(dir.path().join("c.pcapng")).expect("file");
        let mut reader = pcap_file::pcapng::PcapNgReader::new(file).expect("pcapng");
        let mut stamps = vec![];
        while let Some(block) = reader.next_block() {
            if let pcap_file::pcapng::Block::EnhancedPacket(packet) = block.expect("block") {
                assert_eq!(packet.data.len(), 14 + 20 + 8 + 100);
                stamps.push(packet.timestamp);
            }
        }
        assert_eq!(stamps.len(), 5);
        assert!(stamps.is_sorted());
        assert!(stamps.iter().any(|s| s.subsec_nanos() % 1000 != 0), "only microseconds: {stamps:?}");
    }

    #[test]
    fn what_passed_is_in_the_file_while_the_capture_goes_on() {
        let sink = UdpSocket::bind("127.0.0.1:0").expect("bind");
        let port = sink.local_addr().expect("bound").port();
        let (capture, dir) = on_lo(&format!("udp dst port {port}"), 1 << 20);
        let path = dir.path().join("c.pcapng");
        // Nothing has passed, and it is a capture already.
        assert_eq!(read::frames(&path), Err(format!("{} has no frame", path.display())));
        send(5, port);
        let until = Instant::now() + Duration::from_secs(60);
        while read::frames(&path).map_or(0, |frames| frames.len()) < 5 {
            assert!(Instant::now() < until, "nothing is written before the end");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(capture.status().state, "running");
    }

    /// Packets that are handed over one by one, in more time than a source has when there is nothing.
    struct SlowSource {
        left: u32,
        stamp: Duration,
    }

    impl Source for SlowSource {
        fn interface(&self) -> &str {
            "slow"
        }

        fn link(&self) -> DataLink {
            DataLink::ETHERNET
        }

        fn poll(
            &mut self,
            keep: &mut dyn FnMut(&Packet<'_>) -> ControlFlow<()>,
        ) -> Result<SourceState, String> {
            if self.left == 0 {
                return Ok(SourceState::Ended);
            }
            self.left -= 1;
            std::thread::sleep(PATIENCE / 2);
            let kept = keep(&Packet { stamp: self.stamp, len: 60, data: &[0; 60], direction: None });
            Ok(if kept.is_break() { SourceState::Ended } else { SourceState::Busy })
        }

        fn stop(&mut self) {}

        fn dropped(&mut self) -> u64 {
            0
        }
    }

    #[test]
    fn what_passed_before_the_stop_is_kept_however_slowly_and_what_passed_long_after_ends_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let stopped = |name: &str, left, stamp| {
            let source = Box::new(SlowSource { left, stamp });
            let settings = Settings { limit: Size(1 << 20), ..Settings::default() };
            Capture::start_from(source, &settings, &dir.path().join(name)).expect("a file").stop().packets
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        assert_eq!(stopped("before.pcapng", 6, now), 6);
        assert!(stopped("after.pcapng", 6, now + Duration::from_secs(3_600)) < 6);
    }

    #[test]
    fn a_file_that_is_there_is_left_as_it_is() {
        let (capture, dir) = on_lo("udp dst port 9", 1 << 20);
        let path = dir.path().join("c.pcapng");
        let before = std::fs::read(&path).expect("a file");
        let settings = Settings { interface: Some("lo".into()), ..Settings::default() };
        let why = Capture::start(&settings, &path, None).expect_err("there already");
        assert_eq!((why.code, why.at.as_str()), ("ND-92-09", "capture.path"));
        drop(capture);
        assert_eq!(std::fs::read(&path).expect("a file"), before);
    }

    #[test]
    fn the_limit_ends_it() {
        let sink = UdpSocket::bind("127.0.0.1:0").expect("bind");
        let port = sink.local_addr().expect("bound").port();
        let (mut capture, _dir) = on_lo(&format!("udp dst port {port}"), 2 * (144 + 32));
        send(5, port);
        std::thread::sleep(Duration::from_millis(250));
        let status = capture.stop();
        assert_eq!((status.packets, status.state), (2, "full"));
    }

    #[test]
    fn what_cannot_be_captured_is_said() {
        let settings = |filter: &str, interface: &str| Settings {
            filter: filter.into(),
            interface: Some(interface.into()),
            ..Settings::default()
        };
        let path = Path::new("/nonexistent/c.pcapng");
        let code = |s: Settings| Capture::start(&s, path, None).expect_err("bad").code;
        assert_eq!(code(settings("", "no-such-if")), "ND-92-08");
        assert_eq!(code(settings("tcp prot 1", "lo")), "ND-104-04");
        assert_eq!(code(settings("", "lo")), "ND-92-09");
    }
}
