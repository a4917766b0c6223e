//! A text as it reads once it is decoded, each byte with its place in the text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// Encodings inside one another that are undone.
const DEPTH: usize = 2;

/// Bytes, and from where to where in the text each of them stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View {
    pub bytes: Vec<u8>,
    pub spans: Vec<Span>,
    /// Where the text ends, if that is behind the last byte but for an escape that is cut there.
    end: Option<usize>,
}

/// From where to where in the text.
pub(super) type Span = (usize, usize);

/// The text itself and, if `decode`, every reading of it.
pub(super) fn all(text: &[u8], decode: bool) -> Vec<View> {
    let mut views = vec![View::raw(text)];
    if !decode {
        return views;
    }
    let mut from = 0;
    for _ in 0..DEPTH {
        let until = views.len();
        for at in from..until {
            let made = [percent, backslash, entity].map(|reader| views[at].decoded(reader));
            for view in made.into_iter().flatten().filter(|view| !views.contains(view)).collect::<Vec<_>>() {
                views.push(view);
            }
        }
        from = until;
    }
    let based: Vec<View> = views.iter().flat_map(View::base64_decoded).collect();
    views.extend(based);
    views
}

/// What stands at the beginning of some bytes.
enum DecodedUnit {
    /// Nothing that is encoded.
    Plain,
    /// So many bytes stand for this character.
    Char(usize, char),
    /// So many bytes stand for this byte.
    Byte(usize, u8),
    /// What the end of the text cuts.
    Cut,
}

impl View {
    pub fn raw(text: &[u8]) -> Self {
        Self {
            bytes: text.to_vec(),
            spans: (0..text.len()).map(|at| (at, at + 1)).collect(),
            end: Some(text.len()),
        }
    }

    fn empty() -> Self {
        Self { bytes: Vec::new(), spans: Vec::new(), end: None }
    }

    /// In small letters; spaces, of which `+` is one in forms, as one.
    pub fn folded(&self) -> Self {
        let mut made = Self { end: self.end, ..Self::empty() };
        for (&byte, &span) in self.bytes.iter().zip(&self.spans) {
            let byte =
                if byte == b'+' || byte.is_ascii_whitespace() { b' ' } else { byte.to_ascii_lowercase() };
            match made.spans.last_mut() {
                Some(last) if byte == b' ' && made.bytes.ends_with(b" ") => last.1 = span.1,
                _ => made.push(byte, span),
            }
        }
        made
    }

    /// Where the text ends, if its last letters are the last of this.
    pub fn cut_at(&self) -> Option<usize> {
        self.end
    }

    fn push(&mut self, byte: u8, span: Span) {
        self.bytes.push(byte);
        self.spans.push(span);
    }

    /// It with what `reader` knows decoded, if there is any.
    fn decoded(&self, reader: fn(&[u8]) -> DecodedUnit) -> Option<Self> {
        let mut made = Self { end: self.end, ..Self::empty() };
        let (mut at, mut any) = (0, false);
        while at < self.bytes.len() {
            let span = |len: usize| (self.spans[at].0, self.spans[at + len - 1].1);
            let len = match reader(&self.bytes[at..]) {
                DecodedUnit::Plain => {
                    made.push(self.bytes[at], self.spans[at]);
                    at += 1;
                    continue;
                }
                DecodedUnit::Cut => {
                    return Some(made);
                }
                DecodedUnit::Byte(len, byte) => {
                    made.push(byte, span(len));
                    len
                }
                DecodedUnit::Char(len, c) => {
                    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                        made.push(byte, span(len));
                    }
                    len
                }
            };
            any = true;
            at += len;
        }
        any.then_some(made)
    }

    /// What it has in base64 (RFC 4648 sections 4 and 5), decoded. A word may begin before the encoded text does, so it is
    /// read from each of its first four letters.
    fn base64_decoded(&self) -> Vec<Self> {
        const WORD_MIN: usize = 6;
        let letter = |byte: u8| match byte {
            b'-' => Some(b'+'),
            b'_' => Some(b'/'),
            b'+' | b'/' => Some(byte),
            _ if byte.is_ascii_alphanumeric() => Some(byte),
            _ => None,
        };
        let mut made = vec![Self::empty(); 4];
        let mut at = 0;
        while at < self.bytes.len() {
            let word: Vec<u8> = self.bytes[at..].iter().map_while(|byte| letter(*byte)).collect();
            if word.len() >= WORD_MIN {
                for (skip, made) in made.iter_mut().enumerate() {
                    made.push_base64(&word[skip..], &self.spans[at + skip..]);
                }
            }
            at += word.len() + 1;
            let end = self.end.filter(|_| at > self.bytes.len() && word.len() >= WORD_MIN);
            made.iter_mut().for_each(|made| made.end = end);
        }
        made
    }

    fn push_base64(&mut self, word: &[u8], spans: &[Span]) {
        // no secret goes from one word to the next
        self.push(0, (spans[0].0, spans[0].0));
        // the last letter alone is no byte, and bits that are left over may be of what was cut
        let mut whole = word[..word.len() - usize::from(word.len() % 4 == 1)].to_vec();
        let bits = whole.len() * 6 / 8;
        whole.resize(whole.len().next_multiple_of(4), b'A');
        let bytes = STANDARD_NO_PAD.decode(&whole).unwrap_or_default();
        for (at, byte) in bytes.into_iter().take(bits).enumerate() {
            let last = ((at + 1) * 8).div_ceil(6) - 1;
            self.push(byte, (spans[at * 8 / 6].0, spans[last].1));
        }
    }
}

/// `%41` (RFC 3986 section 2.1).
fn percent(bytes: &[u8]) -> DecodedUnit {
    match bytes {
        [b'%'] => DecodedUnit::Cut,
        [b'%', high] if high.is_ascii_hexdigit() => DecodedUnit::Cut,
        [b'%', high, low, ..] => match hex(&[*high, *low]) {
            Some(value) => DecodedUnit::Byte(3, value as u8),
            None => DecodedUnit::Plain,
        },
        _ => DecodedUnit::Plain,
    }
}

/// `\"`, `\n`, `\u0041`, `\ud83d\ude00` (RFC 8259 section 7), and `\x41`.
fn backslash(bytes: &[u8]) -> DecodedUnit {
    let [b'\\', rest @ ..] = bytes else { return DecodedUnit::Plain };
    let digits = |from: usize, len: usize| rest.get(from..from + len).and_then(hex);
    match rest {
        [] => DecodedUnit::Cut,
        [b'n', ..] => DecodedUnit::Byte(2, b'\n'),
        [b't', ..] => DecodedUnit::Byte(2, b'\t'),
        [b'r', ..] => DecodedUnit::Byte(2, b'\r'),
        [b'b', ..] => DecodedUnit::Byte(2, 8),
        [b'f', ..] => DecodedUnit::Byte(2, 12),
        [b'x', ..] if rest.len() < 3 => DecodedUnit::Cut,
        [b'x', ..] => digits(1, 2).map_or(DecodedUnit::Plain, |value| DecodedUnit::Byte(4, value as u8)),
        [b'u', ..] if rest.len() < 5 => DecodedUnit::Cut,
        [b'u', ..] => match (digits(1, 4), digits(7, 4).filter(|_| rest[5..].starts_with(b"\\u"))) {
            (Some(high @ 0xd800..0xdc00), Some(low @ 0xdc00..0xe000)) => {
                let c = char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00));
                c.map_or(DecodedUnit::Plain, |c| DecodedUnit::Char(12, c))
            }
            (Some(value), _) => char::from_u32(value).map_or(DecodedUnit::Plain, |c| DecodedUnit::Char(6, c)),
            (None, _) => DecodedUnit::Plain,
        },
        [other, ..] if other.is_ascii_punctuation() => DecodedUnit::Byte(2, *other),
        _ => DecodedUnit::Plain,
    }
}

/// `&amp;`, `&#39;`, `&#x27;` (HTML, section 13.5).
fn entity(bytes: &[u8]) -> DecodedUnit {
    const LONGEST: usize = 10;
    const NAMES: [(&[u8], char); 6] =
        [(b"amp", '&'), (b"lt", '<'), (b"gt", '>'), (b"quot", '"'), (b"apos", '\''), (b"nbsp", ' ')];
    let [b'&', rest @ ..] = bytes else { return DecodedUnit::Plain };
    let Some(end) = rest.iter().take(LONGEST).position(|byte| *byte == b';') else {
        let open =
            rest.len() < LONGEST && rest.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'#');
        return if open { DecodedUnit::Cut } else { DecodedUnit::Plain };
    };
    let c = match &rest[..end] {
        [b'#', b'x' | b'X', digits @ ..] => hex(digits).and_then(char::from_u32),
        [b'#', digits @ ..] => {
            std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).and_then(char::from_u32)
        }
        name => NAMES.iter().find(|(one, _)| *one == name).map(|(_, c)| *c),
    };
    c.map_or(DecodedUnit::Plain, |c| DecodedUnit::Char(end + 2, c))
}

fn hex(digits: &[u8]) -> Option<u32> {
    let value = |sum: u32, digit: &u8| Some((sum << 4) | char::from(*digit).to_digit(16)?);
    if digits.is_empty() || digits.len() > 6 { None } else { digits.iter().try_fold(0, value) }
}
