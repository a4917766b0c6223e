//! The files of `net_pcap`: opened here and handed on by their descriptors, since DPDK would wait at a FIFO for ever,
//! follow links, and write into whatever it finds.

use nix::libc::{O_NOCTTY, O_NOFOLLOW, O_NONBLOCK};
use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

/// How recordings begin, in either order of bytes, with microseconds and nanoseconds.
const MAGIC: [u32; 4] = [0xa1b2_c3d4, 0xd4c3_b2a1, 0xa1b2_3c4d, 0x4d3c_b2a1];

/// The arguments of a device with its files opened, and these: they must stay open as long as the device. Says with
/// what is wrong whose file it is.
pub fn opened(driver: &str, arguments: &str) -> std::result::Result<(String, Vec<File>), (String, Error)> {
    if crate::device::kind(driver) != "pcap" {
        return Ok((arguments.to_owned(), Vec::new()));
    }
    let mut files = Vec::new();
    let mut handed = Vec::new();
    for argument in arguments.split(',') {
        let file = match argument.split_once('=') {
            Some(("rx_pcap", path)) => Some(to_read(path).map_err(|why| (path.to_owned(), why))?),
            Some(("tx_pcap", path)) => Some(to_write(path).map_err(|why| (path.to_owned(), why))?),
            _ => None,
        };
        handed.push(match (file, argument.split_once('=')) {
            (Some(file), Some((key, _))) => {
                let by = format!("{key}=/proc/self/fd/{}", file.as_raw_fd());
                files.push(file);
                by
            }
            _ => argument.to_owned(),
        });
    }
    Ok((handed.join(","), files))
}

fn to_read(path: &str) -> Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK | O_NOCTTY).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(Error::other("it is not a regular file")) }
}

/// A new file, or a recording of ours from a former run, which has no other name. It is called so: a profile from
/// elsewhere must not be able to make a file that any other program reads.
fn to_write(path: &str) -> Result<File> {
    if !path.ends_with(".pcap") {
        return Err(Error::other("its name does not end with .pcap"));
    }
    let mut how = OpenOptions::new();
    how.read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
    let file = how.open(path)?;
    let about = file.metadata()?;
    let ours = nix::unistd::geteuid().as_raw() == about.uid();
    if !(about.is_file() && about.nlink() == 1 && ours) {
        return Err(Error::other("it is not a regular file of this user's with one name"));
    }
    let mut magic = [0; 4];
    let recording = file.read_at(&mut magic, 0)? == magic.len() && MAGIC.contains(&u32::from_le_bytes(magic));
    if recording || about.len() == 0 {
        Ok(file)
    } else {
        Err(Error::other("it is there and is no recording"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    #[test]
    fn files_are_handed_on_by_their_descriptors() {
        let folder = std::env::temp_dir().join(format!("nd-files-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        std::fs::write(at("in"), "frames").unwrap();
        std::fs::write(at("other"), "theirs").unwrap();
        std::fs::write(at("text.pcap"), "theirs").unwrap();
        std::fs::write(at("old.pcap"), 0xa1b2_c3d4_u32.to_ne_bytes()).unwrap();
        std::fs::hard_link(at("other"), at("hard.pcap")).unwrap();
        symlink(at("absent"), at("soft.pcap")).unwrap();
        assert!(Command::new("mkfifo").arg(at("fifo.pcap")).status().unwrap().success());
        let both = format!("rx_pcap={},tx_pcap={},infinite_rx=1", at("in"), at("out.pcap"));
        let (arguments, files) = opened("net_pcap0", &both).unwrap();
        let [rx, tx] = [0, 1].map(|i: usize| files[i].as_raw_fd());
        assert_eq!(arguments, format!("rx_pcap=/proc/self/fd/{rx},tx_pcap=/proc/self/fd/{tx},infinite_rx=1"));
        // Again, as a second run does.
        assert!(opened("net_pcap", &both).is_ok());
        let wrong = "rx_pcap=fifo.pcap rx_pcap=. rx_pcap=none tx_pcap=fifo.pcap tx_pcap=soft.pcap tx_pcap=hard.pcap \
                     tx_pcap=text.pcap tx_pcap=new tx_pcap=other";
        assert!(opened("net_pcap", &format!("tx_pcap={}", at("old.pcap"))).is_ok());
        for wrong in wrong.split_whitespace() {
            let (key, name) = wrong.split_once('=').unwrap();
            let refused = opened("eth_pcap", &format!("{key}={}", at(name)));
            assert_eq!(refused.unwrap_err().0, at(name), "{wrong}");
        }
        assert!(opened("net_pcap", "rx_pcap=/dev/zero").is_err());
        assert_eq!(std::fs::read(at("other")).unwrap(), b"theirs");
        assert_eq!(std::fs::read(at("text.pcap")).unwrap(), b"theirs");
        assert!(!["new", "absent"].map(at).iter().any(|path| std::fs::exists(path).unwrap()));
        // Others know nothing of files.
        assert_eq!(opened("net_tap", "iface=x").unwrap().0, "iface=x");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
