//! Paths that people know by name, with where their figures come from.

use super::{Bottleneck, Delay, Impairment, Limit, LinkSpec, Normal, Queue, Uniform};
use protocol::unit::{BitRate, Interval, Size};

/// A path that has a name.
#[derive(Debug, Clone, Copy)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// What it is, and where the figures come from.
    pub about: &'static str,
    /// The parameters.
    pub spec: fn() -> LinkSpec,
}

/// All of them.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "metro",
        about: "across a city, 100 km of fibre: 0.5 ms one way at 5 µs/km (ITU-T G.114)",
        spec: metro,
    },
    Preset {
        name: "daejeon-seoul",
        about: "between two cities of Korea, an assumption: 170 km of fibre at 5 µs/km (ITU-T G.114), and equipment at \
                both ends: 1.2 ms one way",
        spec: daejeon_seoul,
    },
    Preset {
        name: "cross-country",
        about: "New York to Los Angeles, 3940 km: 40 ms one way, by the rule that the Internet takes 2.1 times the \
                straight line at the speed of light in fibre (Bozkurt and others, arXiv 1811.10737)",
        spec: cross_country,
    },
    Preset {
        name: "lte",
        about: "a mobile phone: 13 Mbit/s down (b to a) and 6 Mbit/s up, the medians of Huang and others, MobiSys \
                2012; about 35 ms one way, order kept, and a deep buffer, as are usual there",
        spec: lte,
    },
    Preset {
        name: "geo",
        about: "one hop over a geostationary satellite: 239.6 to 279.0 ms one way, by where the stations are \
                (RFC 2488 section 2), here 260 ms",
        spec: geo,
    },
];

/// The preset of that name.
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

fn symmetric(way: Impairment) -> LinkSpec {
    LinkSpec { a_to_b: way.clone(), b_to_a: way, ..LinkSpec::default() }
}

fn microseconds(us: u64) -> Interval {
    Interval(std::time::Duration::from_micros(us))
}

fn metro() -> LinkSpec {
    symmetric(Impairment { delay: Delay::Constant(microseconds(500)), ..Impairment::default() })
}

fn daejeon_seoul() -> LinkSpec {
    symmetric(Impairment { delay: Delay::Constant(microseconds(1200)), ..Impairment::default() })
}

fn cross_country() -> LinkSpec {
    symmetric(Impairment { delay: Delay::Constant(Interval::ms(40)), ..Impairment::default() })
}

fn lte() -> LinkSpec {
    let way = |rate: &str, delay| {
        // Half a second or more at these rates.
        let queue = Queue::TailDrop(Limit::Bytes(Size(1 << 20)));
        let bottleneck = rate.parse::<BitRate>().ok().map(|rate| Bottleneck { rate, queue });
        Impairment { delay, bottleneck, ..Impairment::default() }
    };
    // Up, the phone must ask for its turn first: more jitter.
    let up = Delay::Normal(Normal { mean: Interval::ms(35), deviation: Interval::ms(5) });
    let down = Delay::Uniform(Uniform { from: Interval::ms(30), to: Interval::ms(40) });
    LinkSpec { a_to_b: way("6Mbit/s", up), b_to_a: way("13Mbit/s", down), ..LinkSpec::default() }
}

fn geo() -> LinkSpec {
    symmetric(Impairment { delay: Delay::Constant(Interval::ms(260)), ..Impairment::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_makes_sense_and_is_found() {
        for preset in PRESETS {
            let spec = (find(preset.name).expect("its name").spec)();
            spec.check().expect(preset.name);
            assert_ne!(spec, LinkSpec::default());
        }
        assert!(find("nowhere").is_none());
        let lte = (find("lte").expect("there").spec)();
        assert!(lte.b_to_a.bottleneck.is_some_and(|down| down.rate.bits() == 13e6));
    }
}
