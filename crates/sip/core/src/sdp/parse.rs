use super::{
    Crypto, Direction, MAX_CRYPTO, MAX_FORMATS, MAX_LENGTH, MAX_MEDIA, Media, Rtpmap, SdpError, SdpFault,
    Session,
};

pub(super) fn session(body: &[u8]) -> Result<Session, SdpError> {
    let whole = |fault| SdpError { fault, line: 0 };
    if body.len() > MAX_LENGTH {
        return Err(whole(SdpFault::Long));
    }
    let text = std::str::from_utf8(body).map_err(|_| whole(SdpFault::Utf8))?;
    let mut found = SessionParser::default();
    let text = text.strip_suffix('\n').unwrap_or(text);
    for (number, line) in text.split('\n').enumerate() {
        let line = line.strip_suffix('\r').unwrap_or(line);
        found.take(line, number == 0).map_err(|fault| SdpError { fault, line: number + 1 })?;
    }
    found.finish().map_err(whole)
}

#[derive(Default)]
struct SessionParser {
    origin: Option<(String, u64, u64, String)>,
    name: bool,
    timing: bool,
    connection: Option<String>,
    direction: Option<Direction>,
    media: Vec<Media>,
}

impl SessionParser {
    fn take(&mut self, line: &str, first: bool) -> Result<(), SdpFault> {
        let (kind, value) = match line.as_bytes() {
            [kind, b'=', ..] if kind.is_ascii_alphabetic() => (*kind, &line[2..]),
            _ => return Err(if first { SdpFault::Version } else { SdpFault::Line }),
        };
        if first != (kind == b'v') || first && value != "0" {
            return Err(SdpFault::Version);
        }
        match kind {
            b'o' => self.origin(value),
            b's' => mark_once(&mut self.name, self.media.is_empty()),
            // Several times may follow one another.
            b't' if self.media.is_empty() => {
                self.timing = true;
                Ok(())
            }
            b't' => Err(SdpFault::Session),
            b'c' => {
                let host = connection(value).ok_or(SdpFault::Connection)?;
                let slot = self.media.last_mut().map_or(&mut self.connection, |media| &mut media.connection);
                slot.get_or_insert(host);
                Ok(())
            }
            b'm' if self.media.len() >= MAX_MEDIA => Err(SdpFault::ManyMedia),
            b'm' => {
                self.media.push(media(value)?);
                Ok(())
            }
            b'a' => match self.media.last_mut() {
                Some(media) => attribute(media, value),
                None => {
                    self.direction = Direction::of(value).or(self.direction);
                    Ok(())
                }
            },
            _ => Ok(()),
        }
    }

    fn origin(&mut self, value: &str) -> Result<(), SdpFault> {
        if self.origin.is_some() || !self.media.is_empty() {
            return Err(SdpFault::Session);
        }
        let parts: Vec<_> = value.split(' ').collect();
        let [user, id, version, "IN", kind, host] = parts.as_slice() else { return Err(SdpFault::Origin) };
        let number = |text: &str| number::<u64>(text).ok_or(SdpFault::Origin);
        if user.is_empty() || !matches!(*kind, "IP4" | "IP6") || host.is_empty() {
            return Err(SdpFault::Origin);
        }
        self.origin = Some(((*user).to_owned(), number(id)?, number(version)?, (*host).to_owned()));
        Ok(())
    }

    fn finish(self) -> Result<Session, SdpFault> {
        let (user, id, version, origin) = self.origin.ok_or(SdpFault::Session)?;
        if !self.name || !self.timing {
            return Err(SdpFault::Session);
        }
        if self.connection.is_none() && self.media.iter().any(|media| media.connection.is_none()) {
            return Err(SdpFault::NoConnection);
        }
        let direction = self.direction.unwrap_or_default();
        Ok(Session { user, id, version, origin, connection: self.connection, direction, media: self.media })
    }
}

fn mark_once(seen: &mut bool, early: bool) -> Result<(), SdpFault> {
    if *seen || !early {
        return Err(SdpFault::Session);
    }
    *seen = true;
    Ok(())
}

/// Digits alone: Rust's parser would take a sign.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    Some(text).filter(|text| text.bytes().all(|b| b.is_ascii_digit())).and_then(|text| text.parse().ok())
}

/// `IN IP4 host`; a multicast address may have a TTL and a count behind slashes.
fn connection(value: &str) -> Option<String> {
    let parts: Vec<_> = value.trim_end().split(' ').collect();
    let ["IN", kind, address] = parts.as_slice() else { return None };
    let host = address.split('/').next()?;
    let fits = match *kind {
        "IP4" => !host.contains(':'),
        "IP6" => host.parse::<std::net::Ipv6Addr>().is_ok() || !host.contains(':'),
        _ => false,
    };
    (fits && !host.is_empty()).then(|| host.to_owned())
}

fn media(value: &str) -> Result<Media, SdpFault> {
    let mut parts = value.split(' ').filter(|part| !part.is_empty());
    let mut next = || parts.next().ok_or(SdpFault::Media);
    let (kind, port, protocol) = (next()?, next()?, next()?);
    // The count of ports behind a slash is for layered codecs.
    let port = number(port.split('/').next().unwrap_or_default()).ok_or(SdpFault::Media)?;
    let formats: Vec<_> = parts.map(str::to_owned).take(MAX_FORMATS + 1).collect();
    if formats.is_empty() {
        return Err(SdpFault::Media);
    }
    if formats.len() > MAX_FORMATS {
        return Err(SdpFault::ManyFormats);
    }
    // A payload type has seven bits (RFC 3550 section 5.1).
    let payload = |format: &String| number::<u8>(format).is_some_and(|payload| payload < 128);
    if protocol.starts_with("RTP/") && !formats.iter().all(payload) {
        return Err(SdpFault::Media);
    }
    Ok(Media { kind: kind.to_owned(), port, protocol: protocol.to_owned(), formats, ..Media::default() })
}

fn attribute(media: &mut Media, attribute: &str) -> Result<(), SdpFault> {
    let (name, value) = attribute.split_once(':').unwrap_or((attribute, ""));
    let known = match name {
        "rtpmap" | "fmtp" if media.rtpmaps.len() + media.fmtp.len() >= MAX_FORMATS => {
            return Err(SdpFault::ManyFormats);
        }
        "rtpmap" => rtpmap(value).map(|map| media.rtpmaps.push(map)),
        "fmtp" => fmtp(value).map(|pair| media.fmtp.push(pair)),
        // Some write a fraction; none means a part of a millisecond.
        "ptime" => {
            number(value.trim().split('.').next().unwrap_or_default()).map(|ms| media.ptime = Some(ms))
        }
        "rtcp" => {
            let port = value.split(' ').next().unwrap_or_default();
            number(port).map(|port| media.rtcp = Some(port))
        }
        "crypto" => Crypto::parse(value).map(|crypto| {
            if media.crypto.len() < MAX_CRYPTO {
                media.crypto.push(crypto);
            }
        }),
        "rtcp-mux" => {
            media.rtcp_mux = true;
            Some(())
        }
        _ => {
            media.direction = Direction::of(attribute).or(media.direction);
            Some(())
        }
    };
    known.ok_or(SdpFault::Attribute)
}

fn rtpmap(value: &str) -> Option<Rtpmap> {
    let (payload, encoding) = value.trim().split_once(' ')?;
    let mut parts = encoding.trim_start().split('/');
    let (name, rate) = (parts.next()?, parts.next()?);
    let channels = parts.next().map_or(Some(1), number)?;
    let payload = number::<u8>(payload).filter(|payload| *payload < 128)?;
    Some(Rtpmap { payload, name: name.to_owned(), rate: number(rate)?, channels })
}

fn fmtp(value: &str) -> Option<(u8, String)> {
    let (payload, parameters) = value.trim().split_once(' ')?;
    Some((number(payload)?, parameters.to_owned()))
}
