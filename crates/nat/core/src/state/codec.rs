//! Records as bytes: a byte that says what it is, and fields of fixed length, the least significant byte first.

use super::{KeptMapping, KeptPorts, KeptSession, KeptSubscriber, Record};
use crate::explicit::FILTERS;
use crate::key::{Endpoint, Realm};
use crate::session::State;
use crate::subscriber::BLOCKS;
use packet::layers::protocol;

const SUBSCRIBER: u8 = 1;
const PORTS: u8 = 2;
const SESSION: u8 = 3;
const ASKED: u8 = 4;
const SUBSCRIBER_LEN: usize = 26 + 2 * BLOCKS;
const PORTS_LEN: usize = 20;
const SESSION_LEN: usize = 49;
const ASKED_LEN: usize = 29 + 7 * FILTERS;
/// In a session's state: its endpoint is that of a static forward.
const FORWARD: u8 = 0x80;

/// Bytes of the longest record.
pub const LONGEST: usize = ASKED_LEN;
const _: () = assert!(SUBSCRIBER_LEN <= LONGEST && PORTS_LEN <= LONGEST && SESSION_LEN <= LONGEST);

/// No record begins with these bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no record that can be")]
pub struct BadRecord;

/// Fields, one after the other.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], BadRecord> {
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or(BadRecord)?;
        self.0 = rest;
        Ok(*field)
    }

    pub(super) fn byte(&mut self) -> Result<u8, BadRecord> {
        self.take().map(u8::from_le_bytes)
    }

    fn short(&mut self) -> Result<u16, BadRecord> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn word(&mut self) -> Result<u32, BadRecord> {
        self.take().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Result<u64, BadRecord> {
        self.take().map(u64::from_le_bytes)
    }

    pub(super) fn endpoint(&mut self) -> Result<Endpoint, BadRecord> {
        Ok(Endpoint::new(self.word()?, self.short()?))
    }

    pub(super) fn realm(&mut self) -> Result<Realm, BadRecord> {
        self.word().and_then(|realm| if realm >> 24 == 0 { Ok(realm) } else { Err(BadRecord) })
    }

    pub(super) fn protocol(&mut self) -> Result<u8, BadRecord> {
        let known = [protocol::ICMP, protocol::TCP, protocol::UDP];
        self.byte().and_then(|byte| if known.contains(&byte) { Ok(byte) } else { Err(BadRecord) })
    }
}

pub(super) fn put_endpoint(out: &mut Vec<u8>, endpoint: Endpoint) {
    out.extend(endpoint.address.to_le_bytes());
    out.extend(endpoint.port.to_le_bytes());
}

impl Record {
    /// Add its bytes, at most [`LONGEST`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Subscriber(kept) => {
                out.push(SUBSCRIBER);
                out.extend(kept.inside.to_le_bytes());
                out.extend(kept.realm.to_le_bytes());
                out.extend(kept.mac);
                out.extend(kept.outside.to_le_bytes());
                out.push(kept.blocks);
                out.extend(kept.size.to_le_bytes());
                out.extend(kept.idle.to_le_bytes());
                kept.first.iter().for_each(|first| out.extend(first.to_le_bytes()));
            }
            Self::Ports(kept) => {
                out.push(PORTS);
                put_endpoint(out, kept.outside);
                out.push(kept.protocol);
                out.extend(kept.left.to_le_bytes());
                out.extend(kept.ports.to_le_bytes());
            }
            Self::Session(kept) => {
                out.push(SESSION);
                put_endpoint(out, kept.inside);
                out.extend(kept.realm.to_le_bytes());
                put_endpoint(out, kept.outside);
                put_endpoint(out, kept.remote);
                out.push(kept.protocol);
                out.push(kept.state as u8 | if kept.forward { FORWARD } else { 0 });
                out.extend(kept.idle.to_le_bytes());
                out.extend(kept.asked.to_le_bytes());
                out.extend(kept.up.to_le_bytes());
                out.extend(kept.down.to_le_bytes());
            }
            Self::Mapping(kept) => {
                out.push(ASKED);
                put_endpoint(out, kept.inside);
                out.extend(kept.realm.to_le_bytes());
                out.push(kept.protocol);
                out.extend(kept.left.to_le_bytes());
                out.extend(kept.nonce);
                out.push(kept.filters);
                for (address, bits, port) in kept.lets_in {
                    out.extend(address.to_le_bytes());
                    out.push(bits);
                    out.extend(port.to_le_bytes());
                }
            }
        }
    }

    /// The record at the beginning, and how many bytes it has. Whether it fits is for [`Nat::import`](crate::Nat::import) to say.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), BadRecord> {
        let (kind, rest) = bytes.split_first().ok_or(BadRecord)?;
        let mut fields = Fields(rest);
        match *kind {
            SUBSCRIBER => subscriber(&mut fields).map(|kept| (Self::Subscriber(kept), SUBSCRIBER_LEN)),
            PORTS => {
                let outside = fields.endpoint()?;
                let (protocol, left, ports) = (fields.protocol()?, fields.word()?, fields.long()?);
                Ok((Self::Ports(KeptPorts { outside, protocol, left, ports }), PORTS_LEN))
            }
            ASKED => read_explicit_mapping(&mut fields).map(|kept| (Self::Mapping(kept), ASKED_LEN)),
            SESSION => session(&mut fields).map(|kept| (Self::Session(kept), SESSION_LEN)),
            _ => Err(BadRecord),
        }
    }
}

fn subscriber(fields: &mut Fields<'_>) -> Result<KeptSubscriber, BadRecord> {
    let (inside, realm, mac, outside) = (fields.word()?, fields.realm()?, fields.take()?, fields.word()?);
    let (blocks, size, idle) = (fields.byte()?, fields.short()?, fields.word()?);
    let mut first = [0; BLOCKS];
    for port in &mut first {
        *port = fields.short()?;
    }
    if usize::from(blocks) > BLOCKS {
        return Err(BadRecord);
    }
    Ok(KeptSubscriber { inside, realm, mac, outside, first, blocks, size, idle })
}

fn session(fields: &mut Fields<'_>) -> Result<KeptSession, BadRecord> {
    let (inside, realm) = (fields.endpoint()?, fields.realm()?);
    let (outside, remote, carried) = (fields.endpoint()?, fields.endpoint()?, fields.protocol()?);
    let (state, idle, asked) = (fields.byte()?, fields.word()?, fields.word()?);
    let (up, down) = (fields.long()?, fields.long()?);
    let forward = state & FORWARD != 0;
    let state = State::ALL.get(usize::from(state & !FORWARD)).copied().ok_or(BadRecord)?;
    let fits = match state {
        State::Free | State::Ended => false,
        State::Pinned => carried != protocol::ICMP && !forward,
        State::Open => carried != protocol::TCP,
        _ => carried == protocol::TCP,
    };
    if !fits {
        return Err(BadRecord);
    }
    Ok(KeptSession {
        inside,
        realm,
        outside,
        remote,
        protocol: carried,
        state,
        forward,
        idle,
        asked,
        up,
        down,
    })
}

fn read_explicit_mapping(fields: &mut Fields<'_>) -> Result<KeptMapping, BadRecord> {
    let (inside, realm, carried) = (fields.endpoint()?, fields.realm()?, fields.protocol()?);
    let (left, nonce, filters) = (fields.word()?, fields.take()?, fields.byte()?);
    let mut lets_in = [(0, 0, 0); FILTERS];
    for filter in &mut lets_in {
        *filter = (fields.word()?, fields.byte()?, fields.short()?);
    }
    let prefixes = lets_in.iter().all(|(_, bits, _)| *bits <= 32);
    if carried == protocol::ICMP || usize::from(filters) > FILTERS || !prefixes {
        return Err(BadRecord);
    }
    Ok(KeptMapping { inside, realm, protocol: carried, left, nonce, lets_in, filters })
}
