//! What a user writes to name a port, and what DPDK calls it.

use crate::af_packet::Arguments;
use crate::arguments;
use crate::error::{Error, Result};
use crate::memif_port::MemifPort;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// A device string, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// One end of a cable inside the process; two ports with the same name are its two ends: `pair:NAME`.
    Pair(String),
    /// A real network card (or a virtual function), by PCI address: `0000:03:00.0` or `03:00.0`.
    Pci(String),
    /// A virtual device of DPDK: `DRIVER[NUMBER][,key=value…]`, such as `net_af_packet,iface=veth0`.
    Virtual {
        /// Driver, with the number if one was given.
        driver: String,
        /// What comes after the first comma.
        arguments: String,
    },
}

/// Short forms: what stands before the colon, the driver, and the argument that takes what stands after it.
const SHORT: [(&str, &str, &str); 5] = [
    ("af_packet", "net_af_packet", "iface="),
    ("af_xdp", "net_af_xdp", "iface="),
    ("tap", "net_tap", "iface="),
    ("null", "net_null", ""),
    ("virtio", "virtio_user", "path="),
];

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |why: &str| Error::Device { device: text.into(), why: why.into() };
        if text.is_empty() || text.bytes().any(|b| b.is_ascii_whitespace() || b == 0 || !b.is_ascii()) {
            return Err(bad("it is empty or holds a blank or a non-ASCII character"));
        }
        if let Some(address) = pci_address(text) {
            return Ok(Self::Pci(address));
        }
        if let Some(name) = text.strip_prefix("pair:") {
            // 16 leaves room for what DPDK puts around the name.
            return match name.len() {
                1..=16 => Ok(Self::Pair(name.into())),
                _ => Err(bad("a pair's name has 1 to 16 characters")),
            };
        }
        let (short, rest) = text.split_once(':').unwrap_or((text, ""));
        if let Some((_, driver, key)) = SHORT.iter().find(|(name, _, _)| *name == short) {
            if rest.is_empty() && !key.is_empty() {
                return Err(bad("it lacks the interface or path after the colon"));
            }
            return format!("{driver},{key}{rest}").trim_end_matches(',').parse();
        }
        let (driver, arguments) = text.split_once(',').unwrap_or((text, ""));
        if !(driver.starts_with("net_") || driver.starts_with("eth_") || driver.starts_with("virtio_user")) {
            let interface = match text.contains([':', ',', '/']) {
                true => String::new(),
                false => format!("; an interface of the kernel is af_packet:{text}"),
            };
            let why = "it is no PCI address, short form or driver name (those begin with net_)";
            return Err(bad(&format!("{why}{interface}")));
        }
        if !DRIVERS.contains(&kind(driver)) {
            return Err(bad("the driver is none of those that are known to do no more than carry frames"));
        }
        arguments::check(kind(driver), arguments).map_err(|why| bad(&why))?;
        if kind(driver) == "memif" {
            MemifPort::read(arguments).map_err(|why| bad(&why))?;
        }
        if kind(driver) == "af_packet" {
            Arguments::read(arguments).map_err(|why| bad(&why))?;
        }
        Ok(Self::Virtual { driver: driver.into(), arguments: arguments.into() })
    }
}

/// Drivers that may be named. DPDK has others that run commands, such as net_failsafe.
const DRIVERS: [&str; 9] =
    ["af_packet", "af_xdp", "memif", "null", "pcap", "ring", "tap", "vhost", "virtio_user"];

/// Kernel drivers that hand a device to a program, or share it with one as these of NVIDIA's and Microsoft's do.
const WITH_PROGRAMS: [&str; 6] = ["vfio-pci", "uio_pci_generic", "igb_uio", "mlx4_core", "mlx5_core", "mana"];

/// The kernel's driver of a PCI device, if that keeps the device to itself. A driver of DPDK's may take such a device nevertheless,
/// as the one of virtio does, and with it the machine's own connection.
pub(crate) fn kept_by_kernel(devices: &Path, address: &str) -> Option<String> {
    let driver = std::fs::read_link(devices.join(address).join("driver")).ok()?;
    let name = driver.file_name()?.to_str()?;
    (!WITH_PROGRAMS.contains(&name)).then(|| name.to_owned())
}

/// A driver without what stands before and behind its name.
pub(crate) fn kind(driver: &str) -> &str {
    let name = driver.strip_prefix("net_").or_else(|| driver.strip_prefix("eth_")).unwrap_or(driver);
    name.trim_end_matches(|c: char| c.is_ascii_digit())
}

impl Device {
    pub(crate) fn is_af_xdp(&self) -> bool {
        matches!(self, Self::Virtual { driver, .. } if driver.starts_with("net_af_xdp"))
    }

    /// Whether it works over an interface of the kernel's, which stays when it is closed.
    pub(crate) fn over_interface(&self) -> bool {
        matches!(self, Self::Virtual { driver, .. } if matches!(kind(driver), "af_packet" | "af_xdp"))
    }

    /// The interface that the kernel keeps using beside it: each sees all frames that come.
    pub fn shared_interface(&self) -> Option<&str> {
        let Self::Virtual { driver, arguments } = self else { return None };
        let named = || arguments.split(',').find_map(|argument| argument.strip_prefix("iface="));
        (kind(driver) == "af_packet").then(named)?
    }

    /// Whether it connects to a process at the other end, which must be there when it is opened or started.
    pub fn connects(&self) -> bool {
        let Self::Virtual { driver, arguments } = self else { return false };
        let says = |wanted: &str| arguments.split(',').any(|argument| argument == wanted);
        match driver.trim_start_matches("net_").trim_end_matches(|c: char| c.is_ascii_digit()) {
            "memif" => !says("role=server"),
            "virtio_user" => !says("server=1") && !says("path=/dev/vhost-net"),
            "vhost" => says("client=1"),
            _ => false,
        }
    }

    /// What to look at when the device cannot be opened.
    pub(crate) fn hint(&self) -> &'static str {
        let driver = match self {
            Self::Pair(_) => return "A pair has two ends; is a third port using the name?",
            Self::Pci(_) => {
                return "Is the device bound to vfio-pci (`dpdk-devbind.py --status`), and does the daemon \
                        run as root with huge pages?";
            }
            Self::Virtual { driver, .. } => driver.trim_end_matches(|c: char| c.is_ascii_digit()),
        };
        match driver {
            "net_af_packet" | "net_af_xdp" => {
                "Does the interface exist in the daemon's network namespace and is it up \
                 (`ip link set IFACE up`), and does the daemon run as root (CAP_NET_RAW, CAP_NET_ADMIN)?"
            }
            "net_tap" => {
                "Does /dev/net/tun exist, is the interface name free, and does the daemon run as root?"
            }
            "net_memif" => {
                "Is its socket's directory writable? A client needs its server to be there; is the peer's role the \
                 other one?"
            }
            "net_vhost" | "virtio_user" => {
                "Is the socket path right, and does the peer run with shared memory?"
            }
            "net_pcap" => "Do the files exist and is the output's directory writable?",
            _ => "Check the driver's name and arguments against DPDK's documentation.",
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pair(name) => write!(f, "pair:{name}"),
            Self::Pci(address) => f.write_str(address),
            Self::Virtual { driver, arguments } if arguments.is_empty() => f.write_str(driver),
            Self::Virtual { driver, arguments } => write!(f, "{driver},{arguments}"),
        }
    }
}

/// `text` as `dddd:bb:dd.f`, if it is a PCI address.
fn pci_address(text: &str) -> Option<String> {
    let hex = |part: &str, len: usize| part.len() == len && part.bytes().all(|b| b.is_ascii_hexdigit());
    let parts: Vec<&str> = text.split(':').collect();
    let (domain, bus, tail) = match parts[..] {
        [domain, bus, tail] => (domain, bus, tail),
        [bus, tail] => ("0000", bus, tail),
        _ => return None,
    };
    let (device, function) = tail.split_once('.')?;
    (hex(domain, 4) && hex(bus, 2) && hex(device, 2) && hex(function, 1))
        .then(|| format!("{domain}:{bus}:{device}.{function}").to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let read = |text: &str| text.parse::<Device>().map(|device| device.to_string());
        let same = |text: &str| assert_eq!(read(text).unwrap(), text);
        same("pair:cable1");
        same("0000:03:00.0");
        same("net_memif,role=server,id=0");
        same("virtio_user0,path=/tmp/sock");
        assert_eq!(read("3b:00.1").unwrap(), "0000:3b:00.1");
        assert_eq!(read("af_packet:veth0").unwrap(), "net_af_packet,iface=veth0");
        assert_eq!(read("tap:t0,mac=fixed").unwrap(), "net_tap,iface=t0,mac=fixed");
        assert_eq!(read("null").unwrap(), "net_null");
    }

    #[test]
    fn only_drivers_that_carry_frames_are_named() {
        for text in [
            "net_failsafe0,exec(id>/tmp/x)",
            "eth_failsafe,fd(/tmp/x)",
            "net_bonding0,mode=0",
            "net_softnic0,firmware=/tmp/x",
            "net_memif0,zero-copy=yes",
            "net_memif0,role=both",
            "net_af_xdp0,iface=a,xdp_prog=/tmp/x.o",
            "af_xdp:a,xdp_prog=/tmp/x.o",
            "net_ring0,internal=0x1234",
            "null:copy=1,size=70000",
        ] {
            assert!(text.parse::<Device>().is_err(), "{text}");
        }
        for text in
            ["net_ring0", "eth_pcap1,iface=lo", "net_virtio_user0,path=/run/v", "net_vhost,iface=/run/v"]
        {
            assert_eq!(text.parse::<Device>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_device_says_why_and_shows_examples() {
        for text in
            ["", "pair:", "pair:12345678901234567", "tap:", "eth0", "net_tap, iface=x", "0000:03:00", "ü"]
        {
            let why = text.parse::<Device>().unwrap_err().to_string();
            assert!(why.contains("like one of these: pair:"), "{text}: {why}");
        }
    }

    #[test]
    fn a_device_of_the_kernels_is_told_from_one_for_programs() {
        let devices = std::env::temp_dir().join(format!("nd-pci-{}", std::process::id()));
        for (address, driver) in
            [("0000:00:03.0", "virtio-pci"), ("0000:03:00.0", "vfio-pci"), ("0000:03:00.1", "mlx5_core")]
        {
            std::fs::create_dir_all(devices.join(address)).expect("a folder");
            std::os::unix::fs::symlink(format!("../drivers/{driver}"), devices.join(address).join("driver"))
                .expect("a link");
        }
        for (address, kept) in [
            ("0000:00:03.0", Some("virtio-pci")),
            ("0000:03:00.0", None),
            ("0000:03:00.1", None),
            ("0000:99:00.0", None),
        ] {
            assert_eq!(kept_by_kernel(&devices, address).as_deref(), kept, "{address}");
        }
        std::fs::remove_dir_all(&devices).expect("removed");
    }
}
