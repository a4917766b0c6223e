//! Connection of a device, as its worker keeps it.

use crate::conn_error::ConnError;
use protocol::meter::Failure;

/// What a server may make us keep of an unfinished message before we call it malformed.
const SPILL_MAX: usize = 1 << 20;

/// The endpoint's connection, and how far the device is with it.
#[derive(Debug)]
pub(super) struct Conn<C> {
    pub inner: C,
    /// Whether the model has been told that it is up.
    pub up: bool,
    /// Whether it closes once all is sent.
    pub closing: bool,
    /// Whether the peer has said that it sends no more: it is read on until that shows.
    pub ended: bool,
    /// Whether the worker reads on from it in its next turn anyway.
    pub unread: bool,
    /// Whether sending has failed: it is only read from.
    pub send_failed: bool,
    /// State of a stream; none before there is something to know. Datagrams need none.
    stream: Option<Box<Stream>>,
}

#[derive(Debug, Default)]
struct Stream {
    /// Payload bytes that have not left, as far as is known, by the phase of their message.
    queued: [u64; 3],
    /// Up to where in the stream all has left.
    left: u64,
    /// Received bytes that the model has not used.
    spill: Vec<u8>,
}

impl<C> Conn<C> {
    /// It was opened now; `up`: there is no handshake to wait for.
    pub fn new(inner: C, up: bool) -> Self {
        Self { inner, up, closing: false, ended: false, unread: false, send_failed: false, stream: None }
    }

    /// Take the spill out, so that the model can be shown it while it may change the connection.
    pub fn take_spill(&mut self) -> Vec<u8> {
        self.stream.as_mut().map(|stream| std::mem::take(&mut stream.spill)).unwrap_or_default()
    }

    /// Payload is about to be sent, behind `given` bytes of the stream.
    #[inline]
    pub fn queue(&mut self, given: u64, payload: [u64; 3]) {
        let stream = self.stream.get_or_insert_default();
        if stream.queued == [0; 3] {
            stream.left = given;
        }
        for (mine, more) in stream.queued.iter_mut().zip(payload) {
            *mine += more;
        }
    }

    /// Whether some payload has not left, as far as is known.
    #[inline]
    pub fn is_queued(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.queued != [0; 3])
    }

    /// Of `given` bytes of the stream `left` have left: how much payload went with them, by phase. It is spread evenly over
    /// those bytes, and what was meant for an earlier phase goes first.
    #[inline]
    pub fn leave(&mut self, given: u64, left: u64) -> [u64; 3] {
        let Some(stream) = &mut self.stream else { return [0; 3] };
        if left >= given {
            return std::mem::take(&mut stream.queued);
        }
        let gone = left.saturating_sub(stream.left);
        let all: u64 = stream.queued.iter().sum();
        let share = u128::from(all) * u128::from(gone) / u128::from((given - stream.left).max(1));
        let mut share = u64::try_from(share).unwrap_or(u64::MAX);
        stream.left += gone;
        stream.queued.each_mut().map(|queued| {
            let part = share.min(*queued);
            *queued -= part;
            share -= part;
            part
        })
    }

    /// Keep `rest` until more comes.
    pub fn keep(&mut self, rest: Vec<u8>) -> Result<(), ConnError> {
        if rest.len() > SPILL_MAX {
            let what = format!("an unfinished message of over {SPILL_MAX} bytes");
            return Err(ConnError::new(Failure::Protocol, what));
        }
        if !rest.is_empty() || self.stream.is_some() {
            self.stream.get_or_insert_default().spill = rest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_leaves_with_its_share_of_the_stream() {
        let mut conn = Conn::new((), true);
        // 300 bytes of payload in a stream of 330, behind 1000 of a handshake
        conn.queue(1000, [100, 0, 0]);
        conn.queue(1110, [0, 200, 0]);
        assert_eq!(conn.leave(1330, 900), [0, 0, 0]);
        assert_eq!(conn.leave(1330, 1055), [50, 0, 0]);
        assert_eq!(conn.leave(1330, 1055), [0, 0, 0]);
        assert_eq!(conn.leave(1330, 1220), [50, 100, 0]);
        assert_eq!(conn.leave(1330, 1165), [0, 0, 0], "it does not come back");
        conn.queue(1330, [0, 0, 10]);
        assert_eq!(conn.leave(1340, 1340), [0, 100, 10]);
        assert!(!conn.is_queued());
        conn.queue(1340, [0, 1, 0]);
        assert_eq!(conn.leave(1340, 1340), [0, 1, 0], "of nothing at all");
    }
}
