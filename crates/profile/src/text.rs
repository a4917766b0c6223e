//! Text of others in messages of ours.

use std::borrow::Cow;

pub use protocol::redaction::HIDDEN;

/// Most of it that is shown, in characters, and how many of these are its end: what is said of a long name stands behind it.
const SHOWN: usize = 2_000;
const END: usize = 500;

/// `text` as it can stand in one line on a terminal: what would steer it, or turn its letters round, is written as
/// an escape, and what is too long is cut in its middle.
pub fn printable(text: &str) -> Cow<'_, str> {
    let letters = if text.len() > SHOWN { text.chars().count() } else { 0 };
    if letters <= SHOWN && !text.chars().any(steers) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len().min(SHOWN) + 16);
    let cut = if letters > SHOWN { SHOWN - END..letters - END } else { 0..0 };
    for (i, c) in text.chars().enumerate() {
        match c {
            _ if cut.contains(&i) => {
                if i == cut.start {
                    shown.push('…');
                }
            }
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            c if steers(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Control characters (C0, DEL, C1), line and paragraph ends, marks of direction, what has no width, tags.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

pub(crate) use protocol::problem::choices;

pub(crate) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_shown_and_not_done() {
        assert_eq!(
            printable("\x1b[2J\x07\u{9b}31m\r\n\u{202e}x\u{7f}"),
            "\\u{1b}[2J\\u{7}\\u{9b}31m\\u{d}\\n\\u{202e}x\\u{7f}"
        );
        assert!(matches!(printable("경로 „ä“ a\\b"), Cow::Borrowed("경로 „ä“ a\\b")));
    }

    #[test]
    fn what_is_long_is_cut() {
        let shown = printable(&format!("{} is no name", "ä".repeat(1 << 20))).into_owned();
        assert_eq!(shown.chars().count(), SHOWN + 1);
        assert!(shown.starts_with("ää") && shown.contains("ä…ä") && shown.ends_with("ä is no name"));
        assert!(matches!(printable(&"a".repeat(SHOWN)), Cow::Borrowed(_)));
    }
}
