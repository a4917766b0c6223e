//! Another configuration for a NAT at work: what may change while packets pass, and what needs a restart.

use crate::address_removal::AddressRemovals;
use crate::nat44::Nat44;
use crate::options::Options;
use crate::redivision::{AskPool, PoolState, Redivision};
pub use crate::refusal::Refusal;
use engine::{Mail, Request};
use nat_core::{Config, ForwardConflict, PoolChange, StaticForward};
use serde_json::Value;
use std::sync::Arc;

/// Options that may change.
const CHANGEABLE: [&str; 12] = [
    "acl",
    "blocks_per_subscriber",
    "exempt",
    "forwards",
    "ip_options",
    "mss",
    "outside_prefixes",
    "pool",
    "sessions_per_subscriber",
    "tcp_filtering",
    "timeouts",
    "udp_filtering",
];

/// Ask whether a tracker can go on with a configuration, or let it.
#[derive(Debug, Clone)]
pub struct Change {
    /// That of its worker; what cannot change is not looked at.
    pub config: Arc<Config>,
    /// All forwards, of which this worker has some: for their places.
    pub forwards: Arc<[StaticForward]>,
    /// What comes to its pool, and goes.
    pub pool: Arc<PoolChange>,
    /// What goes of all pools.
    pub leaving: AddressRemovals,
    /// Do it; else only say what would be in the way.
    pub apply: bool,
}

impl Request for Change {
    type Reply = Vec<Refusal>;
}

/// Which options differ, and of these what needs a restart.
pub fn differences(old: &Options, new: &Options) -> (Vec<&'static str>, Vec<Refusal>) {
    let (mut changed, mut refused) = (Vec::new(), Vec::new());
    let refusal = |key: &str, what: &str| Refusal { key: key.to_owned(), what: what.into(), restart: true };
    let restart = |key: &str| refusal(key, "it cannot change while the NAT runs");
    let (Ok(Value::Object(was)), Ok(Value::Object(is))) =
        (serde_json::to_value(old), serde_json::to_value(new))
    else {
        return (changed, vec![restart("nat44")]);
    };
    let mut keys: Vec<&String> = was.keys().chain(is.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys.into_iter().filter(|key| was.get(*key) != is.get(*key)) {
        match CHANGEABLE.into_iter().find(|known| known == key) {
            // A port's rest is counted in periods of it.
            Some("timeouts") if old.timeouts.port_quarantine != new.timeouts.port_quarantine => {
                refused.push(restart("timeouts.port_quarantine"));
            }
            Some("pool") => match pool_stays(old, new) {
                Some(why) => refused.push(refusal("pool", why)),
                None => changed.push("pool"),
            },
            Some(known) => changed.push(known),
            None => refused.push(restart(key)),
        }
    }
    (changed, refused)
}

/// Why addresses cannot come and go, if they cannot.
fn pool_stays(old: &Options, new: &Options) -> Option<&'static str> {
    let either = |is: fn(&Options) -> bool| is(old) || is(new);
    if either(|options| options.sites.is_some()) {
        Some("with `sites` there is no pool")
    } else if either(|options| options.deterministic.is_some()) {
        Some("with `deterministic` the ports of each subscriber follow from all of its addresses")
    } else if either(|options| options.pair.is_some()) {
        Some("both NATs of a `pair` have the same addresses all the time")
    } else {
        None
    }
}

/// What each tracker is told of new options, without `apply`.
pub fn changes(new: &Options, redivision: &Redivision) -> Result<Vec<Change>, Refusal> {
    let forwards: Arc<[StaticForward]> = new.forwards.iter().map(Into::into).collect();
    let change = |(index, pool): (usize, &PoolChange)| {
        let made = new.config_with(&redivision.pools, index, [0; 32], [0; 32]);
        let (config, _) = made.map_err(|why| Refusal { key: why.key, what: why.what, restart: false })?;
        Ok(Change {
            config: Arc::new(config),
            forwards: Arc::clone(&forwards),
            pool: Arc::new(pool.clone()),
            leaving: Arc::clone(&redivision.leaving),
            apply: false,
        })
    };
    redivision.changes.iter().enumerate().map(change).collect()
}

impl Nat44 {
    /// Answer to a [`Change`], and before it to [`AskPool`]. Mail that is something else is given back.
    pub fn reload(&mut self, mail: Mail) -> Result<(), Mail> {
        let mail = match mail.answer(|asked: AskPool| self.pool_state(&asked)) {
            Ok(()) => return Ok(()),
            Err(mail) => mail,
        };
        mail.answer(|change: Change| {
            let refused = self.in_the_way(&change);
            if change.apply {
                // Forwards may be on what comes.
                self.change_pool(&change.pool, &change.leaving);
                let elsewhere = |forward: &StaticForward| !self.is_own(forward);
                if change.config.static_forwards.iter().any(elsewhere) {
                    let mut config = Config::clone(&change.config);
                    config.static_forwards.retain(|forward| self.is_own(forward));
                    self.nat_mut().change(&config);
                } else {
                    self.nat_mut().change(&change.config);
                }
            }
            refused
        })
    }

    fn pool_state(&self, asked: &AskPool) -> PoolState {
        let pool = self.nat().pool();
        PoolState {
            ownership: self.ownership(),
            vacancies: pool.vacancies(),
            there: asked.about.iter().map(|address| pool.has(address.to_bits())).collect(),
        }
    }

    fn in_the_way(&self, change: &Change) -> Vec<Refusal> {
        let own = &change.config.static_forwards;
        let key = |forward: &StaticForward, end: &str| {
            let at = change.forwards.iter().position(|one| one == forward).unwrap_or(0);
            format!("forwards[{at}].{end}")
        };
        let elsewhere = own.iter().filter(|forward| !self.is_own(forward)).map(|forward| Refusal {
            key: key(forward, "inside"),
            what: "its subscriber is with another worker than the outside port".into(),
            restart: true,
        });
        let in_use = self.nat().in_use(&change.config).into_iter().filter_map(|(at, why)| {
            let forward = own.get(at)?;
            let (end, what, restart) = match why {
                ForwardConflict::Outside => ("outside", "a subscriber has this port now".to_owned(), false),
                ForwardConflict::Inside(outside) => {
                    ("inside", format!("it has the mapping {outside} now"), false)
                }
                ForwardConflict::Full => ("outside", "there is no room for more forwards".to_owned(), true),
            };
            Some(Refusal { key: key(forward, end), what, restart })
        });
        let without_room = (self.nat().without_room(&change.pool.added) > 0).then(|| Refusal {
            key: "pool".into(),
            what: "there is no room for so many addresses more".into(),
            restart: true,
        });
        elsewhere.chain(in_use).chain(without_room).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redivision::redivide;
    use serde_json::json;
    use std::sync::OnceLock;

    fn options(more: Value) -> Options {
        let mut all = json!({"inside": "a", "outside": "b", "pool": ["203.0.113.16/28"]});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    fn keys(old: Value, new: Value) -> (Vec<&'static str>, Vec<String>) {
        let (changed, refused) = differences(&options(old), &options(new));
        assert!(refused.iter().all(|one| one.restart));
        (changed, refused.into_iter().map(|one| one.key).collect())
    }

    #[test]
    fn what_needs_a_restart_is_told() {
        let none = (vec![], vec![]);
        assert_eq!(keys(json!({}), json!({})), none);
        // What is said as it is by default is no change.
        assert_eq!(keys(json!({}), json!({"sessions_per_subscriber": 8192, "sessions": 1_048_576})), none);
        let forward = json!([{"protocol": "tcp", "outside": "203.0.113.16:80", "inside": "10.0.0.7:80"}]);
        let new = json!({"forwards": forward, "mss": 1400, "timeouts": {"udp": "3min"}, "tcp_filtering": "endpoint_independent"});
        assert_eq!(keys(json!({}), new).0, ["forwards", "mss", "tcp_filtering", "timeouts"]);
        let new = json!({"pool": ["203.0.113.32/28"], "sessions": 5, "timeouts": {"port_quarantine": "1min"}, "mss": 1300});
        assert_eq!(
            keys(json!({}), new),
            (vec!["mss", "pool"], vec!["sessions".into(), "timeouts.port_quarantine".into()])
        );
    }

    #[test]
    fn addresses_stay_where_they_cannot_come_and_go() {
        let pool = |mut more: Value| {
            more["pool"] = json!(["203.0.113.32/28"]);
            more
        };
        let pair = json!({"pair": {"socket": "/run/netdyno/pair.sock"}});
        for (more, says) in [(json!({"deterministic": "10.0.0.0/24"}), "deterministic"), (pair, "pair")] {
            let (changed, refused) = differences(&options(more.clone()), &options(pool(more)));
            assert_eq!((changed.len(), refused.len(), refused[0].key.as_str()), (0, 1, "pool"));
            assert!(refused[0].restart && refused[0].what.contains(says), "{refused:?}");
        }
    }

    #[test]
    fn each_worker_is_told_of_its_own_forwards() {
        let forward = |last: u8| json!({"protocol": "tcp", "outside": format!("203.0.113.{last}:80"), "inside": format!("10.0.0.{last}:80")});
        let new = options(json!({"forwards": [forward(16), forward(17), forward(18)]}));
        let states = [PoolState::default(), PoolState::default()]
            .map(|state| PoolState { ownership: owned(&new), ..state });
        let changes = changes(&new, &redivide(&new, &new, &[], &states).unwrap()).unwrap();
        let of = |at: usize| {
            changes[at].config.static_forwards.iter().map(|one| one.outside.0.octets()[3]).collect::<Vec<_>>()
        };
        assert_eq!((of(0), of(1)), (vec![16, 18], vec![17]));
        assert!(changes.iter().all(|change| change.forwards.len() == 3 && !change.apply));
        assert!(changes.iter().all(|change| change.pool.is_empty() && change.leaving.is_empty()));
    }

    fn owned(options: &Options) -> Option<Arc<OnceLock<(u16, nat_core::Ownership)>>> {
        let (_, ownership) = options.config_of(0, 2, [0; 32], [0; 32]).unwrap();
        Some(Arc::new(OnceLock::from((0, ownership))))
    }
}
