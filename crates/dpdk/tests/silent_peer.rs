//! A process at the other end of a vhost socket that takes the connection and says nothing: the port cannot be opened, and says so.

use crate::common::eal;
use dpdk::Port;
use std::os::unix::net::UnixListener;

#[test]
fn a_vhost_peer_that_never_answers_is_given_up() {
    let eal = eal();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("nd-silent");
    let listener = UnixListener::bind(&path).expect("bound");
    let device = format!("net_virtio_user0,path={},queues=1", path.display());
    // without a limit DPDK waits for the peer's features for ever
    let why = Port::open(eal, &device).expect_err("nobody answers");
    assert!(why.to_string().contains("connecting"), "{why}");
    assert!(why.fix().contains("does not answer"), "{}", why.fix());
    drop(listener);
}
