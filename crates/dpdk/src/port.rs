//! Ethernet ports: opened by device string, used through queues, closed when the last queue is gone.

use crate::af_packet::{self, AfPacketPort};
use crate::batch::BURST;
use crate::cable;
use crate::device::Device;
use crate::eal::Eal;
use crate::error::{self, Result};
use crate::info::{Link, PortInfo, PortStats};
use crate::interface::Interface;
use crate::memif_port::{self, MemifPort};
use crate::mempool::Mempool;
use crate::offload::{Offloads, Stamps, offers};
use crate::peer_watch::PeerWatch;
use crate::ring::{self, Direct};
use crate::rss::Rss;
use crate::xdp_sockets::XdpSockets;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::mem::zeroed;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

mod lifecycle;
mod queues;

use queues::{DirectRx, DirectTx};
pub use queues::{RxQueue, TxQueue};

/// How a port is set up.
#[derive(Debug, Clone)]
pub struct PortConfig {
    /// Receive queues.
    pub rx_queues: u16,
    /// Transmit queues.
    pub tx_queues: u16,
    /// Packets that each receive queue holds; what the port cannot do is rounded to what it can.
    pub rx_descriptors: u16,
    /// Packets that each transmit queue holds; rounded likewise.
    pub tx_descriptors: u16,
    /// Largest IP packet, bytes. 0 leaves it as it is.
    pub mtu: u16,
    /// Receive frames to any address.
    pub promiscuous: bool,
    /// The port's own address; `None` keeps the one it has.
    pub mac: Option<[u8; 6]>,
    /// How the port itself spreads what it receives over its queues. `None`: it does not.
    pub rss: Option<Rss>,
    /// The work that the port is to do by itself: only such that it offers.
    pub offloads: Offloads,
    /// Most packets that are received or sent at once, 1 to [`BURST`].
    pub burst: u16,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            rx_queues: 1,
            tx_queues: 1,
            rx_descriptors: 1024,
            tx_descriptors: 1024,
            mtu: 0,
            promiscuous: true,
            mac: None,
            rss: None,
            offloads: Offloads::default(),
            burst: BURST as u16,
        }
    }
}

/// A port; clones are handles of the same one. It closes when all handles and queues are gone.
#[derive(Debug, Clone)]
pub struct Port(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    eal: &'static Eal,
    device: Device,
    id: u16,
    source: Source,
    started: AtomicBool,
    /// The kernel's interface below it.
    interface: OnceLock<Interface>,
    /// Its sockets of AF_XDP.
    xdp: Mutex<XdpSockets>,
    /// Whether its RETA is as [`Rss::Address`] asks.
    by_address: AtomicBool,
    /// Frames that its driver found unfit to be sent.
    unfit: AtomicU64,
    /// Frames received and sent by its queues without the driver.
    passed: [Mutex<Vec<Arc<AtomicU64>>>; 2],
}

/// What must be undone when the port is closed.
#[derive(Debug)]
enum Source {
    Cable(cable::CableEnd),
    Virtual {
        name: CString,
        /// What it has open by their descriptors here.
        _files: Vec<File>,
    },
    /// Of DPDK's there is only a port without packets, which has the address.
    Memif {
        name: CString,
        port: MemifPort,
    },
    /// The same.
    AfPacket {
        name: CString,
        port: AfPacketPort,
    },
    Pci,
}

impl Source {
    /// The address that the device string asks for.
    fn mac(&self) -> Option<[u8; 6]> {
        match self {
            Self::Memif { port, .. } => port.mac,
            _ => None,
        }
    }
}

/// Which of two things that both ways have.
const RX: usize = 0;
const TX: usize = 1;

impl Inner {
    /// A queue that is a ring in truth, as which it can be used.
    fn direct(&self, way: usize, queue: u16) -> Option<Direct> {
        let ring = match &self.source {
            // It has one queue.
            Source::Cable(end) => end.rings[way],
            Source::Virtual { name, .. } => ring::of_port(name, queue)?,
            Source::Memif { .. } | Source::AfPacket { .. } | Source::Pci => return None,
        };
        let passed = Arc::default();
        self.passed[way].lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&passed));
        // SAFETY: net_ring's rings and a cable's are made for one user at each end. That is the holder of the queue this
        // is for: a port is started once. He holds the port, too, whose rings stay until it is closed.
        Some(unsafe { Direct::new(ring, passed) })
    }

    /// Frames that passed without the driver.
    fn passed(&self, way: usize) -> u64 {
        let passed = self.passed[way].lock().unwrap_or_else(PoisonError::into_inner);
        passed.iter().map(|passed| passed.load(Ordering::Relaxed)).sum()
    }
}

impl Port {
    /// Set the port up and start it, once; received packets come from `pool`. The queues are then used by
    /// one thread each.
    pub fn start(&self, config: &PortConfig, pool: &Mempool) -> Result<(Vec<RxQueue>, Vec<TxQueue>)> {
        let port = &*self.0;
        if port.started.swap(true, Ordering::Relaxed) {
            return Err(self.failed("starting", -114, "It was started before; open it again."));
        }
        let _watch = PeerWatch::of(&port.device);
        let _control = port.eal.control();
        let info = self.raw_info()?;
        if config.rx_queues > info.max_rx_queues || config.tx_queues > info.max_tx_queues {
            let hint = format!("It has at most {} + {} queues.", info.max_rx_queues, info.max_tx_queues);
            return Err(self.failed("setting queues", -22, hint));
        }
        if port.device.over_interface()
            && let Some(was) = Interface::now(info.if_index)
        {
            let _first = port.interface.set(was);
        }
        // SAFETY: a plain C structure whose all-zero value means "defaults".
        let mut wanted: dpdk_sys::rte_eth_conf = unsafe { zeroed() };
        // Frames longer than a packet's room come in several segments where the port can; elements that
        // need them whole count them as such.
        wanted.rxmode.offloads = info.rx_offload_capa & dpdk_sys::ND_RX_OFFLOAD_SCATTER;
        wanted.txmode.offloads = info.tx_offload_capa & dpdk_sys::ND_TX_OFFLOAD_MULTI_SEGS;
        let (rx, tx) = config.offloads.bits((info.rx_offload_capa, info.tx_offload_capa));
        wanted.rxmode.offloads |= rx;
        wanted.txmode.offloads |= tx;
        let mut key = config.rss.unwrap_or(Rss::Flow).key();
        if config.rss.is_some() {
            wanted.rxmode.mq_mode = dpdk_sys::ND_MQ_RX_RSS;
            let rss = &mut wanted.rx_adv_conf.rss_conf;
            rss.rss_hf = info.flow_type_rss_offloads & dpdk_sys::ND_RSS;
            // A port that does not say how long its key is has DPDK's usual 40 bytes.
            rss.rss_key_len = if info.hash_key_size == 0 { 40 } else { info.hash_key_size };
            rss.rss_key = key.as_mut_ptr();
        }
        // These hand packets on as they are, however long, and know no MTU.
        let any_length =
            config.mtu != 0 && ["net_ring", memif_port::DRIVER].contains(&self.info()?.driver.as_str());
        let over_sockets = match &port.source {
            Source::AfPacket { port, .. } => Some(port),
            _ => None,
        };
        let id = port.id;
        let check = |action, code: i32| match code {
            0.. => Ok(()),
            _ => Err(self.failed(action, code, port.device.hint())),
        };
        let (mut rx_size, mut tx_size) = (config.rx_descriptors, config.tx_descriptors);
        // What queues are made of is beside the port, too; u32::MAX is SOCKET_ID_ANY.
        let node = self.node().unwrap_or(u32::MAX);
        // SAFETY: for all calls below, the port is open and not started, we are the only one to set it up,
        // the pointers outlive the calls, the pool is valid for good, a null queue configuration means the
        // port's own default, and queue numbers are below the counts configured first.
        unsafe {
            check(
                "configuring",
                dpdk_sys::rte_eth_dev_configure(id, config.rx_queues, config.tx_queues, &wanted),
            )?;
            check(
                "sizing queues",
                dpdk_sys::rte_eth_dev_adjust_nb_rx_tx_desc(id, &mut rx_size, &mut tx_size),
            )?;
            let receiving = || {
                (0..config.rx_queues).try_for_each(|queue| {
                    let (none, pool) = (std::ptr::null(), pool.as_ptr());
                    let code = dpdk_sys::rte_eth_rx_queue_setup(id, queue, rx_size, node, none, pool);
                    check("setting up a receive queue", code)
                })
            };
            if port.device.is_af_xdp() {
                let (set_up, sockets) = XdpSockets::opened_by(receiving);
                set_up?;
                *port.xdp.lock().unwrap_or_else(PoisonError::into_inner) = sockets;
            } else {
                receiving()?;
            }
            for queue in 0..config.tx_queues {
                let code = dpdk_sys::rte_eth_tx_queue_setup(id, queue, tx_size, node, std::ptr::null());
                check("setting up a transmit queue", code)?;
            }
            if config.mtu != 0 && !any_length && over_sockets.is_none() {
                check("setting the MTU", dpdk_sys::rte_eth_dev_set_mtu(id, config.mtu))?;
            }
            check("starting", dpdk_sys::rte_eth_dev_start(id))?;
            if matches!(config.rss, Some(Rss::Address(_))) {
                let set = Rss::set_reta(id, info.reta_size, config.rx_queues);
                port.by_address.store(set, Ordering::Relaxed);
            }
            if let Some(mac) = config.mac.or(port.source.mac()).filter(|_| over_sockets.is_none()) {
                let mut mac = dpdk_sys::rte_ether_addr { addr_bytes: mac };
                // Not every virtual port can keep an address; the frames carry ours all the same.
                dpdk_sys::rte_eth_dev_default_mac_addr_set(id, &raw mut mac);
            }
            if config.promiscuous && port.interface.get().is_none() {
                // Ports that cannot are promiscuous by nature (rings, memif, null).
                dpdk_sys::rte_eth_promiscuous_enable(id);
            }
        }
        if let Some(sockets) = over_sockets {
            if config.mtu != 0 {
                let set = sockets.set_mtu(config.mtu);
                set.map_err(|why| {
                    self.failed("setting the MTU", errno(&why), hint(&why, port.device.hint()))
                })?;
            }
            if let Some(mac) = config.mac {
                // Not every interface changes its address while it is up; the frames carry ours all the same.
                let _kept = sockets.set_mac(mac);
            }
        }
        if let Some(below) = port.interface.get()
            && let Err(why) = below.started(config.promiscuous)
        {
            return Err(self.failed("making the interface promiscuous", errno(&why), port.device.hint()));
        }
        let (mut receivers, mut senders) = match &port.source {
            Source::Memif { port: memif, .. } => {
                let (receivers, senders) =
                    memif.start(config.rx_queues, config.tx_queues).map_err(|why| {
                        self.failed(
                            "connecting",
                            -memif_port::errno(&why),
                            memif_port::hint(&why, port.device.hint()),
                        )
                    })?;
                let receivers =
                    receivers.into_iter().map(|one| DirectRx::Memif(Box::new(memif.rx(one, pool))));
                (
                    receivers.collect(),
                    senders.into_iter().map(|one| DirectTx::Memif(Box::new(memif.tx(one)))).collect(),
                )
            }
            Source::AfPacket { port: sockets, .. } => {
                let started = sockets.start(config.rx_queues, config.tx_queues, pool);
                let (receivers, senders) = started.map_err(|why| {
                    self.failed("binding its sockets", errno(&why), hint(&why, port.device.hint()))
                })?;
                (
                    receivers.into_iter().map(|one| DirectRx::AfPacket(Box::new(one))).collect(),
                    senders.into_iter().map(|one| DirectTx::AfPacket(Box::new(one))).collect(),
                )
            }
            _ => (Vec::new(), Vec::new()),
        };
        receivers.reverse();
        senders.reverse();
        let untagged = config.offloads.vlan_strip;
        let burst = usize::from(config.burst).clamp(1, BURST);
        let helped = config.offloads.sending().then_some(config.offloads.vlan_insert);
        let rx = |queue| {
            let direct = receivers.pop().or_else(|| port.direct(RX, queue).map(DirectRx::Ring));
            let (port, _pool) = (self.0.clone(), pool.clone());
            RxQueue { port, queue, direct, untagged, burst, _pool }
        };
        let tx = |queue| {
            let direct = senders.pop().or_else(|| port.direct(TX, queue).map(DirectTx::Ring));
            TxQueue { port: self.0.clone(), queue, direct, helped, burst }
        };
        Ok(((0..config.rx_queues).map(rx).collect(), (0..config.tx_queues).map(tx).collect()))
    }

    /// Whether it was asked to spread frames by an address, and does.
    pub fn goes_by_address(&self) -> bool {
        self.0.by_address.load(Ordering::Relaxed)
    }

    /// The device string, in full.
    pub fn device(&self) -> String {
        self.0.device.to_string()
    }

    /// The NUMA node that the port is on. `None`: none, or all memory is alike (see [`Eal::nodes`]).
    pub fn node(&self) -> Option<u32> {
        // SAFETY: the port is open.
        let node = unsafe { dpdk_sys::rte_eth_dev_socket_id(self.0.id) };
        u32::try_from(node).ok().filter(|node| self.0.eal.nodes().contains(node))
    }

    /// The largest IP packet that the interface of the kernel below the port takes. `None`: there is none.
    pub fn interface_mtu(&self) -> Option<u16> {
        let index = self.raw_info().ok()?.if_index;
        if index == 0 { None } else { Interface::mtu(index) }
    }

    /// What the port can do.
    pub fn info(&self) -> Result<PortInfo> {
        let raw = self.raw_info()?;
        let driver = match &self.0.source {
            Source::Memif { .. } => memif_port::DRIVER.to_owned(),
            Source::AfPacket { .. } => af_packet::DRIVER.to_owned(),
            _ if raw.driver_name.is_null() => String::new(),
            // SAFETY: a non-null driver_name is the driver's static, NUL-terminated name.
            _ => unsafe { CStr::from_ptr(raw.driver_name) }.to_string_lossy().into_owned(),
        };
        Ok(PortInfo {
            driver,
            max_rx_queues: raw.max_rx_queues,
            max_tx_queues: raw.max_tx_queues,
            max_mtu: raw.max_mtu,
            interface: raw.if_index,
            tx_segments: match raw.tx_desc_lim.nb_seg_max {
                0 => u16::MAX,
                most => most,
            },
            offers: offers(&raw),
        })
    }

    /// The port's Ethernet address; all zero when it has none.
    pub fn mac(&self) -> [u8; 6] {
        if let Source::AfPacket { port, .. } = &self.0.source {
            return port.mac();
        }
        let mut mac = dpdk_sys::rte_ether_addr { addr_bytes: [0; 6] };
        // SAFETY: the port is open and `mac` outlives the call.
        unsafe { dpdk_sys::rte_eth_macaddr_get(self.0.id, &raw mut mac) };
        mac.addr_bytes
    }

    /// The state of the link, without waiting for it.
    pub fn link(&self) -> Link {
        match &self.0.source {
            Source::Memif { port, .. } => return Link { up: port.is_up(), mbps: memif_port::SPEED },
            Source::AfPacket { port, .. } => return port.link(),
            _ => {}
        }
        let mut link = dpdk_sys::nd_link { mbps: 0, up: 0, full_duplex: 0 };
        // SAFETY: the port is open and `link` outlives the call.
        let code = unsafe { dpdk_sys::nd_link_get(self.0.id, &raw mut link) };
        Link { up: code == 0 && link.up != 0, mbps: link.mbps }
    }

    /// Rings that its transmit queues have at the other end's process, which may have made fewer. `None`: there is none, or its link is down.
    pub fn tx_rings(&self) -> Option<usize> {
        match &self.0.source {
            Source::Memif { port, .. } => port.tx_rings(),
            _ => None,
        }
    }

    /// Why the link is down, where the port knows.
    pub fn link_fault(&self) -> Option<String> {
        match &self.0.source {
            Source::Memif { port, .. } => port.link_fault(),
            _ => None,
        }
    }

    /// The port's counters.
    pub fn stats(&self) -> PortStats {
        // SAFETY: a plain C structure of numbers; the port is open.
        let raw = unsafe {
            let mut raw: dpdk_sys::rte_eth_stats = zeroed();
            dpdk_sys::rte_eth_stats_get(self.0.id, &raw mut raw);
            raw
        };
        if let Source::AfPacket { port, .. } = &self.0.source {
            let counts = port.counts();
            return PortStats {
                rx_packets: counts.received.0,
                tx_packets: counts.sent.0,
                rx_bytes: counts.received.1,
                tx_bytes: counts.sent.1,
                rx_missed: counts.dropped,
                rx_errors: counts.truncated,
                tx_errors: counts.tx_errors,
                tx_unfit: self.0.unfit.load(Ordering::Relaxed),
                rx_no_memory: counts.no_memory,
            };
        }
        let dropped = self.0.xdp.lock().unwrap_or_else(PoisonError::into_inner).dropped();
        let ([received, sent], malformed, no_memory) = match &self.0.source {
            Source::Memif { port, .. } => (port.passed(), port.malformed(), port.no_memory()),
            _ => Default::default(),
        };
        PortStats {
            rx_packets: raw.ipackets + self.0.passed(RX) + received.0,
            tx_packets: raw.opackets + self.0.passed(TX) + sent.0,
            rx_bytes: raw.ibytes + received.1,
            tx_bytes: raw.obytes + sent.1,
            rx_missed: dropped.unwrap_or(raw.imissed),
            rx_errors: raw.ierrors + malformed,
            tx_errors: raw.oerrors,
            tx_unfit: self.0.unfit.load(Ordering::Relaxed),
            rx_no_memory: raw.rx_nombuf + no_memory,
        }
    }

    /// Where packets have the time at which a port received them, if it was started to stamp them.
    pub fn stamps(&self) -> Result<Stamps> {
        let (mut offset, mut flag) = (0, 0);
        // SAFETY: the EAL runs, and both places outlive the call. All ports share the place in packets.
        let code = unsafe { dpdk_sys::rte_mbuf_dyn_rx_timestamp_register(&raw mut offset, &raw mut flag) };
        match usize::try_from(offset) {
            Ok(offset) if code == 0 => Ok(Stamps { offset, flag }),
            _ => Err(self.failed("making room for time stamps", error::errno(), "")),
        }
    }

    /// The port's own clock, in its own ticks, which stamps are of too. `None`: it cannot be read.
    pub fn clock(&self) -> Option<u64> {
        let mut ticks = 0;
        // SAFETY: the port is open and `ticks` outlives the call.
        let code = unsafe { dpdk_sys::rte_eth_read_clock(self.0.id, &raw mut ticks) };
        (code == 0).then_some(ticks)
    }

    fn raw_info(&self) -> Result<dpdk_sys::rte_eth_dev_info> {
        // SAFETY: a plain C structure that the call fills; the port is open.
        let (code, mut info) = unsafe {
            let mut info: dpdk_sys::rte_eth_dev_info = zeroed();
            (dpdk_sys::rte_eth_dev_info_get(self.0.id, &raw mut info), info)
        };
        if code < 0 {
            return Err(self.failed("asking for its abilities", code, ""));
        }
        // What DPDK says is of the port without packets.
        match &self.0.source {
            Source::Memif { .. } => {
                (info.max_rx_queues, info.max_tx_queues) = (memif_port::QUEUES, memif_port::QUEUES);
            }
            Source::AfPacket { port, .. } => {
                (info.max_rx_queues, info.max_tx_queues) = (port.queues(), port.queues());
                (info.if_index, info.max_mtu) = (port.index, port.max_mtu());
            }
            _ => return Ok(info),
        }
        (info.rx_offload_capa, info.tx_offload_capa) = (0, 0);
        (info.flow_type_rss_offloads, info.reta_size) = (0, 0);
        Ok(info)
    }

    fn failed(&self, action: &'static str, code: i32, hint: impl Into<String>) -> error::Error {
        error::port(&self.0.device.to_string(), action, code, hint)
    }
}

/// The system's number for an error, negative, as DPDK has it.
fn errno(why: &std::io::Error) -> i32 {
    -why.raw_os_error().unwrap_or(nix::libc::EINVAL)
}

/// What to do about an error of ours, which says so itself, or of the system's.
fn hint(why: &std::io::Error, usual: &str) -> String {
    if why.raw_os_error().is_some() { usual.to_owned() } else { why.to_string() }
}

/// Device strings hold no NUL: [`Device`] refuses them.
fn c_string(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}
