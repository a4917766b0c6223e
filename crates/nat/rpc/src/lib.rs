//! `nat.*`: the NAT's RPC methods, and its registration with the daemon. docs/reference/rpc.md says what each takes and gives.

mod clear;
mod filter;
mod reload;
mod tables;

use system::Registry;
use system::method::Method;

/// The NAT: its kinds of elements and its methods.
pub fn register(registry: &mut Registry) {
    registry.add_kinds(nat_elements::KINDS);
    registry.add_methods([
        Method::new("nat.sessions", tables::sessions),
        Method::new("nat.subscribers", tables::subscribers),
        Method::new("nat.pools", tables::pools),
        Method::new("nat.sites", tables::sites),
        Method::new("nat.clear", clear::clear),
        Method::new("nat.reload", reload::reload),
        Method::new("nat.hand_over", tables::hand_over),
        Method::new("nat.status", tables::status),
    ]);
}
