//! Ports over AF_PACKET sockets, under the name and with the arguments of DPDK's driver `net_af_packet`. That driver asks the
//! kernel to reassemble IPv4 fragments before it hands them out (`PACKET_FANOUT_FLAG_DEFRAG`), even with one queue: the kernel's
//! reassembly knows no VLANs, and a datagram longer than a frame of the ring is lost. It drops frames too long for the interface
//! without a count, never reads the kernel's count of dropped frames, and does not tell 802.1ad tags from 802.1Q ones.

mod queues;
mod ring;
mod socket;

use crate::info::Link;
use crate::interface::InterfaceCalls;
use crate::mempool::Mempool;
pub(crate) use queues::{Rx, Tx};
use ring::Layout;
use socket::PacketSocket;
use std::ffi::CString;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What it is called.
pub(crate) const DRIVER: &str = "net_af_packet";
/// What its link says, Mbit/s: that of DPDK's driver.
const SPEED: u32 = 10_000;
/// Frames in each ring by default.
const FRAMES: u32 = 512;
/// Most queues of a port: sockets of one fanout group.
const QUEUES: u16 = 256;
/// Most bytes of one ring.
const LARGEST: u64 = 1 << 30;

/// What the arguments ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arguments {
    interface: String,
    queues: u16,
    /// Bytes of a place in a ring; `None`: as many as the interface's MTU needs.
    frame_size: Option<u32>,
    /// Bytes that the kernel allocates at once; `None`: as few as a place needs.
    block_size: Option<u32>,
    frames: u32,
    qdisc_bypass: bool,
}

impl Arguments {
    /// Those of DPDK's driver.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut read = Self {
            interface: String::new(),
            queues: 1,
            frame_size: None,
            block_size: None,
            frames: FRAMES,
            qdisc_bypass: true,
        };
        for argument in text.split(',').filter(|argument| !argument.is_empty()) {
            let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
            let number = |least: u32, most: u32| match value.parse() {
                Ok(number) if (least..=most).contains(&number) => Ok(number),
                _ => Err(format!("{key}={value} is no number from {least} to {most}")),
            };
            match key {
                "iface" if (1..16).contains(&value.len()) && !value.contains('/') => {
                    value.clone_into(&mut read.interface);
                }
                "iface" => return Err(format!("{value} is no interface name of 1 to 15 characters")),
                "qpairs" => read.queues = number(1, QUEUES.into())? as u16,
                "framesz" => read.frame_size = Some(number(256, 1 << 17)?),
                "blocksz" => read.block_size = Some(number(256, 1 << 24)?),
                "framecnt" => read.frames = number(1, 1 << 20)?,
                "qdisc_bypass" => read.qdisc_bypass = number(0, 1)? == 1,
                _ => {
                    return Err(format!(
                        "{key} is no argument of {DRIVER}: iface, qpairs, blocksz, framesz, framecnt, qdisc_bypass"
                    ));
                }
            }
        }
        if read.interface.is_empty() {
            return Err("it lacks iface=, the interface".into());
        }
        Ok(read)
    }

    /// How the rings are laid out, over an interface with this MTU.
    fn layout(&self, mtu: u32) -> io::Result<Layout> {
        let layout = Layout::new(self.frame_size, self.block_size, self.frames, mtu);
        let bad = || io::Error::new(io::ErrorKind::InvalidInput, "framesz, blocksz and framecnt do not fit");
        layout.filter(|layout| layout.bytes() as u64 <= LARGEST).ok_or_else(bad)
    }
}

/// Counters that the queues write and the port reads.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    rx_frames: AtomicU64,
    rx_bytes: AtomicU64,
    /// Frames longer than a place of the ring, of which the kernel kept the beginning.
    truncated: AtomicU64,
    /// Bursts for which the pool had no packets.
    no_memory: AtomicU64,
    tx_frames: AtomicU64,
    tx_bytes: AtomicU64,
    /// Frames that the kernel did not take.
    tx_errors: AtomicU64,
    /// The interface's MTU, as it was asked for last.
    mtu: AtomicU32,
}

/// A port of this kind.
#[derive(Debug)]
pub(crate) struct AfPacketPort {
    /// The interface's number, which it keeps when it is renamed.
    pub(crate) index: u32,
    sockets: Vec<Arc<PacketSocket>>,
    layout: Layout,
    counters: Arc<Counters>,
    /// Frames that the kernel dropped before the port was started: the first answer of each socket has those after the one before.
    dropped: Mutex<u64>,
}

/// The counters of a port.
pub(crate) struct Counts {
    pub(crate) received: (u64, u64),
    pub(crate) sent: (u64, u64),
    /// Dropped by the kernel since a ring was full.
    pub(crate) dropped: u64,
    pub(crate) truncated: u64,
    pub(crate) no_memory: u64,
    pub(crate) tx_errors: u64,
}

impl AfPacketPort {
    /// Open the sockets, which receive nothing yet.
    pub(crate) fn open(arguments: &Arguments) -> io::Result<Self> {
        let name = CString::new(arguments.interface.as_str())?;
        // SAFETY: the name is NUL-terminated and only read.
        let index = unsafe { nix::libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let mtu = InterfaceCalls::new(index)?.mtu()?;
        let layout = arguments.layout(mtu.unsigned_abs())?;
        let open = |_| PacketSocket::open(&layout, arguments.qdisc_bypass).map(Arc::new);
        let sockets = (0..arguments.queues).map(open).collect::<io::Result<_>>()?;
        let port = Self { index, sockets, layout, counters: Arc::default(), dropped: Mutex::default() };
        port.refresh_state();
        Ok(port)
    }

    /// Receive from here on, by so many queues, each with a socket of its own.
    pub(crate) fn start(&self, rx: u16, tx: u16, pool: &Mempool) -> io::Result<(Vec<Rx>, Vec<Tx>)> {
        let used = &self.sockets[..usize::from(rx).min(self.sockets.len())];
        let mut group = None;
        for socket in used {
            socket.bind(self.index)?;
            if used.len() > 1 {
                group = Some(socket.join(group)?);
            }
        }
        // One that only sends is bound too, to no protocol.
        for socket in &self.sockets[used.len()..] {
            socket.bind_to_send(self.index)?;
        }
        *self.dropped.lock().unwrap_or_else(PoisonError::into_inner) = 0;
        self.sockets.iter().for_each(|socket| _ = socket.drops());
        self.refresh_state();
        // A socket must be bound before it joins: for a moment it has the frames of all.
        let several = used.len() > 1;
        let rx = used.iter().map(|socket| Rx::new(socket, self.layout, &self.counters, pool, several));
        let tx =
            self.sockets.iter().take(tx.into()).map(|socket| Tx::new(socket, self.layout, &self.counters));
        Ok((rx.collect(), tx.collect()))
    }

    pub(crate) fn queues(&self) -> u16 {
        self.sockets.len() as u16
    }

    /// The longest IP packet that fits a place of the rings, with a tag before it.
    pub(crate) fn max_mtu(&self) -> u16 {
        u16::try_from(self.layout.room().saturating_sub(18)).unwrap_or(u16::MAX)
    }

    pub(crate) fn set_mtu(&self, mtu: u16) -> io::Result<()> {
        if mtu > self.max_mtu() {
            let why = format!("its rings have room for packets of {} bytes: set framesz", self.max_mtu());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        InterfaceCalls::new(self.index)?.set_mtu(mtu.into())?;
        self.refresh_state();
        Ok(())
    }

    pub(crate) fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        InterfaceCalls::new(self.index)?.set_mac(mac)
    }

    pub(crate) fn mac(&self) -> [u8; 6] {
        InterfaceCalls::new(self.index).and_then(|mut calls| calls.mac()).unwrap_or_default()
    }

    pub(crate) fn link(&self) -> Link {
        let running = InterfaceCalls::new(self.index).and_then(|mut calls| calls.is_running());
        Link { up: running.unwrap_or(false), mbps: SPEED }
    }

    /// Ask what others may have changed.
    fn refresh_state(&self) {
        if let Ok(mtu) = InterfaceCalls::new(self.index).and_then(|mut calls| calls.mtu()) {
            self.counters.mtu.store(mtu.unsigned_abs(), Ordering::Relaxed);
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.refresh_state();
        let dropped = {
            let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
            // The kernel begins again at 0 with each answer.
            *dropped += self.sockets.iter().map(|socket| socket.drops()).sum::<u64>();
            *dropped
        };
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &*self.counters;
        Counts {
            received: (now(&counters.rx_frames), now(&counters.rx_bytes)),
            sent: (now(&counters.tx_frames), now(&counters.tx_bytes)),
            dropped,
            truncated: now(&counters.truncated),
            no_memory: now(&counters.no_memory),
            tx_errors: now(&counters.tx_errors),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_those_of_dpdk_s_driver() {
        let read =
            Arguments::read("iface=veth0,qpairs=2,framecnt=4096,framesz=4096,blocksz=8192,qdisc_bypass=0");
        let read = read.unwrap();
        assert_eq!((read.interface.as_str(), read.queues, read.frames), ("veth0", 2, 4096));
        assert_eq!((read.frame_size, read.block_size, read.qdisc_bypass), (Some(4096), Some(8192), false));
        assert!(Arguments::read("iface=veth0").unwrap().qdisc_bypass);
        let wrong = "iface= iface=sixteen_letters_ qpairs=2 iface=a,qpairs=0 iface=a,framecnt=0 iface=a,qdisc_bypass=2 \
                     iface=a,framesz=1 iface=a,colour=red iface=a/b";
        for wrong in wrong.split(' ') {
            assert!(Arguments::read(wrong).is_err(), "{wrong}");
        }
    }
}
