//! Which of several workers has which addresses of the pool in the beginning.

use nat_core::config::PoolAddress;
use packet::rss;

/// The share of a pool that each of `count` workers has, where a port steers packets by destination address; `None`: these addresses
/// would not be divided evenly.
pub(crate) fn steered(pool: &[PoolAddress], count: usize) -> Option<Vec<Vec<PoolAddress>>> {
    let mut pools = vec![Vec::new(); count];
    for one in pool {
        pools.get_mut(rss::queue(one.address.to_bits(), count))?.push(one.clone());
    }
    let sizes = pools.iter().map(Vec::len);
    let even = sizes.clone().max()? <= sizes.min()? + 1 && pool.len() >= count;
    even.then_some(pools)
}

/// The share of a pool that worker `index` of `count` has: whole addresses, or where there are fewer than workers, ports of each.
pub(crate) fn share(pool: &[PoolAddress], block: u16, index: usize, count: usize) -> Vec<PoolAddress> {
    if pool.len() >= count {
        return pool.iter().skip(index).step_by(count).cloned().collect();
    }
    let (block, count) = (u32::from(block), count as u32);
    pool.iter()
        .filter_map(|whole| {
            let (first, last) = (u32::from(*whole.ports.start()), u32::from(*whole.ports.end()));
            let blocks = (last + 1 - first) / block;
            let (from, to) = (blocks * index as u32 / count, blocks * (index as u32 + 1) / count);
            let ports = (first + from * block) as u16..=(first + to * block).saturating_sub(1) as u16;
            (to > from).then_some(PoolAddress { address: whole.address, ports })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn pool(count: u8) -> Vec<PoolAddress> {
        (1..=count).map(|last| PoolAddress::all_ports(Ipv4Addr::new(203, 0, 113, last))).collect()
    }

    #[test]
    fn workers_share_addresses_or_ports_and_nothing_twice() {
        for (addresses, workers) in [(1, 1), (1, 2), (1, 3), (2, 3), (4, 2), (5, 2), (16, 16)] {
            let pool = pool(addresses);
            let shares: Vec<_> = (0..workers).map(|i| share(&pool, 512, i, workers)).collect();
            let mut all: Vec<_> = shares
                .iter()
                .flatten()
                .map(|one| (one.address, *one.ports.start(), *one.ports.end()))
                .collect();
            all.sort_unstable();
            assert!(
                all.windows(2).all(|pair| pair[0].0 != pair[1].0 || pair[0].2 < pair[1].1),
                "{addresses} {workers}: {all:?}"
            );
            let ports = |one: &PoolAddress| u32::from(*one.ports.end()) - u32::from(*one.ports.start()) + 1;
            let sizes: Vec<u32> = shares.iter().map(|own| own.iter().map(ports).sum()).collect();
            assert_eq!(sizes.iter().sum::<u32>(), u32::from(addresses) * 64_512, "{addresses} {workers}");
            assert!(sizes.iter().all(|size| *size >= 512), "{sizes:?}");
        }
    }
}
