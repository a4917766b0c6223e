//! A request as it is sent: one copy, or a template that is filled in.

use crate::template::{Template, Values};
use rand::rngs::SmallRng;

/// A request, as ready as it can be.
#[derive(Debug)]
pub(super) enum Request {
    /// The same every time: one copy.
    Fixed(Box<[u8]>),
    /// To be filled in.
    Template {
        head: Template,
        body: Template,
        size: Option<usize>,
        /// The head ends with a blank Content-Length, written once the body is there.
        length: bool,
    },
}

/// Room for the digits of Content-Length; spaces before the value are allowed (RFC 9110 §5.5).
pub(super) const LENGTH_BLANK: &str = "          ";

impl Request {
    #[inline]
    pub(super) fn render(&self, values: Values, captured: &[Vec<u8>], rng: &mut SmallRng, out: &mut Vec<u8>) {
        match self {
            Request::Fixed(bytes) => out.extend_from_slice(bytes),
            Request::Template { head, body, size, length } => {
                head.render_with(values, captured, rng, out);
                let start = out.len();
                body.render_with(values, captured, rng, out);
                match size {
                    Some(size) => out.resize(start + size, b' '),
                    None if *length => {
                        let mut left = out.len() - start;
                        // backwards from the last digit, over the blanks
                        for digit in out[..start - "\r\n\r\n".len()].iter_mut().rev() {
                            *digit = b'0' + (left % 10) as u8;
                            left /= 10;
                            if left == 0 {
                                break;
                            }
                        }
                    }
                    None => {}
                }
            }
        }
    }
}

/// Whether a text is a token, as methods and field names are.
pub(super) fn is_token(text: &str) -> bool {
    // RFC 9110 §5.6.2
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}
