//! The environment abstraction layer: one per process, started at first need.

use crate::error::{self, Error, Result};
use crate::log;
use crate::meta;
use std::ffi::CString;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// How DPDK is started. The first start in a process decides; see [`Eal::start`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EalOptions {
    /// Use huge pages. Without them any machine will do, at some cost in speed and without PCI ports.
    pub huge_pages: bool,
    /// Packet memory, MiB.
    pub memory_mib: u32,
    /// PCI addresses of the ports to take, such as `0000:03:00.0`. None: the PCI bus is not looked at.
    pub pci: Vec<String>,
    /// Further EAL arguments, word by word, for what has no field here.
    pub extra: Vec<String>,
}

impl Default for EalOptions {
    fn default() -> Self {
        Self { huge_pages: false, memory_mib: 256, pci: Vec::new(), extra: Vec::new() }
    }
}

/// DPDK, running in this process.
#[derive(Debug)]
pub struct Eal {
    options: EalOptions,
    /// Creating and closing ports, pools and rings is not thread-safe in DPDK; this makes it so.
    control: Mutex<()>,
}

static EAL: OnceLock<Result<Eal>> = OnceLock::new();

impl Eal {
    /// Start DPDK, or return the running one if it was started with at least what `options` ask for.
    ///
    /// A failed start is final for the process: DPDK cannot be started twice.
    pub fn start(options: &EalOptions) -> Result<&'static Eal> {
        let eal = EAL.get_or_init(|| start(options)).as_ref().map_err(Error::clone)?;
        let has = &eal.options;
        let lacks = if options.huge_pages && !has.huge_pages {
            Some("huge pages".to_owned())
        } else if options.memory_mib > has.memory_mib {
            Some(format!("{} MiB of memory (it has {})", options.memory_mib, has.memory_mib))
        } else if let Some(pci) = options.pci.iter().find(|pci| !has.pci.contains(pci)) {
            Some(format!("PCI device {pci}"))
        } else {
            options.extra.iter().find(|word| !has.extra.contains(word)).map(|word| format!("option {word}"))
        };
        match lacks {
            None => Ok(eal),
            Some(lacks) => Err(Error::EalLacks { lacks }),
        }
    }

    /// The running DPDK, if it was started.
    pub fn running() -> Option<&'static Eal> {
        EAL.get().and_then(|eal| eal.as_ref().ok())
    }

    /// What it was started with.
    pub fn options(&self) -> &EalOptions {
        &self.options
    }

    /// NUMA nodes that packet memory can be taken from. None: all memory is alike, as there is one node, or as DPDK runs
    /// without huge pages and so takes what the kernel gives it.
    pub fn nodes(&self) -> Vec<u32> {
        if !self.options.huge_pages {
            return Vec::new();
        }
        // SAFETY: the EAL runs (`self` is the proof), and has found the machine's nodes.
        let count = unsafe { dpdk_sys::rte_socket_count() };
        if count < 2 {
            return Vec::new();
        }
        // SAFETY: as above; indices are below the count.
        let node = |index| unsafe { dpdk_sys::rte_socket_id_by_idx(index) };
        (0..count).filter_map(|index| u32::try_from(node(index)).ok()).collect()
    }

    /// Make the calling thread known to DPDK until the guard is dropped. Packet memory also works without,
    /// but several times slower: only known threads have a cache of free packets of their own.
    pub fn register_thread(&self) -> Result<ThreadGuard> {
        // SAFETY: the EAL runs (`self` is the proof) and the call has no other precondition.
        match unsafe { dpdk_sys::rte_thread_register() } {
            0 => Ok(ThreadGuard { not_send: PhantomData }),
            _ => Err(Error::Thread { cause: error::strerror(error::errno()) }),
        }
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, ()> {
        let guard = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        log::forget();
        guard
    }

    pub(crate) fn out_of_memory(&self, what: impl Into<String>) -> Error {
        let cause = error::strerror(error::errno());
        Error::Memory { what: what.into(), cause, memory_mib: self.options.memory_mib }
    }
}

/// The calling thread is known to DPDK while this lives. See [`Eal::register_thread`].
#[derive(Debug)]
pub struct ThreadGuard {
    /// Must be dropped by the thread that registered.
    not_send: PhantomData<*const ()>,
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        // SAFETY: this thread registered itself, and the guard cannot leave it.
        unsafe { dpdk_sys::rte_thread_unregister() };
    }
}

fn start(options: &EalOptions) -> Result<Eal> {
    // rte_eal_init binds the thread that calls it to a core, and threads started by it later inherit that.
    // So it is given a thread of its own, which then ends.
    let own = options.clone();
    let thread = std::thread::Builder::new().name("dpdk-start".into()).spawn(move || init(&own));
    let failed = |cause| Error::Eal { cause, hint: "The system refused a thread.".into(), log: Vec::new() };
    let thread = thread.map_err(|why| failed(error::io(&why)))?;
    thread.join().map_err(|_| failed("the starting thread panicked".into()))??;
    Ok(Eal { options: options.clone(), control: Mutex::new(()) })
}

fn init(options: &EalOptions) -> Result<()> {
    log::capture();
    log::forget();
    let words = arguments(options);
    tracing::debug!(target: "dpdk", arguments = words.join(" "), "starting DPDK");
    let bad = |word: &String| Error::Eal {
        cause: format!("argument {word:?} holds a NUL"),
        hint: "Take it out.".into(),
        log: Vec::new(),
    };
    let owned: Vec<CString> =
        words.iter().map(|word| CString::new(word.as_str()).map_err(|_| bad(word))).collect::<Result<_>>()?;
    let mut argv: Vec<*mut std::ffi::c_char> = owned.iter().map(|word| word.as_ptr().cast_mut()).collect();
    let count = i32::try_from(argv.len()).unwrap_or(i32::MAX);
    argv.push(std::ptr::null_mut());
    // SAFETY: argv holds `count` NUL-terminated strings and a null, as for main(). DPDK permutes the array
    // and keeps pointers into the strings, so both are leaked below; this runs once per process.
    let code = unsafe { dpdk_sys::rte_eal_init(count, argv.as_mut_ptr()) };
    std::mem::forget((argv, owned));
    remove_directory();
    let meta = if code >= 0 { meta::register() } else { 0 };
    if meta < 0 {
        return Err(Error::Eal {
            cause: format!("no room in packets for what is known of them ({})", error::strerror(meta)),
            hint: "Leave out drivers or options that use mbuf dynamic fields.".into(),
            log: log::recent(),
        });
    }
    if code >= 0 {
        return Ok(());
    }
    let hint = if options.huge_pages {
        format!(
            "Check that enough huge pages are free: `grep Huge /proc/meminfo`; \
             `sysctl vm.nr_hugepages={}` reserves them, or start without huge pages.",
            options.memory_mib.div_ceil(2)
        )
    } else {
        format!("Check that {} MiB of memory are free.", options.memory_mib)
    };
    Err(Error::Eal { cause: error::strerror(error::errno()), hint, log: log::recent() })
}

fn arguments(options: &EalOptions) -> Vec<String> {
    let mut words: Vec<String> = ["netdyno", "--no-telemetry", "--iova-mode=va"].map(str::to_owned).to_vec();
    // One EAL core that may run anywhere this process may: our workers are threads of our own, each
    // pinned by itself and then registered.
    words.push(format!("--lcores=0@({})", allowed_cores().unwrap_or_else(|| "0".into())));
    words.push(format!("--file-prefix={}", prefix()));
    words.extend(["-m".into(), options.memory_mib.to_string()]);
    // Either way nothing is left in the file system when the process ends, however it ends.
    words.extend(if options.huge_pages {
        vec!["--in-memory".to_owned()]
    } else {
        vec!["--no-huge".to_owned(), "--no-shconf".to_owned()]
    });
    if options.pci.is_empty() {
        words.push("--no-pci".into());
    }
    options.pci.iter().for_each(|address| words.extend(["-a".into(), address.clone()]));
    words.extend(options.extra.iter().cloned());
    words
}

fn prefix() -> String {
    format!("netdyno-{}", std::process::id())
}

/// DPDK makes a directory for files that we tell it not to make. It is empty and would outlive us.
fn remove_directory() {
    let user = std::env::var("XDG_RUNTIME_DIR").unwrap_or_else(|_| "/tmp".into());
    for parent in ["/var/run", "/tmp", &user] {
        let _absent = std::fs::remove_dir(format!("{parent}/dpdk/{}", prefix()));
    }
}

/// Cores that this process may use, as in `0-3,8`.
fn allowed_cores() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bus_is_left_alone_unless_asked_for() {
        let without = arguments(&EalOptions::default());
        assert!(without.contains(&"--no-pci".into()) && without.contains(&"--no-huge".into()));
        let pci = vec!["0000:03:00.0".to_owned()];
        let with = arguments(&EalOptions { pci, huge_pages: true, ..EalOptions::default() });
        assert!(!with.contains(&"--no-pci".into()) && !with.contains(&"--no-huge".into()));
        assert!(with.windows(2).any(|pair| pair == ["-a", "0000:03:00.0"]));
    }
}
