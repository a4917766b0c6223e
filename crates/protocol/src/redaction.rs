//! Secrets in words of others, found in every spelling in which servers repeat what they were sent, and replaced.
//!
//! The text is decoded rather than each secret encoded: the cost depends on the length of the text, hardly on the number
//! of secrets, and an encoding of a longer text that holds a secret is found too.

mod parts;
mod view;

pub use parts::{inner, parts};

use view::{Span, View};

/// What stands in the place of a secret.
pub const HIDDEN: &str = "***";

/// A shorter one stands in too many words to be looked for in texts.
pub const SHORTEST: usize = 4;

/// Longest text that is decoded, in bytes: words of servers are far shorter. In longer ones secrets are found as they are.
const DECODED_MAX: usize = 64 << 10;

/// Where a model cut what it quotes.
pub const CUT: char = '…';

/// Finds secrets in texts: in any case of ASCII letters, percent-encoded, in base64, escaped as in JSON or HTML.
#[derive(Debug, Clone)]
pub struct Redactor {
    /// Folded, in order, no two alike.
    values: Vec<Box<[u8]>>,
    /// Bytes that one begins with.
    first: [bool; 256],
    /// Bytes of the longest.
    longest: usize,
}

impl Default for Redactor {
    fn default() -> Self {
        Self { values: Vec::new(), first: [false; 256], longest: 0 }
    }
}

impl Redactor {
    /// One that finds these; see [`parts`] for what else a secret comes to.
    pub fn new<V: AsRef<[u8]>>(secrets: impl IntoIterator<Item = V>) -> Self {
        let folded = secrets.into_iter().map(|secret| View::raw(secret.as_ref()).folded().bytes);
        let mut values: Vec<Box<[u8]>> = folded
            .filter(|value| value.len() >= SHORTEST && value != HIDDEN.as_bytes())
            .map(Into::into)
            .collect();
        values.sort_unstable();
        values.dedup();
        let mut first = [false; 256];
        values.iter().filter_map(|value| value.first()).for_each(|byte| first[usize::from(*byte)] = true);
        let longest = values.iter().map(|value| value.len()).max().unwrap_or(0);
        Self { values, first, longest }
    }

    /// A text without them.
    pub fn hide(&self, text: &str) -> String {
        self.redact(text, Self::find)
    }

    /// The same of a text that may have been cut at its end, or before a [`CUT`]: without the beginning of a secret there.
    pub fn hide_cut(&self, text: &str) -> String {
        let whole = self.hide(text);
        let pieces = whole.split(CUT).map(|piece| self.redact(piece, Self::find_cut));
        pieces.collect::<Vec<_>>().join(CUT.encode_utf8(&mut [0; 4]))
    }

    fn redact(&self, text: &str, find: fn(&Self, &View, &mut Vec<Span>)) -> String {
        if self.values.is_empty() {
            return text.to_owned();
        }
        let mut found = Vec::new();
        for view in view::all(text.as_bytes(), text.len() <= DECODED_MAX) {
            find(self, &view.folded(), &mut found);
        }
        masked(text, found)
    }

    /// Secrets in a view, by where they are in the text.
    fn find(&self, view: &View, found: &mut Vec<Span>) {
        for (at, byte) in view.bytes.iter().enumerate() {
            if self.first[usize::from(*byte)]
                && let Some(len) = self.longest_at(&view.bytes[at..])
            {
                found.push((view.spans[at].0, view.spans[at + len - 1].1));
            }
        }
    }

    /// Length of the longest secret that `bytes` begin with.
    fn longest_at(&self, mut bytes: &[u8]) -> Option<usize> {
        // the last value not behind `bytes` is the longest beginning of them, or shares with them all that one can have
        while bytes.len() >= SHORTEST {
            let before = self.values.partition_point(|value| **value <= *bytes).checked_sub(1)?;
            let value = &self.values[before];
            let common = value.iter().zip(bytes).take_while(|(a, b)| a == b).count();
            if common == value.len() {
                return Some(common);
            }
            bytes = &bytes[..common];
        }
        None
    }

    /// The beginning of a secret at the end of a view.
    fn find_cut(&self, view: &View, found: &mut Vec<Span>) {
        let Some(end) = view.cut_at() else { return };
        let begins = |left: &[u8]| {
            let behind = self.values.partition_point(|value| **value < *left);
            self.values.get(behind).is_some_and(|value| value.starts_with(left))
        };
        let from = view.bytes.len().saturating_sub(self.longest);
        let mut starts = from..(view.bytes.len() + 1).saturating_sub(SHORTEST);
        if let Some(at) = starts.find(|at| begins(&view.bytes[*at..])) {
            found.push((view.spans[at].0, end));
        }
    }
}

/// `text` with what is between these places replaced; those that overlap are one.
fn masked(text: &str, mut found: Vec<Span>) -> String {
    found.sort_unstable();
    let mut shown = String::with_capacity(text.len());
    let mut done = 0;
    let mut all = found.into_iter().peekable();
    while let Some((start, mut end)) = all.next() {
        while let Some((_, more)) = all.next_if(|next| next.0 < end) {
            end = end.max(more);
        }
        let start = (done..=start).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(done);
        shown += &text[done..start];
        shown += HIDDEN;
        done = end + (end..=text.len()).take_while(|at| !text.is_char_boundary(*at)).count();
    }
    shown += &text[done..];
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// Cases that the application's tests hold it to as well.
    const CASES: &str = include_str!("redaction/cases.json");

    #[test]
    fn every_spelling_of_a_secret_is_replaced() {
        let cases: Vec<Value> = serde_json::from_str(CASES).expect("JSON");
        assert!(cases.len() > 30);
        for case in &cases {
            let text = |key: &str| case[key].as_str().expect("text");
            let redactor = Redactor::new(parts(text("secret")));
            let said = text("said");
            let told =
                if case["cut"].as_bool().is_some() { redactor.hide_cut(said) } else { redactor.hide(said) };
            assert_eq!(told, text("shown"), "{case}");
        }
    }

    #[test]
    fn a_text_that_is_not_cut_keeps_its_end() {
        let redactor = Redactor::new(["abcdefgh"]);
        assert_eq!(redactor.hide("said abcd"), "said abcd");
        assert_eq!(redactor.hide_cut("said abcd… and more"), "said ***… and more");
    }

    #[test]
    fn one_that_holds_another_goes_whole_among_many() {
        let many = (0..50_000).map(|i| format!("key-{i}"));
        let redactor = Redactor::new(many.chain(["key-77-and-more".to_owned()]));
        assert_eq!(redactor.hide("key-77-and-more, key-7, key-x, KEY-49999"), "***, ***, key-x, ***");
    }

    #[test]
    fn values_that_are_no_text_are_found_as_they_are() {
        let redactor = Redactor::new([&b"\xffabc\xfe"[..], "äöüß".as_bytes()]);
        assert_eq!(redactor.hide("a %FFabc%fe, äöüß, %C3%A4%c3%b6üß"), "a ***, ***, ***");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_taken(text in "\\PC{0,60}|[%&\\\\u0-9a-f#x;+/=… ]{0,60}", secret in "\\PC{0,12}") {
            let redactor = Redactor::new(parts(&secret));
            redactor.hide_cut(&text);
            let told = redactor.hide(&format!("{text} {secret} {text}"));
            let folded = View::raw(secret.as_bytes()).folded().bytes;
            proptest::prop_assert!(folded.len() < SHORTEST || secret.contains('*') || !told.contains(&secret));
        }
    }
}
