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
    for name in LIBRARIES.iter().filter(|name| library.libs.iter().any(|lib| lib == *name)).chain(&DRIVERS) {
        println!("cargo:rustc-link-lib=dylib={name}");
    }
}

/// The whole of `pkg-config --cflags libdpdk`, word by word.
fn cflags() -> Vec<String> {
    let tool = std::env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
    let output = Command::new(tool).args(["--cflags", "libdpdk"]).output();
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
