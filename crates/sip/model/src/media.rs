//! Audio of calls, as a profile describes it.

use protocol::problem::Problem;
use protocol::unit::Interval;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sip_core::sdp::{Audio, Codec, Crypto, Direction};
use sip_media::srtp::{Keys, Suite};
use sip_media::{Clip, Law, Mode, PCAP_MAX};
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Audio of calls: RTP over media sockets of each user agent.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Media {
    /// What a user agent does: `send-receive` plays and listens, `echo` sends back what it hears, `send-only` and
    /// `receive-only` do one of both. Default `send-receive`.
    pub mode: Mode,
    /// Codec that is offered first: `pcmu` or `pcma`; the other one is accepted too. Default `pcmu`.
    pub codec: Law,
    /// What is played. Default: a tone of 1,004 Hz.
    pub source: Source,
    /// How long a listener's playout buffer holds the fastest packet: one that comes later than that is lost to the
    /// listener. Default `60ms`.
    pub playout_buffer: Interval,
    /// Whether the listener conceals lost packets (G.711 appendix I), which the rating then takes into account. Default `false`.
    pub concealment: bool,
    /// Mean time between RTCP reports; `0s`: none are sent. Default `5s`.
    pub rtcp: Interval,
    /// Keys that are pressed in each call, as telephone events (RFC 4733): `0` to `9`, `*`, `#`, `A` to `D`, 100 ms each and 100 ms
    /// between them, half a second after audio began. Default: none.
    pub keys: Option<String>,
    /// Keys that the other side presses in each call: another sequence is counted in `keys_wrong_calls`. Default: none are expected.
    pub expected_keys: Option<String>,
    /// SRTP: calls offer and take RTP/SAVP alone, with keys in SDP (RFC 4568). Default: none.
    pub srtp: Option<Srtp>,
}

/// Protection of audio (RFC 3711).
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Srtp {
    /// Suites, most wanted first. Default: all, AES_CM_128_HMAC_SHA1_80 first.
    pub suites: Vec<Suite>,
}

impl Default for Srtp {
    fn default() -> Self {
        Self { suites: Suite::ALL.to_vec() }
    }
}

/// What a call plays, again from its start when it is over.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Source {
    /// A file, by its ending: `.wav` (8 kHz, mono, 16 bits), `.ul` or `.al` (bytes of µ-law or A-law), `.pcap` or `.pcapng`
    /// (its first G.711 stream); at most ten minutes.
    #[schemars(extend("format" = "file"))]
    pub file: Option<String>,
    /// Frequency of a tone, Hz, from 50 to 3,400. Default 1004.
    pub tone: Option<u16>,
    /// Level of a tone, dBm0, from -60 to 3. Default -16.
    pub level: Option<f64>,
}

impl Default for Media {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            codec: Law::default(),
            source: Source::default(),
            playout_buffer: Interval::ms(60),
            concealment: false,
            rtcp: Interval::secs(5),
            keys: None,
            expected_keys: None,
            srtp: None,
        }
    }
}

/// Payload type of telephone events in offers.
const EVENTS: u8 = 101;
const TONE: u16 = 1004;
const LEVEL: f64 = -16.0;
/// Longest playout buffer: phones have less.
const BUFFER_MAX: Interval = Interval::secs(2);
/// Shortest interval of reports: more often they would be a load of their own.
const RTCP_MIN: Interval = Interval::ms(100);

/// Audio of a group, ready to play.
#[derive(Debug)]
pub(crate) struct MediaConfig {
    pub session: Arc<sip_media::Config>,
    /// Keys that the other side is to press.
    pub expected: Option<Vec<u8>>,
    law: Law,
    suites: Vec<Suite>,
}

impl Media {
    pub(crate) fn check(&self) -> Result<(), Problem> {
        let Source { file, tone, level } = &self.source;
        let one = file.is_none() || tone.is_none() && level.is_none();
        Problem::unless(one, "media.source", || "has a file and a tone".into(), "keep one of them")?;
        if let Some(file) = file {
            let fix = "use .wav, .ul, .al, .pcap or .pcapng";
            Problem::unless(
                Form::of(file).is_some(),
                "media.source.file",
                || format!("{file:?} has an ending that no audio is known by"),
                fix,
            )?;
        }
        let heard = tone.is_none_or(|tone| (50..=3400).contains(&tone));
        Problem::unless(
            heard,
            "media.source.tone",
            || "is out of the telephone band".into(),
            "use 50 to 3400",
        )?;
        let fits = level.is_none_or(|level| (-60.0..=3.0).contains(&level));
        Problem::unless(fits, "media.source.level", || "cannot be played".into(), "use -60 to 3 dBm0")?;
        let short = self.playout_buffer <= BUFFER_MAX;
        Problem::unless(
            short,
            "media.playout_buffer",
            || "is too long".into(),
            format!("use at most {BUFFER_MAX}"),
        )?;
        for (key, keys) in [("media.keys", &self.keys), ("media.expected_keys", &self.expected_keys)] {
            let Some(keys) = keys else { continue };
            let known = !keys.is_empty() && keys.chars().all(|key| sip_media::key_event(key).is_some());
            let fix = "use 0 to 9, *, #, A to D";
            Problem::unless(known, key, || format!("{keys:?} are no keys of a telephone"), fix)?;
            let few = keys.len() <= sip_media::KEYS_MAX;
            Problem::unless(
                few,
                key,
                || "are too many".into(),
                format!("use at most {}", sip_media::KEYS_MAX),
            )?;
        }
        let speaks = self.keys.is_none() || matches!(self.mode, Mode::SendReceive | Mode::SendOnly);
        let fix = "use the mode send-receive or send-only";
        Problem::unless(speaks, "media.keys", || format!("are not sent in the mode {:?}", self.mode), fix)?;
        if let Some(Srtp { suites }) = &self.srtp {
            let distinct = suites.iter().enumerate().all(|(at, suite)| !suites[..at].contains(suite));
            let fix = "name each suite once, or leave the list out";
            Problem::unless(
                !suites.is_empty() && distinct,
                "media.srtp.suites",
                || "are none, or one of them twice".into(),
                fix,
            )?;
        }
        let seldom = self.rtcp == Interval::default() || self.rtcp >= RTCP_MIN;
        let fix = format!("use 0s for none, or at least {RTCP_MIN}");
        Problem::unless(seldom, "media.rtcp", || "is too short".into(), fix)
    }

    /// Read the file that is played, if there is one.
    pub(crate) fn compile(&self) -> Result<MediaConfig, Problem> {
        let clip = match &self.source.file {
            Some(file) => read(file)?,
            None => Clip::tone(self.source.tone.unwrap_or(TONE), self.source.level.unwrap_or(LEVEL)),
        };
        let reports = Some(self.rtcp.0).filter(|interval| !interval.is_zero());
        let session = sip_media::Config {
            clip,
            mode: self.mode,
            buffer: self.playout_buffer.0,
            concealment: self.concealment,
            reports,
            keys: self.keys.iter().flat_map(|keys| keys.chars()).filter_map(sip_media::key_event).collect(),
            srtp: self.srtp.is_some(),
        };
        let expected = self.expected_keys.as_ref().map(|keys| keys.to_ascii_uppercase().into_bytes());
        let suites = self.srtp.iter().flat_map(|srtp| srtp.suites.clone()).collect();
        Ok(MediaConfig { session: Arc::new(session), expected, law: self.codec, suites })
    }
}

#[derive(Debug, Clone, Copy)]
enum Form {
    Wav,
    Raw(Law),
    Capture,
}

impl Form {
    fn of(file: &str) -> Option<Self> {
        match Path::new(file).extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "wav" => Some(Self::Wav),
            "ul" | "ulaw" | "pcmu" => Some(Self::Raw(Law::Mu)),
            "al" | "alaw" | "pcma" => Some(Self::Raw(Law::A)),
            "pcap" | "pcapng" => Some(Self::Capture),
            _ => None,
        }
    }
}

fn read(file: &str) -> Result<Clip, Problem> {
    const KEY: &str = "media.source.file";
    let fix = "name a file that the daemon can read";
    let unreadable = |e: std::io::Error| Problem::new(KEY, format!("{file}: {e}"), fix);
    let mut bytes = Vec::new();
    let open = std::fs::File::open(file).map_err(unreadable)?;
    // a pipe or a terminal would never end
    let regular = open.metadata().map_err(unreadable)?.is_file();
    Problem::unless(regular, KEY, || format!("{file} is no regular file"), fix)?;
    open.take(PCAP_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let small = bytes.len() as u64 <= PCAP_MAX;
    Problem::unless(small, KEY, || format!("{file} is larger than 64 MiB"), "play a shorter one")?;
    let clip = match Form::of(file) {
        Some(Form::Raw(law)) => Clip::raw(&bytes, law),
        Some(Form::Capture) => Clip::pcap(&bytes),
        _ => Clip::wav(&bytes),
    };
    let fix = "play another, or convert it: sox IN -r 8000 -c 1 -b 16 OUT.wav";
    clip.map_err(|why| Problem::new(KEY, format!("{file}: {why}"), fix))
}

impl MediaConfig {
    /// Whether telephone events are offered and accepted.
    fn takes_keys(&self) -> bool {
        !self.session.keys.is_empty() || self.expected.is_some()
    }

    /// Lines `a=crypto` of a call, each with a key of its own (RFC 4568 section 6.1); none: RTP is not protected.
    pub fn crypto(&self) -> Vec<Crypto> {
        let line = |(tag, suite): (u32, &Suite)| {
            // a side without random numbers has no key that fits: its calls are refused, and never sent in the clear
            Crypto { tag, suite: suite.name().to_owned(), key: suite.new_key().unwrap_or_default() }
        };
        (1..).zip(&self.suites).map(line).collect()
    }

    /// This side, for session descriptions.
    pub fn audio(&self, at: SocketAddr, crypto: &[Crypto]) -> Audio {
        let codec = |law: Law| if law == Law::Mu { Codec::pcmu() } else { Codec::pcma() };
        let other = if self.law == Law::Mu { Law::A } else { Law::Mu };
        let (send, receive) = self.session.mode.directions();
        Audio {
            host: at.ip().to_string(),
            port: at.port(),
            codecs: vec![codec(self.law), codec(other)],
            telephone_event: self.takes_keys().then_some(EVENTS),
            ptime: Some(sip_media::PTIME.as_millis() as u32),
            direction: Direction::new(send, receive),
            crypto: crypto.to_vec(),
        }
    }
}

/// The negotiation's result for a session, and its keys; none where the peer's host is no address.
pub(crate) fn session_parameters(
    agreement: &sip_core::sdp::Agreement,
) -> Option<(sip_media::Agreed, Option<Keys>)> {
    let ip = agreement.host.parse().ok()?;
    let law = if agreement.codec.name.eq_ignore_ascii_case("PCMA") { Law::A } else { Law::Mu };
    let asked = agreement.ptime.filter(|ptime| (10..=60).contains(ptime) && ptime.is_multiple_of(10));
    let keys = match &agreement.crypto {
        Some((ours, theirs)) => {
            let suite = Suite::of(&ours.suite)?;
            Some(Keys { suite, local: ours.key.clone(), remote: theirs.key.clone() })
        }
        None => None,
    };
    let agreed = sip_media::Agreed {
        rtp: SocketAddr::new(ip, agreement.port),
        rtcp: SocketAddr::new(ip, agreement.rtcp_port),
        law,
        payload_type: agreement.codec.payload,
        events: agreement.telephone_event,
        ptime: asked.map_or(sip_media::PTIME, |ptime| Duration::from_millis(ptime.into())),
        send: agreement.send,
        receive: agreement.receive,
    };
    Some((agreed, keys))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(media: Media) -> String {
        let why = media.check().and_then(|()| media.compile().map(|_| ())).expect_err("bad");
        format!("{}: {}", why.key, why.what)
    }

    #[test]
    fn sources_are_checked_and_read() {
        let of = |source| Media { source, ..Media::default() };
        let file = |name: &str| of(Source { file: Some(name.into()), ..Source::default() });
        assert!(Media::default().check().is_ok() && Media::default().compile().is_ok());
        assert!(bad(file("speech.mp3")).starts_with("media.source.file"));
        assert!(bad(file("/nowhere/speech.wav")).contains("No such file"));
        assert!(bad(file("/dev.wav")).contains("No such file"));
        let both = Source { file: Some("a.wav".into()), tone: Some(440), level: None };
        assert!(bad(of(both)).contains("a file and a tone"));
        assert!(bad(of(Source { tone: Some(4000), ..Source::default() })).contains("telephone band"));
        assert!(bad(of(Source { level: Some(10.0), ..Source::default() })).contains("cannot be played"));
        assert!(bad(Media { rtcp: Interval::ms(99), ..Media::default() }).starts_with("media.rtcp"));
        assert!(Media { rtcp: Interval::ms(100), ..Media::default() }.check().is_ok());
        let keys = |keys: &str| Media { keys: Some(keys.into()), ..Media::default() };
        assert!(bad(keys("12E")).contains("no keys of a telephone") && bad(keys("")).contains("no keys"));
        assert!(keys(&"1".repeat(64)).check().is_ok() && bad(keys(&"1".repeat(65))).contains("too many"));
        assert!(bad(Media { mode: Mode::Echo, ..keys("1") }).contains("not sent in the mode"));
        let srtp = |suites: Vec<Suite>| Media { srtp: Some(Srtp { suites }), ..Media::default() };
        assert!(srtp(vec![Suite::Aes128Sha32]).check().is_ok());
        assert!(bad(srtp(Vec::new())).starts_with("media.srtp.suites"));
        assert!(bad(srtp(vec![Suite::Aes128Sha32; 2])).contains("twice"));
        assert!(bad(Media { playout_buffer: Interval::ms(2001), ..Media::default() }).contains("too long"));
    }
}
