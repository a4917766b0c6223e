//! What a server says of a request that it did not serve: the phrase of its status line, and the first words of the body.

use crate::cause::{Cause, Detail, TLS_PORT};
use crate::meter::Failure;
use crate::redaction::{CUT, HIDDEN as MASK, Redactor, parts};
use serde_json::Value;

/// First bytes of a body that are looked at.
const BODY_MAX: usize = 512;
/// Longest phrase that is kept.
const PHRASE_MAX: usize = 80;

/// How servers answer, in plain text, a request that came without TLS: nginx, Go, Apache httpd, Tomcat.
const WANTS_TLS: [&str; 4] = [
    "The plain HTTP request was sent to HTTPS port",
    "Client sent an HTTP request to an HTTPS server",
    "speaking plain HTTP to an SSL-enabled server port",
    "This combination of host and port requires TLS",
];

/// Of one response.
#[derive(Debug)]
pub(super) struct ResponseExcerpt {
    phrase: String,
    body: Vec<u8>,
}

impl ResponseExcerpt {
    /// By its head.
    pub fn of(head: &[u8]) -> Self {
        let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
        let phrase = line.splitn(3, |byte| *byte == b' ').nth(2).unwrap_or_default();
        let mut shown = String::from_utf8_lossy(&phrase[..phrase.len().min(PHRASE_MAX)]).trim().to_owned();
        if phrase.len() > PHRASE_MAX {
            shown.push(CUT);
        }
        Self { phrase: shown, body: Vec::new() }
    }

    /// More of its body came.
    pub fn append(&mut self, bytes: &[u8]) {
        let room = BODY_MAX - self.body.len();
        self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Why a response with this status is a failure.
    pub fn cause(&self, status: u16) -> Cause {
        let text = String::from_utf8_lossy(&self.body);
        if status == 400 && WANTS_TLS.iter().any(|words| text.contains(words)) {
            return Cause::named(Failure::Rejected, TLS_PORT);
        }
        Cause { kind: Failure::Rejected, detail: Detail::Status(status) }
    }

    /// It in words, without the values that were captured from responses: they may be tokens.
    pub fn text(&self, status: u16, captured: &[Vec<u8>]) -> String {
        let mut what = format!("status {status}");
        if !self.phrase.is_empty() {
            what += " ";
            what += &self.phrase;
        }
        let body = text(&self.body);
        if !body.is_empty() {
            what += ": ";
            what += &body;
        }
        if captured.iter().all(Vec::is_empty) {
            return what;
        }
        let redactor =
            Redactor::new(captured.iter().flat_map(|value| parts(&String::from_utf8_lossy(value))));
        if self.body.len() == BODY_MAX || self.phrase.ends_with(CUT) {
            return redactor.hide_cut(&what);
        }
        redactor.hide(&what)
    }
}

/// Bytes of a body of which an outline is made.
const OUTLINED: usize = 4096;
/// Characters of an outline.
const OUTLINE_MAX: usize = 200;
/// Words this long may be tokens.
const TOKEN_MIN: usize = 16;

/// The beginning of a body without what may be a secret: of JSON, `document`, the names and no texts or numbers; of another
/// text, no long words.
pub(super) fn outline(body: &[u8], document: Option<&Value>) -> String {
    let mut shown = String::new();
    match document {
        Some(document) => names(document, &mut shown),
        None => {
            let cut = body.len() > OUTLINED;
            let text = text(&body[..body.len().min(OUTLINED)]);
            let whole = if cut { text.rsplit_once(' ').map_or("", |(words, _)| words) } else { &text };
            for word in whole.split(' ') {
                shown += if word.len() < TOKEN_MIN { word } else { MASK };
                shown.push(' ');
            }
        }
    }
    let end = shown.char_indices().nth(OUTLINE_MAX).map_or(shown.len(), |(at, _)| at);
    shown.truncate(end);
    shown.trim_end().to_owned()
}

/// A JSON document with its names, and without its texts and numbers.
fn names(of: &Value, shown: &mut String) {
    if shown.len() > OUTLINE_MAX * 4 {
        return;
    }
    match of {
        Value::Null | Value::Bool(_) => shown.push_str(&of.to_string()),
        Value::Number(_) => shown.push_str(MASK),
        Value::String(_) => shown.push_str(&format!("\"{MASK}\"")),
        Value::Array(all) => {
            shown.push('[');
            for (i, one) in all.iter().take(OUTLINE_MAX).enumerate() {
                shown.push_str(if i > 0 { "," } else { "" });
                names(one, shown);
            }
            shown.push(']');
        }
        Value::Object(all) => {
            shown.push('{');
            for (i, (name, one)) in all.iter().take(OUTLINE_MAX).enumerate() {
                shown.push_str(if i > 0 { "," } else { "" });
                shown.push_str(&format!("{}:", Value::from(name.as_str())));
                names(one, shown);
            }
            shown.push('}');
        }
    }
}

/// The text of a body, without the tags of HTML; nothing of one that is no text.
fn text(body: &[u8]) -> String {
    let valid = match std::str::from_utf8(body) {
        Ok(text) => text,
        // the last letter may be cut
        Err(e) if e.error_len().is_none() => {
            std::str::from_utf8(&body[..e.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => "",
    };
    if valid.chars().any(|c| c.is_control() && !c.is_ascii_whitespace()) {
        return String::new();
    }
    let mut shown = String::new();
    let mut rest = valid;
    while let Some((before, tag)) = rest.split_once('<') {
        shown += before;
        shown.push(' ');
        let (name, behind) = tag.split_once('>').unwrap_or((tag, ""));
        let name = name.to_ascii_lowercase();
        // what a page shows elsewhere, or not at all
        let hidden = ["title", "style", "script"].iter().find(|hidden| name.starts_with(**hidden));
        rest = match hidden.and_then(|hidden| behind.find(&format!("</{hidden}"))) {
            Some(end) => &behind[end..],
            None => behind,
        };
    }
    shown += rest;
    shown.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(head: &str, body: &str) -> ResponseExcerpt {
        let mut said = ResponseExcerpt::of(head.as_bytes());
        said.append(body.as_bytes());
        said
    }

    #[test]
    fn phrase_and_words_of_the_body_are_shown() {
        let page = "<html>\r\n<head><title>404 Not Found</title></head>\r\n<body>\r\n<center><h1>404 Not Found</h1>\
                    </center>\r\n<hr><center>nginx/1.22.1</center>\r\n</body>\r\n</html>\r\n";
        let one = said("HTTP/1.1 404 Not Found\r\nServer: nginx\r\n\r\n", page);
        assert_eq!(one.text(404, &[]), "status 404 Not Found: 404 Not Found nginx/1.22.1");
        assert_eq!(one.cause(404).detail, Detail::Status(404));
        assert_eq!(said("HTTP/1.1 503\r\n\r\n", "").text(503, &[]), "status 503");
        assert_eq!(
            said("HTTP/1.1 429 Slow  down \r\n", "{\"retry\": 3}").text(429, &[]),
            "status 429 Slow  down: {\"retry\": 3}"
        );
    }

    #[test]
    fn what_is_no_text_is_not_shown_and_what_is_long_is_cut() {
        assert_eq!(said("HTTP/1.1 500 X\r\n", "\u{1}\u{2}").text(500, &[]), "status 500 X");
        let mut gzip = ResponseExcerpt::of(b"HTTP/1.1 500 X\r\n");
        gzip.append(&[0x1f, 0x8b, 8, 0, 0xff]);
        assert_eq!(gzip.text(500, &[]), "status 500 X");
        let long = said("HTTP/1.1 500 X\r\n", &"ä".repeat(4096)).text(500, &[]);
        assert_eq!(long, format!("status 500 X: {}", "ä".repeat(BODY_MAX / 2)));
        assert_eq!(said("HTTP/1.1 500 X\r\n", "a<b").text(500, &[]), "status 500 X: a");
    }

    #[test]
    fn captured_values_are_masked_also_where_the_text_is_cut() {
        let token = [b"eyJhbGciOi.secret".to_vec(), b"7".to_vec()];
        let one =
            said("HTTP/1.1 401 bad eyJhbGciOi.secret\r\n", "{\"token\": \"eyJhbGciOi.secret\", \"n\": 7}");
        assert_eq!(one.text(401, &token), "status 401 bad ***: {\"token\": \"***\", \"n\": 7}");
        let cut = said("HTTP/1.1 401 X\r\n", &("x".repeat(BODY_MAX - 6) + "eyJhbGciOi.secret"));
        let words = cut.text(401, &token);
        assert!(words.ends_with("xx***") && !words.contains("eyJh"), "{words}");
        let phrase = format!("HTTP/1.1 401 {}eyJhbGciOi.secret\r\n", "x".repeat(PHRASE_MAX - 6));
        assert!(said(&phrase, "no").text(401, &token).ends_with("xx***…: no"));
        let encoded = said("HTTP/1.1 401 X\r\n", "at /%65yJhbGciOi%2Esecret");
        assert_eq!(encoded.text(401, &token), "status 401 X: at /***");
    }

    #[test]
    fn a_server_that_wants_tls_is_known_by_its_answer() {
        for words in WANTS_TLS {
            assert_eq!(
                said("HTTP/1.1 400 Bad Request\r\n", words).cause(400).detail,
                Detail::Named(TLS_PORT)
            );
        }
        assert_eq!(said("HTTP/1.1 400 Bad Request\r\n", "no").cause(400).detail, Detail::Status(400));
    }
}
