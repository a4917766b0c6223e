//! A server and clients that break the rules, their messages written by hand.

#![allow(clippy::unwrap_used)]

use crate::common::{End, config, frame, pass, wait};
use memif::{BURST, Role};
use nix::sys::eventfd::EventFd;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, sendmsg,
    setsockopt, socket, sockopt,
};
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

const COOKIE: u32 = 0x3E31F20;
/// Of the region: two rings of eight slots, then buffers.
const SIZE: u64 = 65536;
const RING: u64 = 1024;
const BUFFERS: u32 = 4096;
const SLOTS: u16 = 8;
const NEXT: u16 = 1;

/// A client that says what it is told to.
struct Client {
    socket: OwnedFd,
    region: File,
    interrupt: EventFd,
}

impl Client {
    fn connect(folder: &Path) -> Self {
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::empty(), None).unwrap();
        let wait = nix::sys::time::TimeVal::new(30, 0);
        setsockopt(&socket, sockopt::ReceiveTimeout, &wait).unwrap();
        connect(socket.as_raw_fd(), &UnixAddr::new(&folder.join("memif.sock")).unwrap()).unwrap();
        let region: File = memfd_create("hostile", MFdFlags::MFD_ALLOW_SEALING).unwrap().into();
        region.set_len(SIZE).unwrap();
        let client = Self { socket, region, interrupt: EventFd::new().unwrap() };
        for ring in [0, RING] {
            client.write(ring, &COOKIE.to_le_bytes());
        }
        assert_eq!(client.hear()[0], 2, "a greeting");
        client
    }

    fn seal(&self) {
        use nix::fcntl::{FcntlArg, SealFlag, fcntl};
        fcntl(&self.region, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.region.write_all_at(bytes, at).unwrap();
    }

    fn say_with(&self, kind: u16, fields: &[u8], files: &[BorrowedFd<'_>]) {
        let mut message = [0; 128];
        message[..2].copy_from_slice(&kind.to_le_bytes());
        message[2..2 + fields.len()].copy_from_slice(fields);
        self.say_bytes(&message, files);
    }

    fn say_bytes(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) {
        let files: Vec<_> = files.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&files)];
        let rights = if files.is_empty() { &[][..] } else { &rights[..] };
        let flags = MsgFlags::MSG_NOSIGNAL;
        // The server may have gone already.
        let _ = sendmsg::<()>(self.socket.as_raw_fd(), &[IoSlice::new(bytes)], rights, flags, None);
    }

    /// A message, or nothing at the end.
    fn hear(&self) -> Vec<u8> {
        let mut message = vec![0; 128];
        let mut receive = || recv(self.socket.as_raw_fd(), &mut message, MsgFlags::empty());
        // A server that went without having read all: what it said before is yet to come.
        let length = receive().or_else(|_| receive()).unwrap_or(0);
        message.truncate(length);
        message
    }

    fn init(&self, version: u16) {
        let mut fields = vec![0; 63];
        fields[..2].copy_from_slice(&version.to_le_bytes());
        self.say_with(3, &fields, &[]);
    }

    fn add_region(&self, index: u16, size: u64) {
        self.say_with(4, &[&index.to_le_bytes()[..], &size.to_le_bytes()].concat(), &[self.region.as_fd()]);
    }

    fn add_ring(&self, to_server: u16, region: u16, offset: u32, log2: u8) {
        let fields = [
            &to_server.to_le_bytes()[..],
            &0u16.to_le_bytes(),
            &region.to_le_bytes(),
            &offset.to_le_bytes(),
            &[log2, 0, 0],
        ];
        self.say_with(5, &fields.concat(), &[self.interrupt.as_fd()]);
    }

    /// Say all that a good one says.
    fn begin(&self) {
        self.seal();
        self.init(0x200);
        self.add_region(0, SIZE);
        self.add_ring(1, 0, 0, 3);
        self.add_ring(0, 0, RING as u32, 3);
        self.say_with(6, b"hostile", &[]);
        assert_eq!((0..5).map(|_| self.hear()[0]).collect::<Vec<_>>(), [1, 1, 1, 1, 7]);
    }

    fn slot(&self, ring: u64, slot: u16, flags: u16, region: u16, length: u32, offset: u32) {
        let fields =
            [&flags.to_le_bytes()[..], &region.to_le_bytes(), &length.to_le_bytes(), &offset.to_le_bytes()];
        self.write(ring + 128 + u64::from(slot % SLOTS) * 16, &fields.concat());
    }

    fn head(&self, ring: u64, head: u16) {
        self.write(ring + 6, &head.to_le_bytes());
    }

    /// The reason that the server gives as it ends the connection.
    fn reason(&self) -> String {
        loop {
            let message = self.hear();
            match message.first() {
                None => return String::new(),
                Some(8) => {
                    let text: Vec<_> = message[6..].iter().copied().take_while(|&byte| byte != 0).collect();
                    return String::from_utf8(text).unwrap();
                }
                Some(_) => {}
            }
        }
    }
}

fn server(folder: &Path) -> End {
    End::open(config(Role::Server, folder))
}

/// A good client gets through.
fn serves(server: &mut End, folder: &Path) {
    let mut client = End::open(config(Role::Client, folder));
    client.up();
    wait("the server", || server.memif.is_up());
    let frames: Vec<_> = (0..100).map(|number| frame(1500, number)).collect();
    pass(&mut client, server, 0, &frames);
    pass(server, &mut client, 0, &frames);
}

/// What each says, and the reason that it is refused for.
#[test]
fn bad_negotiations_are_refused() {
    type Says = fn(&Client);
    fn good(client: &Client) {
        client.seal();
        client.init(0x200);
        client.add_region(0, SIZE);
    }
    let cases: [(&str, Says); 24] = [
        ("unsupported version", |client| client.init(0x300)),
        ("unexpected message", |client| client.add_region(0, SIZE)),
        ("unknown message", |client| client.say_with(77, &[], &[])),
        ("message of a wrong size", |client| client.say_bytes(&[3, 0, 0, 2], &[])),
        ("message of a wrong size", |client| client.say_bytes(&[0; 500], &[])),
        ("region is not sealed against shrinking", |client| {
            client.init(0x200);
            client.add_region(0, SIZE);
        }),
        ("region is larger than its file", |client| {
            client.seal();
            client.init(0x200);
            client.add_region(0, SIZE + 1);
        }),
        ("region size out of range", |client| {
            client.init(0x200);
            client.add_region(0, u64::MAX);
        }),
        ("region size out of range", |client| {
            client.init(0x200);
            client.add_region(0, 0);
        }),
        ("region without its file", |client| {
            client.init(0x200);
            client.say_with(4, &[0, 0, 0, 16, 0, 0, 0, 0, 0, 0], &[]);
        }),
        ("region without its file", |client| {
            client.init(0x200);
            let many = vec![client.region.as_fd(); 200];
            client.say_with(4, &[0, 0, 0, 16, 0, 0, 0, 0, 0, 0], &many);
        }),
        ("region is no memory file", |client| {
            client.init(0x200);
            client.say_with(4, &[0, 0, 0, 16, 0, 0, 0, 0, 0, 0], &[client.interrupt.as_fd()]);
        }),
        ("unexpected region index", |client| {
            client.init(0x200);
            client.add_region(1, SIZE);
        }),
        ("ring in no region", |client| {
            client.init(0x200);
            client.add_ring(1, 0, 0, 3);
        }),
        ("ring in no region", |client| {
            good(client);
            client.add_ring(1, 0xffff, 0, 3);
        }),
        ("ring is not within its region", |client| {
            good(client);
            client.add_ring(1, 0, 0, 12);
        }),
        ("ring is not within its region", |client| {
            good(client);
            client.add_ring(1, 0, SIZE as u32 - 128, 1);
        }),
        ("ring is not within its region", |client| {
            good(client);
            client.add_ring(1, 0, u32::MAX - 63, 3);
        }),
        ("ring is too large", |client| {
            good(client);
            client.add_ring(1, 0, 0, 255);
        }),
        ("ring does not begin at a line", |client| {
            good(client);
            client.add_ring(1, 0, 8, 3);
        }),
        ("ring has a wrong cookie", |client| {
            good(client);
            client.write(RING, &[0; 4]);
            client.add_ring(1, 0, RING as u32, 3);
        }),
        ("interrupt is no eventfd", |client| {
            good(client);
            client.say_with(5, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0], &[client.region.as_fd()]);
        }),
        ("unexpected message", |client| {
            client.begin();
            client.init(0x200);
        }),
        ("already connected", |client| {
            // A ring to itself does not help: the interface is taken.
            client.init(0x200);
            client.init(0x200);
        }),
    ];
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(folder.path());
    for (number, (reason, says)) in cases.into_iter().enumerate() {
        let client = Client::connect(folder.path());
        if reason == "already connected" {
            let first = Client::connect(folder.path());
            first.init(0x200);
            assert_eq!(first.hear()[0], 1);
            says(&client);
            assert_eq!(client.reason(), reason);
        } else {
            says(&client);
            assert_eq!(client.reason(), reason, "case {number}");
        }
    }
    serves(&mut server, folder.path());
}

#[test]
fn silence_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(folder.path());
    let (nothing, half) = (Client::connect(folder.path()), Client::connect(folder.path()));
    half.init(0x200);
    assert_eq!(nothing.reason(), "negotiation took too long");
    assert_eq!(half.reason(), "negotiation took too long");
    serves(&mut server, folder.path());
}

#[test]
fn positions_that_cannot_be_end_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(folder.path());
    // A head far ahead, of what arrives and of what is offered.
    for (number, ring) in [0, RING].into_iter().enumerate() {
        let client = Client::connect(folder.path());
        client.begin();
        server.up();
        client.head(ring, SLOTS + 1);
        wait("the end", || {
            assert!(server.receivers[0].burst(BURST).is_empty());
            assert_eq!(server.senders[0].begin(BURST).room(), 0);
            !server.memif.is_up()
        });
        assert_eq!(client.reason(), "broken ring");
        wait("the loss", || server.memif.losses() == number as u32 + 1);
    }
    serves(&mut server, folder.path());
}

#[test]
fn bad_offers_end_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(folder.path());
    for (region, length, offset) in
        [(0, 0, BUFFERS), (0, 2048, SIZE as u32 - 1), (1, 2048, 0), (0, u32::MAX, u32::MAX)]
    {
        let client = Client::connect(folder.path());
        client.begin();
        server.up();
        client.slot(RING, 0, 0, 0, 2048, BUFFERS);
        client.slot(RING, 1, 0, region, length, offset);
        client.head(RING, 2);
        wait("the end", || {
            let mut space = server.senders[0].begin(BURST);
            assert!(!space.put(&[1; 60]) || space.commit() == 0);
            !server.memif.is_up()
        });
        assert_eq!(client.reason(), "broken ring");
    }
    serves(&mut server, folder.path());
}

#[test]
fn bad_descriptors_are_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(folder.path());
    let client = Client::connect(folder.path());
    client.begin();
    server.up();
    let good = frame(60, 1);
    client.write(u64::from(BUFFERS), &good);
    // One by one between good ones.
    let bad = [
        (0, 0, 60, SIZE as u32 - 59),
        (0, 0, 60, u32::MAX),
        (0, 0, u32::MAX, BUFFERS),
        (0, 0, 65537, 0),
        (0, 0, 0, BUFFERS),
        (0, 1, 60, 0),
        (0, 0xffff, 60, 0),
    ];
    let mut head = 0;
    for (number, (flags, region, length, offset)) in bad.into_iter().enumerate() {
        client.slot(0, head, 0, 0, 60, BUFFERS);
        client.slot(0, head + 1, flags, region, length, offset);
        client.slot(0, head + 2, 0, 0, 60, BUFFERS);
        head += 3;
        client.head(0, head);
        let mut found = Vec::new();
        wait("the good ones", || {
            found.extend(server.receive(0));
            found.len() == 2
        });
        assert_eq!(found, [good.clone(), good.clone()]);
        assert_eq!(server.receivers[0].malformed(), number as u64 + 1);
    }
    // A frame at the very end of the region is good, and not read beyond.
    client.write(SIZE - 60, &good);
    client.slot(0, head, 0, 0, 60, SIZE as u32 - 60);
    client.head(0, head + 1);
    wait("the last", || server.receive(0) == [good.clone()]);
    // A chain without an end, and one with a bad link.
    head += 1;
    (0..SLOTS).for_each(|slot| client.slot(0, head + slot, NEXT, 0, 60, BUFFERS));
    head += SLOTS;
    client.head(0, head);
    wait("the chain", || server.receive(0).is_empty() && server.receivers[0].malformed() == 8);
    client.slot(0, head, NEXT, 0, 60, BUFFERS);
    client.slot(0, head + 1, NEXT, 9, 60, BUFFERS);
    client.slot(0, head + 2, 0, 0, 60, BUFFERS);
    client.slot(0, head + 3, 0, 0, 60, BUFFERS);
    client.head(0, head + 4);
    wait("the one after it", || server.receive(0) == [good.clone()]);
    assert_eq!(server.receivers[0].malformed(), 9);
    // Too long as a whole.
    head += 4;
    (0..4).for_each(|slot| client.slot(0, head + slot, if slot < 3 { NEXT } else { 0 }, 0, 30_000, BUFFERS));
    client.slot(0, head + 4, 0, 0, 60, BUFFERS);
    client.head(0, head + 5);
    wait("the one after it", || server.receive(0) == [good.clone()]);
    assert_eq!(server.receivers[0].malformed(), 10);
    // Half a chain waits for its rest.
    head += 5;
    client.slot(0, head, NEXT, 0, 60, BUFFERS);
    client.slot(0, head + 1, 0, 0, 60, BUFFERS);
    client.head(0, head + 1);
    (0..3).for_each(|_| assert!(server.receive(0).is_empty()));
    client.head(0, head + 2);
    wait("the whole", || server.receive(0) == [[good.clone(), good.clone()].concat()]);
    assert!(server.memif.is_up());
    drop(client);
    wait("the loss", || server.memif.losses() == 1);
    serves(&mut server, folder.path());
}

#[test]
fn who_sleeps_is_woken() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(folder.path());
    let client = Client::connect(folder.path());
    client.begin();
    server.up();
    (0..SLOTS).for_each(|slot| client.slot(RING, slot, 0, 0, 2048, BUFFERS + u32::from(slot) * 2048));
    client.head(RING, SLOTS);
    let send = |server: &mut End| {
        let mut space = server.senders[0].begin(1);
        assert!(space.put(&[7; 60]));
        assert_eq!(space.commit(), 1);
    };
    send(&mut server);
    assert_eq!(client.interrupt.read(), Ok(1));
    // It polls: no interrupt.
    client.write(RING + 4, &1u16.to_le_bytes());
    send(&mut server);
    assert!(client.interrupt.read().is_err());
    // The server does.
    let mut flags = [0; 2];
    client.region.read_exact_at(&mut flags, 4).unwrap();
    assert_eq!(flags, [1, 0]);
}
