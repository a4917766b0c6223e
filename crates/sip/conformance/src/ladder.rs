//! The messages of a test, for a ladder diagram.

use serde::Serialize;

/// A message between two parties.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Arrow {
    /// Time since the test began, ms.
    pub at_ms: f64,
    /// Sender: a user agent of the test, or `server`.
    pub from: String,
    /// Receiver.
    pub to: String,
    /// Start line, without the version.
    pub summary: String,
    /// The whole message. Digest responses are hidden.
    pub text: String,
    /// The same bytes were sent before in this direction.
    pub again: bool,
}

/// Start line without the SIP version, and the method of CSeq behind a status.
pub fn summary(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().next().unwrap_or_default();
    if let Some(status) = line.strip_prefix("SIP/2.0 ") {
        let cseq = text.lines().take_while(|line| !line.is_empty()).find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.trim().eq_ignore_ascii_case("CSeq").then(|| value.split_whitespace().last())?
        });
        return cseq.map_or_else(|| status.to_owned(), |method| format!("{status} ({method})"));
    }
    line.strip_suffix(" SIP/2.0").unwrap_or(line).to_owned()
}

/// The text of a message without what passwords could be guessed from.
pub fn hidden(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_ref();
    while let Some(at) = rest.find("response=\"") {
        let (before, after) = rest.split_at(at + "response=\"".len());
        out.push_str(before);
        out.push_str("(hidden)");
        rest = after.find('"').map_or("", |end| &after[end..]);
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_short() {
        assert_eq!(summary(b"INVITE sip:a@b SIP/2.0\r\nVia: x\r\n\r\n"), "INVITE sip:a@b");
        assert_eq!(summary(b"SIP/2.0 200 OK\r\nCSeq: 1 BYE\r\n\r\n"), "200 OK (BYE)");
        assert_eq!(summary(b"\xff"), "\u{fffd}");
    }

    #[test]
    fn digest_responses_are_hidden() {
        let shown = hidden(b"Authorization: Digest response=\"abcdef\", nc=1\r\nX: response=\"gh");
        assert_eq!(shown, "Authorization: Digest response=\"(hidden)\", nc=1\r\nX: response=\"(hidden)");
    }
}
