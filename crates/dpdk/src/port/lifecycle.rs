//! How a port is made, and how it is closed.

use super::{Inner, Port, Source, c_string, errno, hint};
use crate::af_packet::{self, AfPacketPort};
use crate::cable;
use crate::device::{self, Device};
use crate::eal::Eal;
use crate::error::{self, Result};
use crate::files;
use crate::memif_port::MemifPort;
use crate::peer_watch::PeerWatch;
use crate::ring;
use crate::socket_path;
use crate::xdp_sockets::XdpSockets;
use std::ffi::{CStr, CString};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// What to do about a process at the other end that does not answer.
const SILENT: &str = "The process at the other end of the socket takes the connection and does not answer: see whether it runs, and \
                      speaks vhost-user.";

impl Port {
    /// Open the port that `device` names (see [`Device`]).
    pub fn open(eal: &'static Eal, device: &str) -> Result<Self> {
        let device: Device = device.parse()?;
        let (name, source) = match &device {
            Device::Pair(cable) => {
                let end = cable::open(eal, cable)?;
                (c_string(&end.name), Source::Cable(end))
            }
            Device::Virtual { driver, arguments } if device::kind(driver) == "memif" => {
                let bad =
                    |why| error::port(&device.to_string(), "reading its arguments", -nix::libc::EINVAL, why);
                let port = MemifPort::read(arguments).map_err(bad)?;
                let name = without_packets(eal, &device)?;
                (name.clone(), Source::Memif { name, port })
            }
            Device::Virtual { driver, arguments } if device::kind(driver) == "af_packet" => {
                let bad = |code, why: String| error::port(&device.to_string(), "opening", code, why);
                let arguments =
                    af_packet::Arguments::read(arguments).map_err(|why| bad(-nix::libc::EINVAL, why))?;
                let port = AfPacketPort::open(&arguments)
                    .map_err(|why| bad(errno(&why), hint(&why, device.hint())))?;
                let name = without_packets(eal, &device)?;
                (name.clone(), Source::AfPacket { name, port })
            }
            Device::Virtual { driver, arguments } => {
                let name = c_string(&unique_name(driver));
                if let Some(path) = socket_path::served(driver, arguments) {
                    socket_path::make_free(path).map_err(|(why, fix)| error::Error::Path {
                        port: device.to_string(),
                        path: path.to_owned(),
                        why,
                        fix,
                    })?;
                }
                let (arguments, files) = files::opened(driver, arguments).map_err(|(path, why)| {
                    let code = -why.raw_os_error().unwrap_or(nix::libc::EINVAL);
                    let hint =
                        format!("{path} cannot be used ({why}). Name a recording, or a file that is made.");
                    error::port(&device.to_string(), "opening its file", code, hint)
                })?;
                init_watched(eal, &device, &name, &arguments)?;
                (name.clone(), Source::Virtual { name, _files: files })
            }
            Device::Pci(address) => {
                if let Some(driver) = device::kept_by_kernel(Path::new("/sys/bus/pci/devices"), address) {
                    let hint = format!("The kernel's driver {driver} has it: sudo netdyno bind {address}");
                    return Err(error::port(&device.to_string(), "opening", -nix::libc::EBUSY, hint));
                }
                let name = c_string(address);
                let _control = eal.control();
                // SAFETY: the EAL runs; the string is NUL-terminated and copied. A device already probed at
                // start is left as it is.
                let code = unsafe { dpdk_sys::rte_dev_probe(name.as_ptr()) };
                if code < 0 && code != -17 {
                    return Err(error::port(&device.to_string(), "opening", code, device.hint()));
                }
                (name, Source::Pci)
            }
        };
        let mut id = 0;
        // SAFETY: the string is NUL-terminated, `id` outlives the call.
        let code = unsafe { dpdk_sys::rte_eth_dev_get_port_by_name(name.as_ptr(), &raw mut id) };
        if code < 0 {
            if let Source::Virtual { name, .. } | Source::Memif { name, .. } | Source::AfPacket { name, .. } =
                source
            {
                // SAFETY: made above, and nobody knows it yet.
                unsafe { dpdk_sys::rte_vdev_uninit(name.as_ptr()) };
            }
            return Err(error::port(&device.to_string(), "finding", code, device.hint()));
        }
        Ok(Self(Arc::new(Inner {
            eal,
            device,
            id,
            source,
            started: AtomicBool::new(false),
            interface: OnceLock::new(),
            xdp: Mutex::default(),
            by_address: AtomicBool::new(false),
            unfit: AtomicU64::new(0),
            passed: Default::default(),
        })))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _control = self.eal.control();
        // The driver's sockets end with its own descriptors.
        *self.xdp.get_mut().unwrap_or_else(PoisonError::into_inner) = XdpSockets::default();
        let failed = |action, code: i32| {
            if code < 0 {
                let why = error::strerror(code);
                tracing::warn!(port = %self.device, action, why, "a port did not close in good order");
            }
        };
        // the other end is told, and asked for an answer
        let _watch = PeerWatch::of(&self.device);
        // SAFETY: no queue is left (each holds this), so nobody uses the port; it is closed once, here, when what its
        // driver left for later is done. `control` keeps others from waiting for that at the same time.
        let close = || unsafe {
            dpdk_sys::nd_settle();
            if self.started.load(Ordering::Relaxed) {
                failed("stopping", dpdk_sys::rte_eth_dev_stop(self.id));
            }
            failed("closing", dpdk_sys::rte_eth_dev_close(self.id));
            match &self.source {
                Source::Cable(end) => {
                    failed("removing", dpdk_sys::rte_vdev_uninit(c_string(&end.name).as_ptr()))
                }
                Source::Virtual { name, .. } | Source::Memif { name, .. } | Source::AfPacket { name, .. } => {
                    failed("removing", dpdk_sys::rte_vdev_uninit(name.as_ptr()))
                }
                Source::Pci => {}
            }
        };
        match &self.source {
            // SAFETY: as above; a cable's rings are its own and have other names.
            Source::Virtual { name, .. } => unsafe { ring::close_with_rings(name, close) },
            _ => close(),
        }
        if let Some(interface) = self.interface.get() {
            interface.put_back();
        }
        if self.device.is_af_xdp() {
            // The kernel gives the interface's queue free a moment after the socket is closed, and until then
            // refuses the next who wants it.
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A port of DPDK's without packets, which stands for one of ours; its name.
fn without_packets(eal: &Eal, device: &Device) -> Result<CString> {
    let name = c_string(&unique_name("net_null"));
    init_virtual(eal, device, &name, c"").map(|()| name)
}

/// Have DPDK make a virtual device for a port.
fn init_virtual(eal: &Eal, device: &Device, name: &CStr, arguments: &CStr) -> Result<()> {
    let _control = eal.control();
    // SAFETY: the EAL runs; both strings are NUL-terminated and copied by DPDK.
    match unsafe { dpdk_sys::rte_vdev_init(name.as_ptr(), arguments.as_ptr()) } {
        code @ ..0 => Err(error::not_made(&device.to_string(), &name.to_string_lossy(), code, device.hint())),
        _ => Ok(()),
    }
}

/// The same of one whose driver may talk to another process.
fn init_watched(eal: &Eal, device: &Device, name: &CStr, arguments: &str) -> Result<()> {
    let watch = PeerWatch::of(device);
    let made = init_virtual(eal, device, name, &c_string(arguments));
    match (made, watch.is_some_and(PeerWatch::end)) {
        (Err(_), true) => Err(error::port(&device.to_string(), "connecting", -nix::libc::ETIMEDOUT, SILENT)),
        (made, _) => made,
    }
}

/// The driver's name with a number: DPDK wants each virtual device to have a name of its own.
fn unique_name(driver: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(100);
    if driver.ends_with(|c: char| c.is_ascii_digit()) {
        return driver.to_owned();
    }
    format!("{driver}{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
