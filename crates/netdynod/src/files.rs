//! What may be named by which door. Who comes by the Unix socket is the owner, and names any file, namespace and device.
//! Who comes over TCP has a token or a certificate, and no right to the owner's files: he names files of one folder by their bare
//! names, and devices that are no files.

use element::registry::Registry as Kinds;
use profile::{Port, Profile, Transport};
use std::path::{Component, Path, PathBuf};
use system::rpc::{Error, NOT_ALLOWED};

/// The door by which a connection came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// The Unix socket, which only the owner can open.
    Socket,
    /// TCP, with the token or a certificate.
    Tcp,
}

/// What a connection may name.
#[derive(Debug, Clone, Copy)]
pub struct Files<'a> {
    /// By which door it came.
    pub door: Door,
    /// Where its files lie if that is not the owner's: `--files`.
    pub folder: Option<&'a Path>,
}

fn refused(at: &str, what: String, fix: &str) -> Error {
    Error::new(NOT_ALLOWED, "ND-104-16", at, what, fix)
}

impl Files<'_> {
    /// The file that `name` means at `at`.
    pub fn file(self, at: &str, name: &str) -> Result<PathBuf, Error> {
        if self.door == Door::Socket {
            return Ok(PathBuf::from(name));
        }
        let Some(folder) = self.folder else {
            let what = "no file can be named over TCP".to_owned();
            return Err(refused(at, what, "Start the daemon with --files FOLDER, or use its Unix socket"));
        };
        let mut parts = Path::new(name).components();
        match (parts.next(), parts.next()) {
            (Some(Component::Normal(bare)), None) if bare == name && !name.contains('\0') => {
                Ok(folder.join(bare))
            }
            _ => {
                let what = format!("{name:?} is no bare name of a file, and others cannot be named over TCP");
                Err(refused(at, what, "Name a file of the daemon's --files folder, without its path"))
            }
        }
    }

    /// Put the files that are meant in the place of those that a profile names; refuse its devices that are files.
    pub fn of_profile(self, profile: &mut Profile, kinds: &Kinds) -> Result<(), Error> {
        if self.door == Door::Socket {
            return Ok(());
        }
        let meant = |at: String, name: &mut String| {
            *name = self.file(&at, name)?.to_string_lossy().into_owned();
            Ok::<(), Error>(())
        };
        for (at, file) in profile.files_mut() {
            meant(at, file)?;
        }
        let Transport::Dpdk(dpdk) = &mut profile.transport else { return Ok(()) };
        for (name, element) in &mut dpdk.elements {
            let kind = kinds.find(&element.kind).copied();
            // What cannot be read is told when the graph is checked.
            let at = format!("transport.dpdk.elements.{name}");
            let mut settings = kind.and_then(|kind| kind.read(&element.options, &at).ok());
            for (key, file) in settings.iter_mut().flat_map(|settings| settings.files()) {
                meant(format!("{at}.{key}"), file)?;
                element.options.insert(key.to_owned(), file.as_str().into());
            }
        }
        let check = |(i, port): (usize, &Port)| {
            self.device(&format!("transport.dpdk.ports[{i}].device"), &port.device)
        };
        dpdk.ports.iter().enumerate().try_for_each(check)
    }

    /// Whether the device may be named: over TCP a NIC, an interface, a cable or a null device, and no driver's
    /// arguments, which name sockets, files and programs.
    pub fn device(self, at: &str, device: &str) -> Result<(), Error> {
        let plain = |name: &str| !name.is_empty() && !name.contains(['/', ',', '=']);
        let nic =
            || device.len() <= 12 && device.bytes().all(|b| b.is_ascii_hexdigit() || b":.".contains(&b));
        let fine = match device.split_once(':') {
            Some(("pair" | "af_packet" | "af_xdp" | "tap", name)) => plain(name),
            Some(_) => nic(),
            None => device == "null",
        };
        if self.door == Door::Socket || fine {
            return Ok(());
        }
        let what = format!("the device {device:?} cannot be named over TCP");
        let fix =
            "Use a PCI address, pair:, af_packet:, af_xdp: or tap: with a name, or null; or the Unix socket";
        Err(refused(at, what, fix))
    }

    /// Whether the namespace may be named: over TCP not by the path of a file.
    pub fn namespace(self, at: &str, name: &str) -> Result<(), Error> {
        if self.door == Door::Socket || !(name.contains('/') || name.starts_with('.')) {
            return Ok(());
        }
        let what = format!("{name:?} is the path of a file, which cannot be named over TCP");
        Err(refused(at, what, "Use the name that `ip netns list` shows"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const OWNER: Files<'static> = Files { door: Door::Socket, folder: None };

    fn guest(folder: Option<&Path>) -> Files<'_> {
        Files { door: Door::Tcp, folder }
    }

    #[test]
    fn over_tcp_files_are_those_of_one_folder() {
        let there = guest(Some(Path::new("/srv/nd")));
        assert_eq!(there.file("a", "c.pcapng").unwrap(), Path::new("/srv/nd/c.pcapng"));
        for name in ["", ".", "..", "/etc/passwd", "../x", "a/b", "a/", "./a", "a\0b", "/"] {
            let why = there.file("capture.path", name).unwrap_err();
            assert_eq!((why.code, &why.data["code"]), (NOT_ALLOWED, &json!("ND-104-16")), "{name:?}");
            assert_eq!(OWNER.file("a", name).unwrap(), Path::new(name));
        }
        assert!(
            guest(None).file("a", "c.pcapng").unwrap_err().data["fix"].as_str().unwrap().contains("--files")
        );
    }

    #[test]
    fn over_tcp_devices_are_no_files() {
        for device in
            ["0000:01:00.0", "3b:00.1", "pair:x", "af_packet:veth0", "af_xdp:veth0", "tap:t0", "null"]
        {
            assert!(guest(None).device("d", device).is_ok(), "{device}");
        }
        for device in [
            "net_pcap,rx_pcap=/etc/shadow,tx_pcap=/etc/passwd",
            "eth_pcap0,tx_pcap=x",
            "virtio:/run/x",
            "virtio_user0,path=/run/x",
            "net_vhost0,iface=/etc/x",
            "net_memif,socket=/etc/x",
            "af_xdp:veth0,xdp_prog=/tmp/x.o",
            "tap:t0,remote=eth0",
            "tap:/x",
            "net_null,x=/y",
            "tap:",
        ] {
            assert!(guest(None).device("d", device).is_err(), "{device}");
            assert!(OWNER.device("d", device).is_ok());
        }
    }

    #[test]
    fn a_profile_over_tcp_means_files_of_the_folder() {
        let text = |ca: &str| {
            json!({"name": "x", "groups": [{"name": "s", "target": "https://192.0.2.1/", "model": {"http": {}},
                "tls": {"ca": ca}}]})
            .to_string()
        };
        let load = |ca| profile::load(&text(ca)).unwrap();
        let ca = |profile: &Profile| profile.groups[0].tls.as_ref().unwrap().ca.clone().unwrap();
        let mut good = load("ca.pem");
        guest(Some(Path::new("/srv/nd"))).of_profile(&mut good, &Kinds::default()).unwrap();
        assert_eq!(ca(&good), "/srv/nd/ca.pem");
        let why = guest(Some(Path::new("/srv/nd")))
            .of_profile(&mut load("/etc/shadow"), &Kinds::default())
            .unwrap_err();
        assert_eq!(why.data["at"], "groups[0].tls.ca");
        let mut own = load("/etc/ssl/ca.pem");
        OWNER.of_profile(&mut own, &Kinds::default()).unwrap();
        assert_eq!(ca(&own), "/etc/ssl/ca.pem");
        let ports =
            json!({"dpdk": {"ports": [{"name": "a", "device": "net_pcap,tx_pcap=/x", "role": "reflector"}]}});
        let mut pcap = profile::load(&json!({"name": "x", "transport": ports}).to_string()).unwrap();
        let why = guest(None).of_profile(&mut pcap, &Kinds::default()).unwrap_err();
        assert_eq!(why.data["at"], "transport.dpdk.ports[0].device");
    }

    #[test]
    fn over_tcp_a_namespace_has_a_name() {
        assert!(
            guest(None).namespace("a", "client").is_ok() && OWNER.namespace("a", "/proc/1/ns/net").is_ok()
        );
        for name in ["/proc/1/ns/net", "../net", "..", "."] {
            assert!(guest(None).namespace("a", name).is_err(), "{name}");
        }
    }
}
