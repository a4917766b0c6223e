//! A server and a client of ours.

use crate::common::{End, config, frame, pair, pass, receive, send, wait};
use memif::{BURST, Config, Error, Memif, Role};

const LENGTHS: [usize; 6] = [60, 64, 65, 1500, 9000, 1];

fn frames(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| frame(LENGTHS[number % LENGTHS.len()], number)).collect()
}

#[test]
fn frames_pass_both_ways() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = pair(folder.path(), |_| {});
    // More than the ring has slots, and more than its positions have numbers.
    pass(&mut client, &mut server, 0, &frames(5000));
    pass(&mut server, &mut client, 0, &frames(5000));
    let short: Vec<_> = (0..70_000).map(|number| frame(60, number)).collect();
    pass(&mut client, &mut server, 0, &short);
    pass(&mut server, &mut client, 0, &short);
    assert_eq!(server.receivers[0].malformed() + client.receivers[0].malformed(), 0);
    assert_eq!(server.memif.losses() + client.memif.losses(), 0);
}

#[test]
fn rings_and_buffers_of_all_sizes() {
    for (ring_size_log2, buffer_size) in [(1, 9000), (3, 2000), (14, 64), (10, 65536 / 1024)] {
        let folder = tempfile::tempdir().unwrap();
        let change = |config: &mut Config| {
            (config.ring_size_log2, config.buffer_size) = (ring_size_log2, buffer_size);
        };
        let (mut server, mut client) = pair(folder.path(), change);
        pass(&mut client, &mut server, 0, &frames(100));
        pass(&mut server, &mut client, 0, &frames(100));
    }
}

#[test]
fn the_longest_frame() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = pair(folder.path(), |_| {});
    let longest = [frame(65536, 1), frame(65536, 2), frame(60, 3)];
    pass(&mut client, &mut server, 0, &longest);
    pass(&mut server, &mut client, 0, &longest);
}

#[test]
fn a_full_ring_takes_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = pair(folder.path(), |_| {});
    assert!(client.receive(0).is_empty());
    let frames: Vec<_> = (0..100).map(|number| frame(60, number)).collect();
    for (from, to) in [(0, 1), (1, 0)] {
        let ends = [&mut server, &mut client];
        assert_eq!(send(&mut ends[from].senders[0], &frames), 64);
        assert_eq!(send(&mut ends[from].senders[0], &frames), 0);
        assert_eq!(ends[from].senders[0].begin(BURST).room(), 0);
        assert_eq!(ends[to].receive(0), frames[..64]);
        assert_eq!(send(&mut ends[from].senders[0], &frames[64..]), 36);
        assert_eq!(ends[to].receive(0), frames[64..]);
    }
}

#[test]
fn what_is_not_taken_comes_again() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = pair(folder.path(), |_| {});
    assert!(client.receive(0).is_empty());
    let frames: Vec<_> = LENGTHS.iter().map(|&length| frame(length, length)).collect();
    for (from, to) in [(0, 1), (1, 0)] {
        let ends = [&mut server, &mut client];
        assert_eq!(send(&mut ends[from].senders[0], &frames), frames.len());
        let receiver = &mut ends[to].receivers[0];
        assert_eq!(receiver.burst(BURST).len(), frames.len());
        assert_eq!(receiver.burst(2).len(), 2);
        receiver.burst(BURST).release(4);
        assert_eq!(receive(receiver), frames[4..]);
    }
}

#[test]
fn what_is_not_committed_is_not_sent() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = pair(folder.path(), |_| {});
    assert!(client.receive(0).is_empty());
    for (from, to) in [(0, 1), (1, 0)] {
        let ends = [&mut server, &mut client];
        let mut space = ends[from].senders[0].begin(4);
        assert!((space.room(), space.buffer_size()) == (4, 2048));
        assert!(space.put(&frame(60, 0)) && space.put(&frame(9000, 0)));
        drop(space);
        let mut space = ends[from].senders[0].begin(4);
        assert!(!space.put_pieces([&[1u8; 3000][..]].into_iter(), 5000), "fewer than was said");
        assert!(!space.put(&frame(64 * 2048 + 1, 0)), "longer than the ring");
        assert!(space.put(&[]));
        assert_eq!(space.commit(), 0);
        assert!(ends[to].receive(0).is_empty());
        // All slots have their room again.
        let full: Vec<_> = (0..64).map(|number| frame(2048, number)).collect();
        assert_eq!(send(&mut ends[from].senders[0], &full), 64);
        assert_eq!(ends[to].receive(0), full);
    }
}

#[test]
fn either_end_can_go_and_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, client) = pair(folder.path(), |_| {});
    drop(client);
    wait("the loss", || server.memif.losses() == 1);
    assert!(!server.memif.is_up());
    assert!(server.memif.last_error().unwrap().contains("closed"));
    assert_eq!(send(&mut server.senders[0], &frames(1)), 0);
    let mut client = End::open(config(Role::Client, folder.path()));
    server.up();
    client.up();
    pass(&mut client, &mut server, 0, &frames(200));
    pass(&mut server, &mut client, 0, &frames(200));
    drop(server);
    wait("the loss", || client.memif.losses() == 1);
    assert!(!folder.path().join("memif.sock").exists());
    let mut server = End::open(config(Role::Server, folder.path()));
    server.up();
    client.up();
    pass(&mut client, &mut server, 0, &frames(200));
    pass(&mut server, &mut client, 0, &frames(200));
}

#[test]
fn a_client_waits_for_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = End::open(config(Role::Client, folder.path()));
    wait("the error", || client.memif.last_error().is_some());
    assert!(client.receive(0).is_empty());
    let mut server = End::open(config(Role::Server, folder.path()));
    client.up();
    pass(&mut client, &mut server, 0, &frames(10));
}

#[test]
fn two_interfaces_at_one_socket() {
    let folder = tempfile::tempdir().unwrap();
    let open = |role, id| End::open(Config { id, ..config(role, folder.path()) });
    let mut servers = [open(Role::Server, 3), open(Role::Server, 4)];
    let mut clients = [open(Role::Client, 4), open(Role::Client, 3)];
    clients.iter().chain(&servers).for_each(End::up);
    for at in 0..2 {
        pass(&mut clients[at], &mut servers[1 - at], 0, &frames(10));
        pass(&mut servers[1 - at], &mut clients[at], 0, &frames(10));
    }
    let again = Memif::open(Config { id: 3, ..config(Role::Server, folder.path()) });
    assert!(matches!(again, Err(Error::IdInUse { id: 3, .. })));
    // One goes, the other stays.
    let [first, mut second] = servers;
    drop(first);
    wait("the loss", || clients[1].memif.losses() == 1);
    pass(&mut clients[0], &mut second, 0, &frames(10));
    assert_eq!((clients[0].memif.losses(), second.memif.losses()), (0, 0));
    wait("the refusal", || clients[1].memif.last_error().is_some_and(|why| why.contains("unknown id")));
    let mut first = open(Role::Server, 3);
    clients[1].up();
    pass(&mut clients[1], &mut first, 0, &frames(10));
}

#[test]
fn a_second_client_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = pair(folder.path(), |_| {});
    let second = End::open(config(Role::Client, folder.path()));
    let refused = || second.memif.last_error().is_some_and(|why| why.contains("already connected"));
    wait("the refusal", refused);
    pass(&mut client, &mut server, 0, &frames(10));
    drop(client);
    second.up();
}

#[test]
fn secrets() {
    let folder = tempfile::tempdir().unwrap();
    let open = |role, secret: Option<&str>| {
        End::open(Config { secret: secret.map(str::to_owned), ..config(role, folder.path()) })
    };
    let mut server = open(Role::Server, Some("a secret of 24 bytes, eh"));
    for (secret, why) in [(None, "secret required"), (Some("a secret of 24 bytes"), "wrong secret")] {
        let client = open(Role::Client, secret);
        wait("the refusal", || client.memif.last_error().is_some_and(|error| error.contains(why)));
        assert!(!client.memif.is_up() && !server.memif.is_up());
    }
    let mut client = open(Role::Client, Some("a secret of 24 bytes, eh"));
    client.up();
    pass(&mut client, &mut server, 0, &frames(10));
}

#[test]
fn several_queues() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = pair(folder.path(), |config| {
        // Four to the server, three to the client.
        (config.rx_queues, config.tx_queues) = if config.role == Role::Server { (4, 3) } else { (5, 5) };
    });
    for queue in 0..3 {
        let own: Vec<_> = (0..100).map(|number| frame(100 + queue, number)).collect();
        pass(&mut client, &mut server, queue, &own);
        pass(&mut server, &mut client, queue, &own);
    }
    pass(&mut client, &mut server, 3, &frames(10));
    assert_eq!(send(&mut client.senders[4], &frames(1)), 0);
    assert!(client.receive(3).is_empty());
}

#[test]
fn ends_on_their_own_threads() {
    let folder = tempfile::tempdir().unwrap();
    let (server, client) = pair(folder.path(), |_| {});
    let (mut receiver, mut sender) = (server.receivers, client.senders);
    let frames = frames(20_000);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sent = 0;
            wait("all to be sent", || {
                sent += send(&mut sender[0], &frames[sent..(sent + 40).min(frames.len())]);
                sent == frames.len()
            });
        });
        let mut found = Vec::new();
        wait("all to arrive", || {
            found.extend(receive(&mut receiver[0]));
            found.len() == frames.len()
        });
        assert!(found == frames);
    });
}

#[test]
fn abstract_names() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = pair(folder.path(), |config| config.abstract_socket = true);
    assert!(!folder.path().join("memif.sock").exists());
    pass(&mut client, &mut server, 0, &frames(10));
}

#[test]
fn what_lies_at_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let server = || Memif::open(config(Role::Server, folder.path()));
    let path = folder.path().join("memif.sock");
    // Somebody else's, alive: then left behind.
    let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert!(matches!(server(), Err(Error::InUse { .. })));
    drop(other);
    assert!(path.exists());
    drop(server().unwrap());
    assert!(!path.exists());
    // No socket at all: not ours to remove.
    std::fs::write(&path, "precious").unwrap();
    assert!(server().is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let nowhere = Config::new(Role::Server, folder.path().join("none/memif.sock"));
    assert!(matches!(Memif::open(nowhere), Err(Error::System { .. })));
}

#[test]
fn settings_out_of_range() {
    let wrong: [fn(&mut Config); 9] = [
        |config| config.ring_size_log2 = 0,
        |config| config.ring_size_log2 = 15,
        |config| config.buffer_size = 63,
        |config| config.buffer_size = 65537,
        |config| config.rx_queues = 0,
        |config| config.tx_queues = 256,
        |config| config.secret = Some("x".repeat(25)),
        |config| config.socket = "x".repeat(108).into(),
        |config| (config.ring_size_log2, config.buffer_size) = (14, 65536),
    ];
    for change in wrong {
        let mut config = Config::new(Role::Client, "memif.sock");
        change(&mut config);
        assert!(matches!(Memif::open(config), Err(Error::Config { .. })));
    }
}
