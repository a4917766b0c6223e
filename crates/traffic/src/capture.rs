//! Packets of a kernel interface into a pcapng file, with nanosecond stamps, a filter and a limit.

use crate::transport::Unready;
use nix::ifaddrs::getifaddrs;
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use profile::Capture as Settings;
use serde::Serialize;
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The kernel hands packets over at least this often.
const BLOCK: Duration = Duration::from_millis(100);

/// How a capture is getting on.
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
    /// Packets that the kernel or the disk could not keep up with.
    pub dropped: u64,
    /// `running`, `full` (the limit is reached), `stopped` or `failed`.
    pub state: &'static str,
    /// Why it failed.
    pub error: Option<String>,
}

/// A capture under way. Dropping it ends it.
#[derive(Debug)]
pub struct Capture {
    status: Arc<Mutex<Status>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Capture {
    /// Begin to capture into `path`. `towards` picks the interface when the settings name none.
    pub fn start(settings: &Settings, path: &Path, towards: Option<SocketAddr>) -> Result<Self, Unready> {
        let interface = match (&settings.interface, towards) {
            (Some(name), _) => name.clone(),
            (None, Some(address)) => interface_towards(address).ok_or_else(|| {
                let what = format!("no interface leads to {}", address.ip());
                Unready::new("ND-92-08", "capture.interface", what, "Name the interface")
            })?,
            (None, None) => {
                let what = "there is no interface to capture on";
                return Err(Unready::new("ND-92-08", "capture.interface", what, "Name the interface"));
            }
        };
        let source = open(settings, &interface)?;
        let unwritable = |e: &dyn std::fmt::Display| {
            let what = format!("{} cannot be written ({e})", path.display());
            Unready::new("ND-92-09", "capture.path", what, "Choose a folder that exists, on a disk with room")
        };
        let file = File::create(path).map_err(|e| unwritable(&e))?;
        let link = DataLink::from(source.get_datalink().0 as u32);
        let writer = header(file, link, &interface, settings.snap).map_err(|e| unwritable(&e))?;
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
        let (shared, asked, limit) = (Arc::clone(&status), Arc::clone(&stop), settings.limit.0);
        let thread = std::thread::Builder::new()
            .name("nd-capture".into())
            .spawn(move || copy(source, writer, limit, &shared, &asked))
            .map_err(|e| unwritable(&e))?;
        Ok(Self { status, stop, thread: Some(thread) })
    }

    /// How it is getting on.
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

type Writer = PcapNgWriter<BufWriter<File>>;

fn header(file: File, link: DataLink, interface: &str, snap: u32) -> Result<Writer, pcap_file::PcapError> {
    let mut writer = PcapNgWriter::new(BufWriter::with_capacity(1 << 20, file))?;
    writer.write_pcapng_block(InterfaceDescriptionBlock {
        linktype: link,
        snaplen: snap,
        options: vec![
            InterfaceDescriptionOption::IfName(Cow::Borrowed(interface)),
            InterfaceDescriptionOption::IfTsResol(9), // nanoseconds
        ],
    })?;
    Ok(writer)
}

fn open(settings: &Settings, interface: &str) -> Result<pcap::Capture<pcap::Active>, Unready> {
    let failed = |e: pcap::Error| {
        let fix = "Run the daemon as root, or give it CAP_NET_RAW; check the interface's name";
        Unready::new("ND-92-08", "capture.interface", format!("{interface} cannot be captured on ({e})"), fix)
    };
    let inactive = || -> Result<_, pcap::Error> {
        Ok(pcap::Capture::from_device(interface)?
            .snaplen(i32::try_from(settings.snap).unwrap_or(65_535))
            .buffer_size(16 << 20)
            .timeout(BLOCK.as_millis() as i32))
    };
    let mut source = inactive()
        .and_then(|c| c.precision(pcap::Precision::Nano).open())
        .or_else(|_| inactive()?.open())
        .map_err(failed)?;
    source = source.setnonblock().map_err(failed)?;
    if !settings.filter.is_empty() {
        source.filter(&settings.filter, true).map_err(|e| {
            let what = format!("{:?} is not a packet filter ({e})", settings.filter);
            Unready::new("ND-104-04", "capture.filter", what, "See pcap-filter(7)")
        })?;
    }
    Ok(source)
}

fn copy(
    mut source: pcap::Capture<pcap::Active>,
    mut writer: Writer,
    limit: u64,
    status: &Mutex<Status>,
    stop: &AtomicBool,
) {
    let mut packets = 0u64;
    let mut bytes = 0u64;
    let mut write = |packet: &pcap::Packet<'_>,
                     packets: &mut u64,
                     bytes: &mut u64|
     -> Result<bool, pcap_file::PcapError> {
        let size = packet.data.len() as u64 + 36;
        if *bytes + size > limit {
            return Ok(false);
        }
        let stamp = packet.header.ts;
        // opened for nanoseconds, the microsecond field holds them
        let nanos = u32::try_from(stamp.tv_usec).unwrap_or(0).min(999_999_999);
        writer.write_pcapng_block(EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::new(u64::try_from(stamp.tv_sec).unwrap_or(0), nanos),
            original_len: packet.header.len,
            data: Cow::Borrowed(packet.data),
            options: Vec::new(),
        })?;
        *packets += 1;
        *bytes += size;
        Ok(true)
    };
    let (mut state, mut error) = ("stopped", None);
    let (mut shown, mut stopping) = (Instant::now(), None::<Instant>);
    // packets on their way when the stop comes are still taken: the kernel hands them over in blocks
    loop {
        match source.next_packet() {
            Ok(packet) => match write(&packet, &mut packets, &mut bytes) {
                Ok(true) => {}
                Ok(false) => {
                    state = "full";
                    break;
                }
                Err(e) => {
                    (state, error) = ("failed", Some(e.to_string()));
                    break;
                }
            },
            Err(pcap::Error::TimeoutExpired) if stopping.is_some_and(|s| s.elapsed() > 2 * BLOCK) => break,
            // not blocking in the library: there a read of a quiet interface ends only with a packet
            Err(pcap::Error::TimeoutExpired) => std::thread::sleep(Duration::from_millis(5)),
            Err(pcap::Error::NoMorePackets) => break,
            Err(e) => {
                (state, error) = ("failed", Some(e.to_string()));
                break;
            }
        }
        if let Some(since) = stopping {
            if since.elapsed() > Duration::from_secs(1) {
                break; // an endless stream of packets is no reason to stay
            }
        } else if stop.load(Ordering::Relaxed) {
            stopping = Some(Instant::now());
        }
        if shown.elapsed() > Duration::from_millis(100) {
            shown = Instant::now();
            let mut shared = status.lock().unwrap_or_else(PoisonError::into_inner);
            (shared.packets, shared.bytes) = (packets, bytes);
        }
    }
    let dropped = source.stats().map_or(0, |s| u64::from(s.dropped) + u64::from(s.if_dropped));
    if let Err(e) = writer.get_mut().flush()
        && error.is_none()
    {
        (state, error) = ("failed", Some(e.to_string()));
    }
    if let Some(e) = &error {
        tracing::error!("the capture failed: {e}");
    }
    let mut shared = status.lock().unwrap_or_else(PoisonError::into_inner);
    (shared.packets, shared.bytes, shared.dropped) = (packets, bytes, dropped);
    (shared.state, shared.error) = (state, error);
}

/// The interface whose address the kernel would send from.
fn interface_towards(target: SocketAddr) -> Option<String> {
    let any: SocketAddr = if target.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let probe = UdpSocket::bind(any).ok()?;
    let port = if target.port() == 0 { 9 } else { target.port() };
    probe.connect(SocketAddr::new(target.ip(), port)).ok()?; // sends nothing
    let local = probe.local_addr().ok()?.ip();
    getifaddrs().ok()?.find_map(|interface| {
        let address = interface.address?;
        let ip = address
            .as_sockaddr_in()
            .map(|a| IpAddr::V4(a.ip()))
            .or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))?;
        (ip == local).then_some(interface.interface_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::unit::Size;

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
    fn the_limit_ends_it() {
        let sink = UdpSocket::bind("127.0.0.1:0").expect("bind");
        let port = sink.local_addr().expect("bound").port();
        let (mut capture, _dir) = on_lo(&format!("udp dst port {port}"), 2 * (142 + 36));
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
