use super::{Value, text, with_cursor};
use crate::method::Method;
use std::fmt;

/// CSeq (RFC 3261 section 20.16).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CSeq {
    /// Sequence number, under 2^31.
    pub number: u32,
    /// Method.
    pub method: Method,
}

impl Value for CSeq {
    fn read(input: &str) -> Option<(Self, &str)> {
        with_cursor(input, |read| {
            let number = read.number((1 << 31) - 1)?;
            read.space().then_some(())?;
            Some(Self { number, method: Method::of(&text(read.token()?)) })
        })
    }
}

impl fmt::Display for CSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.method)
    }
}

/// RAck of a PRACK: which response it acknowledges (RFC 3262 section 7.2).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RAck {
    /// RSeq of the response.
    pub rseq: u32,
    /// CSeq of the response.
    pub cseq: CSeq,
}

impl Value for RAck {
    fn read(input: &str) -> Option<(Self, &str)> {
        let (rseq, rest) = u32::read(input).filter(|(rseq, _)| *rseq > 0)?;
        let trimmed = rest.trim_ascii_start();
        let (cseq, rest) = CSeq::read(trimmed).filter(|_| trimmed.len() < rest.len())?;
        Some((Self { rseq, cseq }, rest))
    }
}

impl fmt::Display for RAck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.rseq, self.cseq)
    }
}
