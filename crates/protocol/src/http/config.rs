//! Configuration that all devices of an HTTP group share.

use super::capture::CaptureRules;
use super::request::Request;
use crate::pace::Pace;
use std::time::Duration;

/// What is the same for all devices of a group.
#[derive(Debug)]
pub struct Config {
    /// Requests at the start of each flow, one after the other.
    pub(super) before: Box<[Exchange]>,
    /// The request that is repeated.
    pub(super) main: Exchange,
    /// How many values a device keeps of responses.
    pub(super) captures: usize,
    pub(super) keep_alive: bool,
    pub(super) depth: usize,
    pub(super) requests: u64,
    pub(super) pace: Pace,
    pub(super) head_limit: usize,
    pub(super) timeout: Duration,
}

/// A request, and what is made of its response.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) request: Request,
    pub(super) method: Box<str>,
    /// Method HEAD: responses have no body.
    pub(super) head: bool,
    /// A request may be sent again although the first may have had its effect (RFC 9110 §9.2.2).
    pub(super) idempotent: bool,
    /// One bit for each status code that is a success.
    pub(super) expect: [u64; 16],
    pub(super) captures: CaptureRules,
}

impl Exchange {
    /// Whether a response with this status is a success.
    #[inline]
    pub(super) fn expects(&self, status: u16) -> bool {
        self.expect[usize::from(status & 1023) / 64] >> (status % 64) & 1 == 1
    }
}

impl Config {
    /// The exchange with request number `seq` of a flow.
    #[inline]
    pub(super) fn exchange(&self, seq: u64) -> &Exchange {
        if self.before.is_empty() {
            return &self.main;
        }
        usize::try_from(seq).ok().and_then(|seq| self.before.get(seq)).unwrap_or(&self.main)
    }

    pub(super) fn before(&self) -> u64 {
        self.before.len() as u64
    }
}
