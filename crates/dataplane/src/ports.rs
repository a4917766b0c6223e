//! Ports opened as their settings say, with all that is known of them.

use crate::memory;
use crate::offloads::{self, TxWorkShare, Use};
use crate::queue_pairs::{NamedQueues, QueuePairs};
use dpdk::{Eal, Mempool, NodePools, Offloads, Port, PortConfig, PortInfo, Rss, RxQueue, TxQueue};
use element::arp_nd;
use element::capture::Taps;
use element::interface_addr::InterfaceAddrs;
use packet::ethernet::Tags;
use packet::frame::MacAddress;
use packet::rss::By;
use profile::{Error as SetupError, Role, parse_mac};
use run::graph::PortFacts;
use std::net::IpAddr;

/// The largest IP packet of Ethernet.
const USUAL_MTU: u16 = 1_500;

/// One port, open.
pub struct OpenPort<'a> {
    /// What it was opened as.
    pub settings: &'a profile::Port,
    /// Its number in the profile.
    pub index: usize,
    /// Its receive queues.
    pub rx: Vec<RxQueue>,
    /// Its transmit queues.
    pub tx: Vec<TxQueue>,
    /// The addresses that it answers for.
    pub addrs: InterfaceAddrs,
    /// How its queues are used.
    pub queues: QueuePairs,
    /// What the driver says of it.
    pub info: PortInfo,
    /// Where its frames can be copied.
    pub taps: &'a Taps,
    /// The port itself.
    pub port: Port,
    /// Packets in the memory of its NUMA node: for what it receives and for what is sent here.
    pub pool: Mempool,
    /// What it does by itself.
    pub does: Offloads,
    /// For how many groups.
    pub share: TxWorkShare,
    /// Most bytes of a packet behind its Ethernet header.
    pub mtu: usize,
    /// The largest IP packet that its link takes.
    pub link_mtu: u16,
}

impl OpenPort<'_> {
    /// Bits per second, if anybody knows.
    pub fn speed(&self) -> Option<f64> {
        let own = || Some(self.port.link().mbps).filter(|mbps| *mbps > 0).map(|mbps| f64::from(mbps) * 1e6);
        self.settings.speed.map(|speed| speed.bits()).or_else(own)
    }

    /// Tell everybody on the link of its addresses, unless there is nobody to tell.
    pub fn announce(&mut self) {
        // At the other end of a cable is a port of ours, which knows; and who names the peer wants no other frames.
        let silent = self.settings.role == Role::L2fwd || self.settings.peer_mac.is_some();
        if !silent && !self.settings.device.starts_with("pair:") {
            arp_nd::announce(&self.addrs, &mut self.tx[0], &self.pool);
        }
    }

    /// How it spreads what it receives.
    fn rss(&self) -> Option<&'static str> {
        let by_address = self.port.goes_by_address();
        (self.queues.rss() && self.info.has_rss()).then_some(match self.settings.rss {
            profile::Rss::Source if by_address => "rss by source",
            profile::Rss::Destination if by_address => "rss by destination",
            _ => "rss",
        })
    }

    /// What it is, for those who watch.
    pub fn facts(&self) -> PortFacts {
        PortFacts {
            name: self.settings.name.clone(),
            device: self.port.device(),
            driver: self.info.driver.clone(),
            mac: MacAddress(self.addrs.bare().mac).to_string(),
            rx_queues: self.queues.rx,
            tx_queues: self.queues.tx,
            uses: self.does.names(&self.info).into_iter().chain(self.rss()).collect(),
            offers: self.info.offers.clone(),
            work: offloads::shares(self.settings, self.does, self.queues, self.share),
        }
    }
}

/// An error of DPDK, told with what DPDK logged.
pub fn setup_error(at: &str, why: &dpdk::Error) -> SetupError {
    let said = why.log().iter().map(|line| format!("; dpdk: {line}")).collect::<String>();
    SetupError::new("ND-92-12", at, why.describe() + &said, why.fix())
}

/// What is wrong with the devices of a profile's ports, as far as it can be told before they are opened.
pub fn check_devices(ports: &[profile::Port]) -> Vec<SetupError> {
    let wrong = |(index, port): (usize, &profile::Port)| {
        let why = port.device.parse::<dpdk::Device>().err()?;
        Some(SetupError::new(
            "ND-104-04",
            format!("transport.dpdk.ports[{index}].device"),
            why.describe(),
            why.fix(),
        ))
    };
    ports.iter().enumerate().filter_map(wrong).collect()
}

/// Whether DPDK can have so much. Of huge pages it sees itself how many there are; and what it has it need not get.
pub fn has_memory(at: &str, bytes: u64, huge_pages: bool) -> Result<(), SetupError> {
    if huge_pages || Eal::running().is_some() {
        return Ok(());
    }
    memory::require_bytes(at, bytes, element::memory::available())
}

/// The address, if the device is on the PCI bus.
pub fn pci(device: &str) -> Option<String> {
    match device.parse() {
        Ok(dpdk::Device::Pci(address)) => Some(address),
        _ => None,
    }
}

/// What those who use a port want of it.
#[derive(Debug, Clone, Default)]
pub struct PortNeeds {
    /// Addresses that its streams come from besides its own: it answers for them.
    pub sources: Vec<IpAddr>,
    /// Whether it sends frames that are to be segmented.
    pub segments: bool,
    /// The longest frame, bytes without FCS.
    pub longest: usize,
    /// The largest IP packet that its link takes, where that is said.
    pub mtu: Option<u16>,
    /// Whether no stream's addresses or ports vary: then RSS keeps each together.
    pub steady: bool,
    /// Whether what it receives is measured as it comes, with nothing before that holds or changes it.
    pub direct: bool,
    /// Workers with a stack each, which need a queue to send by, and hand on what they receive for another.
    pub workers: Option<usize>,
    /// The queues that a graph names; `None`: as many as its settings say and the port has.
    pub queues: Option<NamedQueues>,
}

impl PortNeeds {
    fn frames(&self) -> Use {
        // stacks are what has workers of its own
        Use { segments: self.segments, direct: self.direct, stack: self.workers.is_some() }
    }
}

/// Open and start a port.
pub fn open<'a>(
    eal: &'static Eal,
    (index, settings, taps): (usize, &'a profile::Port, &'a Taps),
    pools: &NodePools,
    needs: &PortNeeds,
) -> Result<OpenPort<'a>, SetupError> {
    let at = format!("transport.dpdk.ports[{index}]");
    let device = |why: dpdk::Error| setup_error(&format!("{at}.device"), &why);
    let port = Port::open(eal, &settings.device).map_err(device)?;
    let wanted = settings.mac.as_deref().and_then(parse_mac);
    let mtu = needs.longest.saturating_sub(packet::ethernet::LEN);
    let mtu = if mtu > usize::from(USUAL_MTU) { u16::try_from(mtu).unwrap_or(u16::MAX) } else { 0 };
    // What the device takes is raised to what is said, and never lowered: that would be others' to feel.
    let low = |said: &u16, usual| port.interface_mtu().unwrap_or(usual) < *said;
    let raised = needs.mtu.filter(|said| low(said, u16::MAX));
    let raised = raised.or(settings.mtu.filter(|said| low(said, USUAL_MTU)));
    let mtu = raised.unwrap_or(mtu).max(mtu);
    let info = port.info().map_err(device)?;
    let queues = match (needs.queues, needs.workers) {
        (Some(named), _) => QueuePairs::from_graph(settings, &info, named),
        (_, Some(workers)) => QueuePairs::for_workers(workers, &info),
        _ => QueuePairs::of(settings, &info, needs.steady),
    };
    let mut does = offloads::choose(settings, &info, needs.frames(), &at)?;
    let config = PortConfig {
        mac: wanted,
        mtu,
        rx_queues: queues.rx as u16,
        tx_queues: queues.tx as u16,
        rss: (queues.rss() && info.has_rss()).then_some(match settings.rss {
            profile::Rss::Flow => Rss::Flow,
            profile::Rss::Source => Rss::Address(By::Source),
            profile::Rss::Destination => Rss::Address(By::Destination),
        }),
        offloads: does,
        burst: settings.burst.unwrap_or(dpdk::BURST as u16),
        ..PortConfig::default()
    };
    let pool = pools.of(&port).map_err(|why| setup_error("transport.dpdk.memory", &why))?;
    let (rx, tx) = port.start(&config, &pool).map_err(device)?;
    // Without a word of it longer ones than usual find no room.
    let link_mtu = needs
        .mtu
        .or(settings.mtu)
        .unwrap_or_else(|| port.interface_mtu().unwrap_or(USUAL_MTU).min(USUAL_MTU));
    if does.rx_timestamp && port.clock().is_none() {
        // Stamps that nobody can tell the time from.
        does.rx_timestamp = false;
        if settings.offloads.setting(profile::Offload::Timestamp) == Some(true) {
            return Err(offloads::lacking(&at, "a clock to read", &info.offers));
        }
    }
    // Ports without an address of their own get one that is locally administered.
    let own = Some(port.mac()).filter(|mac| *mac != [0; 6]);
    let mac = wanted.or(own).unwrap_or([2, 0x6e, 0x64, 0, 0, index as u8]);
    let tags = Tags::vlans(settings.vlan.ids()).unwrap_or_default();
    let own: Vec<IpAddr> = settings.ip.0.iter().map(|address| address.ip).collect();
    let addrs = InterfaceAddrs::new(mac, tags, &own, &needs.sources);
    let (share, mtu) = (TxWorkShare::default(), usize::from(mtu).max(1500));
    Ok(OpenPort {
        settings,
        index,
        rx,
        tx,
        addrs,
        queues,
        info,
        taps,
        port,
        pool,
        does,
        share,
        mtu,
        link_mtu,
    })
}
