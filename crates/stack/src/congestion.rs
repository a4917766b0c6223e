//! Congestion control: NewReno (RFC 5681, RFC 6582) with an initial window of ten segments (RFC 6928).

use crate::seq::Seq;

/// Congestion window of a connection, bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Congestion {
    pub window: u32,
    threshold: u32,
    /// Recovery ends when all up to here is acknowledged.
    recover: Seq,
    recovering: bool,
    /// Sending stopped for this window, not for lack of data: only then does it grow (RFC 7661).
    limited: bool,
    /// The first retransmission of a recovery does not wait for the window (RFC 5681 section 3.2, step 3).
    first: bool,
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
            recover: Seq(0),
            recovering: false,
            limited: false,
            first: false,
        }
    }

    /// Whether losses are being repaired.
    #[inline]
    pub fn is_recovering(&self) -> bool {
        self.recovering
    }

    /// The window kept something from being sent.
    #[inline]
    pub fn limit(&mut self) {
        self.limited = true;
    }

    /// So many bytes were acknowledged, all up to `una`. Whether recovery goes on after a partial acknowledgment.
    pub fn acknowledged(&mut self, bytes: u32, una: Seq, mss: u16) -> bool {
        if self.recovering {
            if una.before(self.recover) {
                // RFC 6582 section 3.2, step 3
                self.first = true;
                return true;
            }
            self.recovering = false;
            self.limited = false;
            return false;
        }
        if std::mem::take(&mut self.limited) {
            let mss = u32::from(mss);
            self.window = self.window.saturating_add(if self.window < self.threshold {
                // slow start, by bytes (RFC 3465, L = 2)
                bytes.min(2 * mss)
            } else {
                let share = u64::from(mss) * u64::from(bytes.min(2 * mss)) / u64::from(self.window.max(1));
                (share as u32).max(1)
            });
        }
        false
    }

    /// A loss was detected; `flight` bytes are under way up to `nxt`. Once each round trip (RFC 5681 section 3.2).
    pub fn loss_detected(&mut self, flight: u32, nxt: Seq, mss: u16) {
        if self.recovering {
            return;
        }
        self.threshold = (flight / 2).max(2 * u32::from(mss));
        self.window = self.threshold;
        self.recover = nxt;
        self.recovering = true;
        self.first = true;
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
    pub fn timed_out(&mut self, flight: u32, nxt: Seq, mss: u16, again: bool) {
        if !again {
            self.threshold = (flight / 2).max(2 * u32::from(mss));
        }
        self.window = mss.into();
        self.recover = nxt;
        // slow start repairs what was lost: the window grows with what is acknowledged
        self.recovering = false;
        self.limited = true;
    }

    /// Nothing was sent for longer than the retransmission timeout (RFC 5681 section 4.1).
    pub fn idle(&mut self, mss: u16) {
        self.window = self.window.min(initial(mss.into()));
    }

    /// The peer takes segments of this size.
    pub fn resize(&mut self, mss: u16) {
        self.window = initial(mss.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_grows_only_when_it_was_in_the_way() {
        let mut control = Congestion::new(1000);
        assert_eq!(control.window, 10_000);
        assert!(!control.acknowledged(1000, Seq(0), 1000));
        assert_eq!(control.window, 10_000);
        control.limit();
        assert!(!control.acknowledged(5000, Seq(0), 1000));
        assert_eq!(control.window, 12_000, "two segments an acknowledgment at most");
    }

    #[test]
    fn a_loss_halves_it_once() {
        let mut control = Congestion::new(1000);
        control.loss_detected(8_000, Seq(8_000), 1000);
        control.loss_detected(8_000, Seq(9_000), 1000);
        assert_eq!((control.window, control.is_recovering()), (4_000, true));
        assert!(control.acknowledged(1000, Seq(7_999), 1000), "partial");
        assert!(!control.acknowledged(1000, Seq(8_000), 1000));
        assert!(!control.is_recovering());
        control.limit();
        control.acknowledged(1000, Seq(9_000), 1000);
        assert_eq!(control.window, 4_250, "congestion avoidance");
        control.timed_out(4_250, Seq(10_000), 1000, false);
        assert_eq!(control.window, 1_000);
        control.acknowledged(1000, Seq(10_000), 1000);
        assert_eq!(control.window, 2_000, "slow start again");
    }
}
