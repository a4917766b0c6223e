//! Congestion control: how much may be under way. CUBIC (RFC 9438) or NewReno (RFC 5681, RFC 6582), with an initial window of ten
//! segments (RFC 6928); where the peer sends SACK, losses are repaired at the rate of proportional rate reduction (RFC 6937).

use crate::config::{CongestionControl, MS};
use crate::seq::Seq;

/// How much of the window CUBIC keeps after a loss (RFC 9438 section 4.6).
const BETA: f32 = 0.7;
/// How fast CUBIC's window grows, segments/s³ (section 5).
const C: f32 = 0.4;
/// What NewReno would gain with CUBIC's decrease, segments each round trip (section 4.3).
const ALPHA: f32 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// What a connection is at.
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Slow start, or no loss since it sent nothing for long.
    Open,
    /// Congestion avoidance by NewReno; part of a byte that its window has gained.
    Reno(f32),
    /// Congestion avoidance by CUBIC since `began`, ms.
    Cubic {
        began: u32,
        /// When the window is again as it was before the loss, s after `began`.
        back: f32,
        /// The window that NewReno would have, bytes.
        reno: f32,
    },
    /// Losses are repaired: of so many bytes that were under way, so many were delivered since, and so many sent.
    Recovery { flight: u32, delivered: u32, sent: u32 },
}

/// Congestion window of a connection, bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Congestion {
    pub window: u32,
    threshold: u32,
    /// The window before the last loss.
    before: u32,
    /// Recovery ends when all up to here is acknowledged.
    recover: Seq,
    phase: Phase,
    /// Sending stopped for this window, not for lack of data: only then does it grow (RFC 7661).
    limited: bool,
    /// The first retransmission of a recovery does not wait for the window (RFC 5681 section 3.2, step 3).
    first: bool,
}

/// An acknowledgment, as congestion control sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ack {
    /// Bytes that it acknowledges, and up to where.
    pub bytes: u32,
    pub una: Seq,
    /// ns.
    pub now: u64,
    /// Smoothed round-trip time, ns.
    pub rtt: u64,
    pub mss: u16,
}

/// Initial window (RFC 6928 section 2).
fn initial(mss: u32) -> u32 {
    (10 * mss).min((2 * mss).max(14_600))
}

impl Congestion {
    pub fn new(mss: u16) -> Self {
        Self {
            window: initial(mss.into()),
            threshold: u32::MAX,
            before: 0,
            recover: Seq(0),
            phase: Phase::Open,
            limited: false,
            first: false,
        }
    }

    /// Whether losses are being repaired.
    #[inline]
    pub fn is_recovering(&self) -> bool {
        matches!(self.phase, Phase::Recovery { .. })
    }

    /// The window kept something from being sent.
    #[inline]
    pub fn limit(&mut self) {
        self.limited = true;
    }

    /// Something was acknowledged. Whether recovery goes on after a partial acknowledgment.
    pub fn acknowledged(&mut self, control: CongestionControl, ack: &Ack) -> bool {
        if self.is_recovering() {
            if ack.una.before(self.recover) {
                // RFC 6582 section 3.2, step 3
                self.first = true;
                return true;
            }
            (self.phase, self.limited, self.window) = (Phase::Open, false, self.threshold);
            return false;
        }
        if !std::mem::take(&mut self.limited) {
            return false;
        }
        let mss = u32::from(ack.mss);
        let gain = if self.window < self.threshold {
            // slow start, by bytes (RFC 3465, L = 2)
            ack.bytes.min(2 * mss)
        } else if control == CongestionControl::Cubic {
            self.cubic(ack)
        } else {
            self.reno(ack)
        };
        self.window = self.window.saturating_add(gain);
        false
    }

    /// What NewReno's window gains by an acknowledgment: a segment each round trip (RFC 5681 section 3.1).
    fn reno(&mut self, ack: &Ack) -> u32 {
        let kept = if let Phase::Reno(part) = self.phase { part } else { 0.0 };
        let mss = f32::from(ack.mss);
        let gain = mss * (ack.bytes as f32).min(2.0 * mss) / self.window.max(1) as f32 + kept;
        self.phase = Phase::Reno(gain.fract());
        gain as u32
    }

    /// What CUBIC's window gains by an acknowledgment (RFC 9438 sections 4.2 to 4.5).
    fn cubic(&mut self, ack: &Ack) -> u32 {
        let (mss, window, at) = (f32::from(ack.mss), self.window as f32, (ack.now / MS) as u32);
        let (began, back, reno) = match self.phase {
            Phase::Cubic { began, back, reno } => (began, back, reno),
            _ => {
                self.before = self.before.max(self.window);
                (at, ((self.before as f32 - window) / mss / C).cbrt(), window)
            }
        };
        // NewReno's window grows by ALPHA a round trip until it is where the loss was, and as NewReno's own from there on
        let alpha = if reno < self.before as f32 { ALPHA } else { 1.0 };
        let reno = reno + alpha * mss * ack.bytes as f32 / window;
        self.phase = Phase::Cubic { began, back, reno };
        let elapsed = at.wrapping_sub(began) as f32 / 1e3;
        let curve = |seconds: f32| (C * (seconds - back).powi(3)).mul_add(mss, self.before as f32);
        if curve(elapsed) < reno {
            return (reno - window).max(0.0) as u32;
        }
        let target = curve(elapsed + ack.rtt as f32 / 1e9).clamp(window, 1.5 * window);
        ((target - window) * ack.bytes as f32 / window) as u32
    }

    /// The slow start threshold after a loss with `flight` bytes under way.
    fn reduce(&mut self, control: CongestionControl, flight: u32, mss: u16) {
        let least = 2 * u32::from(mss);
        if control == CongestionControl::NewReno {
            self.threshold = (flight / 2).max(least);
            return;
        }
        // a flow that lost at a smaller window than before leaves room to others (RFC 9438 section 4.7)
        let window = self.window;
        let leaves = window < self.before;
        self.before = if leaves { (window as f32 * (1.0 + BETA) / 2.0) as u32 } else { window };
        self.threshold = ((flight as f32 * BETA) as u32).max(least);
    }

    /// A loss was detected; `flight` bytes are under way up to `nxt`. Once each round trip (RFC 5681 section 3.2). Where the peer
    /// sends SACK the window follows what is delivered: `pipe` bytes are neither delivered nor lost.
    pub fn loss_detected(
        &mut self,
        control: CongestionControl,
        flight: u32,
        nxt: Seq,
        mss: u16,
        pipe: Option<u32>,
    ) {
        if self.is_recovering() {
            return;
        }
        self.reduce(control, flight, mss);
        self.window = pipe.unwrap_or(self.threshold);
        self.recover = nxt;
        self.phase = Phase::Recovery { flight: flight.max(1), delivered: 0, sent: 0 };
        self.first = true;
    }

    /// During recovery `new` bytes were found to be delivered and `pipe` are under way; `advances`: the acknowledgment went on, and
    /// found nothing else lost (RFC 6937 section 3.1, with the slow start bound where that is so).
    pub fn delivered(&mut self, new: u32, pipe: u32, advances: bool, mss: u16) {
        let Phase::Recovery { flight, delivered, sent } = &mut self.phase else { return };
        *delivered = delivered.saturating_add(new);
        let may = if pipe > self.threshold {
            let share = u64::from(*delivered) * u64::from(self.threshold) / u64::from(*flight);
            u32::try_from(share).unwrap_or(u32::MAX).saturating_sub(*sent)
        } else {
            let bound = delivered.saturating_sub(*sent).max(new) + if advances { u32::from(mss) } else { 0 };
            bound.min(self.threshold - pipe)
        };
        self.window = pipe.saturating_add(may);
    }

    /// So many bytes were sent, or sent again.
    #[inline]
    pub fn sent(&mut self, bytes: u32) {
        if let Phase::Recovery { sent, .. } = &mut self.phase {
            *sent = sent.saturating_add(bytes);
        }
    }

    /// How much may be sent besides `pipe` bytes that are under way; of what is lost the first at once.
    #[inline]
    pub fn room(&mut self, pipe: u32, retransmission: bool, mss: u16) -> u32 {
        let room = self.window.saturating_sub(pipe);
        if retransmission && std::mem::take(&mut self.first) || pipe == 0 {
            room.max(mss.into())
        } else {
            room
        }
    }

    /// The retransmission timer expired (RFC 5681 section 3.1 (4)).
    pub fn timed_out(&mut self, control: CongestionControl, flight: u32, nxt: Seq, mss: u16, again: bool) {
        if !again {
            self.reduce(control, flight, mss);
        }
        self.window = mss.into();
        self.recover = nxt;
        // slow start repairs what was lost: the window grows with what is acknowledged
        self.phase = Phase::Open;
        self.limited = true;
    }

    /// Nothing was sent for longer than the retransmission timeout (RFC 5681 section 4.1).
    pub fn idle(&mut self, mss: u16) {
        self.window = self.window.min(initial(mss.into()));
        if !self.is_recovering() {
            self.phase = Phase::Open;
        }
    }

    /// The peer takes segments of this size.
    pub fn resize(&mut self, mss: u16) {
        self.window = initial(mss.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SECOND;

    fn ack(bytes: u32, una: u32) -> Ack {
        Ack { bytes, una: Seq(una), now: SECOND, rtt: 100 * MS, mss: 1000 }
    }

    #[test]
    fn the_window_grows_only_when_it_was_in_the_way() {
        for kind in [CongestionControl::NewReno, CongestionControl::Cubic] {
            let mut control = Congestion::new(1000);
            assert_eq!(control.window, 10_000);
            assert!(!control.acknowledged(kind, &ack(1000, 0)));
            assert_eq!(control.window, 10_000);
            control.limit();
            assert!(!control.acknowledged(kind, &ack(5000, 0)));
            assert_eq!(control.window, 12_000, "two segments an acknowledgment at most");
        }
    }

    #[test]
    fn a_loss_halves_it_once() {
        let reno = CongestionControl::NewReno;
        let mut control = Congestion::new(1000);
        control.loss_detected(reno, 8_000, Seq(8_000), 1000, None);
        control.loss_detected(reno, 8_000, Seq(9_000), 1000, None);
        assert_eq!((control.window, control.is_recovering()), (4_000, true));
        assert!(control.acknowledged(reno, &ack(1000, 7_999)), "partial");
        assert!(!control.acknowledged(reno, &ack(1000, 8_000)));
        assert!(!control.is_recovering());
        control.limit();
        control.acknowledged(reno, &ack(1000, 9_000));
        assert_eq!(control.window, 4_250, "congestion avoidance");
        control.timed_out(reno, 4_250, Seq(10_000), 1000, false);
        assert_eq!(control.window, 1_000);
        control.acknowledged(reno, &ack(1000, 10_000));
        assert_eq!(control.window, 2_000, "slow start again");
    }

    /// The window of a flow that lost with 1,000 segments under way, so many round trips of 100 ms after its recovery.
    fn after(kind: CongestionControl, rounds: u32) -> u32 {
        let mut control = Congestion { window: 1_000_000, ..Congestion::new(1000) };
        control.loss_detected(kind, 1_000_000, Seq(1_000_000), 1000, None);
        let mut una = 1_000_000;
        control.acknowledged(kind, &ack(1000, una));
        for round in 0..rounds {
            let segments = control.window / 1000;
            for _ in 0..segments {
                control.limit();
                una += 1000;
                let now = SECOND + u64::from(round) * 100 * MS;
                control.acknowledged(kind, &Ack { now, ..ack(1000, una) });
            }
        }
        control.window / 1000
    }

    #[test]
    fn cubic_comes_back_by_its_curve_and_goes_beyond() {
        // RFC 9438 section 4.2: K = cbrt((1000 - 700) / 0.4) = 9.09 s
        assert_eq!(after(CongestionControl::Cubic, 0), 700);
        let at = |seconds: f64| (0.4 * (seconds - 9.086).powi(3) + 1000.0) as u32;
        for (rounds, seconds) in [(20, 2.0), (50, 5.0), (91, 9.1), (120, 12.0)] {
            let window = after(CongestionControl::Cubic, rounds);
            assert!(
                window.abs_diff(at(seconds)) <= 12,
                "after {seconds} s {window}, by the curve {}",
                at(seconds)
            );
        }
        // NewReno gains a segment each round trip
        assert!(after(CongestionControl::NewReno, 120).abs_diff(620) <= 3);
    }

    #[test]
    fn a_smaller_loss_leaves_room_to_others() {
        let mut control = Congestion { window: 100_000, ..Congestion::new(1000) };
        control.loss_detected(CongestionControl::Cubic, 100_000, Seq(1), 1000, None);
        control.acknowledged(CongestionControl::Cubic, &ack(1000, 1));
        assert_eq!((control.window, control.before), (70_000, 100_000));
        control.loss_detected(CongestionControl::Cubic, 70_000, Seq(2), 1000, None);
        assert_eq!((control.threshold, control.before), (49_000, 59_500));
    }

    #[test]
    fn recovery_sends_in_proportion_to_what_is_delivered() {
        // RFC 6937 section 5: 20 segments under way, the first is lost, and each acknowledgment delivers one
        let mut control = Congestion { window: 20_000, ..Congestion::new(1000) };
        let mut pipe = 16_000;
        control.loss_detected(CongestionControl::NewReno, 20_000, Seq(20_000), 1000, Some(pipe));
        control.delivered(3_000, pipe, false, 1000);
        let mut sent = 0;
        for _ in 0..16 {
            while control.room(pipe, false, 1000) >= 1000 {
                control.sent(1000);
                (pipe, sent) = (pipe + 1000, sent + 1);
            }
            pipe -= 1000;
            control.delivered(1000, pipe, false, 1000);
        }
        assert_eq!(sent, 9, "about half of what was delivered, spread over the round trip");
        assert!(!control.acknowledged(CongestionControl::NewReno, &ack(20_000, 20_000)));
        assert_eq!(control.window, 10_000);
    }
}
