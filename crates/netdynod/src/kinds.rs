//! `netdynod ports`: what kinds of DPDK ports work here, and what they offer.

use anyhow::{Context, Result};
use clap::Args;
use nix::sched::{CloneFlags, unshare};
use run::SetupError;
use std::os::unix::fs::DirBuilderExt;

/// Which NICs to ask besides.
#[derive(Debug, Args)]
pub struct Kinds {
    /// PCI addresses of NICs that are bound for DPDK, and that nobody uses now.
    #[arg(value_name = "NIC")]
    nics: Vec<String>,
    /// Use huge pages.
    #[arg(long)]
    huge_pages: bool,
}

/// Ask, and print the answer as one line of JSON.
pub fn run(args: &Kinds) -> Result<Option<SetupError>> {
    // Where that is not allowed no tap or raw socket is either.
    let _stays = unshare(CloneFlags::CLONE_NEWNET);
    let folder = std::env::temp_dir().join(format!("netdynod-ports-{}", std::process::id()));
    let made = std::fs::DirBuilder::new().mode(0o700).create(&folder);
    made.with_context(|| format!("{} cannot be made", folder.display()))?;
    let found = dataplane::port_kinds::ask(&args.nics, args.huge_pages, &folder);
    // What is left of it harms nobody.
    let _left = std::fs::remove_dir_all(&folder);
    match found {
        Ok(kinds) => crate::print(&(serde_json::to_string(&kinds)? + "\n")).map(|()| None),
        Err(why) => Ok(Some(why)),
    }
}
