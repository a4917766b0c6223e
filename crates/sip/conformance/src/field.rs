//! Parts of messages by the terms that test files use: `Via[0].branch`, `count(Contact)`, `Contact[sip:a@b].expires`.

use sip_core::Uri;
use sip_core::message::{Message, Name, StartLine};

/// Header fields whose values have commas between them (RFC 3261 section 7.3.1).
const LISTS: [Name; 14] = [
    Name::Via,
    Name::Contact,
    Name::Route,
    Name::RecordRoute,
    Name::Path,
    Name::ServiceRoute,
    Name::Allow,
    Name::AllowEvents,
    Name::Supported,
    Name::Require,
    Name::ProxyRequire,
    Name::Unsupported,
    Name::Accept,
    Name::Warning,
];

/// Values of a header field, one by one.
pub fn values(message: &Message, name: &str) -> Vec<String> {
    let known = Name::of(name.as_bytes());
    let same = message.headers.iter().filter(|header| {
        if known == Name::Other { header.written.eq_ignore_ascii_case(name) } else { header.name == known }
    });
    if LISTS.contains(&known) {
        same.flat_map(|header| split(&header.value, ',')).filter(|value| !value.is_empty()).collect()
    } else {
        same.map(|header| header.value.clone()).collect()
    }
}

/// Parts between `separator` outside of quotes and angle brackets.
fn split(text: &str, separator: char) -> Vec<String> {
    let (mut parts, mut part) = (Vec::new(), String::new());
    let (mut quoted, mut bracket, mut escaped) = (false, false, false);
    for c in text.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '<' if !quoted => bracket = true,
            '>' if !quoted => bracket = false,
            c if c == separator && !quoted && !bracket => {
                parts.push(part.trim().to_owned());
                part.clear();
                continue;
            }
            _ => {}
        }
        part.push(c);
    }
    parts.push(part.trim().to_owned());
    parts
}

/// The URI of an address: within angle brackets, or up to the first parameter.
pub fn uri(value: &str) -> String {
    let first = split(value, ';').into_iter().next().unwrap_or_default();
    match first.rfind('<').zip(first.rfind('>')) {
        Some((begin, end)) if begin < end => first[begin + 1..end].to_owned(),
        _ => first,
    }
}

/// A parameter behind the value; empty where it has no value.
pub fn param(value: &str, name: &str) -> Option<String> {
    let found = split(value, ';').into_iter().skip(1).find_map(|one| {
        let (key, value) = one.split_once('=').map_or((one.as_str(), ""), |(key, value)| (key, value));
        key.trim().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"').to_owned())
    });
    found.or_else(|| auth_param(value, name))
}

/// A parameter of a challenge: `Digest realm="x", stale=true`.
fn auth_param(value: &str, name: &str) -> Option<String> {
    let rest = value.trim().get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("Digest "))?;
    split(&value.trim()[rest.len()..], ',').into_iter().find_map(|one| {
        let (key, value) = one.split_once('=')?;
        key.trim().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"').to_owned())
    })
}

/// Whether two texts name the same resource, if both are URIs.
pub fn same_uri(a: &str, b: &str) -> Option<bool> {
    let scheme =
        |text: &str| ["sip:", "sips:", "tel:"].iter().any(|scheme| text.to_lowercase().starts_with(scheme));
    (scheme(a) && scheme(b)).then_some(())?;
    Some(Uri::parse(a)?.equivalent(&Uri::parse(b)?))
}

/// The value of a term; `None` where the message has none.
pub fn term(message: &Message, text: &str) -> Option<String> {
    let text = text.trim();
    if let Some(name) = text.strip_prefix("count(").and_then(|rest| rest.strip_suffix(')')) {
        return Some(values(message, name).len().to_string());
    }
    match (text, &message.start) {
        ("method", StartLine::Request { method, .. }) => return Some(method.to_string()),
        ("uri", StartLine::Request { uri, .. }) => return Some(uri.clone()),
        ("status", StartLine::Response { code, .. }) => return Some(code.to_string()),
        ("method" | "uri" | "status", _) => return None,
        ("body", _) => return Some(String::from_utf8_lossy(&message.body).into_owned()),
        _ => {}
    }
    let (header, part) = match text.rfind(']') {
        Some(end) => (&text[..=end], text[end + 1..].strip_prefix('.')),
        None => text.split_once('.').map_or((text, None), |(header, part)| (header, Some(part))),
    };
    let value = match header.split_once('[') {
        // A list may be empty, and its header field still there.
        None => match values(message, header).into_iter().next() {
            Some(value) => value,
            None => message
                .headers
                .iter()
                .any(|one| one.written.eq_ignore_ascii_case(header))
                .then(String::new)?,
        },
        Some((name, index)) => {
            let index = index.strip_suffix(']')?;
            let mut all = values(message, name);
            match index.parse::<usize>() {
                Ok(at) => (at < all.len()).then(|| all.swap_remove(at))?,
                Err(_) if index == "last" => all.pop()?,
                Err(_) => all.into_iter().find(|value| same_uri(&uri(value), index) == Some(true))?,
            }
        }
    };
    match part {
        None => Some(value),
        Some("uri") => Some(uri(&value)),
        Some("number") => value.split_whitespace().next().map(str::to_owned),
        Some("sent_by") => {
            split(&value, ';').into_iter().next()?.split_whitespace().last().map(str::to_owned)
        }
        Some(name) => param(&value, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP a:5060;branch=z9hG4bK1, SIP/2.0/UDP b\r\nFrom: <sip:a@b>;tag=1\r\n\
        To: \"x, <y>\" <sip:c@d;lr>;tag=2\r\nCall-ID: 1\r\nCSeq: 7 REGISTER\r\n\
        Supported:\r\nm: <sip:a@h:1>;expires=60;q=0.5\r\nContact: <sip:b@h>;expires=\"70\"\r\n\
        WWW-Authenticate: Digest realm=\"r\", nonce=\"n\", stale=TRUE\r\n\r\n";

    #[test]
    fn terms() {
        let message = Message::read(TEXT.as_bytes()).unwrap();
        for (text, expected) in [
            ("status", Some("200")),
            ("method", None),
            ("count(Via)", Some("2")),
            ("count(X)", Some("0")),
            ("Via[0].branch", Some("z9hG4bK1")),
            ("Via[0].sent_by", Some("a:5060")),
            ("Via[last]", Some("SIP/2.0/UDP b")),
            ("Via[2]", None),
            ("To.uri", Some("sip:c@d;lr")),
            ("To.tag", Some("2")),
            ("To.lr", None),
            ("CSeq.number", Some("7")),
            ("Contact[sip:a@h:1].expires", Some("60")),
            ("Contact[sip:b@H].expires", Some("70")),
            ("Contact[sip:c@h].expires", None),
            ("WWW-Authenticate.stale", Some("TRUE")),
            ("Supported", Some("")),
            ("count(Supported)", Some("0")),
            ("Expires", None),
        ] {
            assert_eq!(term(&message, text).as_deref(), expected, "{text}");
        }
    }
}
