//! HTTP/1.1 responses on the wire: the head, where the body ends, and the chunked coding (RFC 9112).

use std::mem::MaybeUninit;

/// Longest response head taken, status line to empty line, unless the profile says otherwise.
pub const HEAD_MAX: usize = 32 * 1024;
/// Header fields that are read without asking for memory; more are read too.
const FIELDS: usize = 96;
/// Place of the minor version in a status line.
const MINOR: usize = "HTTP/1.".len();
/// Longest chunk-size line with its extensions.
pub const CHUNK_LINE_MAX: u32 = 4 * 1024;
/// Longest trailer section.
pub const TRAILER_MAX: u32 = 64 * 1024;

/// What a response breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MalformedResponse {
    /// Not a status line and header fields.
    #[error("malformed response head: {0}")]
    Head(httparse::Error),
    /// More than this limit.
    #[error("response head longer than {0} bytes: see head_limit")]
    HeadTooLong(usize),
    /// A status code below 100.
    #[error("status code {0}")]
    Status(u16),
    /// Not a number, too large, or several that differ.
    #[error("invalid Content-Length")]
    Length,
    /// Chunk size, its line or its end.
    #[error("malformed chunked body")]
    Chunk,
    /// A chunk-size line over its limit.
    #[error("chunk-size line longer than {CHUNK_LINE_MAX} bytes")]
    ChunkLine,
    /// A trailer section over its limit.
    #[error("trailer section longer than {TRAILER_MAX} bytes")]
    Trailers,
    /// Bytes that answer no request.
    #[error("a response without a request")]
    Unasked,
    /// Bytes behind the head of a response that has no content.
    #[error("content in {0}, which has none (RFC 9112 section 6.3)")]
    Content(&'static str),
    /// 101 without our asking.
    #[error("the server switched protocols")]
    Switched,
}

/// Where a message body ends (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// After so many bytes.
    Length(u64),
    /// Where the chunks end.
    Chunked(Chunked),
    /// When the server closes.
    UntilClose,
}

/// What matters of a response head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Bytes it takes.
    pub len: usize,
    /// Status code.
    pub status: u16,
    /// Whether the server closes after this response (RFC 9112 §9.3).
    pub close: bool,
    /// How long, in seconds, the server says that it keeps an idle connection (`Keep-Alive: timeout=`).
    pub idle: Option<u32>,
    /// What follows.
    pub body: Body,
}

/// Read the head of a response to a request with (`to_head`) or without method HEAD, of `limit` bytes at most. `None`:
/// not complete yet.
///
/// A later minor version is read like 1.1 (RFC 9110 §2.5).
#[inline]
pub fn head(bytes: &[u8], to_head: bool, limit: usize) -> Result<Option<Head>, MalformedResponse> {
    let mut few = [const { MaybeUninit::uninit() }; FIELDS];
    let mut many = Vec::new();
    let mut response = httparse::Response::new(&mut []);
    let mut parsed = lenient().parse_response_with_uninit_headers(&mut response, bytes, &mut few);
    if parsed == Err(httparse::Error::TooManyHeaders) {
        // each field has a line of its own
        let lines = bytes.iter().take(limit).filter(|byte| **byte == b'\n').count();
        many.resize_with(lines + 1, MaybeUninit::uninit);
        response = httparse::Response::new(&mut []);
        parsed = lenient().parse_response_with_uninit_headers(&mut response, bytes, &mut many);
    }
    let len = match parsed {
        Ok(httparse::Status::Complete(len)) if len <= limit => len,
        Ok(httparse::Status::Partial) if bytes.len() < limit => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(MalformedResponse::HeadTooLong(limit)),
        Err(httparse::Error::Version)
            if matches!(bytes, [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9', ..]) =>
        {
            let mut older = bytes[..bytes.len().min(limit)].to_vec();
            older[MINOR] = b'1';
            return self::head(&older, to_head, limit);
        }
        Err(error) => return Err(MalformedResponse::Head(error)),
    };
    let status = response.code.unwrap_or(0);
    if status < 100 {
        return Err(MalformedResponse::Status(status));
    }
    let mut length = None;
    let (mut coded, mut chunked) = (false, false);
    let (mut close, mut keep, mut idle) = (false, false, None);
    for field in response.headers.iter() {
        // the length of the name rules nearly all fields out
        match field.name.len() {
            14 if field.name.eq_ignore_ascii_case("content-length") => {
                // RFC 9110 §8.6: a list of equal values is one value
                for value in field.value.split(|b| *b == b',') {
                    let value = decimal(value.trim_ascii()).ok_or(MalformedResponse::Length)?;
                    if length.is_some_and(|former| former != value) {
                        return Err(MalformedResponse::Length);
                    }
                    length = Some(value);
                }
            }
            17 if field.name.eq_ignore_ascii_case("transfer-encoding") => {
                // RFC 9110 §5.6.1.2: empty elements of a list do not count; nor does identity, which was no coding in
                // RFC 2616 §3.6 and is sent by old servers beside Content-Length
                let codings = field.value.rsplit(|b| *b == b',').map(<[u8]>::trim_ascii);
                let mut codings =
                    codings.filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"));
                if let Some(last) = codings.next() {
                    coded = true;
                    chunked = last.eq_ignore_ascii_case(b"chunked");
                }
            }
            10 if field.name.eq_ignore_ascii_case("connection") => {
                for option in field.value.split(|b| *b == b',') {
                    close |= option.trim_ascii().eq_ignore_ascii_case(b"close");
                    keep |= option.trim_ascii().eq_ignore_ascii_case(b"keep-alive");
                }
            }
            10 if field.name.eq_ignore_ascii_case("keep-alive") => idle = idle.or(timeout(field.value)),
            _ => {}
        }
    }
    let body = match status {
        _ if to_head => Body::Length(0),
        100..=199 | 204 | 304 => Body::Length(0),
        // Transfer-Encoding overrides Content-Length
        _ if chunked => Body::Chunked(Chunked::default()),
        _ if coded => Body::UntilClose,
        _ => length.map_or(Body::UntilClose, Body::Length),
    };
    // RFC 9112 §6.1: the framing of an HTTP/1.0 message with a transfer coding is not to be relied on
    let old = response.version == Some(0) && (!keep || coded);
    let close = close || body == Body::UntilClose || old;
    Ok(Some(Head { len, status, close, idle, body }))
}

/// Takes what RFC 9112 has a client take: folded fields (section 5.2), and spaces before a colon (section 5.1).
fn lenient() -> httparse::ParserConfig {
    let mut config = httparse::ParserConfig::default();
    config
        .allow_obsolete_multiline_headers_in_responses(true)
        .allow_spaces_after_header_name_in_responses(true);
    config
}

/// The seconds of `Keep-Alive: timeout=5, max=100` (RFC 2068 section 19.7.1.1, and what servers send since).
fn timeout(value: &[u8]) -> Option<u32> {
    value.split(|byte| *byte == b',').find_map(|parameter| {
        let (name, value) = std::str::from_utf8(parameter).ok()?.split_once('=')?;
        let value = value.trim().trim_matches('"');
        name.trim().eq_ignore_ascii_case("timeout").then(|| value.parse().ok()).flatten()
    })
}

#[inline]
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, digit| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 { None } else { value.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum At {
    /// Before the first digit of the size.
    #[default]
    Size,
    /// After a digit of the size.
    Digits,
    /// In a chunk extension.
    Extension,
    /// The size line needs its line feed.
    SizeEnd,
    /// In the data.
    Data,
    /// The data need their carriage return.
    DataReturn,
    /// The data need their line feed.
    DataEnd,
    /// At the start of a trailer line.
    Line,
    /// In a trailer line.
    Trailer,
    /// A trailer line needs its line feed.
    TrailerEnd,
    /// The last line feed.
    Last,
    /// Behind the end.
    Done,
}

/// Decoder of the chunked transfer coding (RFC 9112 §7.1), a few bytes of state, any split of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chunked {
    /// Bytes of this chunk still to come.
    left: u64,
    /// Length of the line or trailer section so far.
    line: u32,
    at: At,
}

impl Chunked {
    /// Whether the end was reached.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.at == At::Done
    }

    /// Take from `bytes` what belongs to the body; returns how much that was.
    #[inline]
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, MalformedResponse> {
        self.take_to(bytes, |_| {})
    }

    /// The same, and hand the data without the coding to `sink`.
    pub fn take_to(&mut self, bytes: &[u8], mut sink: impl FnMut(&[u8])) -> Result<usize, MalformedResponse> {
        let mut used = 0;
        while used < bytes.len() && self.at != At::Done {
            if self.at == At::Data {
                let step = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len() - used);
                self.left -= step as u64;
                sink(&bytes[used..used + step]);
                used += step;
                if self.left == 0 {
                    self.at = At::DataReturn;
                }
                continue;
            }
            let byte = bytes[used];
            used += 1;
            self.line += 1;
            let text = matches!(self.at, At::Line | At::Trailer | At::TrailerEnd | At::Last);
            if self.line > if text { TRAILER_MAX } else { CHUNK_LINE_MAX } {
                return Err(if text { MalformedResponse::Trailers } else { MalformedResponse::ChunkLine });
            }
            self.at = match (self.at, byte) {
                (At::Size | At::Digits, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                    if self.left >> 60 != 0 {
                        return Err(MalformedResponse::Chunk);
                    }
                    let digit = char::from(byte).to_digit(16).unwrap_or_default();
                    self.left = self.left << 4 | u64::from(digit);
                    At::Digits
                }
                (At::Digits, b';' | b' ' | b'\t') => At::Extension,
                (At::Digits | At::Extension, b'\r') => At::SizeEnd,
                (At::Extension, b) if b != b'\n' => At::Extension,
                // a bare line feed ends a line too (RFC 9112 section 2.2): we are no gateway, and nobody reads after us
                (At::Digits | At::Extension | At::SizeEnd, b'\n') => {
                    self.line = 0;
                    if self.left == 0 { At::Line } else { At::Data }
                }
                (At::DataReturn, b'\r') => At::DataEnd,
                (At::DataReturn | At::DataEnd, b'\n') => {
                    self.line = 0;
                    At::Size
                }
                (At::Line, b'\r') => At::Last,
                (At::Trailer, b'\r') => At::TrailerEnd,
                (At::Trailer | At::TrailerEnd, b'\n') => At::Line,
                (At::Line | At::Last, b'\n') => At::Done,
                (At::Line | At::Trailer, _) => At::Trailer,
                _ => return Err(MalformedResponse::Chunk),
            };
        }
        Ok(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Option<Head>, MalformedResponse> {
        head(text.as_bytes(), false, HEAD_MAX)
    }

    fn body(fields: &str) -> Result<Body, MalformedResponse> {
        Ok(read(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n"))?.expect("complete").body)
    }

    #[test]
    fn the_body_ends_where_rfc_9112_says() {
        let chunked = Body::Chunked(Chunked::default());
        assert_eq!(body("Content-Length: 12\r\n"), Ok(Body::Length(12)));
        assert_eq!(body("content-LENGTH: 7, 7\r\n"), Ok(Body::Length(7)));
        assert_eq!(body("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), Ok(chunked));
        assert_eq!(body("Transfer-Encoding: gzip, chunked\r\n"), Ok(chunked));
        assert_eq!(body("Transfer-Encoding: gzip\r\n"), Ok(Body::UntilClose));
        assert_eq!(body(""), Ok(Body::UntilClose));
        // RFC 9110 §5.6.1.2: a recipient ignores empty list elements
        for list in ["chunked,", ", chunked ,,", "gzip, chunked, "] {
            assert_eq!(body(&format!("Transfer-Encoding: {list}\r\n")), Ok(chunked), "{list}");
        }
        assert_eq!(body("Transfer-Encoding: chunked\r\nTransfer-Encoding: ,\r\n"), Ok(chunked));
        assert_eq!(body("Transfer-Encoding: ,\r\nContent-Length: 3\r\n"), Ok(Body::Length(3)));
        assert_eq!(body("Transfer-Encoding: identity\r\nContent-Length: 3\r\n"), Ok(Body::Length(3)));
        assert_eq!(body("Transfer-Encoding: Identity\r\n"), Ok(Body::UntilClose));
        assert_eq!(body("Transfer-Encoding: chunked, identity\r\n"), Ok(chunked));
        // RFC 9112 §6.3: another last coding overrides Content-Length too
        for list in ["gzip", "chunked, gzip", "chunked;q=1"] {
            let fields = format!("Transfer-Encoding: {list}\r\nContent-Length: 3\r\n");
            assert_eq!(body(&fields), Ok(Body::UntilClose), "{list}");
        }
        for bad in ["", "-1", "1x", "99999999999999999999", "1, 2", "1,"] {
            assert_eq!(body(&format!("Content-Length: {bad}\r\n")), Err(MalformedResponse::Length), "{bad}");
        }
        assert_eq!(body("Content-Length: 1\r\nContent-Length: 2\r\n"), Err(MalformedResponse::Length));
        for status in [103, 204, 304] {
            let none = read(&format!("HTTP/1.1 {status} -\r\nContent-Length: 3\r\n\r\n"));
            assert_eq!(none.expect("fine").expect("whole").body, Body::Length(0));
        }
        let to_head = head(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", true, HEAD_MAX);
        assert_eq!(to_head.expect("fine").expect("whole").body, Body::Length(0));
    }

    #[test]
    fn who_closes_is_read_from_version_and_connection() {
        let close = |line: &str, fields: &str| {
            let text = format!("{line} 200 OK\r\nContent-Length: 0\r\n{fields}\r\n");
            read(&text).expect("fine").expect("whole").close
        };
        assert!(!close("HTTP/1.1", ""));
        assert!(close("HTTP/1.1", "Connection: foo, Close\r\n"));
        assert!(close("HTTP/1.0", ""));
        assert!(!close("HTTP/1.0", "Connection: Keep-Alive\r\n"));
        assert!(close("HTTP/1.0", "Connection: Keep-Alive\r\nTransfer-Encoding: chunked\r\n"));
    }

    #[test]
    fn a_later_minor_version_is_read_like_1_1() {
        for minor in 2..=9 {
            let text = format!("HTTP/1.{minor} 200 OK\r\nContent-Length: 2\r\n\r\nok");
            let whole = read(&text).expect("fine").expect("whole");
            assert_eq!((whole.len, whole.body, whole.close), (text.len() - 2, Body::Length(2), false));
            assert_eq!(read(&text[..text.len() - 3]), Ok(None));
        }
        for other in ["HTTP/2.0", "HTTP/0.9", "HTTP/1.x", "HTTP/1.10"] {
            assert!(read(&format!("{other} 200 OK\r\nContent-Length: 2\r\n\r\nok")).is_err(), "{other}");
        }
        let long = format!("HTTP/1.2 200 OK\r\nA: {}", "x".repeat(HEAD_MAX));
        assert_eq!(read(&long), Err(MalformedResponse::HeadTooLong(HEAD_MAX)));
    }

    #[test]
    fn the_head_has_limits() {
        let with = |fields: usize, len: usize| {
            let mut text = "HTTP/1.1 200 OK\r\n".to_owned();
            for _ in 0..fields - 1 {
                text += "A: b\r\n";
            }
            let pad = len - text.len() - "B: \r\n\r\n".len();
            text + "B: " + &"x".repeat(pad) + "\r\n\r\n"
        };
        assert!(matches!(read(&with(2, HEAD_MAX)), Ok(Some(_))));
        assert_eq!(read(&with(2, HEAD_MAX + 1)), Err(MalformedResponse::HeadTooLong(HEAD_MAX)));
        assert_eq!(read(&with(2, HEAD_MAX + 1)[..HEAD_MAX - 1]), Ok(None));
        assert_eq!(read(&with(2, HEAD_MAX + 1)[..HEAD_MAX]), Err(MalformedResponse::HeadTooLong(HEAD_MAX)));
        for fields in [FIELDS, FIELDS + 1, 4000] {
            let len = (8 * fields).max(4096);
            assert_eq!(read(&with(fields, len)).expect("fine").expect("whole").len, len);
            assert_eq!(read(&with(fields, len)[..len - 1]), Ok(None), "{fields} fields, and not all");
        }
        assert_eq!(read(&with(5000, 40_000)), Err(MalformedResponse::HeadTooLong(HEAD_MAX)));
        assert_eq!(read("HTTP/1.1 099 no\r\n\r\n"), Err(MalformedResponse::Status(99)));
        assert!(read("SSH-2.0-OpenSSH\r\n").is_err());
    }

    #[test]
    fn what_servers_send_and_curl_reads_is_read() {
        let whole = |text: &str| {
            let head = read(text).unwrap_or_else(|e| panic!("{text}: {e}")).expect("whole");
            (head.len, head.status, head.body, head.close)
        };
        let (ok, two) = ("HTTP/1.1 200 OK\r\n", Body::Length(2));
        for fields in [
            "X-Policy: default-src 'self';\r\n  img-src *\r\nContent-Length: 2\r\n\r\n",
            "Content-Length:\r\n\t2\r\n\r\n",
            "Server : old\r\nContent-Length : 2\r\n\r\n",
            "Content-Length:2 \r\n\r\n",
            "X-Nom: \u{e9}t\u{e9}\r\nContent-Length: 2\r\n\r\n",
        ] {
            assert_eq!(
                whole(&format!("{ok}{fields}")),
                (ok.len() + fields.len(), 200, two, false),
                "{fields}"
            );
        }
        for line in
            ["HTTP/1.1 200\r\n", "HTTP/1.1 200 \r\n", "HTTP/1.1 200 D'accord \u{e9}\r\n", "HTTP/1.1 200 OK\n"]
        {
            assert_eq!(whole(&format!("{line}Content-Length: 2\n\n")).2, two, "{line}");
        }
        assert_eq!(
            body("X: a\r\n b: c\r\nTransfer-Encoding: Chunked\r\n"),
            Ok(Body::Chunked(Chunked::default()))
        );
    }

    #[test]
    fn how_long_a_server_keeps_an_idle_connection_is_what_it_says() {
        let idle = |fields: &str| {
            read(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n")).expect("fine").expect("whole").idle
        };
        assert_eq!(idle("Keep-Alive: timeout=5, max=100\r\n"), Some(5));
        assert_eq!(idle("keep-alive: max=100,Timeout = \"15\"\r\n"), Some(15));
        for none in ["", "Keep-Alive: 5\r\n", "Keep-Alive: timeout=soon\r\n", "Keep-Alive: timeout=-1\r\n"] {
            assert_eq!(idle(none), None, "{none}");
        }
    }

    fn decode(parts: &[&[u8]]) -> Result<(usize, bool), MalformedResponse> {
        let mut decoder = Chunked::default();
        let mut used = 0;
        for part in parts {
            used += decoder.take(part)?;
        }
        Ok((used, decoder.is_complete()))
    }

    #[test]
    fn chunks_extensions_and_trailers_are_read() {
        let text = b"4;a=\"b\"\r\nWiki\r\n5 \r\npedia\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\nHTTP/1.1";
        assert_eq!(decode(&[text]), Ok((text.len() - 8, true)));
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(decode(&bytes), Ok((text.len() - 8, true)));
        assert_eq!(decode(&[b"0\r\n\r\n"]), Ok((5, true)));
        assert_eq!(decode(&[b"4\r\nWi"]), Ok((5, false)));
    }

    #[test]
    fn malformed_chunks_are_told() {
        for bad in
            ["g\r\n", "\r\n", "\n", "4\rWiki", "4\r\nWikipedia", "4\r\nWiki\rx", "0\r\n\rx", "0\r\nX\rx"]
        {
            assert_eq!(decode(&[bad.as_bytes()]), Err(MalformedResponse::Chunk), "{bad:?}");
        }
        assert_eq!(decode(&[b"fffffffffffffff\r\n"]), Ok((17, false)));
        assert_eq!(decode(&[b"10000000000000000\r\n"]), Err(MalformedResponse::Chunk));
        let line = |len: u32| format!("1;{}\r\n", "x".repeat(len as usize - 4));
        assert!(decode(&[line(CHUNK_LINE_MAX).as_bytes()]).is_ok());
        assert_eq!(decode(&[line(CHUNK_LINE_MAX + 1).as_bytes()]), Err(MalformedResponse::ChunkLine));
        for lines in ["\n", "\r\n"] {
            let text = ["2  ;n=v", "ok", "2", "ok", "0  ", "X-Sum: 1", "", ""].join(lines);
            assert_eq!(decode(&[text.as_bytes()]), Ok((text.len(), true)), "{text:?}");
        }
        let trailer = |len: u32| format!("0\r\n{}\r\n\r\n", "x".repeat(len as usize - 4));
        assert_eq!(decode(&[trailer(TRAILER_MAX).as_bytes()]), Ok((TRAILER_MAX as usize + 3, true)));
        assert_eq!(decode(&[trailer(TRAILER_MAX + 1).as_bytes()]), Err(MalformedResponse::Trailers));
    }

    proptest! {
        #[test]
        fn any_body_in_any_chunks_and_any_split_is_read(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut text = Vec::new();
            for chunk in &chunks {
                text.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                text.extend_from_slice(chunk);
                text.extend_from_slice(b"\r\n");
            }
            text.extend_from_slice(b"0\r\n\r\n");
            let (a, b) = text.split_at(cut.index(text.len()));
            prop_assert_eq!(decode(&[a, b]), Ok((text.len(), true)));
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = head(&bytes, false, HEAD_MAX);
            let _ = decode(&[&bytes]);
        }
    }
}
