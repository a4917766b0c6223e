//! The messages on the socket: 128 bytes each, a type and its fields, little-endian on every machine we run on.

/// The version spoken here, 2.0.
pub(crate) const VERSION: u16 = 0x0200;

/// What the first four bytes of a ring are.
pub(crate) const COOKIE: u32 = 0x03e3_1f20;

/// Bytes of a message.
pub(crate) const SIZE: usize = 128;

/// Most bytes of a secret.
pub(crate) const SECRET: usize = 24;

/// Mode of an interface that carries Ethernet frames.
pub(crate) const ETHERNET: u8 = 0;

const NAME: usize = 32;
const REASON: usize = 96;
/// Flag of ADD_RING: a ring from the client to the server.
const TO_SERVER: u16 = 1;

/// What a server can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hello {
    pub name: String,
    pub min_version: u16,
    pub max_version: u16,
    /// Highest index of a region.
    pub max_region: u16,
    /// Highest index of a ring to the client.
    pub max_to_client: u16,
    /// Highest index of a ring to the server.
    pub max_to_server: u16,
    pub max_ring_size_log2: u8,
}

/// Which interface a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Init {
    pub version: u16,
    pub id: u32,
    pub mode: u8,
    /// Filled up with zeros.
    pub secret: [u8; SECRET],
    pub name: String,
}

/// Where a ring lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddRing {
    pub to_server: bool,
    pub index: u16,
    pub region: u16,
    pub offset: u32,
    pub ring_size_log2: u8,
    /// Bytes of private data in front of a frame.
    pub private: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    Ack,
    Hello(Hello),
    Init(Init),
    AddRegion { index: u16, size: u64 },
    AddRing(AddRing),
    Connect { name: String },
    Connected { name: String },
    Disconnect { code: u32, reason: String },
}

/// A secret as it is sent.
pub(crate) fn secret(text: &str) -> [u8; SECRET] {
    let mut bytes = [0; SECRET];
    for (to, from) in bytes.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    bytes
}

/// Puts fields into a message, one after the other.
struct Writer {
    bytes: [u8; SIZE],
    at: usize,
}

impl Writer {
    fn put(&mut self, field: &[u8]) -> &mut Self {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
        self
    }

    /// As much of `text` as there is room for before its NUL.
    fn text(&mut self, text: &str, room: usize) -> &mut Self {
        let length = text.len().min(room - 1);
        self.bytes[self.at..self.at + length].copy_from_slice(&text.as_bytes()[..length]);
        self.at += room;
        self
    }
}

/// Takes fields out of a message, one after the other.
struct Reader<'a> {
    bytes: &'a [u8; SIZE],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.bytes[self.at..self.at + N]);
        self.at += N;
        field
    }

    fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.take())
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn text<const N: usize>(&mut self) -> String {
        let field = self.take::<N>();
        let length = field.iter().position(|&byte| byte == 0).unwrap_or(N);
        String::from_utf8_lossy(&field[..length]).into_owned()
    }
}

impl Message {
    fn kind(&self) -> u16 {
        match self {
            Self::Ack => 1,
            Self::Hello(_) => 2,
            Self::Init(_) => 3,
            Self::AddRegion { .. } => 4,
            Self::AddRing(_) => 5,
            Self::Connect { .. } => 6,
            Self::Connected { .. } => 7,
            Self::Disconnect { .. } => 8,
        }
    }

    pub(crate) fn encode(&self) -> [u8; SIZE] {
        let mut to = Writer { bytes: [0; SIZE], at: 0 };
        to.put(&self.kind().to_le_bytes());
        match self {
            Self::Ack => {}
            Self::Hello(hello) => {
                to.text(&hello.name, NAME)
                    .put(&hello.min_version.to_le_bytes())
                    .put(&hello.max_version.to_le_bytes())
                    .put(&hello.max_region.to_le_bytes())
                    .put(&hello.max_to_client.to_le_bytes())
                    .put(&hello.max_to_server.to_le_bytes())
                    .put(&[hello.max_ring_size_log2]);
            }
            Self::Init(init) => {
                to.put(&init.version.to_le_bytes())
                    .put(&init.id.to_le_bytes())
                    .put(&[init.mode])
                    .put(&init.secret)
                    .text(&init.name, NAME);
            }
            Self::AddRegion { index, size } => {
                to.put(&index.to_le_bytes()).put(&size.to_le_bytes());
            }
            Self::AddRing(ring) => {
                to.put(&(if ring.to_server { TO_SERVER } else { 0 }).to_le_bytes())
                    .put(&ring.index.to_le_bytes())
                    .put(&ring.region.to_le_bytes())
                    .put(&ring.offset.to_le_bytes())
                    .put(&[ring.ring_size_log2])
                    .put(&ring.private.to_le_bytes());
            }
            Self::Connect { name } | Self::Connected { name } => {
                to.text(name, NAME);
            }
            Self::Disconnect { code, reason } => {
                to.put(&code.to_le_bytes()).text(reason, REASON);
            }
        }
        to.bytes
    }

    /// `None`: of no type that is known.
    pub(crate) fn decode(bytes: &[u8; SIZE]) -> Option<Self> {
        let mut from = Reader { bytes, at: 0 };
        Some(match from.u16() {
            1 => Self::Ack,
            2 => Self::Hello(Hello {
                name: from.text::<NAME>(),
                min_version: from.u16(),
                max_version: from.u16(),
                max_region: from.u16(),
                max_to_client: from.u16(),
                max_to_server: from.u16(),
                max_ring_size_log2: from.u8(),
            }),
            3 => Self::Init(Init {
                version: from.u16(),
                id: from.u32(),
                mode: from.u8(),
                secret: from.take(),
                name: from.text::<NAME>(),
            }),
            4 => Self::AddRegion { index: from.u16(), size: from.u64() },
            5 => Self::AddRing(AddRing {
                to_server: from.u16() & TO_SERVER != 0,
                index: from.u16(),
                region: from.u16(),
                offset: from.u32(),
                ring_size_log2: from.u8(),
                private: from.u16(),
            }),
            6 => Self::Connect { name: from.text::<NAME>() },
            7 => Self::Connected { name: from.text::<NAME>() },
            8 => Self::Disconnect { code: from.u32(), reason: from.text::<REASON>() },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message's first bytes, and that it comes back from them.
    fn check(message: &Message, bytes: &[u8]) {
        let encoded = message.encode();
        assert_eq!(&encoded[..bytes.len()], bytes);
        assert!(encoded[bytes.len()..].iter().all(|&byte| byte == 0));
        assert_eq!(Message::decode(&encoded).as_ref(), Some(message));
    }

    fn padded(text: &str, room: usize) -> Vec<u8> {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(room, 0);
        bytes
    }

    #[test]
    fn the_bytes_of_each_message() {
        check(&Message::Ack, &[1, 0]);
        let hello = Hello {
            name: "abc".into(),
            min_version: VERSION,
            max_version: 0x0203,
            max_region: 7,
            max_to_client: 0x0102,
            max_to_server: 0x0304,
            max_ring_size_log2: 14,
        };
        let fields = [0, 2, 3, 2, 7, 0, 2, 1, 4, 3, 14];
        check(&Message::Hello(hello), &[&[2, 0][..], &padded("abc", 32), &fields].concat());
        let init = Init {
            version: VERSION,
            id: 0x0102_0304,
            mode: ETHERNET,
            secret: secret("hush"),
            name: "me".into(),
        };
        let fields = [3, 0, 0, 2, 4, 3, 2, 1, 0];
        check(&Message::Init(init), &[&fields[..], &padded("hush", 24), &padded("me", 32)].concat());
        let region = Message::AddRegion { index: 1, size: 0x0102_0304_0506 };
        check(&region, &[4, 0, 1, 0, 6, 5, 4, 3, 2, 1, 0, 0]);
        let ring = AddRing {
            to_server: true,
            index: 2,
            region: 3,
            offset: 0x0102_0340,
            ring_size_log2: 10,
            private: 5,
        };
        check(&Message::AddRing(ring), &[5, 0, 1, 0, 2, 0, 3, 0, 0x40, 3, 2, 1, 10, 5, 0]);
        let ring = AddRing { to_server: false, ..ring };
        check(&Message::AddRing(ring), &[5, 0, 0, 0, 2, 0, 3, 0, 0x40, 3, 2, 1, 10, 5, 0]);
        check(&Message::Connect { name: "if0".into() }, &[6, 0, b'i', b'f', b'0']);
        check(&Message::Connected { name: "if1".into() }, &[7, 0, b'i', b'f', b'1']);
        let end = Message::Disconnect { code: 9, reason: "bye".into() };
        check(&end, &[8, 0, 9, 0, 0, 0, b'b', b'y', b'e']);
    }

    #[test]
    fn texts_end_in_time() {
        let long = "x".repeat(200);
        let Some(Message::Connect { name }) =
            Message::decode(&Message::Connect { name: long.clone() }.encode())
        else {
            panic!("another message");
        };
        assert_eq!(name.len(), 31);
        assert_eq!(secret(&long), [b'x'; SECRET]);
        // One without its NUL.
        let mut bytes = Message::Disconnect { code: 0, reason: String::new() }.encode();
        bytes[6..].fill(b'y');
        let Some(Message::Disconnect { reason, .. }) = Message::decode(&bytes) else {
            panic!("another message");
        };
        assert_eq!(reason.len(), 96);
    }

    #[test]
    fn what_is_unknown_is_none() {
        for kind in [0u16, 9, 0xffff] {
            let mut bytes = [0xff; SIZE];
            bytes[..2].copy_from_slice(&kind.to_le_bytes());
            assert_eq!(Message::decode(&bytes), None);
        }
    }
}
