//! What the tests have in common.
#![allow(dead_code, unsafe_code)]

use memif::{BURST, Config, Memif, Receiver, Role, Sender};
use std::path::Path;
use std::time::{Duration, Instant};

/// Wait for what should come soon.
pub fn wait(what: &str, mut until: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !until() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what} did not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An interface with its ends.
pub struct End {
    pub memif: Memif,
    pub receivers: Vec<Receiver>,
    pub senders: Vec<Sender>,
}

impl End {
    pub fn open(config: Config) -> Self {
        let (memif, receivers, senders) = Memif::open(config).expect("it opens");
        Self { memif, receivers, senders }
    }

    pub fn up(&self) {
        wait("the connection", || self.memif.is_up());
    }

    /// What has arrived on a queue, at most a burst.
    pub fn receive(&mut self, queue: usize) -> Vec<Vec<u8>> {
        receive(&mut self.receivers[queue])
    }
}

pub fn receive(receiver: &mut Receiver) -> Vec<Vec<u8>> {
    let frames = receiver.burst(BURST);
    let mut found = Vec::new();
    for at in 0..frames.len() {
        let mut exact = vec![0; frames.length(at)];
        frames.copy_to(at, &mut exact);
        let mut wide = vec![0u8; frames.length(at).next_multiple_of(64)];
        // SAFETY: it has room for whole lines.
        unsafe { frames.copy_wide(at, wide.as_mut_ptr()) };
        assert_eq!(exact, wide[..exact.len()]);
        found.push(exact);
    }
    let count = frames.len();
    frames.release(count);
    found
}

/// Send as many of the frames as there is room for.
pub fn send(sender: &mut Sender, frames: &[Vec<u8>]) -> usize {
    let mut space = sender.begin(frames.len());
    let mut put = 0;
    for frame in frames {
        let done = match put % 3 {
            0 => space.put(frame),
            1 => {
                let mut wide = frame.clone();
                wide.resize(frame.len().next_multiple_of(64), 0xee);
                // SAFETY: it has whole lines.
                unsafe { space.put_wide(wide.as_ptr(), frame.len()) }
            }
            _ => {
                let (first, second) = frame.split_at(frame.len() / 2);
                space.put_pieces([first, &[], second].into_iter(), frame.len())
            }
        };
        if !done {
            break;
        }
        put += 1;
    }
    assert_eq!(space.commit(), put);
    put
}

/// Send all frames from one end, and see them arrive at the other as they were.
pub fn pass(from: &mut End, to: &mut End, queue: usize, frames: &[Vec<u8>]) {
    let (mut sent, mut found) = (0, Vec::new());
    wait("the frames", || {
        sent += send(&mut from.senders[queue], &frames[sent..]);
        found.extend(to.receive(queue));
        found.len() >= frames.len()
    });
    assert_eq!(sent, frames.len());
    assert!(found == frames, "frames differ");
}

/// A frame of a length, and bytes of its own.
pub fn frame(length: usize, number: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + number * 31) as u8).collect()
}

pub fn config(role: Role, folder: &Path) -> Config {
    Config { ring_size_log2: 6, ..Config::new(role, folder.join("memif.sock")) }
}

/// Both ends, connected.
pub fn pair(folder: &Path, change: impl Fn(&mut Config)) -> (End, End) {
    let open = |role| {
        let mut config = config(role, folder);
        change(&mut config);
        End::open(config)
    };
    let (server, client) = (open(Role::Server), open(Role::Client));
    server.up();
    client.up();
    (server, client)
}
