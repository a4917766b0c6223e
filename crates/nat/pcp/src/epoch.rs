//! The epoch, by which a client sees that the server lost its mappings (RFC 6887 section 8.5).

/// Seconds since the server's mappings began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch {
    began_ms: u64,
}

impl Epoch {
    /// It begins at this time. Mappings that were restored with their state, or are those of a pair, may be older: clients then ask for
    /// what they have.
    pub fn since(began_ms: u64) -> Self {
        Self { began_ms }
    }

    /// What is said at this time.
    pub fn at(self, now_ms: u64) -> u32 {
        (now_ms.saturating_sub(self.began_ms) / 1000) as u32
    }
}

/// The client's check of two answers, each with the client's and the server's seconds: whether the server lost its state between.
/// Clocks may differ by a sixteenth, and by two seconds; answers may overtake each other by one.
pub fn lost_state(before: (u32, u32), now: (u32, u32)) -> bool {
    let ((client_before, server_before), (client, server)) = (before, now);
    if u64::from(server) + 1 < u64::from(server_before) {
        return true;
    }
    let client_delta = u64::from(client.saturating_sub(client_before));
    let server_delta = u64::from(server.saturating_sub(server_before));
    client_delta + 2 < server_delta - server_delta / 16 || server_delta + 2 < client_delta - client_delta / 16
}

/// How often a restart is announced (RFC 6887 section 14.1).
pub const ANNOUNCEMENTS: u32 = 10;

/// Milliseconds after the restart at which announcement `number` (from 0) is sent; `None` when there were enough. The pauses
/// are 250 ms at first and double.
pub fn announcement_at_ms(number: u32) -> Option<u64> {
    (number < ANNOUNCEMENTS).then(|| 250 * ((1 << number) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_counts_seconds() {
        let epoch = Epoch::since(5000);
        assert_eq!([0, 5000, 5999, 6000].map(|now_ms| epoch.at(now_ms)), [0, 0, 0, 1]);
    }

    #[test]
    fn a_client_sees_a_restart_and_forgives_clocks() {
        let before = (1000, 500);
        for (client, server, lost) in [
            (1000, 500, false),
            (1000, 499, false), // overtaken
            (1000, 498, true),
            (1100, 600, false),
            (1100, 0, true),
            (1160, 652, false), // 152 + 2 ≥ 160 - 10
            (1160, 647, true),  // 147 + 2 < 150
            (1150, 660, false), // 150 + 2 ≥ 160 - 10
            (1147, 660, true),
        ] {
            assert_eq!(lost_state(before, (client, server)), lost, "{client} {server}");
        }
    }

    #[test]
    fn a_restart_is_announced_ten_times() {
        let times: Vec<u64> = (0..).map_while(announcement_at_ms).collect();
        assert_eq!(times, [0, 250, 750, 1750, 3750, 7750, 15_750, 31_750, 63_750, 127_750]);
    }
}
