use super::{Crypto, Direction, Media, Rtpmap, Session};

/// An audio codec.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Codec {
    /// Encoding name.
    pub name: String,
    /// Payload type in offers; an answer uses the offer's.
    pub payload: u8,
    /// Clock rate, Hz.
    pub rate: u32,
}

impl Codec {
    /// G.711 µ-law.
    pub fn pcmu() -> Self {
        Self { name: "PCMU".to_owned(), payload: 0, rate: 8_000 }
    }

    /// G.711 A-law.
    pub fn pcma() -> Self {
        Self { name: "PCMA".to_owned(), payload: 8, rate: 8_000 }
    }

    fn is(&self, map: &Rtpmap) -> bool {
        map.rate == self.rate && map.channels == 1 && map.name.eq_ignore_ascii_case(&self.name)
    }

    fn map(&self, payload: u8) -> Rtpmap {
        Rtpmap { payload, name: self.name.clone(), rate: self.rate, channels: 1 }
    }
}

/// Audio of one side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audio {
    /// Address that media are received at.
    pub host: String,
    /// Port that media are received at.
    pub port: u16,
    /// Codecs, most wanted first.
    pub codecs: Vec<Codec>,
    /// Payload type of telephone-event in offers (RFC 4733); none where it is not wanted.
    pub telephone_event: Option<u8>,
    /// Time of a packet, milliseconds.
    pub ptime: Option<u32>,
    /// Direction.
    pub direction: Direction,
    /// Keys of SRTP (RFC 4568), one for each suite, most wanted first: with any, audio is RTP/SAVP and no other is taken.
    pub crypto: Vec<Crypto>,
}

impl Audio {
    fn protocol(&self) -> &'static str {
        if self.crypto.is_empty() { "RTP/AVP" } else { "RTP/SAVP" }
    }
}

/// Result of a negotiation, as one side sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreement {
    /// Host that media are sent to.
    pub host: String,
    /// Port that media are sent to.
    pub port: u16,
    /// Port that RTCP is sent to.
    pub rtcp_port: u16,
    /// Codec; its payload type is the one that the peer wants.
    pub codec: Codec,
    /// Payload type of telephone-event.
    pub telephone_event: Option<u8>,
    /// Time of a packet that the peer asks for, milliseconds.
    pub ptime: Option<u32>,
    /// This side sends.
    pub send: bool,
    /// This side receives.
    pub receive: bool,
    /// Keys of SRTP: this side's and the other's; none: RTP is not protected.
    pub crypto: Option<(Crypto, Crypto)>,
}

/// Why there is no agreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NegotiationError {
    /// There is no audio with a port over the protocol that this side wants.
    #[error("the description has no audio over RTP/AVP, or over RTP/SAVP where SRTP is wanted")]
    NoAudio,
    /// SRTP is wanted, and the description has audio over RTP without it.
    #[error("the description has audio over RTP without SRTP")]
    Unprotected,
    /// SRTP is wanted, and no `a=crypto` has a suite and a key that this side can use.
    #[error("no suite of SRTP is common to both sides")]
    NoSuite,
    /// No codec is common: the request gets a 488.
    #[error("no codec is common to both sides")]
    NoCodec,
    /// The answer has not as many media as the offer.
    #[error("the answer has not as many media as the offer")]
    MediaCount,
    /// The answer's kind or protocol of a medium is not the offer's.
    #[error("the answer changes the kind or protocol of a medium")]
    MediaChanged,
    /// The answer's direction does not fit the offer's (RFC 3264 section 6.1).
    #[error("the direction of the answer does not fit the offer")]
    Direction,
}

impl NegotiationError {
    /// Stable name, for counters and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoAudio => "sdp_no_audio",
            Self::Unprotected => "sdp_unprotected",
            Self::NoSuite => "sdp_no_suite",
            Self::NoCodec => "sdp_no_codec",
            Self::MediaCount => "sdp_media_count",
            Self::MediaChanged => "sdp_media_changed",
            Self::Direction => "sdp_direction",
        }
    }
}

/// An offer of one audio medium (RFC 3264 section 5).
pub fn offer(audio: &Audio, id: u64, version: u64) -> Session {
    let maps = audio.codecs.iter().map(|codec| codec.map(codec.payload));
    let maps = maps.chain(audio.telephone_event.map(telephone_event)).collect();
    let medium = Media { crypto: audio.crypto.clone(), ..build_media(audio, maps, audio.direction) };
    session(audio, id, version, vec![medium])
}

/// The answer to an offer (RFC 3264 section 6): the first audio that fits is taken, any other medium refused.
pub fn answer(
    offer: &Session,
    audio: &Audio,
    id: u64,
    version: u64,
) -> Result<(Session, Agreement), NegotiationError> {
    let is_audio = |media: &Media| media.kind == "audio" && media.port != 0;
    let mut error = NegotiationError::NoAudio;
    let mut chosen = None;
    for (at, media) in offer.media.iter().enumerate().filter(|(_, media)| is_audio(media)) {
        match select_offered(media, audio) {
            Ok(found) => {
                chosen = Some((at, media, found));
                break;
            }
            // what fits best says most
            Err(why) if error == NegotiationError::NoAudio => error = why,
            Err(_) => {}
        }
    }
    let (at, media, (codec, event, crypto)) = chosen.ok_or(error)?;
    let theirs = offer.direction(media);
    let send = audio.direction.sends() && theirs.receives();
    let receive = audio.direction.receives() && theirs.sends();
    let maps = [codec.map(codec.payload)].into_iter().chain(event.map(telephone_event)).collect();
    let ours = crypto.iter().map(|(ours, _)| ours.clone()).collect();
    let taken = Media { crypto: ours, ..build_media(audio, maps, Direction::new(send, receive)) };
    let media: Vec<_> = offer
        .media
        .iter()
        .enumerate()
        .map(|(place, media)| if place == at { taken.clone() } else { refused(media) })
        .collect();
    let agreed = build_agreement(offer, &offer.media[at], codec, event, (send, receive))?;
    Ok((session(audio, id, version, media), Agreement { crypto, ..agreed }))
}

/// Reads the answer to an offer that [`offer`] made.
pub fn check_answer(offer: &Session, audio: &Audio, answer: &Session) -> Result<Agreement, NegotiationError> {
    if offer.media.len() != answer.media.len() {
        return Err(NegotiationError::MediaCount);
    }
    for (ours, theirs) in offer.media.iter().zip(&answer.media) {
        let plain = theirs.protocol == "RTP/AVP" && theirs.port != 0;
        if ours.kind == theirs.kind && ours.protocol == "RTP/SAVP" && plain {
            return Err(NegotiationError::Unprotected);
        }
        if ours.kind != theirs.kind || ours.protocol != theirs.protocol {
            return Err(NegotiationError::MediaChanged);
        }
    }
    let pair =
        offer.media.iter().zip(&answer.media).find(|(_, theirs)| theirs.kind == "audio" && theirs.port != 0);
    let (ours, media) = pair.ok_or(NegotiationError::NoAudio)?;
    let (codec, event) = common(media, audio).ok_or(NegotiationError::NoCodec)?;
    let crypto = answered_crypto(ours, media)?;
    let (mine, theirs) = (offer.direction(ours), answer.direction(media));
    if theirs.sends() && !mine.receives() || theirs.receives() && !mine.sends() {
        return Err(NegotiationError::Direction);
    }
    let agreed = build_agreement(answer, media, codec, event, (theirs.receives(), theirs.sends()))?;
    Ok(Agreement { crypto, ..agreed })
}

type SelectedMedium = (Codec, Option<u8>, Option<(Crypto, Crypto)>);

/// Codec, telephone-event and keys of an offered medium that fits.
fn select_offered(media: &Media, audio: &Audio) -> Result<SelectedMedium, NegotiationError> {
    if media.protocol != audio.protocol() {
        let plain = media.protocol == "RTP/AVP";
        return Err(if plain { NegotiationError::Unprotected } else { NegotiationError::NoAudio });
    }
    let (codec, event) = common(media, audio).ok_or(NegotiationError::NoCodec)?;
    if audio.crypto.is_empty() {
        return Ok((codec, event, None));
    }
    // RFC 4568 section 6.1.2: the first that can be used, with its tag and a key of our own
    let pair = media.crypto.iter().find_map(|theirs| {
        let ours = audio.crypto.iter().find(|ours| ours.is_compatible(theirs))?;
        Some((Crypto { tag: theirs.tag, ..ours.clone() }, theirs.clone()))
    });
    Ok((codec, event, Some(pair.ok_or(NegotiationError::NoSuite)?)))
}

/// The keys that an answer agrees on: its line has the tag and suite of one of the offer.
fn answered_crypto(ours: &Media, theirs: &Media) -> Result<Option<(Crypto, Crypto)>, NegotiationError> {
    if ours.crypto.is_empty() {
        return Ok(None);
    }
    let pair = theirs.crypto.first().and_then(|theirs| {
        let ours = ours.crypto.iter().find(|ours| ours.tag == theirs.tag && ours.is_compatible(theirs))?;
        Some((ours.clone(), theirs.clone()))
    });
    pair.map(Some).ok_or(NegotiationError::NoSuite)
}

fn build_agreement(
    session: &Session,
    media: &Media,
    codec: Codec,
    telephone_event: Option<u8>,
    (send, receive): (bool, bool),
) -> Result<Agreement, NegotiationError> {
    Ok(Agreement {
        host: session.host(media).ok_or(NegotiationError::NoAudio)?.to_owned(),
        port: media.port,
        // this side neither offers nor answers a=rtcp-mux, so that RTCP has a port of its own (RFC 5761 section 5.1.1)
        rtcp_port: media.rtcp.unwrap_or(media.port.saturating_add(1)),
        codec,
        telephone_event,
        ptime: media.ptime,
        send,
        receive,
        crypto: None,
    })
}

/// The first codec of a medium that this side has, and its telephone-event, with the medium's payload types.
fn common(media: &Media, audio: &Audio) -> Option<(Codec, Option<u8>)> {
    let maps = || media.formats.iter().filter_map(|format| mapping(media, format.parse().ok()?));
    let codec = maps().find_map(|map| {
        let known = audio.codecs.iter().find(|codec| codec.is(&map))?;
        Some(Codec { payload: map.payload, ..known.clone() })
    })?;
    let event = |map: &Rtpmap| map.name.eq_ignore_ascii_case("telephone-event") && map.rate == codec.rate;
    let event = maps().find(event).map(|map| map.payload).filter(|_| audio.telephone_event.is_some());
    Some((codec, event))
}

/// Codec of a payload type: as the medium says, or as RFC 3551 says.
fn mapping(media: &Media, payload: u8) -> Option<Rtpmap> {
    let said = media.rtpmaps.iter().find(|map| map.payload == payload).cloned();
    said.or_else(|| {
        let (name, rate) = match payload {
            0 => ("PCMU", 8_000),
            3 => ("GSM", 8_000),
            8 => ("PCMA", 8_000),
            9 => ("G722", 8_000),
            18 => ("G729", 8_000),
            _ => return None,
        };
        Some(Rtpmap { payload, name: name.to_owned(), rate, channels: 1 })
    })
}

fn telephone_event(payload: u8) -> Rtpmap {
    Rtpmap { payload, name: "telephone-event".to_owned(), rate: 8_000, channels: 1 }
}

fn build_media(audio: &Audio, rtpmaps: Vec<Rtpmap>, direction: Direction) -> Media {
    let event = rtpmaps.iter().find(|map| map.name == "telephone-event");
    Media {
        kind: "audio".to_owned(),
        port: audio.port,
        protocol: audio.protocol().to_owned(),
        formats: rtpmaps.iter().map(|map| map.payload.to_string()).collect(),
        // Digits, star and number sign, A to D.
        fmtp: event.map(|map| (map.payload, "0-15".to_owned())).into_iter().collect(),
        direction: Some(direction),
        ptime: audio.ptime,
        rtpmaps,
        ..Media::default()
    }
}

/// A medium that is not taken: port 0 (RFC 3264 section 6).
fn refused(media: &Media) -> Media {
    Media {
        kind: media.kind.clone(),
        protocol: media.protocol.clone(),
        formats: media.formats.clone(),
        ..Media::default()
    }
}

fn session(audio: &Audio, id: u64, version: u64, media: Vec<Media>) -> Session {
    Session {
        user: "-".to_owned(),
        id,
        version,
        origin: audio.host.clone(),
        connection: Some(audio.host.clone()),
        direction: Direction::SendRecv,
        media,
    }
}
