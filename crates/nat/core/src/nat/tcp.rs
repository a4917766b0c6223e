//! What TCP's flags say of a session (RFC 7857 section 2, after RFC 6146 section 3.5.2.2), and the MSS in a SYN.

use crate::session::State;
use packet::checksum;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// The flags of the segment at `l4`.
pub fn flags(frame: &[u8], l4: usize) -> u8 {
    frame.get(l4 + 13).copied().unwrap_or(0)
}

/// Whether a segment opens a connection.
pub fn opens(flags: u8) -> bool {
    flags & (SYN | ACK | RST | FIN) == SYN
}

/// What a segment says of a connection that was asked for, as by PCP's PEER, without its SYN: it is under way, if the inside goes on with it.
pub fn under_way(state: State, flags: u8, up: bool) -> State {
    if state == State::SynUp && up && flags & (SYN | RST) == 0 { State::Established } else { state }
}

/// The state after a segment.
pub fn next(state: State, flags: u8, up: bool) -> State {
    use State::{Established, FinBoth, FinDown, FinUp, Reset, SynDown, SynUp};
    if flags & RST != 0 {
        // It may be forged: the session stays for the transitory time, and goes on if a side goes on (RFC 7857 section 2).
        return match state {
            FinBoth => FinBoth,
            _ => Reset,
        };
    }
    match (state, up) {
        (SynUp, false) | (SynDown, true) if flags & SYN != 0 => Established,
        // The ports are used again before the old session is over.
        (FinBoth | Reset, true) if opens(flags) => SynUp,
        (FinBoth | Reset, false) if opens(flags) => SynDown,
        (Reset, _) => Established,
        (Established, true) if flags & FIN != 0 => FinUp,
        (Established, false) if flags & FIN != 0 => FinDown,
        (FinUp, false) | (FinDown, true) if flags & FIN != 0 => FinBoth,
        (state, _) => state,
    }
}

/// Whether a segment keeps a session alive that is in this state after it: not when both sides have closed, nor a RST.
pub fn refreshes(before: State, after: State) -> bool {
    !matches!((before, after), (State::FinBoth, State::FinBoth) | (State::Reset, State::Reset))
}

/// Let the SYN in `segment` not ask for a larger MSS than `most`.
pub fn clamp_mss(segment: &mut [u8], most: u16) {
    let header = segment.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4);
    let mut at = 20;
    // Options (RFC 9293 section 3.2): one that says less than two bytes ends the search.
    while at < header {
        match (segment.get(at), segment.get(at + 1)) {
            (Some(1), _) => at += 1,
            (Some(2), Some(4)) if at + 4 <= header => {
                let Some(bytes) = segment.get_mut(at + 2..).and_then(|rest| rest.first_chunk_mut::<2>())
                else {
                    return;
                };
                let old = u16::from_be_bytes(*bytes);
                if old <= most {
                    return;
                }
                *bytes = most.to_be_bytes();
                // At an odd place the two bytes are halves of two words.
                let swap = |value: u16| if at % 2 == 1 { value.swap_bytes() } else { value };
                if let Some(sum) = segment.get_mut(16..).and_then(|rest| rest.first_chunk_mut::<2>()) {
                    *sum = checksum::update(u16::from_be_bytes(*sum), swap(old), swap(most)).to_be_bytes();
                }
                return;
            }
            (Some(0), _) | (None, _) | (_, None) => return,
            (Some(_), Some(length)) if *length >= 2 => at += usize::from(*length),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_lives_and_dies() {
        use State::*;
        let way = |state, segments: &[(u8, bool)]| {
            segments.iter().fold(state, |state, (flags, up)| next(state, *flags, *up))
        };
        assert_eq!(way(SynUp, &[(SYN | ACK, false)]), Established);
        // Both at once (RFC 9293 section 3.5).
        assert_eq!(way(SynUp, &[(SYN, false), (SYN | ACK, true)]), Established);
        assert_eq!(way(SynUp, &[(SYN, true), (ACK, true)]), SynUp);
        assert_eq!(way(Established, &[(FIN | ACK, true), (ACK, false)]), FinUp);
        assert_eq!(way(Established, &[(FIN | ACK, false), (FIN | ACK, true), (ACK, false)]), FinBoth);
        assert_eq!(way(Established, &[(RST, false)]), Reset);
        assert_eq!(way(Established, &[(RST, false), (ACK, true)]), Established);
        assert_eq!(way(FinBoth, &[(SYN, true)]), SynUp);
        assert_eq!(way(FinBoth, &[(SYN, false)]), SynDown);
        assert_eq!(way(Reset, &[(SYN, false)]), SynDown);
        assert_eq!(way(FinBoth, &[(SYN, false), (SYN | ACK, true), (ACK, false)]), Established);
        assert_eq!(way(Reset, &[(RST, true)]), Reset);
    }

    #[test]
    fn an_mss_is_clamped_wherever_it_is() {
        for before in [&[][..], &[1], &[1, 1], &[3, 3, 7], &[4, 2]] {
            for (asked, given) in [(1460u16, 1400u16), (1400, 1400), (536, 536)] {
                let mut segment = [&[0; 20], before, &[2, 4], &asked.to_be_bytes()[..], &[0; 8]].concat();
                segment.truncate(20 + (before.len() + 4).next_multiple_of(4));
                segment[12] = (segment.len() as u8 / 4) << 4;
                segment[13] = SYN;
                let sum = checksum::of(&segment).to_be_bytes();
                segment[16..18].copy_from_slice(&sum);
                clamp_mss(&mut segment, 1400);
                let at = 22 + before.len();
                assert_eq!(segment[at..at + 2], given.to_be_bytes(), "{before:?}");
                assert_eq!(checksum::of(&segment), 0, "{before:?} {asked}");
            }
        }
        // Options that cannot be are left.
        for broken in [[2, 3, 5, 200], [9, 0, 0, 0], [9, 1, 0, 0], [2, 5, 5, 200]] {
            let mut segment = [&[0; 20][..], &broken].concat();
            segment[12] = 6 << 4;
            let before = segment.clone();
            clamp_mss(&mut segment, 1400);
            assert_eq!(segment, before);
        }
        clamp_mss(&mut [0xff; 13], 1400);
    }
}
