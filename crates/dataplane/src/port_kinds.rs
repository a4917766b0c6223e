//! Which kinds of DPDK ports work on this machine, and what they offer: as they say when one of each is opened.

use crate::ports::setup_error;
use dpdk::{Eal, EalOptions, Mempool, Port, PortConfig, PortInfo};
use run::SetupError;
use serde::Serialize;
use std::path::Path;

/// One kind of port, or one NIC.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortKind {
    /// `tap`, or the address of a NIC.
    pub name: String,
    /// DPDK's driver for it; empty when none could be opened.
    pub driver: String,
    /// Most receive queues.
    pub rx_queues: u16,
    /// Most transmit queues.
    pub tx_queues: u16,
    /// What it could do by itself.
    pub offers: Vec<&'static str>,
    /// Why none could be opened.
    pub error: Option<SetupError>,
}

impl PortKind {
    fn new(name: &str, found: dpdk::Result<PortInfo>) -> Self {
        let name = name.to_owned();
        match found {
            Ok(info) => Self {
                name,
                driver: info.driver,
                rx_queues: info.max_rx_queues,
                tx_queues: info.max_tx_queues,
                offers: info.offers,
                error: None,
            },
            Err(why) => Self {
                error: Some(setup_error(&name, &why)),
                name,
                driver: String::new(),
                rx_queues: 0,
                tx_queues: 0,
                offers: Vec::new(),
            },
        }
    }
}

/// A recording without frames.
const NO_FRAMES: [u8; 24] =
    [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];

/// Open one port of each kind, and each NIC named, and close it again; sockets and files are made in `folder`. Opens a tap and
/// a raw socket: in a network namespace of its own nobody sees them.
pub fn ask(nics: &[String], huge_pages: bool, folder: &Path) -> Result<Vec<PortKind>, SetupError> {
    let options = EalOptions { huge_pages, memory_mib: 64, pci: nics.to_vec(), extra: Vec::new() };
    let eal = Eal::start(&options).map_err(|why| setup_error("dpdk", &why))?;
    let pool = Mempool::new(eal, 1_023, 2_048).map_err(|why| setup_error("dpdk", &why))?;
    let file = |name: &str| folder.join(name).display().to_string();
    std::fs::write(folder.join("in.pcap"), NO_FRAMES).map_err(|why| {
        SetupError::new("ND-92-09", file("in.pcap"), why.to_string(), "Give a folder that can be written")
    })?;
    let open = |device: &str| Port::open(eal, device);
    let info = |device: &str| open(device)?.info();
    let virtual_kinds = [
        ("pair", "pair:kinds".to_owned()),
        ("null", "null".to_owned()),
        ("memif", format!("net_memif,role=server,id=0,socket-abstract=no,socket={}", file("memif"))),
        ("pcap", format!("net_pcap,rx_pcap={},tx_pcap={}", file("in.pcap"), file("out.pcap"))),
        ("tap", "tap:ndkinds".to_owned()),
        ("af_packet", "af_packet:lo".to_owned()),
        ("af_xdp", "af_xdp:lo".to_owned()),
        ("vhost", format!("net_vhost,iface={}", file("vhost"))),
    ];
    let mut kinds: Vec<PortKind> =
        virtual_kinds.iter().map(|(name, device)| PortKind::new(name, info(device))).collect();
    // virtio has something to offer only beside its host.
    let host = open(&format!("net_vhost,iface={}", file("virtio")))
        .and_then(|host| host.start(&PortConfig::default(), &pool).map(|queues| (host, queues)));
    kinds.push(PortKind::new("virtio", host.and_then(|_host| info(&format!("virtio:{}", file("virtio"))))));
    kinds.extend(nics.iter().map(|nic| PortKind::new(nic, info(nic))));
    Ok(kinds)
}
