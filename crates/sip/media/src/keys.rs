//! Keys pressed in a call, as telephone events (RFC 4733): sent in place of audio, and heard.

use crate::g711::RATE;

/// From the first packet of audio to the first key, samples: half a second.
const START: u32 = RATE / 2;
/// Length of a tone, and of the pause behind it, samples: 100 ms each, of which phones make as much by default.
const TONE: u32 = RATE / 10;
const PAUSE: u32 = RATE / 10;
/// How often the end of an event is sent (section 2.5.1.4).
const ENDS: u8 = 3;
/// Power of a tone, -dBm0 (section 2.3.4): what phones send.
const VOLUME: u8 = 10;
/// Keys of a call, at most.
pub const KEYS_MAX: usize = 64;

const NAMES: &[u8; 16] = b"0123456789*#ABCD";

/// The event of a key (section 3.2); none: there is no such key.
pub fn key_event(key: char) -> Option<u8> {
    let key = key.to_ascii_uppercase();
    NAMES.iter().position(|name| char::from(*name) == key).and_then(|place| u8::try_from(place).ok())
}

/// What a packet of an event is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventPacket {
    pub first: bool,
    /// When the tone began.
    pub timestamp: u32,
    pub payload: [u8; 4],
}

/// A tone that is sent.
#[derive(Debug, Clone, Copy)]
struct Tone {
    event: u8,
    began: u32,
    length: u32,
    ends: u8,
}

/// Keys that one side presses, and what it hears of the other.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    tone: Option<Tone>,
    /// Samples until the next tone begins.
    wait: Option<u32>,
    pressed: usize,
    heard: Vec<u8>,
    /// Timestamp of the event heard last.
    last: Option<u32>,
}

impl Keys {
    /// What is sent in place of the next packet of audio, which begins at `timestamp` and has so many `samples`.
    pub fn press(&mut self, keys: &[u8], timestamp: u32, samples: u32) -> Option<EventPacket> {
        if self.tone.is_none() {
            let wait = self.wait.get_or_insert(START);
            if *wait > 0 {
                *wait = wait.saturating_sub(samples);
                return None;
            }
            let event = *keys.get(self.pressed)?;
            self.tone = Some(Tone { event, began: timestamp, length: 0, ends: 0 });
        }
        let tone = self.tone.as_mut()?;
        let first = tone.length == 0;
        tone.length = (tone.length + samples).min(TONE);
        let over = tone.length == TONE;
        tone.ends += u8::from(over);
        let [high, low] = u16::try_from(tone.length).unwrap_or(u16::MAX).to_be_bytes();
        let payload = [tone.event, u8::from(over) << 7 | VOLUME, high, low];
        let packet = EventPacket { first, timestamp: tone.began, payload };
        if tone.ends == ENDS {
            self.tone = None;
            self.pressed += 1;
            // the end was sent again in the pause
            self.wait = Some(PAUSE.saturating_sub(u32::from(ENDS - 1) * samples));
        }
        Some(packet)
    }

    /// How many keys were pressed.
    pub fn pressed(&self) -> usize {
        self.pressed
    }

    /// A packet of an event came.
    pub fn event_received(&mut self, timestamp: u32, payload: &[u8]) {
        let [event, ..] = *payload else { return };
        // section 2.5.1.2: all packets of an event have its timestamp; one from before came late
        let new = self.last.is_none_or(|last| (timestamp.wrapping_sub(last) as i32) > 0);
        let Some(name) = NAMES.get(usize::from(event)).filter(|_| new && payload.len() >= 4) else { return };
        self.last = Some(timestamp);
        if self.heard.len() < KEYS_MAX {
            self.heard.push(*name);
        }
    }

    /// What was heard.
    pub fn digits(&self) -> &[u8] {
        &self.heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u32 = 160;

    /// What is sent in so many packets.
    fn sent(keys: &[u8], packets: u32) -> Vec<Option<EventPacket>> {
        let mut sender = Keys::default();
        (0..packets).map(|n| sender.press(keys, 1000 + n * PACKET, PACKET)).collect()
    }

    #[test]
    fn keys_have_the_events_of_rfc_4733() {
        let events: Vec<_> = "0159*#ADd".chars().map(key_event).collect();
        assert_eq!(events, [0, 1, 5, 9, 10, 11, 12, 15, 15].map(Some));
        assert_eq!([key_event('E'), key_event(' '), key_event('é')], [None; 3]);
    }

    #[test]
    fn a_tone_takes_the_place_of_audio_and_its_end_comes_three_times() {
        let all = sent(&[1, 11], 60);
        assert!(all[..25].iter().all(Option::is_none), "half a second of audio first");
        let packets: Vec<_> = all.iter().flatten().collect();
        assert_eq!(packets.len(), 2 * 7);
        let one = &packets[..7];
        assert!(one.iter().all(|packet| packet.timestamp == 1000 + 25 * PACKET));
        let shown: Vec<_> = one.iter().map(|packet| (packet.first, packet.payload)).collect();
        let of = |over: u8, length: u16| [1, over << 7 | VOLUME, (length >> 8) as u8, length as u8];
        let lengths = [(0, 160), (0, 320), (0, 480), (0, 640), (1, 800), (1, 800), (1, 800)];
        let expected: Vec<_> =
            (0..).zip(lengths).map(|(n, (over, length))| (n == 0, of(over, length))).collect();
        assert_eq!(shown, expected);
        // 100 ms of tone and 100 ms of pause
        assert_eq!(packets[7].timestamp, 1000 + 35 * PACKET);
        assert!(all[42..].iter().all(Option::is_none));
    }

    #[test]
    fn a_key_is_heard_once_whatever_was_lost_or_came_late() {
        let keys = [1, 1, 10];
        let packets: Vec<_> = sent(&keys, 80).into_iter().flatten().collect();
        assert_eq!(packets.len(), 21);
        for kept in [1, 3, 6, 7] {
            let mut listener = Keys::default();
            for packet in packets.iter().enumerate().filter(|(n, _)| n % kept == kept - 1).map(|(_, one)| one)
            {
                listener.event_received(packet.timestamp, &packet.payload);
                listener.event_received(packets[0].timestamp, &packets[0].payload);
            }
            assert_eq!(listener.digits(), b"11*", "one of {kept}");
        }
    }

    #[test]
    fn what_is_no_event_of_a_key_is_not_heard() {
        let mut listener = Keys::default();
        for payload in [&[][..], &[1], &[1, 0, 0], &[16, 0, 0, 160], &[255; 4]] {
            listener.event_received(5, payload);
        }
        assert_eq!(listener.digits(), b"");
        for n in 0..1000 {
            listener.event_received(n * 10, &[3, 0, 0, 160]);
        }
        assert_eq!(listener.digits().len(), KEYS_MAX);
    }
}
