//! Finds DPDK with pkg-config, binds the few symbols we use and compiles the shim.
//!
//! `pkg-config --cflags` is used whole: it carries `-include rte_config.h` and `-march=…`, without which
//! the headers lay structures out differently from the installed libraries.

use std::path::PathBuf;
use std::process::{Command, exit};

/// Debian 12 has 22.11, Ubuntu 24.04 has 23.11, Debian 13 has 24.11.
const OLDEST: &str = "22.11";

/// What we link, of all that `pkg-config --libs` names. `rte_log` is a library of its own since 24.03.
const LIBRARIES: [&str; 6] = ["rte_log", "rte_eal", "rte_ethdev", "rte_mbuf", "rte_mempool", "rte_ring"];

/// Drivers we call directly; the others are loaded by the EAL itself from its plug-in directory.
const DRIVERS: [&str; 2] = ["rte_bus_vdev", "rte_net_ring"];

/// What of DPDK a static build has whole: buses, memory pools and drivers that need no other library than those of [`NEEDED`].
/// Nothing names their functions: each registers itself when the program starts. Other archives give what these call.
const BUILT_IN: [&str; 24] = [
    "rte_common_iavf",
    "rte_bus_pci",
    "rte_bus_vdev",
    "rte_mempool_ring",
    "rte_net_af_packet",
    "rte_net_af_xdp",
    "rte_net_bnxt",
    "rte_net_e1000",
    "rte_net_ena",
    "rte_net_enic",
    "rte_net_gve",
    "rte_net_i40e",
    "rte_net_iavf",
    "rte_net_ice",
    "rte_net_igc",
    "rte_net_ixgbe",
    "rte_net_memif",
    "rte_net_null",
    "rte_net_pcap",
    "rte_net_ring",
    "rte_net_tap",
    "rte_net_vhost",
    "rte_net_virtio",
    "rte_net_vmxnet3",
];

/// Other libraries that a static build has as archives, each before those that it needs.
const NEEDED: [&str; 10] = ["xdp", "bpf", "elf", "z", "zstd", "pcap", "numa", "fdt", "bsd", "md"];

/// Types that bindgen cannot express (packed and aligned at once); we never look inside.
const OPAQUE: &str = "rte_arp_ipv4|rte_arp_hdr|rte_mbuf|rte_mempool|rte_ring|rte_device|rte_eth_link";

const FUNCTIONS: &str = "nd_.*|rte_eal_(init|cleanup)|rte_strerror|rte_version|rte_log_set_global_level|\
    rte_log_set_level_pattern|rte_vdev_(init|uninit)|rte_dev_(probe|remove)|\
    rte_eth_dev_(get_port_by_name|info_get|configure|start|stop|close|default_mac_addr_set|set_mtu|\
    adjust_nb_rx_tx_desc|socket_id|rss_reta_(update|query)|rss_hash_conf_get)|rte_socket_(count|id_by_idx)|rte_eth_read_clock|rte_mbuf_dyn_rx_timestamp_register|rte_eth_(rx|tx)_queue_setup|rte_eth_macaddr_get|\
    rte_eth_promiscuous_enable|rte_eth_stats_(get|reset)|rte_eth_from_rings|\
    rte_pktmbuf_pool_create|rte_mempool_(avail_count|in_use_count|free)|\
    rte_ring_(create|free)|rte_thread_(register|unregister)";

fn main() {
    for file in ["src/shim.c", "src/shim.h", "build.rs"] {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rerun-if-env-changed=NETDYNO_DPDK");
    let library = pkg_config::Config::new()
        .atleast_version(OLDEST)
        .cargo_metadata(false)
        .probe("libdpdk")
        .unwrap_or_else(|why| missing("libdpdk", &why.to_string()));
    let flags = cflags();

    let bindings = bindgen::Builder::default()
        .header("src/shim.h")
        .clang_args(&flags)
        .allowlist_function(FUNCTIONS)
        .allowlist_var("ND_.*|RTE_ETHER_MAX_LEN|RTE_PKTMBUF_HEADROOM|RTE_MAX_LCORE")
        .allowlist_type(
            "nd_.*|rte_eth_(conf|dev_info|stats|rxconf|txconf|rss_conf|rss_reta_entry64)|rte_ether_addr",
        )
        .opaque_type(OPAQUE)
        .default_enum_style(bindgen::EnumVariation::ModuleConsts)
        .derive_default(true)
        .layout_tests(false)
        .generate_comments(false)
        .generate()
        .unwrap_or_else(|why| missing("libclang", &why.to_string()));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindings.write_to_file(out.join("bindings.rs")).expect("OUT_DIR is writable");

    let mut shim = cc::Build::new();
    shim.file("src/shim.c").opt_level(3).flag("-Wno-unused-parameter");
    flags.iter().for_each(|flag| {
        shim.flag(flag);
    });
    shim.compile("netdyno_dpdk_shim");

    for path in &library.link_paths {
        println!("cargo:rustc-link-search=native={}", path.display());
    }
    let drivers = match std::env::var("NETDYNO_DPDK").as_deref() {
        Err(_) | Ok("shared") => link_shared(&library.libs),
        Ok("static") => link_static(),
        Ok(other) => {
            eprintln!("NETDYNO_DPDK is shared or static, not {other:?}");
            exit(1)
        }
    };
    std::fs::write(out.join("drivers.json"), drivers).expect("OUT_DIR is writable");
}

/// Links the libraries that we call; the EAL loads drivers from its plug-in directory. Returns that none is built in.
fn link_shared(named: &[String]) -> String {
    for name in LIBRARIES.iter().filter(|name| named.iter().any(|lib| lib == *name)).chain(&DRIVERS) {
        println!("cargo:rustc-link-lib=dylib={name}");
    }
    "null".to_owned()
}

/// Links archives: DPDK's with chosen drivers, and those of what they need. `LIBPCAP_LIBDIR` is the folder of a libpcap that needs
/// no other library, as for the crate `pcap`. Returns what the drivers say of themselves, as a JSON array.
fn link_static() -> String {
    println!("cargo:rerun-if-env-changed=LIBPCAP_LIBDIR");
    if let Some(folder) = std::env::var_os("LIBPCAP_LIBDIR") {
        println!("cargo:rustc-link-search=native={}", PathBuf::from(folder).display());
    }
    let words = pkg_config(&["--static", "--libs", "libdpdk"]);
    // in the order in which pkg-config names them each archive stands before those that it needs
    let archives = words.iter().filter_map(|word| word.strip_prefix("-l:lib")?.strip_suffix(".a"));
    let (whole, rest): (Vec<_>, Vec<_>) = archives.partition(|name| BUILT_IN.contains(name));
    for must in ["rte_bus_vdev", "rte_mempool_ring", "rte_net_ring"] {
        if !whole.contains(&must) {
            missing("libdpdk", &format!("pkg-config --static --libs libdpdk names no lib{must}.a"));
        }
    }
    let folder = PathBuf::from(pkg_config(&["--variable=libdir", "libdpdk"]).concat());
    let mut drivers = Vec::new();
    for name in whole {
        println!("cargo:rustc-link-lib=static:+whole-archive,-bundle={name}");
        let archive = folder.join(format!("lib{name}.a"));
        println!("cargo:rerun-if-changed={}", archive.display());
        let content = std::fs::read(&archive).unwrap_or_else(|why| missing(name, &why.to_string()));
        drivers.extend(driver_records(&content));
    }
    for name in rest.into_iter().filter(|name| !is_driver(name)) {
        println!("cargo:rustc-link-lib=static:-bundle={name}");
    }
    for name in NEEDED.iter().filter(|name| words.contains(&format!("-l{name}"))) {
        println!("cargo:rustc-link-lib=static:-bundle={name}");
    }
    format!("[{}]", drivers.join(","))
}

/// What drivers in an archive say of themselves for `dpdk-pmdinfo`: a JSON object each, with name, kernel modules and PCI devices.
fn driver_records(archive: &[u8]) -> Vec<String> {
    const MARK: &[u8] = b"PMD_INFO_STRING= ";
    let starts = archive.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK);
    let records = starts.map(|(at, _)| {
        let record = archive[at + MARK.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(record).into_owned()
    });
    records.filter(|record| record.starts_with('{')).collect()
}

/// Whether an archive is a driver, and no library.
fn is_driver(archive: &str) -> bool {
    const CLASSES: [&str; 12] = [
        "baseband", "bus", "common", "compress", "crypto", "dma", "event", "mempool", "net", "raw", "regex",
        "vdpa",
    ];
    CLASSES.iter().any(|class| archive.starts_with(&format!("rte_{class}_")))
}

/// The whole of `pkg-config --cflags libdpdk`, word by word.
fn cflags() -> Vec<String> {
    pkg_config(&["--cflags", "libdpdk"])
}

/// What pkg-config prints, word by word.
fn pkg_config(arguments: &[&str]) -> Vec<String> {
    let tool = std::env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
    let output = Command::new(tool).args(arguments).output();
    let output = output.unwrap_or_else(|why| missing("pkg-config", &why.to_string()));
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
}

fn missing(what: &str, why: &str) -> ! {
    println!(
        "cargo:warning=netdyno needs DPDK {OLDEST} or newer and libclang to build; {what} was not usable."
    );
    println!("cargo:warning=On Debian or Ubuntu: apt-get install libdpdk-dev libclang-dev clang pkg-config");
    eprintln!("{what}: {why}");
    exit(1)
}
