use super::DialogError;
use crate::message::header::{Refresher, SessionExpires};
use crate::message::{Message, Name};

const SECOND: u64 = 1_000_000_000;

/// Session timer settings of one side (RFC 4028).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionPolicy {
    /// Preferred interval, seconds.
    pub interval: u32,
    /// Shortest accepted interval, seconds; at least 90 (section 4).
    pub min_se: u32,
    /// Refresher, if both sides may be.
    pub refresher: Refresher,
}

impl Default for SessionPolicy {
    fn default() -> Self {
        Self { interval: 1_800, min_se: 90, refresher: Refresher::Uac }
    }
}

/// How a server answers a request about session timers (RFC 4028 section 9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Negotiation {
    /// 422 with this Min-SE.
    TooSmall(u32),
    /// A 2xx with this Session-Expires, and `Require: timer` where the client supports it.
    Agreed {
        /// Session-Expires of the response.
        expires: SessionExpires,
        /// Whether the response requires `timer`.
        require: bool,
    },
}

/// The server's answer to an INVITE or UPDATE.
pub fn accept_offer(request: &Message, policy: &SessionPolicy) -> Result<Negotiation, DialogError> {
    let supported =
        request.has_option(Name::Supported, "timer") || request.has_option(Name::Require, "timer");
    let offer: Option<SessionExpires> = request.get(Name::SessionExpires)?;
    let min: Option<SessionExpires> = request.get(Name::MinSe)?;
    let min = policy.min_se.max(90).max(min.map_or(0, |min| min.seconds));
    let Some(offer) = offer else {
        // The server may ask for a timer where the client does not; it refreshes then unless the client can.
        let refresher = if supported { policy.refresher } else { Refresher::Uas };
        return Ok(agreed(policy.interval.max(min), refresher, supported));
    };
    if offer.seconds < policy.min_se.max(90) {
        // Who does not know of Min-SE is not refused: a proxy made the offer.
        if supported {
            return Ok(Negotiation::TooSmall(policy.min_se.max(90)));
        }
        return Ok(agreed(offer.seconds.max(90), Refresher::Uas, false));
    }
    let refresher = match offer.refresher() {
        _ if !supported => Refresher::Uas,
        Some(refresher) => refresher,
        None => policy.refresher,
    };
    // A server may lower the interval, but not under Min-SE.
    Ok(agreed(offer.seconds.min(policy.interval.max(min)), refresher, supported))
}

fn agreed(seconds: u32, refresher: Refresher, supported: bool) -> Negotiation {
    Negotiation::Agreed { expires: SessionExpires::new(seconds, Some(refresher)), require: supported }
}

/// Session-Expires and Min-SE of the request that follows a 422 (RFC 4028 section 7.4).
pub fn retry_after_422(response: &Message, policy: &SessionPolicy) -> Result<(u32, u32), DialogError> {
    let min: SessionExpires = response.need(Name::MinSe)?;
    Ok((policy.interval.max(min.seconds), min.seconds))
}

/// A running session timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionTimer {
    interval: u64,
    refreshes: bool,
    /// A refresh was sent, and not answered yet.
    pending: bool,
    at: u64,
}

/// Action at the deadline of a session timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimerEvent {
    /// Send a refresh: re-INVITE or UPDATE.
    Refresh,
    /// The peer did not refresh: send BYE.
    Expired,
}

impl SessionTimer {
    /// By a 2xx that came or was sent; `None` where it has no Session-Expires: the session does not expire (section 7.2).
    /// `client` tells whether this side sent the request.
    pub fn start(response: &Message, client: bool, now: u64) -> Result<Option<Self>, DialogError> {
        let Some(expires) = response.get::<SessionExpires>(Name::SessionExpires)? else { return Ok(None) };
        // Without refresher it is the client, the one side that is known to support timers.
        let refresher = expires.refresher().unwrap_or(Refresher::Uac);
        let refreshes = (refresher == Refresher::Uac) == client;
        // Section 4: never under 90 s, however little was written.
        let interval = u64::from(expires.seconds.max(90)).saturating_mul(SECOND);
        let mut timer = Self { interval, refreshes, pending: false, at: 0 };
        timer.restart(now);
        Ok(Some(timer))
    }

    /// The session was refreshed without a change of the interval.
    pub fn restart(&mut self, now: u64) {
        // Section 10: half of the interval, and the smaller of 32 s and a third of it before its end.
        let wait = if self.refreshes {
            self.interval / 2
        } else {
            self.interval - (32 * SECOND).min(self.interval / 3)
        };
        self.pending = false;
        self.at = now.saturating_add(wait);
    }

    /// When [`on_timer`](Self::on_timer) is to be called.
    pub fn deadline(&self) -> u64 {
        self.at
    }

    /// Whether this side refreshes.
    pub fn refreshes(&self) -> bool {
        self.refreshes
    }

    /// The deadline may have come. A refresher that gets no answer sends BYE when its timer comes to this again.
    pub fn on_timer(&mut self, now: u64) -> Option<TimerEvent> {
        if now < self.at {
            return None;
        }
        if self.refreshes && !self.pending {
            // What is left until this side must give up, too.
            let left = self.interval - self.interval / 2 - (32 * SECOND).min(self.interval / 3);
            self.at = now.saturating_add(left);
            self.pending = true;
            return Some(TimerEvent::Refresh);
        }
        self.at = u64::MAX;
        Some(TimerEvent::Expired)
    }
}
