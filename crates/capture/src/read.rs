//! Frames of a recording.

use pcap::{Capture, Error, Linktype, Precision};
use profile::file;
use std::path::Path;

/// Most frames that are taken from a recording, and the longest.
const FRAMES: usize = 65_536;
const LONGEST: usize = 16_380;
/// Most bytes of all frames.
const BYTES: usize = 128 << 20;
/// The smallest Ethernet frame, without FCS; recordings of what a host sends have shorter ones.
const SHORTEST: usize = 60;

/// All frames of a pcap or pcapng file, each with its time in nanoseconds; or why not.
pub fn frames(path: impl AsRef<Path>) -> Result<Vec<(u64, Vec<u8>)>, String> {
    let path = path.as_ref();
    let said = |why: Error| format!("{} cannot be read: {why}", path.display());
    let open = file::open(path).map_err(|why| format!("{} cannot be read: {why}", path.display()))?;
    let mut file = Capture::from_file_with_precision(file::path_of(&open), Precision::Nano).map_err(said)?;
    let link = file.get_datalink();
    if link != Linktype::ETHERNET {
        let name = link.get_name().unwrap_or_else(|_| link.0.to_string());
        return Err(format!("{} holds {name} packets, not Ethernet frames", path.display()));
    }
    let (mut frames, mut bytes) = (Vec::new(), 0);
    loop {
        let packet = match file.next_packet() {
            Ok(packet) => packet,
            Err(Error::NoMorePackets) => break,
            Err(why) => return Err(said(why)),
        };
        let number = frames.len() + 1;
        let (kept, len) = (packet.header.caplen as usize, packet.header.len as usize);
        if kept < len {
            return Err(format!("{}: frame {number} was cut from {len} to {kept} bytes", path.display()));
        }
        if len > LONGEST {
            return Err(format!("{}: frame {number} has {len} bytes, more than {LONGEST}", path.display()));
        }
        if number > FRAMES {
            return Err(format!("{} has more than {FRAMES} frames", path.display()));
        }
        bytes += len;
        if bytes > BYTES {
            return Err(format!("{} has more than {BYTES} bytes of frames", path.display()));
        }
        let stamp = packet.header.ts;
        // With nanosecond precision libpcap keeps nanoseconds where microseconds were.
        let at = stamp.tv_sec as u64 * 1_000_000_000 + stamp.tv_usec as u64;
        let mut frame = packet.data.to_vec();
        frame.resize(frame.len().max(SHORTEST), 0);
        frames.push((at, frame));
    }
    if frames.is_empty() { Err(format!("{} has no frame", path.display())) } else { Ok(frames) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Packet;
    use crate::file::Output;
    use pcap_file::DataLink;
    use std::time::Duration;

    fn written(link: DataLink, packets: &[(u64, &[u8], u32)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.pcapng");
        let mut output = Output::create(&path, link, "x", 65_535, 1 << 20).expect("a file");
        for (at, data, len) in packets {
            let stamp = Duration::from_nanos(*at);
            let packet = Packet { stamp, data, len: *len, direction: None };
            assert!(output.write(&packet).expect("written"));
        }
        output.flush().expect("on the disk");
        folder
    }

    #[test]
    fn what_was_recorded_is_read_to_the_nanosecond() {
        let start = 1_700_000_000_000_000_001;
        let long = [7; 90];
        let folder =
            written(DataLink::ETHERNET, &[(start, &[1; 42], 42), (start + 1_500_000_003, &long, 90)]);
        let frames = frames(folder.path().join("x.pcapng")).expect("two frames");
        assert_eq!((frames[0].0, frames[1].0), (start, start + 1_500_000_003));
        assert_eq!((frames[0].1.len(), &frames[0].1[..42], &frames[1].1[..]), (60, &[1; 42][..], &long[..]));
    }

    #[test]
    fn what_cannot_be_sent_is_named() {
        let said = |folder: tempfile::TempDir| frames(folder.path().join("x.pcapng")).expect_err("a fault");
        assert!(said(written(DataLink::RAW, &[(1, &[1; 42], 42)])).contains("not Ethernet"));
        assert!(
            said(written(DataLink::ETHERNET, &[(1, &[1; 42], 99)])).contains("frame 1 was cut from 99 to 42")
        );
        assert!(said(written(DataLink::ETHERNET, &[])).contains("no frame"));
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("x.pcapng"), "no recording").expect("written");
        assert!(said(folder).contains("cannot be read"));
        assert!(frames("/dev/zero").expect_err("no file").contains("not a regular file"));
        assert!(frames("/nowhere/x.pcap").expect_err("no file").contains("cannot be read"));
    }
}
