//! The packets of a graph: how many there are, and the memory that they take.

use profile::graph::GraphFile;
use protocol::unit::Size;

/// Room for a frame of usual length.
const ROOM: u16 = 2_048;
/// Bytes of an Ethernet header with two tags.
const LINK: u16 = 22;
/// Packets in the pool that all ports share.
const PACKETS: u32 = 16_383;
/// And these for each queue of a port that it has besides the first.
const QUEUED: u32 = 2_048;
/// Bytes that DPDK has of each packet before its frame: itself, and the head room.
const BEFORE: u64 = 128 + 128;

/// Room for a frame: of the port whose link takes the longest.
pub fn room(file: &GraphFile) -> u16 {
    let longest = file.ports.values().filter_map(|port| port.mtu).max().unwrap_or(0);
    longest.saturating_add(LINK).max(ROOM)
}

/// How many packets a graph has at least. Clones are packets, too: as many again.
pub fn least(file: &GraphFile) -> u32 {
    let more: u32 = file.ports.values().map(|port| u32::from(port.queues.saturating_sub(1)) * QUEUED).sum();
    2 * (PACKETS + more)
}

/// What is wrong with the memory that a graph may take, if it cannot hold them, and what to do.
pub fn too_little(file: &GraphFile) -> Option<(String, String)> {
    let (packets, bytes) = (least(file), u64::from(room(file)) + BEFORE);
    let wanted = u64::from(packets) * bytes;
    // Rings, tables of queues and DPDK's own: a quarter as much.
    let enough = Size((wanted / 4 * 5).next_multiple_of(32 << 20));
    let what = || format!("{} do not hold {packets} packets of {bytes} bytes", file.memory);
    (file.memory.0 < wanted).then(|| (what(), format!("Use {enough} or more")))
}
