//! What becomes of a packet that was translated.

use nat_core::Side;

/// It goes to one of the outputs, or it is gone; [`Fate::drop`] for a reason that is to be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketAction(u8);

/// Numbers from here on are reasons to drop.
const DROPPED: u8 = 4;

impl PacketAction {
    /// Reasons that there may be.
    pub const REASONS: usize = (u8::MAX - DROPPED) as usize + 1;
    /// It goes on.
    pub const OUTSIDE: Self = Self(0);
    /// It goes on.
    pub const INSIDE: Self = Self(1);
    /// It is held, and goes on later.
    pub const HELD: Self = Self(2);
    /// It waits for the Ethernet address of its subscriber, whose tags are in place of the flow's hash.
    pub const AWAITS: Self = Self(3);

    /// It goes on.
    pub fn to(side: Side) -> Self {
        match side {
            Side::Outside => Self::OUTSIDE,
            Side::Inside => Self::INSIDE,
        }
    }

    /// It is dropped.
    pub fn drop(reason: usize) -> Self {
        Self(reason as u8 + DROPPED)
    }

    /// Why it is dropped, if it is.
    pub fn reason(self) -> Option<usize> {
        self.0.checked_sub(DROPPED).map(usize::from)
    }
}
