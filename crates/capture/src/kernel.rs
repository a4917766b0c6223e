//! Packets of a kernel interface.

use super::{Packet, Source, SourceState};
use nix::ifaddrs::getifaddrs;
use pcap_file::DataLink;
use profile::Capture as Settings;
use profile::Error as SetupError;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// The kernel hands packets over at least this often.
const BLOCK: Duration = Duration::from_millis(100);
/// Packets taken in one poll, so that a stop is noticed under any load.
const POLL_MAX: usize = 256;

/// An interface of the kernel, by libpcap.
pub struct Kernel {
    interface: String,
    source: pcap::Capture<pcap::Active>,
    /// When it was stopped.
    quiet: Option<Instant>,
}

impl Kernel {
    /// Open the interface that the settings name, or else the one that leads `towards` there.
    pub fn open(settings: &Settings, towards: Option<SocketAddr>) -> Result<Self, SetupError> {
        let interface = match (&settings.interface, towards) {
            (Some(name), _) => name.clone(),
            (None, Some(address)) => interface_towards(address).ok_or_else(|| {
                let what = format!("no interface leads to {}", address.ip());
                SetupError::new("ND-92-08", "capture.interface", what, "Name the interface")
            })?,
            (None, None) => {
                let what = "there is no interface to capture on";
                return Err(SetupError::new("ND-92-08", "capture.interface", what, "Name the interface"));
            }
        };
        let source = open(settings, &interface)?;
        Ok(Self { interface, source, quiet: None })
    }
}

impl Source for Kernel {
    fn interface(&self) -> &str {
        &self.interface
    }

    fn link(&self) -> DataLink {
        DataLink::from(self.source.get_datalink().0 as u32)
    }

    fn poll(&mut self, keep: &mut dyn FnMut(&Packet<'_>) -> ControlFlow<()>) -> Result<SourceState, String> {
        for _ in 0..POLL_MAX {
            let packet = match self.source.next_packet() {
                Ok(packet) => packet,
                // not blocking in the library: there a read of a quiet interface ends only with a packet
                Err(pcap::Error::TimeoutExpired) => {
                    // packets on their way when the stop comes are still taken: the kernel hands them over in blocks
                    let over = self.quiet.is_some_and(|since| since.elapsed() > 2 * BLOCK);
                    return Ok(if over { SourceState::Ended } else { SourceState::Idle });
                }
                Err(pcap::Error::NoMorePackets) => return Ok(SourceState::Ended),
                Err(e) => return Err(e.to_string()),
            };
            let stamp = packet.header.ts;
            // opened for nanoseconds, the microsecond field holds them
            let nanos = u32::try_from(stamp.tv_usec).unwrap_or(0).min(999_999_999);
            let packet = Packet {
                stamp: Duration::new(u64::try_from(stamp.tv_sec).unwrap_or(0), nanos),
                len: packet.header.len,
                data: packet.data,
                direction: None,
            };
            if keep(&packet).is_break() {
                return Ok(SourceState::Ended);
            }
        }
        Ok(SourceState::Busy)
    }

    fn stop(&mut self) {
        self.quiet = Some(Instant::now());
    }

    fn dropped(&mut self) -> u64 {
        self.source.stats().map_or(0, |s| u64::from(s.dropped) + u64::from(s.if_dropped))
    }
}

fn open(settings: &Settings, interface: &str) -> Result<pcap::Capture<pcap::Active>, SetupError> {
    let failed = |e: pcap::Error| {
        let fix = "Run the daemon as root, or give it CAP_NET_RAW; check the interface's name";
        SetupError::new(
            "ND-92-08",
            "capture.interface",
            format!("{interface} cannot be captured on ({e})"),
            fix,
        )
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
            SetupError::new("ND-104-04", "capture.filter", what, "See pcap-filter(7)")
        })?;
    }
    Ok(source)
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
