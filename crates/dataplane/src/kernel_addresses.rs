//! Addresses of the kernel's interfaces.

use nix::ifaddrs::getifaddrs;
use std::net::IpAddr;

/// The interface of this thread's network namespace that has an address.
pub fn holder(ip: IpAddr) -> Option<String> {
    getifaddrs().into_iter().flatten().find_map(|entry| {
        let address = entry.address?;
        let own = match ip {
            IpAddr::V4(_) => address.as_sockaddr_in().map(|one| IpAddr::from(one.ip())),
            IpAddr::V6(_) => address.as_sockaddr_in6().map(|one| IpAddr::from(one.ip())),
        };
        (own? == ip).then_some(entry.interface_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_knows_who_has_an_address() {
        assert_eq!(holder("127.0.0.1".parse().expect("an address")).as_deref(), Some("lo"));
        for nobody in ["192.0.2.77", "2001:db8::77"] {
            assert_eq!(holder(nobody.parse().expect("an address")), None, "{nobody}");
        }
    }
}
