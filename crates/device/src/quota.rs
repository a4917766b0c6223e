//! Messages left to send of a load that has a total.

/// A worker's share of a group's total. Its devices draw on it together: a slow one does not hold back the others.
#[derive(Debug)]
pub(super) struct Quota {
    /// Messages that may still be sent.
    pub left: u64,
    /// Flows under way, or about to begin, that have not sent one: each is to have one.
    unsent: u64,
    /// Whether there is a total.
    pub is_limited: bool,
    /// Messages counted as intended that no device had sent when the load ended.
    pub missed: u64,
    /// Whether the devices have been told that the total is sent.
    pub is_announced: bool,
}

impl Quota {
    /// So many messages; `None`: no end of them.
    pub fn new(total: Option<u64>) -> Self {
        Self {
            left: total.unwrap_or(u64::MAX),
            unsent: 0,
            is_limited: total.is_some(),
            missed: 0,
            is_announced: false,
        }
    }

    /// Whether there is a message for one more flow.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.free() > 0
    }

    /// Messages that no flow is to begin with.
    #[inline]
    pub fn free(&self) -> u64 {
        self.left.saturating_sub(self.unsent)
    }

    /// A flow is to begin.
    #[inline]
    pub fn begin(&mut self) {
        self.unsent += 1;
    }

    /// A flow has sent its first message.
    #[inline]
    pub fn sent_first(&mut self) {
        self.unsent = self.unsent.saturating_sub(1);
    }

    /// A flow has ended before it sent one. One that failed stands for a message.
    pub fn ended_unsent(&mut self, failed: bool) {
        self.unsent = self.unsent.saturating_sub(1);
        // without a total this counts for nothing, in a run of any length
        self.left = self.left.saturating_sub(u64::from(failed));
    }

    /// How many messages that fell due can be counted as never sent: with a total, none before the load has ended, as
    /// flows to come send them, and then those left.
    #[inline]
    pub fn unsendable(&self, has_ended: bool) -> u64 {
        match (self.is_limited, has_ended) {
            (false, _) => u64::MAX,
            (true, false) => 0,
            (true, true) => self.left.saturating_sub(self.missed),
        }
    }

    /// How many flows of so many messages each (0: unknown) are to begin after the `active` ones: of a backlog no more can.
    pub fn flows(&self, messages: u64, active: u32) -> u64 {
        match messages {
            _ if !self.is_limited => u64::MAX,
            0 => 0,
            1 => self.free(),
            _ => (self.left / messages).saturating_sub(active.into()),
        }
    }

    /// Whether all is sent.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_flows_to_come_send_is_not_missed() {
        let mut quota = Quota::new(Some(20));
        assert_eq!((quota.unsendable(false), quota.unsendable(true)), (0, 20));
        quota.missed = 15;
        assert_eq!(quota.unsendable(true), 5, "each message is missed once");
        assert_eq!(Quota::new(None).unsendable(false), u64::MAX);
    }

    #[test]
    fn a_backlog_has_no_more_flows_than_the_total_has_messages_for() {
        let quota = Quota::new(Some(20));
        assert_eq!((quota.flows(1, 3), quota.flows(5, 3), quota.flows(5, 9)), (20, 1, 0));
        assert_eq!((quota.flows(0, 0), Quota::new(None).flows(0, 0)), (0, u64::MAX));
    }

    #[test]
    fn no_more_flows_begin_than_there_are_messages() {
        let mut quota = Quota::new(Some(2));
        quota.begin();
        quota.begin();
        assert!(!quota.has_room() && quota.free() == 0);
        quota.sent_first();
        quota.left -= 1;
        assert!(!quota.has_room(), "one is left, and the other flow is to have it");
        quota.ended_unsent(false);
        assert!(quota.has_room(), "that flow was told to end");
        quota.begin();
        quota.ended_unsent(true);
        assert!(quota.is_spent());
        assert!(Quota::new(None).has_room());
    }
}
