use std::net::IpAddr;

/// A DNS query.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Query {
    /// NAPTR records of a domain (RFC 3403).
    Naptr(String),
    /// SRV records of a name (RFC 2782).
    Srv(String),
    /// A records of a host.
    A(String),
    /// AAAA records of a host.
    Aaaa(String),
}

/// The answer to a query; empty where there is no such record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To NAPTR.
    Naptr(Vec<Naptr>),
    /// To SRV.
    Srv(Vec<Srv>),
    /// To A and AAAA.
    Addresses(Vec<IpAddr>),
}

/// A NAPTR record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Naptr {
    /// Lower first.
    pub order: u16,
    /// Lower first within an order.
    pub preference: u16,
    /// `s` where the replacement has SRV records.
    pub flags: String,
    /// Such as `SIPS+D2T`.
    pub service: String,
    /// Name of the SRV records.
    pub replacement: String,
}

/// An SRV record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Srv {
    /// Lower first.
    pub priority: u16,
    /// Share within a priority.
    pub weight: u16,
    /// Port.
    pub port: u16,
    /// Host; `.` where there is no service.
    pub target: String,
}

/// Numbers that follow from a seed (SplitMix64).
#[derive(Debug, Clone)]
pub(super) struct Random(pub u64);

impl Random {
    /// A number from 0 to `bound`, included.
    fn up_to(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % (bound + 1)
    }
}

/// Records in the order in which they are tried (RFC 2782, "Usage rules"): by priority, and drawn by weight within one.
pub(super) fn in_order(mut records: Vec<Srv>, random: &mut Random) -> Vec<Srv> {
    records.retain(|record| !matches!(record.target.as_str(), "." | ""));
    // Those without weight first, so that they have a small chance.
    records.sort_by_key(|record| (record.priority, record.weight));
    let mut ordered = Vec::with_capacity(records.len());
    while let Some(first) = records.first() {
        let same = records.iter().take_while(|record| record.priority == first.priority).count();
        let total: u64 = records[..same].iter().map(|record| u64::from(record.weight)).sum();
        let drawn = random.up_to(total);
        let mut sum = 0;
        let at = records[..same].iter().position(|record| {
            sum += u64::from(record.weight);
            sum >= drawn
        });
        ordered.push(records.remove(at.unwrap_or(0)));
    }
    ordered
}
