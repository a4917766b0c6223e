//! Steps made ready to play: texts without their escapes, patterns to search for, repeats as jumps.

use super::step::{Repeat, Step};
use crate::data::Data;
use crate::problem::Problem;
use crate::template::Template;
use crate::unit::Interval;
use memchr::memmem::Finder;
use regex::bytes::{Regex, RegexBuilder};
use std::time::Duration;

/// Most steps, with those inside of repeats.
pub(super) const STEPS_MAX: usize = 4096;
/// Deepest repeat inside of repeats.
pub const DEPTH_MAX: usize = 4;
/// Most bytes kept for an `expect` that has not found its match.
pub const KEPT_MAX: usize = 64 * 1024;
/// Largest compiled regular expression.
pub(super) const REGEX_MAX: usize = 1 << 20;
/// A step, ready to play.
#[derive(Debug)]
pub enum Op {
    /// Send this.
    Send(Template),
    /// Wait for a match.
    Expect {
        /// Of this.
        pattern: Pattern,
        /// At most so long.
        within: Duration,
    },
    /// Wait so long.
    Delay(Duration),
    /// End of a repeat: back to `start` until `count` rounds are played.
    Again {
        /// The first step of a round.
        start: usize,
        /// Repeats around it.
        depth: usize,
        /// Rounds; 0: without end.
        count: u32,
    },
}

/// What an `expect` looks for.
#[derive(Debug)]
pub enum Pattern {
    /// These bytes.
    Bytes(Box<Finder<'static>>),
    /// What this matches.
    Regex(Box<Regex>),
}

impl Pattern {
    /// Where the first match ends, when the first `seen` bytes are known to hold none.
    pub fn find(&self, bytes: &[u8], seen: usize) -> Option<usize> {
        match self {
            Pattern::Bytes(finder) => {
                let len = finder.needle().len();
                let from = seen.saturating_sub(len - 1).min(bytes.len());
                finder.find(&bytes[from..]).map(|at| from + at + len)
            }
            // a match may begin anywhere before
            Pattern::Regex(regex) => regex.find(bytes).map(|found| found.end()),
        }
    }
}

pub(super) fn compile(
    steps: &[Step],
    depth: usize,
    data: Option<&Data>,
    timeout: &mut Duration,
    ops: &mut Vec<Op>,
) -> Result<(), Problem> {
    Problem::unless(!steps.is_empty(), "", || "is empty".into(), "give at least one step")?;
    for (i, step) in steps.iter().enumerate() {
        let at = format!("[{i}]");
        let expect = |pattern, timeout: &Duration| Op::Expect { pattern, within: *timeout };
        match step {
            Step::Send(text) => {
                let key = format!("{at}.send");
                ops.push(Op::Send(Template::compile(&unescape(text, true, &key)?, &key, data)?));
            }
            Step::SendHex(text) => {
                ops.push(Op::Send(Template::literal(&hex(text, &format!("{at}.send_hex"))?)))
            }
            Step::Expect(text) => {
                let key = format!("{at}.expect");
                ops.push(expect(literal(&unescape(text, false, &key)?, &key)?, timeout));
            }
            Step::ExpectHex(text) => {
                let key = format!("{at}.expect_hex");
                ops.push(expect(literal(&hex(text, &key)?, &key)?, timeout));
            }
            Step::ExpectRegex(text) => {
                ops.push(expect(regex(text, &format!("{at}.expect_regex"))?, timeout));
            }
            Step::Delay(time) => ops.push(Op::Delay(time.0)),
            Step::Timeout(time) => {
                let waits = *time > Interval::default();
                Problem::unless(waits, &format!("{at}.timeout"), || "is zero".into(), "use 5s")?;
                *timeout = time.0;
            }
            Step::Repeat(Repeat { count, steps }) => {
                let key = format!("{at}.repeat");
                let what = || "is inside of too many others".into();
                Problem::unless(depth < DEPTH_MAX, &key, what, format!("use at most {DEPTH_MAX} levels"))?;
                let start = ops.len();
                compile(steps, depth + 1, data, timeout, ops).map_err(|p| p.under("steps").under(&key))?;
                let waits = ops[start..].iter().any(|op| match op {
                    Op::Expect { .. } => true,
                    Op::Delay(time) => !time.is_zero(),
                    Op::Send(_) | Op::Again { .. } => false,
                });
                let what = || "never ends and never waits".into();
                Problem::unless(
                    *count > 0 || waits,
                    &key,
                    what,
                    "give a count, or put a delay or an expect into it",
                )?;
                ops.push(Op::Again { start, depth, count: *count });
            }
        }
    }
    Ok(())
}

fn literal(bytes: &[u8], key: &str) -> Result<Pattern, Problem> {
    let some = !bytes.is_empty() && bytes.len() <= KEPT_MAX / 2;
    Problem::unless(some, key, || "is empty or too long".into(), "give 1 to 32768 bytes to wait for")?;
    Ok(Pattern::Bytes(Box::new(Finder::new(bytes).into_owned())))
}

fn regex(text: &str, key: &str) -> Result<Pattern, Problem> {
    let built =
        RegexBuilder::new(text).unicode(false).size_limit(REGEX_MAX).dfa_size_limit(REGEX_MAX).build();
    let regex = built.map_err(|error| {
        // the last line says what is wrong, those before point at it
        let error = error.to_string();
        let what = error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        Problem::new(key, what, "see https://docs.rs/regex/#syntax")
    })?;
    let what = || "matches nothing at all".into();
    Problem::unless(!regex.is_match(b""), key, what, "write + for *, or say what comes behind")?;
    Ok(Pattern::Regex(Box::new(regex)))
}

/// `\r \n \t \0 \\ \xHH`. In a template (`places`), a brace written as `\x7b` is no place.
fn unescape(text: &str, places: bool, key: &str) -> Result<Vec<u8>, Problem> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let plain = match rest.next() {
            Some(b'r') => b'\r',
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'0') => 0,
            Some(b'\\') => b'\\',
            Some(b'x') => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
                    return Err(Problem::new(
                        key,
                        "\\x without two hexadecimal digits",
                        "write it like \\x1b",
                    ));
                };
                let byte = (high << 4 | low) as u8;
                if places && matches!(byte, b'{' | b'}') {
                    out.push(byte);
                }
                byte
            }
            _ => {
                let fix = "use \\r \\n \\t \\0 \\\\ \\xHH (in JSON each \\ is written \\\\)";
                return Err(Problem::new(key, "an unknown escape", fix));
            }
        };
        out.push(plain);
    }
    Ok(out)
}

fn hex(text: &str, key: &str) -> Result<Vec<u8>, Problem> {
    let wrong = || Problem::new(key, format!("{text:?} is not hexadecimal"), "write it like \"0a 1b 2c\"");
    let mut out = Vec::new();
    for word in text.split_ascii_whitespace() {
        let digits = word.as_bytes();
        if digits.len() % 2 == 1 {
            return Err(wrong());
        }
        for pair in digits.chunks(2) {
            let value = pair.iter().try_fold(0, |v, d| Some(v << 4 | char::from(*d).to_digit(16)?));
            out.push(value.ok_or_else(wrong)? as u8);
        }
    }
    Ok(out)
}
