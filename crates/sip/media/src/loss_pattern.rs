//! Loss pattern of a stream: how losses follow one another (RFC 3611 section 4.7.2, and a Markov chain of two states).

/// Packets in a row that end a burst (Gmin of RFC 3611).
const GAP: u64 = 16;

/// Losses of a stream, told packet by packet in the order of their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LossPattern {
    /// Packets, and those of them that were lost or too late.
    pub packets: u64,
    /// Lost or too late.
    pub lost: u64,
    /// Bursts: two losses or more with fewer than 16 packets in a row between them.
    bursts: u64,
    /// Packets of bursts, and losses in them.
    burst_packets: u64,
    burst_lost: u64,
    /// Losses that follow a packet that arrived, packets that arrived and follow a loss: steps of the chain.
    to_lost: u64,
    to_received: u64,
    was_lost: bool,
    /// The present group of losses: how many, over how many packets up to the last, and packets that arrived since.
    group_lost: u64,
    group_packets: u64,
    received_since: u64,
}

impl LossPattern {
    /// The next packet: whether it was lost.
    #[inline]
    pub fn push(&mut self, lost: bool) {
        if self.packets > 0 && lost != self.was_lost {
            *(if lost { &mut self.to_lost } else { &mut self.to_received }) += 1;
        }
        self.was_lost = lost;
        self.packets += 1;
        if !lost {
            self.received_since += 1;
            return;
        }
        self.lost += 1;
        if self.group_lost > 0 && self.received_since < GAP {
            self.group_packets += self.received_since + 1;
            self.group_lost += 1;
        } else {
            self.end_group();
            (self.group_lost, self.group_packets) = (1, 1);
        }
        self.received_since = 0;
    }

    fn end_group(&mut self) {
        if self.group_lost > 1 {
            self.bursts += 1;
            self.burst_packets += self.group_packets;
            self.burst_lost += self.group_lost;
        }
        self.group_lost = 0;
    }

    /// Bursts so far: how many, packets in them, and losses in them.
    pub fn bursts(&self) -> (u64, u64, u64) {
        let mut all = self.clone();
        all.end_group();
        (all.bursts, all.burst_packets, all.burst_lost)
    }

    /// Share of packets lost, percent.
    pub fn percent(&self) -> f64 {
        if self.packets == 0 { 0.0 } else { 100.0 * self.lost as f64 / self.packets as f64 }
    }

    /// Probability of a loss after a packet that arrived (p), and of an arrival after a loss (q); none where it never could be.
    pub fn transitions(&self) -> (Option<f64>, Option<f64>) {
        // the last packet has no successor
        let (lost, received) = (self.lost, self.packets - self.lost);
        let from_lost = lost - u64::from(self.was_lost && lost > 0);
        let from_received = received - u64::from(!self.was_lost && received > 0);
        let share = |steps: u64, of: u64| (of > 0).then(|| steps as f64 / of as f64);
        (share(self.to_lost, from_received), share(self.to_received, from_lost))
    }

    /// Burst ratio of G.107: 1 / (p + q); 1 where there is too little to tell, or losses are spread more evenly than chance.
    pub fn burst_ratio(&self) -> f64 {
        match self.transitions() {
            (Some(p), Some(q)) if p + q > 0.0 && self.lost > 1 => (1.0 / (p + q)).max(1.0),
            _ => 1.0,
        }
    }

    /// Add the counts of another stream, whose packets did not follow these.
    pub fn merge(&mut self, other: &Self) {
        let mut other = other.clone();
        other.end_group();
        self.end_group();
        self.packets += other.packets;
        self.lost += other.lost;
        self.bursts += other.bursts;
        self.burst_packets += other.burst_packets;
        self.burst_lost += other.burst_lost;
        self.to_lost += other.to_lost;
        self.to_received += other.to_received;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> LossPattern {
        let mut pattern = LossPattern::default();
        text.bytes().for_each(|b| pattern.push(b == b'x'));
        pattern
    }

    #[test]
    fn losses_close_together_are_a_burst() {
        let fifteen = ".".repeat(15);
        let sixteen = ".".repeat(16);
        assert_eq!(of(&format!("...x{fifteen}x...")).bursts(), (1, 17, 2));
        assert_eq!(of(&format!("...x{sixteen}x...")).bursts(), (0, 0, 0));
        assert_eq!(of(&format!("xx.x{sixteen}x{sixteen}xx")).bursts(), (2, 6, 5));
    }

    #[test]
    fn the_chain_is_counted_by_its_steps() {
        // from received: . . x → 2 of 5 steps; from lost: x . → 2 of 3
        let pattern = of("..xx...x.");
        let (p, q) = pattern.transitions();
        assert_eq!((p, q), (Some(2.0 / 5.0), Some(2.0 / 3.0)));
        assert!((pattern.percent() - 100.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_burst_ratio_is_one_for_random_loss_and_more_for_bursts() {
        // a linear congruential generator: 10 % at random
        let mut state = 1u64;
        let mut random = LossPattern::default();
        for _ in 0..100_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random.push(state >> 33 < (1 << 31) / 10);
        }
        assert!((random.burst_ratio() - 1.0).abs() < 0.05, "{}", random.burst_ratio());
        let bursts = of(&format!("xxxx{}", ".".repeat(36)).repeat(100));
        assert!((bursts.burst_ratio() - 3.6).abs() < 0.05, "{}", bursts.burst_ratio());
        assert_eq!(of("....x....").burst_ratio(), 1.0, "of one loss nothing is known");
        assert_eq!(of("x.x.x.x.x.").burst_ratio(), 1.0);
    }

    proptest! {
        #[test]
        fn counts_agree(losses in prop::collection::vec(any::<bool>(), 0..200)) {
            let mut pattern = LossPattern::default();
            losses.iter().for_each(|lost| pattern.push(*lost));
            let lost = losses.iter().filter(|lost| **lost).count() as u64;
            prop_assert_eq!((pattern.packets, pattern.lost), (losses.len() as u64, lost));
            let (bursts, packets, in_bursts) = pattern.bursts();
            prop_assert!(in_bursts <= lost && in_bursts <= packets && packets <= pattern.packets);
            prop_assert!(bursts * 2 <= in_bursts || bursts == 0);
            prop_assert!(pattern.burst_ratio() >= 1.0);
        }
    }
}
