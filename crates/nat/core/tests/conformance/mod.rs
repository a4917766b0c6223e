//! The requirements of RFC 4787, 5382, 5508, 6888 and 7857 that can be tested by packets, one named test each: `cases/NAME.txt` says which
//! packets go in and which come out, and `docs/methodology/nat.md` says how we stand to each requirement.
//!
//! Cases know nothing of what plays them: addresses, seconds and packets only. Here it is the NAT's logic; in
//! `crates/nat/elements/tests/conformance.rs` it is the whole graph between ports.

#![allow(clippy::unwrap_used, missing_docs)]

mod logic;
pub mod packet;
mod play;

use std::collections::BTreeSet;
use std::path::Path;

macro_rules! cases {
    ($($name:ident)+) => {
        $(#[test]
        fn $name() {
            let case = include_str!(concat!("../../cases/", stringify!($name), ".txt"));
            assert_eq!(play::play(case, logic::Logic::new), 0);
        })+
        const NAMES: &[&str] = &[$(stringify!($name)),+];
    };
}

include!("list.rs");

#[test]
fn every_case_is_played_and_has_its_row_in_the_docs() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files: BTreeSet<String> = std::fs::read_dir(here.join("cases"))
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(files, NAMES.iter().map(|name| (*name).to_owned()).collect());
    let page = std::fs::read_to_string(here.join("../../../docs/methodology/nat.md")).unwrap();
    for name in NAMES {
        assert!(page.contains(&format!("`{name}`")), "{name} has no row in docs/methodology/nat.md");
    }
    let named = page.split('`').filter(|word| word.starts_with("rfc") && word.contains('_'));
    for name in named {
        assert!(NAMES.contains(&name), "docs/methodology/nat.md names {name}, which is no case");
    }
}
