//! The pcapng file.

use super::{Direction, Packet};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, PcapError};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// A file that grows to its limit, packet by packet. What is written to it are whole blocks: it can be read whenever
/// the daemon dies.
pub struct Output {
    /// Blocks that are not in the file yet.
    writer: PcapNgWriter<Vec<u8>>,
    file: File,
    /// Bytes of the file, up to the end of its last whole block.
    whole: u64,
    limit: u64,
    /// Packets written.
    pub packets: u64,
    /// Bytes they take.
    pub bytes: u64,
}

/// Bytes of a packet's block beside its data, and more when its direction is told.
const BLOCK: u64 = 32;
const FLAGS: u64 = 12;
/// Blocks that are written at once.
const CHUNK: usize = 256 << 10;

/// What the system said, where the library has words of its own for it ("Error reading bytes").
fn cause(e: PcapError) -> io::Error {
    match e {
        PcapError::IoError(e) => e,
        other => io::Error::other(other),
    }
}

impl Output {
    /// A new file, for packets of one interface.
    pub fn create(path: &Path, link: DataLink, interface: &str, snap: u32, limit: u64) -> io::Result<Self> {
        let file = profile::file::create(path)?;
        let mut writer = PcapNgWriter::new(Vec::with_capacity(2 * CHUNK)).map_err(cause)?;
        let description = InterfaceDescriptionBlock {
            linktype: link,
            snaplen: snap,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(interface)),
                InterfaceDescriptionOption::IfTsResol(9), // nanoseconds
            ],
        };
        writer.write_pcapng_block(description).map_err(cause)?;
        let mut output = Self { writer, file, whole: 0, limit, packets: 0, bytes: 0 };
        output.flush()?;
        Ok(output)
    }

    /// Write a packet; `false` when that would go beyond the limit.
    pub fn write(&mut self, packet: &Packet<'_>) -> io::Result<bool> {
        let flags = packet.direction.map_or(0, |_| FLAGS);
        let size = packet.data.len().next_multiple_of(4) as u64 + BLOCK + flags;
        if self.bytes + size > self.limit {
            return Ok(false);
        }
        // draft-ietf-opsawg-pcapng section 4.3.1: the lowest two bits tell the direction
        let flags = packet.direction.map(|direction| match direction {
            Direction::In => EnhancedPacketOption::Flags(1),
            Direction::Out => EnhancedPacketOption::Flags(2),
        });
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: packet.stamp,
            original_len: packet.len,
            data: Cow::Borrowed(packet.data),
            options: flags.into_iter().collect(),
        };
        self.writer.write_pcapng_block(block).map_err(cause)?;
        self.packets += 1;
        self.bytes += size;
        if self.writer.get_mut().len() >= CHUNK {
            self.flush()?;
        }
        Ok(true)
    }

    /// All that was written into the file. Where there is no room for it, the file ends with its last whole block.
    pub fn flush(&mut self) -> io::Result<()> {
        let blocks = self.writer.get_mut();
        let written = self.file.write_all(blocks);
        if written.is_ok() {
            self.whole += blocks.len() as u64;
        } else {
            self.file.set_len(self.whole)?;
        }
        blocks.clear();
        written
    }
}
