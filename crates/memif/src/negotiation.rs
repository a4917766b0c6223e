//! Who says what until an interface is up, for both roles; without I/O.
//!
//! The server greets with HELLO. The client answers with INIT, its regions, its rings and CONNECT, each after the server's
//! ACK to the one before. CONNECTED ends it. Either end may say DISCONNECT at any time.

use crate::layout::Layout;
use crate::protocol::{self, AddRing, ETHERNET, Hello, Init, Message, VERSION};
use crate::ring;

/// Regions that a client may have.
pub(crate) const REGIONS: u16 = 8;
/// Rings that it may have each way.
pub(crate) const RINGS: u16 = 255;

const OUT_OF_TURN: &str = "unexpected message";
const NAME: &str = "netdyno";

/// What goes along with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attach {
    Nothing,
    Region,
    /// The eventfd of a ring.
    Interrupt {
        to_server: bool,
        index: u16,
    },
}

/// What a client does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Wait,
    Send(Message, Attach),
    Up,
    /// The server ended it.
    Ended(String),
}

/// The link that a client requests.
#[derive(Debug, Clone)]
pub(crate) struct LinkRequest {
    pub id: u32,
    pub secret: Option<String>,
    pub to_server: u16,
    pub to_client: u16,
    pub ring_size_log2: u8,
    pub buffer_size: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Greeting,
    /// Messages sent so far.
    Telling(u16),
    Connecting,
    Up,
}

/// The client's side.
#[derive(Debug)]
pub(crate) struct Client {
    wanted: LinkRequest,
    layout: Option<Layout>,
    state: State,
}

impl Client {
    pub(crate) fn new(wanted: LinkRequest) -> Self {
        Self { wanted, layout: None, state: State::Greeting }
    }

    /// What the region is to hold; known with the first message to be sent.
    pub(crate) fn layout(&self) -> Option<Layout> {
        self.layout
    }

    /// What follows from a message; an error is the reason to give with DISCONNECT.
    pub(crate) fn receive(&mut self, message: Message) -> Result<Next, &'static str> {
        match (message, &self.state) {
            (Message::Disconnect { reason, .. }, _) => Ok(Next::Ended(reason)),
            (Message::Hello(hello), State::Greeting) => {
                if hello.min_version > VERSION || hello.max_version < VERSION {
                    return Err("unsupported version");
                }
                let layout = Layout {
                    to_server: self.wanted.to_server.min(hello.max_to_server.saturating_add(1)),
                    to_client: self.wanted.to_client.min(hello.max_to_client.saturating_add(1)),
                    ring_size_log2: self.wanted.ring_size_log2.min(hello.max_ring_size_log2),
                    buffer_size: self.wanted.buffer_size,
                };
                self.layout = Some(layout);
                Ok(self.tell(layout, 0))
            }
            (Message::Ack, &State::Telling(sent)) => {
                self.layout.map(|layout| self.tell(layout, sent)).ok_or(OUT_OF_TURN)
            }
            (Message::Ack, State::Connecting) => Ok(Next::Wait),
            (Message::Connected { .. }, State::Connecting) => {
                self.state = State::Up;
                Ok(Next::Up)
            }
            _ => Err(OUT_OF_TURN),
        }
    }

    /// The message after so many.
    fn tell(&mut self, layout: Layout, sent: u16) -> Next {
        self.state = State::Telling(sent + 1);
        let ring = |to_server, index| {
            let ring = AddRing {
                to_server,
                index,
                region: 0,
                offset: layout.ring(to_server, index) as u32,
                ring_size_log2: layout.ring_size_log2,
                private: 0,
            };
            Next::Send(Message::AddRing(ring), Attach::Interrupt { to_server, index })
        };
        match sent {
            0 => {
                let init = Init {
                    version: VERSION,
                    id: self.wanted.id,
                    mode: ETHERNET,
                    secret: protocol::secret(self.wanted.secret.as_deref().unwrap_or_default()),
                    name: NAME.into(),
                };
                Next::Send(Message::Init(init), Attach::Nothing)
            }
            1 => Next::Send(Message::AddRegion { index: 0, size: layout.size() }, Attach::Region),
            _ => match sent - 2 {
                index if index < layout.to_server => ring(true, index),
                index if index - layout.to_server < layout.to_client => ring(false, index - layout.to_server),
                _ => {
                    self.state = State::Connecting;
                    let name = format!("memif{}", self.wanted.id);
                    Next::Send(Message::Connect { name }, Attach::Nothing)
                }
            },
        }
    }
}

/// A request of the client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// To be the other end of an interface; it must be the right one.
    Interface(Init),
    /// To map a region, then to acknowledge.
    Region(u64),
    /// To use a ring, then to acknowledge.
    Ring(AddRing),
    /// To begin.
    Connect,
    /// The client ended it.
    Ended(String),
}

/// The server's side.
#[derive(Debug)]
pub(crate) struct Server {
    begun: bool,
    up: bool,
    regions: u16,
    /// Rings to the client, and to the server.
    rings: [u16; 2],
}

impl Server {
    pub(crate) fn new() -> Self {
        Self { begun: false, up: false, regions: 0, rings: [0; 2] }
    }

    /// The greeting, of a server whose interfaces have up to so many queues: to it, and to the client.
    pub(crate) fn hello(queues: [u16; 2]) -> Message {
        let [max_to_server, max_to_client] = queues.map(|queues| queues.clamp(1, RINGS) - 1);
        Message::Hello(Hello {
            name: NAME.into(),
            min_version: VERSION,
            max_version: VERSION,
            max_region: REGIONS - 1,
            max_to_client,
            max_to_server,
            max_ring_size_log2: ring::MOST_LOG2,
        })
    }

    /// The answer that begins.
    pub(crate) fn connected(id: u32) -> Message {
        Message::Connected { name: format!("memif{id}") }
    }

    /// What a message that so many files came with asks for; an error is the reason to give with DISCONNECT.
    pub(crate) fn receive(&mut self, message: Message, files: usize) -> Result<Request, &'static str> {
        match message {
            Message::Disconnect { reason, .. } => Ok(Request::Ended(reason)),
            _ if self.up => Err(OUT_OF_TURN),
            Message::Init(init) if !self.begun => {
                if init.version != VERSION {
                    return Err("unsupported version");
                }
                if init.mode != ETHERNET {
                    return Err("unsupported mode");
                }
                self.begun = true;
                Ok(Request::Interface(init))
            }
            _ if !self.begun => Err(OUT_OF_TURN),
            Message::AddRegion { index, size } => {
                if files != 1 {
                    return Err("region without its file");
                }
                if index != self.regions {
                    return Err("unexpected region index");
                }
                if index >= REGIONS {
                    return Err("too many regions");
                }
                self.regions += 1;
                Ok(Request::Region(size))
            }
            Message::AddRing(ring) => {
                if files != 1 {
                    return Err("ring without its interrupt");
                }
                if ring.private != 0 {
                    return Err("private headers are not supported");
                }
                if ring.ring_size_log2 > ring::MOST_LOG2 {
                    return Err("ring is too large");
                }
                let rings = &mut self.rings[usize::from(ring.to_server)];
                if ring.index != *rings {
                    return Err("unexpected ring index");
                }
                if ring.index >= RINGS {
                    return Err("too many rings");
                }
                *rings += 1;
                Ok(Request::Ring(ring))
            }
            Message::Connect { .. } => {
                self.up = true;
                Ok(Request::Connect)
            }
            _ => Err(OUT_OF_TURN),
        }
    }
}

/// Whether a client with this secret may use an interface that asks for that.
pub(crate) fn admits(asked: Option<&str>, given: &[u8; protocol::SECRET]) -> Result<(), &'static str> {
    match asked {
        None => Ok(()),
        Some(_) if given[0] == 0 => Err("secret required"),
        Some(asked) if protocol::secret(asked) == *given => Ok(()),
        Some(_) => Err("wrong secret"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> LinkRequest {
        LinkRequest {
            id: 7,
            secret: Some("hush".into()),
            to_server: 2,
            to_client: 2,
            ring_size_log2: 10,
            buffer_size: 2048,
        }
    }

    fn init() -> Init {
        Init { version: VERSION, id: 7, mode: ETHERNET, secret: protocol::secret("hush"), name: NAME.into() }
    }

    fn ring(to_server: bool, index: u16) -> AddRing {
        AddRing { to_server, index, region: 0, offset: 0, ring_size_log2: 10, private: 0 }
    }

    #[test]
    fn the_usual_exchange() {
        let (mut client, mut server) = (Client::new(wanted()), Server::new());
        let mut message = Server::hello([255; 2]);
        let mut asked = Vec::new();
        loop {
            match client.receive(message).unwrap() {
                Next::Send(said, attach) => {
                    let files = usize::from(attach != Attach::Nothing);
                    asked.push(server.receive(said, files).unwrap());
                    message = match asked.last() {
                        Some(Request::Connect) => Server::connected(7),
                        _ => Message::Ack,
                    };
                }
                next => {
                    assert_eq!(next, Next::Up);
                    break;
                }
            }
        }
        let layout = client.layout().unwrap();
        assert_eq!((layout.to_server, layout.to_client, layout.ring_size_log2), (2, 2, 10));
        let ring = |to_server, index| {
            Request::Ring(AddRing { offset: layout.ring(to_server, index) as u32, ..ring(to_server, index) })
        };
        let expected = [
            Request::Interface(init()),
            Request::Region(layout.size()),
            ring(true, 0),
            ring(true, 1),
            ring(false, 0),
            ring(false, 1),
            Request::Connect,
        ];
        assert_eq!(asked, expected);
        let end = || Message::Disconnect { code: 0, reason: "bye".into() };
        assert_eq!(client.receive(end()), Ok(Next::Ended("bye".into())));
        assert_eq!(server.receive(end(), 0), Ok(Request::Ended("bye".into())));
        assert_eq!(client.receive(Message::Ack), Err(OUT_OF_TURN));
        assert_eq!(server.receive(Message::AddRegion { index: 1, size: 4096 }, 1), Err(OUT_OF_TURN));
    }

    #[test]
    fn a_client_keeps_to_what_the_server_can_do() {
        let mut client = Client::new(wanted());
        let Message::Hello(hello) = Server::hello([1; 2]) else { panic!("another message") };
        client.receive(Message::Hello(Hello { max_ring_size_log2: 8, ..hello })).unwrap();
        let layout = client.layout().unwrap();
        assert_eq!((layout.to_server, layout.to_client, layout.ring_size_log2), (1, 1, 8));
    }

    #[test]
    fn what_a_client_refuses() {
        let Message::Hello(hello) = Server::hello([1; 2]) else { panic!("another message") };
        let newer = Hello { min_version: VERSION + 1, max_version: VERSION + 1, ..hello.clone() };
        let older = Hello { min_version: 0, max_version: VERSION - 1, ..hello };
        for hello in [newer, older] {
            assert!(Client::new(wanted()).receive(Message::Hello(hello)).is_err());
        }
        for message in [Message::Ack, Server::connected(7), Message::Init(init())] {
            assert_eq!(Client::new(wanted()).receive(message), Err(OUT_OF_TURN));
        }
        let mut client = Client::new(wanted());
        client.receive(Server::hello([1; 2])).unwrap();
        assert_eq!(client.receive(Server::hello([1; 2])), Err(OUT_OF_TURN));
    }

    #[test]
    fn what_a_server_refuses() {
        let begun = || {
            let mut server = Server::new();
            server.receive(Message::Init(init()), 0).unwrap();
            server
        };
        let region = |index| Message::AddRegion { index, size: 4096 };
        let refused = |mut server: Server, message, files| server.receive(message, files).unwrap_err();
        for message in [Message::Ack, region(0), Message::AddRing(ring(true, 0)), Server::hello([1; 2])] {
            assert_eq!(refused(Server::new(), message, 1), OUT_OF_TURN);
        }
        let wrong = Init { version: VERSION + 1, ..init() };
        assert_eq!(refused(Server::new(), Message::Init(wrong), 0), "unsupported version");
        let wrong = Init { mode: 1, ..init() };
        assert_eq!(refused(Server::new(), Message::Init(wrong), 0), "unsupported mode");
        assert_eq!(refused(begun(), Message::Init(init()), 0), OUT_OF_TURN);
        assert_eq!(refused(begun(), region(0), 0), "region without its file");
        assert_eq!(refused(begun(), region(1), 1), "unexpected region index");
        let ring_of = |ring| Message::AddRing(ring);
        assert_eq!(refused(begun(), ring_of(ring(true, 0)), 0), "ring without its interrupt");
        assert_eq!(refused(begun(), ring_of(ring(true, 1)), 1), "unexpected ring index");
        let wrong = AddRing { private: 1, ..ring(true, 0) };
        assert_eq!(refused(begun(), ring_of(wrong), 1), "private headers are not supported");
        let wrong = AddRing { ring_size_log2: 15, ..ring(true, 0) };
        assert_eq!(refused(begun(), ring_of(wrong), 1), "ring is too large");
        let mut server = begun();
        (0..REGIONS).for_each(|index| assert!(server.receive(region(index), 1).is_ok()));
        assert_eq!(refused(server, region(REGIONS), 1), "too many regions");
        let mut server = begun();
        (0..RINGS).for_each(|index| assert!(server.receive(ring_of(ring(false, index)), 1).is_ok()));
        assert_eq!(refused(server, ring_of(ring(false, RINGS)), 1), "too many rings");
    }

    #[test]
    fn secrets() {
        let given = protocol::secret("hush");
        assert_eq!(admits(None, &given), Ok(()));
        assert_eq!(admits(Some("hush"), &given), Ok(()));
        assert_eq!(admits(Some("hus"), &given), Err("wrong secret"));
        assert_eq!(admits(Some("hush"), &[0; protocol::SECRET]), Err("secret required"));
    }
}
