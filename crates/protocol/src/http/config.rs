//! Configuration that all devices of an HTTP group share.

use super::capture::CaptureRules;
use super::request::Request;
use crate::pace::Pace;
use rand::Rng as _;
use rand::rngs::SmallRng;
use std::time::Duration;

/// What is the same for all devices of a group.
#[derive(Debug)]
pub struct Config {
    /// Requests at the start of each flow, one after the other.
    pub(super) before: Box<[Exchange]>,
    /// The requests that are repeated, in turn; at least one.
    pub(super) round: Box<[Exchange]>,
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
    /// Rest after the response.
    pub(super) pause: Duration,
    /// How much longer that may be.
    pub(super) pause_spread: Duration,
}

impl Exchange {
    /// How long a device rests after the response, if it does.
    #[inline]
    pub(super) fn rest(&self, rng: &mut SmallRng) -> Option<Duration> {
        match (self.pause, self.pause_spread) {
            (Duration::ZERO, Duration::ZERO) => None,
            (pause, Duration::ZERO) => Some(pause),
            (pause, spread) => Some(pause + spread.mul_f64(rng.random::<f64>())),
        }
    }

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
        match seq.checked_sub(self.initial_requests()) {
            None => &self.before[seq as usize],
            Some(_) if self.round.len() == 1 => &self.round[0],
            Some(seq) => &self.round[(seq % self.round.len() as u64) as usize],
        }
    }

    pub(super) fn initial_requests(&self) -> u64 {
        self.before.len() as u64
    }
}
