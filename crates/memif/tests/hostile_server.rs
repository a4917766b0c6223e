//! A client of ours, and servers that break the rules, their messages written by hand.

#![allow(clippy::unwrap_used, unsafe_code)]

use crate::common::{End, config, frame, pass, wait};
use memif::{BURST, Role};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, accept, bind,
    listen, recvmsg, send, socket,
};
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a ring of 64 slots; the one to the client is the second.
const RING: u64 = 128 + 64 * 16;

/// A server that does as it is told.
struct Server {
    listening: OwnedFd,
    client: OwnedFd,
    region: Option<File>,
}

impl Server {
    fn new(folder: &Path) -> Self {
        let listening = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::empty(), None).unwrap();
        bind(listening.as_raw_fd(), &UnixAddr::new(&folder.join("memif.sock")).unwrap()).unwrap();
        listen(&listening, Backlog::new(8).unwrap()).unwrap();
        let client = Self::accept(&listening);
        Self { listening, client, region: None }
    }

    fn accept(listening: &OwnedFd) -> OwnedFd {
        let client = accept(listening.as_raw_fd()).unwrap();
        // SAFETY: it is new.
        unsafe { OwnedFd::from_raw_fd(client) }
    }

    /// Wait for the client to come again.
    fn again(&mut self) {
        self.client = Self::accept(&self.listening);
    }

    fn say(&self, kind: u16, fields: &[u8]) {
        let mut message = [0; 128];
        message[..2].copy_from_slice(&kind.to_le_bytes());
        message[2..2 + fields.len()].copy_from_slice(fields);
        send(self.client.as_raw_fd(), &message, MsgFlags::MSG_NOSIGNAL).unwrap();
    }

    fn hello(&self, version: u16, rings: u16, log2: u8) {
        let fields = [version, version, 0, rings, rings].map(u16::to_le_bytes).concat();
        self.say(2, &[&[0; 32][..], &fields, &[log2]].concat());
    }

    /// A message; of a file with it, that is kept as the region.
    fn hear(&mut self) -> Vec<u8> {
        let (mut bytes, mut control) = ([0; 128], nix::cmsg_space!([RawFd; 2]));
        let mut into = [IoSliceMut::new(&mut bytes)];
        let fd = self.client.as_raw_fd();
        let received = recvmsg::<()>(fd, &mut into, Some(&mut control), MsgFlags::empty()).unwrap();
        let length = received.bytes;
        let files: Vec<_> = received
            .cmsgs()
            .unwrap()
            .flat_map(|message| match message {
                ControlMessageOwned::ScmRights(files) => files,
                _ => Vec::new(),
            })
            // SAFETY: they are new.
            .map(|file| unsafe { File::from_raw_fd(file) })
            .collect();
        if bytes[0] == 4 {
            self.region = files.into_iter().next();
        }
        bytes[..length].to_vec()
    }

    fn reason(&mut self) -> String {
        let message = self.hear();
        assert_eq!(message[0], 8);
        String::from_utf8(message[6..].iter().copied().take_while(|&byte| byte != 0).collect()).unwrap()
    }

    /// Do all that a good one does.
    fn begin(&mut self) {
        self.hello(0x200, 0, 14);
        for kind in [3, 4, 5, 5] {
            assert_eq!(self.hear()[0], kind);
            self.say(1, &[]);
        }
        assert_eq!(self.hear()[0], 6);
        self.say(7, b"hostile");
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.region.as_ref().unwrap().write_all_at(bytes, at).unwrap();
    }

    fn slot(&self, slot: u64, flags: u16, region: u16, length: u32, offset: u32) {
        let fields =
            [&flags.to_le_bytes()[..], &region.to_le_bytes(), &length.to_le_bytes(), &offset.to_le_bytes()];
        self.write(RING + 128 + slot * 16, &fields.concat());
    }

    fn tail(&self, ring: u64, tail: u16) {
        self.write(ring + 64, &tail.to_le_bytes());
    }
}

/// A good server is found afterwards.
fn finds(client: &mut End, folder: &Path, server: Server) {
    drop(server);
    std::fs::remove_file(folder.join("memif.sock")).unwrap();
    let mut server = End::open(config(Role::Server, folder));
    server.up();
    wait("the client", || client.memif.is_up());
    let frames: Vec<_> = (0..100).map(|number| frame(1500, number)).collect();
    pass(client, &mut server, 0, &frames);
    pass(&mut server, client, 0, &frames);
}

#[test]
fn bad_negotiations_are_refused() {
    type Says = fn(&mut Server);
    let cases: [(&str, Says); 5] = [
        ("unsupported version", |server| server.hello(0x300, 0, 10)),
        ("unexpected message", |server| server.say(1, &[])),
        ("unknown message", |server| server.say(0, &[])),
        ("unexpected message", |server| {
            server.hello(0x200, u16::MAX, u8::MAX);
            assert_eq!(server.hear()[0], 3);
            server.say(7, &[]);
        }),
        ("unexpected message", |server| {
            server.begin();
            server.say(7, &[]);
        }),
    ];
    let folder = tempfile::tempdir().unwrap();
    let mut client = End::open(config(Role::Client, folder.path()));
    let mut server = Server::new(folder.path());
    for (reason, says) in cases {
        says(&mut server);
        assert_eq!(server.reason(), reason);
        server.again();
    }
    finds(&mut client, folder.path(), server);
}

#[test]
fn silence_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = End::open(config(Role::Client, folder.path()));
    let mut server = Server::new(folder.path());
    assert_eq!(server.reason(), "negotiation took too long");
    server.again();
    finds(&mut client, folder.path(), server);
}

#[test]
fn positions_that_cannot_be_end_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = End::open(config(Role::Client, folder.path()));
    let mut server = Server::new(folder.path());
    for (number, (ring, tail)) in [(RING, 65), (0, 1)].into_iter().enumerate() {
        server.begin();
        client.up();
        server.tail(ring, tail);
        wait("the end", || {
            assert!(client.receivers[0].burst(BURST).is_empty());
            drop(client.senders[0].begin(BURST));
            !client.memif.is_up()
        });
        assert_eq!(server.reason(), "broken ring");
        wait("the loss", || client.memif.losses() == number as u32 + 1);
        server.again();
    }
    finds(&mut client, folder.path(), server);
}

#[test]
fn bad_descriptors_are_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = End::open(config(Role::Client, folder.path()));
    let mut server = Server::new(folder.path());
    server.begin();
    client.up();
    assert!(client.receive(0).is_empty());
    let good = frame(60, 1);
    let buffers = 2 * RING as u32;
    server.write(u64::from(buffers), &good);
    server.slot(0, 0, 0, 60, buffers);
    server.slot(1, 0, 0, 60, u32::MAX - 10);
    server.slot(2, 0, 1, 60, buffers);
    server.slot(3, 0, 0, 60, buffers);
    server.slot(4, 1, 0, 0, buffers);
    server.slot(5, 0, 0, 60, buffers);
    server.tail(RING, 6);
    let mut found = Vec::new();
    wait("the good ones", || {
        found.extend(client.receive(0));
        found.len() == 3
    });
    assert_eq!(found, [good.clone(), good.clone(), good]);
    assert_eq!(client.receivers[0].malformed(), 2);
    assert!(client.memif.is_up());
    // All of its slots are on offer again.
    let mut head = [0; 2];
    server.region.as_ref().unwrap().read_exact_at(&mut head, RING + 6).unwrap();
    assert_eq!(u16::from_le_bytes(head), 70);
    server.say(8, &[0; 4]);
    wait("the loss", || client.memif.losses() == 1);
    server.again();
    finds(&mut client, folder.path(), server);
}
