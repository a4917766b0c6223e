//! The path of a socket that a port is about to serve (`net_vhost`, `virtio_user` with `server=1`). DPDK removes whatever is there when
//! such a port closes, even if it never served there: another's file, link, or socket in use.

use crate::device::kind;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;

/// The path that a driver with these arguments serves at. `None`: it serves none.
pub(crate) fn served<'a>(driver: &str, arguments: &'a str) -> Option<&'a str> {
    let value = |wanted: &str| {
        let mut pairs = arguments.split(',').filter_map(|argument| argument.split_once('='));
        pairs.find(|(key, _)| *key == wanted).map(|(_, value)| value)
    };
    match kind(driver) {
        "vhost" if value("client") != Some("1") => value("iface"),
        "virtio_user" if value("server") == Some("1") => value("path"),
        _ => None,
    }
}

/// Whether a port may serve at a path, if need be after a socket that nobody serves any more is removed. Else why not, and what to do.
pub(crate) fn make_free(path: &str) -> Result<(), (String, &'static str)> {
    const OTHER: &str = "Name a path at which there is nothing yet";
    let about = match fs::symlink_metadata(path) {
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err((why.to_string(), OTHER)),
        Ok(about) => about,
    };
    if !about.file_type().is_socket() {
        return Err(("it is there and is no socket".into(), OTHER));
    }
    match UnixStream::connect(path) {
        // Only of a socket that nobody has open: others fail with EPROTOTYPE or EAGAIN.
        Err(why) if why.kind() == ErrorKind::ConnectionRefused => match fs::remove_file(path) {
            Ok(()) => Ok(()),
            Err(why) => Err((why.to_string(), OTHER)),
        },
        _ => Err((
            "it is in use: somebody serves this socket".into(),
            "Name another path, or end who serves it",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::{UnixDatagram, UnixListener};
    use std::process::Command;

    #[test]
    fn only_servers_have_a_path_to_look_at() {
        assert_eq!(served("net_vhost0", "iface=/run/v,queues=1"), Some("/run/v"));
        assert_eq!(served("eth_vhost", "client=0,iface=/run/v"), Some("/run/v"));
        assert_eq!(served("net_vhost0", "iface=/run/v,client=1"), None);
        assert_eq!(served("virtio_user0", "path=/run/v,server=1"), Some("/run/v"));
        assert_eq!(served("net_virtio_user0", "path=/run/v"), None);
        assert_eq!(served("net_tap", "iface=t0"), None);
    }

    #[test]
    fn what_is_in_use_or_no_socket_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        assert_eq!(make_free(&at("new")), Ok(()));
        drop(UnixListener::bind(at("dead")).unwrap());
        assert_eq!(make_free(&at("dead")), Ok(()));
        assert!(!fs::exists(at("dead")).unwrap(), "DPDK does not bind where a dead socket is");

        fs::write(at("diary"), "mine").unwrap();
        drop(UnixListener::bind(at("target")).unwrap());
        symlink(at("target"), at("link")).unwrap();
        assert!(Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
        for name in ["diary", "link", "fifo", "."] {
            let (why, _) = make_free(&at(name)).unwrap_err();
            assert_eq!(why, "it is there and is no socket", "{name}");
        }
        let _listener = UnixListener::bind(at("served")).unwrap();
        let _datagrams = UnixDatagram::bind(at("log")).unwrap();
        for name in ["served", "log"] {
            let (why, _) = make_free(&at(name)).unwrap_err();
            assert!(why.contains("in use"), "{name}: {why}");
        }
        for name in ["diary", "link", "target", "fifo", "served", "log"] {
            assert!(fs::symlink_metadata(at(name)).is_ok(), "{name}");
        }
    }
}
