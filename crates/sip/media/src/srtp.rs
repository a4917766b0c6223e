//! SRTP and SRTCP (RFC 3711, RFC 6188, RFC 7714) of a call, with keys that SDP carries (RFC 4568).

use protocol::media::Channel;
use rtc_shared::error::Error;
use rtc_srtp::context::Context;
use rtc_srtp::crypto::providers::RingProvider;
use rtc_srtp::crypto::{CryptoError, RTCCryptoProvider};
use rtc_srtp::option::{srtcp_replay_protection, srtp_replay_protection};
use rtc_srtp::protection_profile::ProtectionProfile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Packets behind the highest that are told from repeated ones (RFC 3711 section 3.3.2: 64 at least).
const WINDOW: usize = 128;
/// Sources that are tried; packets of further ones are not authentic. Each takes memory before its packets are checked.
const SOURCES_MAX: usize = 16;
const PROVIDER: RingProvider = RingProvider::new();

/// A suite, by its name in SDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Suite {
    /// AES-128 in counter mode, HMAC-SHA1 of 80 bits (RFC 4568).
    #[serde(rename = "AES_CM_128_HMAC_SHA1_80")]
    Aes128Sha80,
    /// The same with 32 bits for RTP.
    #[serde(rename = "AES_CM_128_HMAC_SHA1_32")]
    Aes128Sha32,
    /// AES-256 in counter mode, HMAC-SHA1 of 80 bits (RFC 6188).
    #[serde(rename = "AES_256_CM_HMAC_SHA1_80")]
    Aes256Sha80,
    /// The same with 32 bits for RTP.
    #[serde(rename = "AES_256_CM_HMAC_SHA1_32")]
    Aes256Sha32,
    /// AES-128 in GCM (RFC 7714).
    #[serde(rename = "AEAD_AES_128_GCM")]
    Aes128Gcm,
    /// AES-256 in GCM.
    #[serde(rename = "AEAD_AES_256_GCM")]
    Aes256Gcm,
}

impl Suite {
    /// All, in the order in which they are offered: first those that most phones have.
    pub const ALL: [Self; 6] = [
        Self::Aes128Sha80,
        Self::Aes128Sha32,
        Self::Aes256Sha80,
        Self::Aes256Sha32,
        Self::Aes256Gcm,
        Self::Aes128Gcm,
    ];

    /// Name in SDP.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes128Sha80 => "AES_CM_128_HMAC_SHA1_80",
            Self::Aes128Sha32 => "AES_CM_128_HMAC_SHA1_32",
            Self::Aes256Sha80 => "AES_256_CM_HMAC_SHA1_80",
            Self::Aes256Sha32 => "AES_256_CM_HMAC_SHA1_32",
            Self::Aes128Gcm => "AEAD_AES_128_GCM",
            Self::Aes256Gcm => "AEAD_AES_256_GCM",
        }
    }

    /// The suite of a name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.name() == name)
    }

    fn profile(self) -> ProtectionProfile {
        match self {
            Self::Aes128Sha80 => ProtectionProfile::Aes128CmHmacSha1_80,
            Self::Aes128Sha32 => ProtectionProfile::Aes128CmHmacSha1_32,
            Self::Aes256Sha80 => ProtectionProfile::Aes256CmHmacSha1_80,
            Self::Aes256Sha32 => ProtectionProfile::Aes256CmHmacSha1_32,
            Self::Aes128Gcm => ProtectionProfile::AeadAes128Gcm,
            Self::Aes256Gcm => ProtectionProfile::AeadAes256Gcm,
        }
    }

    /// Bytes of a master key and the master salt behind it.
    pub fn key_length(self) -> usize {
        self.profile().key_len() + self.profile().salt_len()
    }

    /// A new master key with its salt, from the operating system's random numbers.
    pub fn new_key(self) -> Result<Vec<u8>, KeyError> {
        let mut key = vec![0; self.key_length()];
        PROVIDER.random().fill(&mut key)?;
        Ok(key)
    }
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
#[error("no random numbers for a key of SRTP: {0}")]
pub struct KeyError(#[from] CryptoError);

/// Keys that both sides agreed on. `Debug` leaves them out.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// Suite of both directions.
    pub suite: Suite,
    /// What this side protects with: master key and salt.
    pub local: Vec<u8>,
    /// What the other side protects with.
    pub remote: Vec<u8>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("suite", &self.suite).finish_non_exhaustive()
    }
}

/// Packets of a call that were not taken, by their fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refused {
    /// Their authentication failed: with another key, altered on the way, or not protected at all.
    pub unauthenticated: u64,
    /// The same of reports: SRTCP.
    pub unauthenticated_reports: u64,
    /// They had come before, or are older than the replay window.
    pub replayed: u64,
    /// They came before SDP had told their key: too many to wait for it, or with another one.
    pub early: u64,
}

/// Protection of a call: a context for each direction.
pub(crate) struct Srtp {
    keys: Keys,
    outbound: Context,
    inbound: Inbound,
    /// That of the key before: its last packets may still be on their way.
    before: Option<Inbound>,
    pub refused: Refused,
    /// Packets that were authentic.
    pub authentic: u64,
}

/// What is received with one key.
struct Inbound {
    context: Context,
    sources: Vec<u32>,
}

enum Fault {
    Unauthenticated,
    Replayed,
}

impl Inbound {
    fn new(suite: Suite, key: &[u8]) -> Option<Self> {
        Some(Self { context: context(suite, key)?, sources: Vec::new() })
    }

    /// The packet in the clear.
    fn open(&mut self, channel: Channel, packet: &[u8]) -> Result<Vec<u8>, Fault> {
        let at = if channel == Channel::Rtp { 8 } else { 4 };
        let source = packet.get(at..at + 4).and_then(|source| source.try_into().ok());
        let source = u32::from_be_bytes(source.ok_or(Fault::Unauthenticated)?);
        if !self.sources.contains(&source) {
            if self.sources.len() == SOURCES_MAX {
                return Err(Fault::Unauthenticated);
            }
            self.sources.push(source);
        }
        let opened = match channel {
            Channel::Rtp => self.context.decrypt_rtp(packet),
            Channel::Rtcp => self.context.decrypt_rtcp(packet),
        };
        opened.map(Vec::from).map_err(|why| match why {
            Error::SrtpSsrcDuplicated(..) | Error::SrtcpSsrcDuplicated(..) => Fault::Replayed,
            _ => Fault::Unauthenticated,
        })
    }
}

fn context(suite: Suite, key: &[u8]) -> Option<Context> {
    let profile = suite.profile();
    let (master, salt) = key.split_at_checked(profile.key_len())?;
    let windows = (Some(srtp_replay_protection(WINDOW)), Some(srtcp_replay_protection(WINDOW)));
    Context::new(master, salt, profile, windows.0, windows.1, PROVIDER.crypto()).ok()
}

impl Srtp {
    /// None: a key has not the length that its suite has.
    pub fn new(keys: Keys) -> Option<Self> {
        Some(Self {
            outbound: context(keys.suite, &keys.local)?,
            inbound: Inbound::new(keys.suite, &keys.remote)?,
            before: None,
            refused: Refused::default(),
            authentic: 0,
            keys,
        })
    }

    /// The other side's answer to another offer: what has not changed goes on, with its packet numbers.
    pub fn change(&mut self, keys: Keys) {
        let other_suite = keys.suite != self.keys.suite;
        if (other_suite || keys.remote != self.keys.remote)
            && let Some(inbound) = Inbound::new(keys.suite, &keys.remote)
        {
            self.before = Some(std::mem::replace(&mut self.inbound, inbound));
        }
        if (other_suite || keys.local != self.keys.local)
            && let Some(outbound) = context(keys.suite, &keys.local)
        {
            self.outbound = outbound;
        }
        self.keys = keys;
    }

    /// Protect the packet that begins at `start` and ends with the vector. It is taken away where that cannot be done.
    pub fn protect(&mut self, channel: Channel, start: usize, bytes: &mut Vec<u8>) {
        let packet = bytes.get(start..).unwrap_or_default();
        let protected = match channel {
            Channel::Rtp => self.outbound.encrypt_rtp(packet),
            Channel::Rtcp => self.outbound.encrypt_rtcp(packet),
        };
        bytes.truncate(start);
        bytes.extend_from_slice(&protected.unwrap_or_default());
    }

    /// A received packet in the clear; none: it is refused, and counted.
    pub fn open(&mut self, channel: Channel, packet: &[u8]) -> Option<Vec<u8>> {
        let fault = match self.opened(channel, packet) {
            Ok(packet) => return Some(packet),
            Err(fault) => fault,
        };
        let refused = &mut self.refused;
        *match (fault, channel) {
            (Fault::Replayed, _) => &mut refused.replayed,
            (Fault::Unauthenticated, Channel::Rtp) => &mut refused.unauthenticated,
            (Fault::Unauthenticated, Channel::Rtcp) => &mut refused.unauthenticated_reports,
        } += 1;
        None
    }

    /// The same of a packet that may belong to somebody else's key, so that a refusal is not counted.
    pub fn try_open(&mut self, channel: Channel, packet: &[u8]) -> Option<Vec<u8>> {
        self.opened(channel, packet).ok()
    }

    fn opened(&mut self, channel: Channel, packet: &[u8]) -> Result<Vec<u8>, Fault> {
        let opened = self.inbound.open(channel, packet).or_else(|fault| match (&mut self.before, fault) {
            (Some(before), Fault::Unauthenticated) => before.open(channel, packet),
            (_, fault) => Err(fault),
        });
        self.authentic += u64::from(opened.is_ok());
        opened
    }
}

impl fmt::Debug for Srtp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Srtp")
            .field("keys", &self.keys)
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("digits");
        (0..text.len()).step_by(2).map(digit).collect()
    }

    fn keys(suite: Suite, local: u8, remote: u8) -> Keys {
        let key = |byte: u8| (0..suite.key_length()).map(|n| byte.wrapping_add(n as u8)).collect();
        Keys { suite, local: key(local), remote: key(remote) }
    }

    fn pair(suite: Suite) -> [Srtp; 2] {
        [(1, 2), (2, 1)].map(|(local, remote)| Srtp::new(keys(suite, local, remote)).expect("keys"))
    }

    /// An RTP packet of source 7.
    fn packet(sequence: u16) -> Vec<u8> {
        let [high, low] = sequence.to_be_bytes();
        let mut packet = vec![0x80, 0, high, low, 0, 0, 0, 160, 0, 0, 0, 7];
        packet.extend_from_slice(b"audio of a call");
        packet
    }

    fn sent(side: &mut Srtp, packet: &[u8]) -> Vec<u8> {
        let mut bytes = b"before".to_vec();
        bytes.extend_from_slice(packet);
        side.protect(Channel::Rtp, 6, &mut bytes);
        assert_eq!(&bytes[..6], b"before");
        bytes.split_off(6)
    }

    #[test]
    fn each_suite_protects_both_directions_and_adds_its_tag() {
        for suite in Suite::ALL {
            assert_eq!(Suite::of(suite.name()), Some(suite));
            let [mut here, mut there] = pair(suite);
            let tag = match suite {
                Suite::Aes128Sha80 | Suite::Aes256Sha80 => 10,
                Suite::Aes128Sha32 | Suite::Aes256Sha32 => 4,
                Suite::Aes128Gcm | Suite::Aes256Gcm => 16,
            };
            for n in 0..3 {
                let plain = packet(n);
                let protected = sent(&mut here, &plain);
                assert_eq!(protected.len(), plain.len() + tag, "{suite:?}");
                assert!(protected[..12] == plain[..12] && !protected.windows(5).any(|part| part == b"audio"));
                assert_eq!(there.open(Channel::Rtp, &protected), Some(plain));
            }
            // a receiver report without blocks
            let report = [0x80, 201, 0, 1, 0, 0, 0, 7];
            let mut bytes = report.to_vec();
            there.protect(Channel::Rtcp, 0, &mut bytes);
            assert_eq!(here.open(Channel::Rtcp, &bytes).as_deref(), Some(&report[..]));
            assert_eq!((there.authentic, here.authentic), (3, 1));
        }
    }

    /// Packet and result of libsrtp's test driver, which other implementations check themselves against as well.
    #[test]
    fn a_packet_is_that_of_libsrtp() {
        let key = hex("e1f97a0d3e018be0d64fa32c06de41390ec675ad498afeebb6960b3aabe6");
        let plain = hex("800f1234decafbadcafebabeabababababababababababababababab");
        let expected = hex("800f1234decafbadcafebabe4e55dc4ce79978d88ca4d215949d2402b78d6acc99ea179b8dbb");
        let keys = Keys { suite: Suite::Aes128Sha80, local: key.clone(), remote: key };
        let mut side = Srtp::new(keys).expect("keys");
        assert_eq!(sent(&mut side, &plain), expected);
        assert_eq!(side.open(Channel::Rtp, &expected), Some(plain));
    }

    #[test]
    fn altered_foreign_and_repeated_packets_are_refused_and_counted() {
        let [mut here, mut there] = pair(Suite::Aes128Sha80);
        let good = sent(&mut here, &packet(1));
        for at in 0..good.len() {
            let mut altered = good.clone();
            altered[at] ^= 1;
            assert_eq!(there.open(Channel::Rtp, &altered), None, "byte {at}");
        }
        assert_eq!(there.refused.unauthenticated, good.len() as u64);
        assert!(there.open(Channel::Rtp, &good).is_some());
        assert_eq!(there.open(Channel::Rtp, &good), None);
        assert_eq!(there.refused.replayed, 1);
        let plain = packet(2);
        assert_eq!(there.open(Channel::Rtp, &plain), None, "not protected at all");
        for short in 0..20 {
            assert_eq!(there.open(Channel::Rtp, &good[..short]), None);
            assert_eq!(there.open(Channel::Rtcp, &good[..short]), None);
        }
        let mut stranger = Srtp::new(keys(Suite::Aes128Sha80, 9, 1)).expect("keys");
        assert_eq!(there.open(Channel::Rtp, &sent(&mut stranger, &packet(3))), None, "another key");
        assert_eq!((there.authentic, there.refused.replayed), (1, 1));
    }

    #[test]
    fn a_new_key_takes_over_and_what_is_on_its_way_with_the_old_one_is_taken() {
        let [mut here, mut there] = pair(Suite::Aes128Sha32);
        let old = sent(&mut here, &packet(1));
        here.change(keys(Suite::Aes128Sha80, 5, 6));
        there.change(keys(Suite::Aes128Sha80, 6, 5));
        let new = sent(&mut here, &packet(2));
        assert!(there.open(Channel::Rtp, &new).is_some() && there.open(Channel::Rtp, &old).is_some());
        // the same keys again change nothing: a packet is still known as repeated
        there.change(keys(Suite::Aes128Sha80, 6, 5));
        assert_eq!((there.open(Channel::Rtp, &new), there.refused.replayed), (None, 1));
    }

    #[test]
    fn sequence_numbers_roll_over_and_many_sources_take_no_memory() {
        let [mut here, mut there] = pair(Suite::Aes128Gcm);
        for n in (32_700..65_536).chain(0..40).map(|n: u32| n as u16) {
            assert!(there.open(Channel::Rtp, &sent(&mut here, &packet(n))).is_some(), "{n}");
        }
        for source in 0..1000_u32 {
            let mut packet = packet(1);
            packet[8..12].copy_from_slice(&source.to_be_bytes());
            packet.extend_from_slice(&[0; 16]);
            assert_eq!(there.open(Channel::Rtp, &packet), None);
        }
        assert!(there.inbound.sources.len() <= SOURCES_MAX);
    }

    #[test]
    fn keys_are_new_each_time_of_their_suites_length_and_not_shown() {
        for suite in Suite::ALL {
            let made = [suite.new_key().expect("a key"), suite.new_key().expect("a key")];
            assert!(made[0] != made[1] && made.iter().all(|key| key.len() == suite.key_length()));
            assert!(Srtp::new(Keys { suite, local: made[0].clone(), remote: vec![1; 3] }).is_none());
        }
        let side = Srtp::new(keys(Suite::Aes128Sha80, 65, 66)).expect("keys");
        assert_eq!(format!("{:?}", side.keys), "Keys { suite: Aes128Sha80, .. }");
        assert!(!format!("{side:?}").contains("66"));
    }
}
