//! Text with places to fill in: `"sensor/{device}/{seq}"`.
//!
//! | place | becomes |
//! |---|---|
//! | `{device}` | number of the device in its group, from `first_device` on |
//! | `{seq}` | number of the message in its flow, from 0 |
//! | `{random:8}` | 8 random hexadecimal digits |
//! | `{random:10-99}` | a random whole number from 10 to 99 |
//! | `{timestamp}`, `{timestamp_ms}` | time since the run began, in ns or ms |
//! | `{users.name}` | a cell of the column `name` of the table `users` of `data` |
//! | `{response.token}` | what was captured under this name from an earlier response |
//! | `{{`, `}}` | `{`, `}` |
//!
//! Compiled once per group; filling in appends to the outgoing bytes and allocates nothing else.

use crate::data::{Cell, Column, Data, RESPONSE};
use crate::problem::{Problem, closest};
use crate::time::Time;
use rand::Rng;
use rand::rngs::SmallRng;

/// Longest captured value.
pub const CAPTURED_MAX: usize = 16 << 10;

/// Longest run of random digits that one place may ask for.
pub const RANDOM_MAX: usize = 65_536;

const NAMES: [&str; 5] = ["device", "seq", "random", "timestamp", "timestamp_ms"];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(Box<[u8]>),
    Device,
    Seq,
    Hex(usize),
    SizeRange(i64, i64),
    Nanoseconds,
    Milliseconds,
    Cell(Cell),
    /// A captured value by its number; in a URL, what cannot stand there is percent-encoded.
    Captured {
        number: usize,
        in_url: bool,
        leads: bool,
    },
    /// A cell of a table that was not given: for checks of the form alone.
    Unbound,
}

impl Part {
    fn column(&self) -> Option<&Column> {
        if let Self::Cell(cell) = self { Some(cell.column()) } else { None }
    }
}

/// What the places are filled with.
#[derive(Debug, Clone, Copy)]
pub struct Values {
    /// `{device}`
    pub device: u32,
    /// `{seq}`
    pub seq: u64,
    /// `{timestamp}`
    pub now: Time,
}

/// A compiled template.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template {
    parts: Box<[Part]>,
}

impl Template {
    /// Check the form of `text`; `key` is where it stands, for the problem. Cells of tables stay empty.
    pub fn parse(text: &str, key: &str) -> Result<Self, Problem> {
        Self::compile(text.as_bytes(), key, None)
    }

    /// Compile `text`, which may name tables of `data`; without them only the form is checked.
    pub fn with(text: &str, key: &str, data: Option<&Data>) -> Result<Self, Problem> {
        Self::compile(text.as_bytes(), key, data)
    }

    /// The same for bytes that need not be UTF-8.
    pub fn compile(text: &[u8], key: &str, data: Option<&Data>) -> Result<Self, Problem> {
        let mut parts = Vec::new();
        let mut plain = Vec::new();
        let mut rest = text;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            match (byte, after.first()) {
                (b'{', Some(b'{')) | (b'}', Some(b'}')) => {
                    plain.push(byte);
                    rest = &after[1..];
                }
                (b'{', _) => {
                    let unclosed =
                        || Problem::new(key, "\"{\" without \"}\"", "close it, or write \"{{\" for a brace");
                    let end = memchr::memchr(b'}', after).ok_or_else(unclosed)?;
                    if !plain.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut plain).into()));
                    }
                    parts.push(place(&String::from_utf8_lossy(&after[..end]), key, data)?);
                    rest = &after[end + 1..];
                }
                (b'}', _) => {
                    return Err(Problem::new(key, "\"}\" without \"{\"", "write \"}}\" for a brace"));
                }
                _ => plain.push(byte),
            }
        }
        if !plain.is_empty() {
            parts.push(Part::Text(plain.into()));
        }
        Ok(Self { parts: parts.into() })
    }

    /// These bytes as they are.
    pub fn literal(bytes: &[u8]) -> Self {
        Self { parts: [Part::Text(bytes.into())].into() }
    }

    /// The text that is read as `text` and nothing else.
    pub fn escaped(text: &str) -> String {
        text.replace('{', "{{").replace('}', "}}")
    }

    /// The bytes, when there is nothing to fill in.
    pub fn fixed(&self) -> Option<&[u8]> {
        match &*self.parts {
            [] => Some(&[]),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Numbers of the captured values that it has places for.
    pub fn captured(&self) -> impl Iterator<Item = usize> + '_ {
        self.parts.iter().filter_map(|part| match part {
            Part::Captured { number, .. } => Some(*number),
            _ => None,
        })
    }

    /// Whether every message of a device renders the same.
    pub fn per_device(&self) -> bool {
        self.parts.iter().all(|part| match part {
            Part::Text(_) | Part::Device => true,
            Part::Cell(cell) => cell.per_device(),
            _ => false,
        })
    }

    /// Refuse a table's values that `fine` refuses a byte of: `key` is where the template stands.
    pub fn cells_are(&self, key: &str, fine: impl Fn(u8) -> bool) -> Result<(), Problem> {
        let cells =
            self.parts.iter().filter_map(|part| if let Part::Cell(cell) = part { Some(cell) } else { None });
        match cells.filter_map(|cell| cell.bad_row(&fine)).next() {
            Some(row) => {
                let what = format!("row {row} of a table has a character that cannot stand here");
                Err(Problem::new(key, what, "change that row, or use the column in the body alone"))
            }
            None => Ok(()),
        }
    }

    /// Most bytes that filling in can give.
    pub fn max_len(&self) -> usize {
        let len = |part: &Part| match part {
            Part::Text(text) => text.len(),
            Part::Device => 10,
            Part::Hex(digits) => *digits,
            Part::Cell(cell) => cell.max_len(),
            Part::Captured { .. } => CAPTURED_MAX,
            Part::Unbound => 0,
            Part::Seq | Part::SizeRange(..) | Part::Nanoseconds | Part::Milliseconds => 20,
        };
        self.parts.iter().map(len).sum()
    }

    /// The same template where it is the path of a URL: captured values are percent-encoded, and one that it begins with gets
    /// the slash that it lacks, unless it is a whole URL.
    pub fn in_url(mut self) -> Self {
        for (at, part) in self.parts.iter_mut().enumerate() {
            if let Part::Captured { in_url, leads, .. } = part {
                (*in_url, *leads) = (true, at == 0);
            }
        }
        self
    }

    /// Templates one after the other, as one.
    pub fn concat(all: impl IntoIterator<Item = Self>) -> Self {
        let mut parts: Vec<Part> = Vec::new();
        for part in all.into_iter().flat_map(|one| one.parts) {
            match (parts.last_mut(), part) {
                (Some(Part::Text(text)), Part::Text(more)) => *text = [&**text, &*more].concat().into(),
                (_, part) => parts.push(part),
            }
        }
        Self { parts: parts.into() }
    }

    /// Tell `told` the texts between its places, the cells that fill these, and, where nothing but cells of tables of one
    /// length does, all that they make of it.
    pub fn texts(&self, told: &mut dyn FnMut(&[u8])) {
        for part in &self.parts {
            match part {
                Part::Text(text) => told(text),
                Part::Cell(cell) => cell.column().cells().for_each(&mut *told),
                _ => {}
            }
        }
        let Some(rows) = self.parts.iter().find_map(Part::column).map(Column::len) else { return };
        let whole =
            |part: &Part| matches!(part, Part::Text(_)) || part.column().is_some_and(|all| all.len() == rows);
        if self.parts.len() < 2 || !self.parts.iter().all(whole) {
            return;
        }
        let mut made = Vec::new();
        for row in 0..rows {
            made.clear();
            for part in &self.parts {
                match part {
                    Part::Text(text) => made.extend_from_slice(text),
                    part => made.extend_from_slice(part.column().map_or(&[], |all| all.cell(row))),
                }
            }
            told(&made);
        }
    }

    /// Append the text with everything filled in.
    #[inline]
    pub fn render(&self, values: Values, rng: &mut SmallRng, out: &mut Vec<u8>) {
        self.render_with(values, &[], rng, out);
    }

    /// The same with values that were captured.
    pub fn render_with(&self, values: Values, captured: &[Vec<u8>], rng: &mut SmallRng, out: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Device => decimal(u64::from(values.device), out),
                Part::Seq => decimal(values.seq, out),
                Part::Hex(digits) => hex(*digits, rng, out),
                Part::SizeRange(low, high) => {
                    let value = rng.random_range(*low..=*high);
                    if value < 0 {
                        out.push(b'-');
                    }
                    decimal(value.unsigned_abs(), out);
                }
                Part::Nanoseconds => decimal(values.now.0, out),
                Part::Milliseconds => decimal(values.now.0 / 1_000_000, out),
                Part::Cell(cell) => out.extend_from_slice(cell.value(values.device, values.seq)),
                Part::Captured { number, in_url, leads } => {
                    let value = captured.get(*number).map_or(&[][..], Vec::as_slice);
                    if *leads && !value.starts_with(b"/") && !value.starts_with(b"http") {
                        out.push(b'/');
                    }
                    if *in_url { encoded(value, out) } else { out.extend_from_slice(value) }
                }
                Part::Unbound => {}
            }
        }
    }
}

fn place(inside: &str, key: &str, data: Option<&Data>) -> Result<Part, Problem> {
    if let Some((table, column)) =
        inside.split_once('.').filter(|(table, column)| is_name(table) && is_name(column))
    {
        let Some(data) = data else { return Ok(Part::Unbound) };
        if table == RESPONSE {
            return Ok(Part::Captured { number: data.captured(column, key)?, in_url: false, leads: false });
        }
        return data.cell(table, column, key).map(Part::Cell);
    }
    let wrong = |what: &str, fix: &str| Problem::new(key, format!("{{{inside}}} {what}"), fix);
    let (name, argument) = match inside.split_once(':') {
        Some((name, argument)) => (name, Some(argument)),
        None => (inside, None),
    };
    match (name, argument) {
        ("device", None) => Ok(Part::Device),
        ("seq", None) => Ok(Part::Seq),
        ("timestamp", None) => Ok(Part::Nanoseconds),
        ("timestamp_ms", None) => Ok(Part::Milliseconds),
        ("random", Some(argument)) => {
            let form = "write {random:8} for 8 hexadecimal digits or {random:10-99} for a number";
            if let Ok(digits) = argument.parse() {
                return match digits {
                    1..=RANDOM_MAX => Ok(Part::Hex(digits)),
                    _ => Err(wrong("asks for none or too many digits", "use 1 to 65536")),
                };
            }
            // the dash is searched after the first character, which may be a sign
            let dash = argument.char_indices().skip(1).find(|(_, c)| *c == '-').map(|(at, _)| at);
            let bounds = dash.and_then(|at| {
                Some((argument[..at].parse::<i64>().ok()?, argument[at + 1..].parse::<i64>().ok()?))
            });
            match bounds {
                Some((low, high)) if low <= high => Ok(Part::SizeRange(low, high)),
                Some(_) => Err(wrong("has its ends the wrong way round", form)),
                None => Err(wrong("is not understood", form)),
            }
        }
        ("random", None) => Err(wrong("does not say how much", "write {random:8} or {random:10-99}")),
        ("device" | "seq" | "timestamp" | "timestamp_ms", Some(_)) => {
            Err(wrong("takes no argument", &format!("write {{{name}}}")))
        }
        _ => Err(match closest(name, NAMES) {
            Some(meant) => wrong("is unknown", &format!("did you mean {{{meant}}}?")),
            None => wrong(
                "is unknown",
                "use {device}, {seq}, {random:8}, {random:10-99}, {timestamp}, {timestamp_ms} or {TABLE.COLUMN}; \
                 write \"{{\" and \"}}\" for braces, as in JSON",
            ),
        }),
    }
}

/// Whether a table or a column can be called so: a letter or `_`, then letters, digits, `_` and `-`.
pub fn is_name(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    first && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
}

/// Append `value` in decimal.
#[inline]
pub fn decimal(mut value: u64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Append what may stand in a URL (RFC 3986 §2), and the rest percent-encoded.
fn encoded(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~:/?@!$&'()*+,;=%".contains(&byte) {
            out.push(byte);
        } else {
            out.push(b'%');
            out.extend([byte >> 4, byte & 15].map(|digit| b"0123456789ABCDEF"[usize::from(digit)]));
        }
    }
}

fn hex(digits: usize, rng: &mut SmallRng, out: &mut Vec<u8>) {
    let mut left = digits;
    while left > 0 {
        let mut bits: u64 = rng.random();
        for _ in 0..left.min(16) {
            out.push(b"0123456789abcdef"[(bits & 15) as usize]);
            bits >>= 4;
        }
        left -= left.min(16);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;

    fn render(text: &str) -> String {
        let template = Template::parse(text, "payload").expect(text);
        let mut out = Vec::new();
        let values = Values { device: 7, seq: 42, now: Time(1_234_567_890) };
        template.render(values, &mut SmallRng::seed_from_u64(1), &mut out);
        assert!(out.len() <= template.max_len(), "{text}");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn places_are_filled() {
        assert_eq!(render("plain"), "plain");
        assert_eq!(render(""), "");
        assert_eq!(render("a/{device}/{seq}/b"), "a/7/42/b");
        assert_eq!(render("{timestamp} {timestamp_ms}"), "1234567890 1234");
        assert_eq!(render("{{\"n\":{seq}}}"), "{\"n\":42}");
        assert_eq!(render("{random:5-5}{random:-3--3}"), "5-3");
        let random = render("{random:33}");
        assert!(random.len() == 33 && random.bytes().all(|b| b.is_ascii_hexdigit()), "{random}");
    }

    #[test]
    fn captured_values_are_filled_in_and_encoded_in_urls() {
        let data = Data { captured: ["a".to_owned(), "token".to_owned()].into(), ..Data::default() };
        let parse = |text| Template::with(text, "path", Some(&data));
        let both = [
            parse("/x/{response.token}").expect("a capture").in_url(),
            parse(" {response.token}!").expect("a capture"),
        ];
        let mut out = Vec::new();
        let values = Values { device: 0, seq: 0, now: Time::ZERO };
        let captured = [b"no".to_vec(), "a b\u{e9}/c".as_bytes().to_vec()];
        Template::concat(both).render_with(values, &captured, &mut SmallRng::seed_from_u64(1), &mut out);
        assert_eq!(String::from_utf8(out).expect("text"), "/x/a%20b%C3%A9/c a b\u{e9}/c!");
        let why = parse("{response.tokn}").expect_err("no such capture").to_string();
        assert_eq!(why, "path: {response.tokn}: no capture is called so; did you mean {response.token}?");
        let texts = ["a", "b{{"].map(|text| Template::parse(text, "").expect(text));
        assert_eq!(Template::concat(texts).fixed(), Some(&b"ab{"[..]));
    }

    #[test]
    fn what_is_not_understood_is_explained() {
        let explain = |text| Template::parse(text, "topic").expect_err(text).to_string();
        assert_eq!(explain("{devcie}"), "topic: {devcie} is unknown; did you mean {device}?");
        assert!(explain("{\"a\":1}").contains("write \"{{\" and \"}}\" for braces"));
        assert!(explain("{seq").contains("without"));
        assert!(explain("seq}").contains("}}"));
        assert!(explain("{seq:3}").contains("no argument"));
        assert!(explain("{random}").contains("{random:8}"));
        assert!(explain("{random:9-1}").contains("wrong way round"));
        assert!(explain("{random:x}").contains("not understood"));
        assert!(explain("{random:0}").contains("1 to 65536"));
        assert!(explain("{random:65537}").contains("1 to 65536"));
        assert!(Template::parse("{random:65536}", "").is_ok());
    }

    #[test]
    fn a_template_without_places_is_known_to_be_fixed() {
        assert_eq!(Template::parse("a{{b", "").expect("fine").fixed(), Some(&b"a{b"[..]));
        assert_eq!(Template::parse("a{seq}", "").expect("fine").fixed(), None);
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_a_problem(text in ".*") {
            let _ = Template::parse(&text, "");
        }

        #[test]
        fn escaped_text_comes_out_as_it_was(text in ".*") {
            prop_assert_eq!(render(&Template::escaped(&text)), text);
        }
    }
}
