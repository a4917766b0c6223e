//! Audio that a call plays: a tone, or a sample from a file, encoded once for both laws of G.711 and repeated.

use crate::g711::{Law, RATE, amplitude};
use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use rtp_types::RtpPacket;
use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::sync::Arc;

/// Longest sample: ten minutes.
const SAMPLES_MAX: usize = 600 * RATE as usize;
/// Largest capture that is read, bytes.
pub const PCAP_MAX: u64 = 64 << 20;

/// Why a file holds no audio to play.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClipError {
    /// It is no WAV.
    #[error("it is no WAV file: {0}")]
    Wav(String),
    /// It is WAV, and not 8 kHz, mono, 16 bits.
    #[error("it has {rate} Hz, {channels} channels and {bits} bits: 8,000 Hz, mono and 16 bits are played")]
    Form {
        /// Samples a second.
        rate: u32,
        /// Channels.
        channels: u16,
        /// Bits of a sample.
        bits: u16,
    },
    /// It is no capture.
    #[error("it is no pcap or pcapng file: {0}")]
    Pcap(String),
    /// It is a capture without G.711.
    #[error("it has no RTP packets with G.711 (payload type 0 or 8)")]
    NoRtp,
    /// There is nothing in it.
    #[error("it has no samples")]
    Empty,
    /// There is too much in it.
    #[error("it is longer than ten minutes")]
    Long,
}

/// Audio, encoded: it is played from the start and repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clip {
    mu: Arc<[u8]>,
    a: Arc<[u8]>,
}

impl Clip {
    fn of(samples: &[i16]) -> Result<Self, ClipError> {
        match samples.len() {
            0 => Err(ClipError::Empty),
            n if n > SAMPLES_MAX => Err(ClipError::Long),
            _ => {
                let encoded = |law: Law| samples.iter().map(|sample| law.encode(*sample)).collect();
                Ok(Self { mu: encoded(Law::Mu), a: encoded(Law::A) })
            }
        }
    }

    /// A sine of `frequency` Hz at `level` dBm0: one second, which whole periods fill.
    pub fn tone(frequency: u16, level: f64) -> Self {
        let (peak, step) = (amplitude(level), TAU * f64::from(frequency) / f64::from(RATE));
        let samples: Vec<i16> =
            (0..RATE).map(|n| (peak * (step * f64::from(n)).sin()).round() as i16).collect();
        let encoded = |law: Law| samples.iter().map(|sample| law.encode(*sample)).collect();
        Self { mu: encoded(Law::Mu), a: encoded(Law::A) }
    }

    /// A WAV file: 8 kHz, mono, 16 bits.
    pub fn wav(file: &[u8]) -> Result<Self, ClipError> {
        let mut reader = hound::WavReader::new(file).map_err(|e| ClipError::Wav(e.to_string()))?;
        let form = reader.spec();
        let fits = form.sample_rate == RATE
            && form.channels == 1
            && form.bits_per_sample == 16
            && form.sample_format == hound::SampleFormat::Int;
        if !fits {
            return Err(ClipError::Form {
                rate: form.sample_rate,
                channels: form.channels,
                bits: form.bits_per_sample,
            });
        }
        let samples = reader.samples::<i16>().take(SAMPLES_MAX + 1).collect::<Result<Vec<_>, _>>();
        Self::of(&samples.map_err(|e| ClipError::Wav(e.to_string()))?)
    }

    /// Bytes of G.711 without a header.
    pub fn raw(file: &[u8], law: Law) -> Result<Self, ClipError> {
        Self::of(&file.iter().take(SAMPLES_MAX + 1).map(|byte| law.decode(*byte)).collect::<Vec<_>>())
    }

    /// The payloads of the first G.711 stream of a capture (pcap or pcapng), in the order of their sequence numbers.
    pub fn pcap(file: &[u8]) -> Result<Self, ClipError> {
        let mut stream: Option<(u32, Law, u16)> = None;
        let mut payloads: BTreeMap<i32, Vec<i16>> = BTreeMap::new();
        each_packet(file, |link, frame| {
            let Some(packet) = udp_payload(link, frame).and_then(|udp| RtpPacket::parse(udp).ok()) else {
                return;
            };
            let Some(law) = Law::of(packet.payload_type()).filter(|_| packet.payload_len() > 0) else {
                return;
            };
            let (ssrc, law, first) = *stream.get_or_insert((packet.ssrc(), law, packet.sequence_number()));
            if packet.ssrc() == ssrc && payloads.len() <= SAMPLES_MAX / 80 {
                let place = i32::from(packet.sequence_number().wrapping_sub(first) as i16);
                let samples = packet.payload().iter().map(|byte| law.decode(*byte)).collect();
                payloads.entry(place).or_insert(samples);
            }
        })?;
        if payloads.is_empty() {
            return Err(ClipError::NoRtp);
        }
        Self::of(&payloads.into_values().flatten().collect::<Vec<_>>())
    }

    /// Its bytes under a law.
    pub fn bytes(&self, law: Law) -> &Arc<[u8]> {
        match law {
            Law::Mu => &self.mu,
            Law::A => &self.a,
        }
    }
}

/// Show `see` every frame of a capture.
fn each_packet(file: &[u8], mut see: impl FnMut(DataLink, &[u8])) -> Result<(), ClipError> {
    let bad = |e: pcap_file::PcapError| ClipError::Pcap(e.to_string());
    if file.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) {
        let mut reader = PcapNgReader::new(file).map_err(bad)?;
        let mut links = Vec::new();
        while let Some(block) = reader.next_block() {
            match block.map_err(bad)? {
                Block::InterfaceDescription(interface) => links.push(interface.linktype),
                Block::EnhancedPacket(packet) => {
                    if let Some(link) = links.get(packet.interface_id as usize) {
                        see(*link, &packet.data);
                    }
                }
                _ => {}
            }
        }
        return Ok(());
    }
    let mut reader = PcapReader::new(file).map_err(bad)?;
    let link = reader.header().datalink;
    while let Some(packet) = reader.next_packet() {
        see(link, &packet.map_err(bad)?.data);
    }
    Ok(())
}

/// The payload of a frame's UDP datagram.
fn udp_payload(link: DataLink, frame: &[u8]) -> Option<&[u8]> {
    let sliced = match link {
        DataLink::ETHERNET => etherparse::SlicedPacket::from_ethernet(frame),
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => etherparse::SlicedPacket::from_ip(frame),
        DataLink::LINUX_SLL => etherparse::SlicedPacket::from_linux_sll(frame),
        _ => return None,
    };
    match sliced.ok()?.transport? {
        etherparse::TransportSlice::Udp(udp) => Some(udp.payload()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtp_types::RtpPacketBuilder;

    #[test]
    fn a_tone_has_its_frequency_and_joins_its_own_start() {
        let clip = Clip::tone(1004, -10.0);
        let samples: Vec<i16> = clip.bytes(Law::A).iter().map(|byte| Law::A.decode(*byte)).collect();
        assert_eq!(samples.len(), RATE as usize);
        let crossings = samples.windows(2).filter(|pair| pair[0] < 0 && pair[1] >= 0).count();
        assert!((1003..=1005).contains(&crossings), "{crossings}");
        let peak = samples.iter().map(|sample| sample.unsigned_abs()).max().expect("samples");
        assert!((f64::from(peak) / amplitude(-10.0) - 1.0).abs() < 0.04, "{peak}");
    }

    fn wav(rate: u32, channels: u16, samples: &[i16]) -> Vec<u8> {
        let mut file = std::io::Cursor::new(Vec::new());
        let spec = hound::WavSpec {
            channels,
            sample_rate: rate,
            bits_per_sample: 16,
            sample_format: hound::SampleFormat::Int,
        };
        let mut writer = hound::WavWriter::new(&mut file, spec).expect("a file");
        samples.iter().for_each(|sample| writer.write_sample(*sample).expect("written"));
        writer.finalize().expect("complete");
        file.into_inner()
    }

    #[test]
    fn a_wav_is_played_as_it_is_or_refused_with_the_reason() {
        let clip = Clip::wav(&wav(8_000, 1, &[0, 1000, -1000])).expect("fits");
        assert_eq!(**clip.bytes(Law::Mu), [0, 1000, -1000].map(|sample| Law::Mu.encode(sample)));
        assert_eq!(
            Clip::wav(&wav(16_000, 2, &[0, 0])),
            Err(ClipError::Form { rate: 16_000, channels: 2, bits: 16 })
        );
        assert_eq!(Clip::wav(&wav(8_000, 1, &[])), Err(ClipError::Empty));
        assert!(matches!(Clip::wav(b"MP3"), Err(ClipError::Wav(_))));
    }

    #[test]
    fn raw_bytes_are_transcoded_for_the_other_law() {
        let clip = Clip::raw(&[0xff, 0x80], Law::Mu).expect("bytes");
        assert_eq!((&**clip.bytes(Law::Mu), clip.bytes(Law::A)[0]), (&[0xff, 0x80][..], 0xd5));
        assert_eq!(Clip::raw(&[], Law::A), Err(ClipError::Empty));
    }

    #[test]
    fn a_capture_gives_its_first_stream_in_order() {
        let mut file = Vec::new();
        let mut writer = pcap_file::pcap::PcapWriter::new(&mut file).expect("a file");
        for (ssrc, sequence, payload_type, sample) in
            [(1, 65_535, 8, 1u8), (2, 7, 0, 9), (1, 1, 8, 3), (1, 0, 8, 2), (1, 0, 8, 2), (1, 2, 101, 4)]
        {
            let rtp = RtpPacketBuilder::<&[u8], &[u8]>::new()
                .ssrc(ssrc)
                .sequence_number(sequence)
                .payload_type(payload_type)
                .payload(&[sample])
                .write_vec()
                .expect("a packet");
            let builder = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
                .ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64)
                .udp(4000, 5000);
            let mut frame = Vec::new();
            builder.write(&mut frame, &rtp).expect("a frame");
            let packet = pcap_file::pcap::PcapPacket::new(Default::default(), frame.len() as u32, &frame);
            writer.write_packet(&packet).expect("written");
        }
        assert_eq!(**Clip::pcap(&file).expect("a stream").bytes(Law::A), [1, 2, 3]);
        assert!(matches!(Clip::pcap(b"not a capture at all, but long"), Err(ClipError::Pcap(_))));
        assert_eq!(Clip::pcap(&file[..24]), Err(ClipError::NoRtp));
    }
}
