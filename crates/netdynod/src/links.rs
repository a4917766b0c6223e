//! Impaired links between the kernels of two hosts, or between two ports: made on request, gone with whoever asked
//! for them.

use crate::files::Files;
use crate::trace_lock::TraceLock;
use crate::watchers::Watchers;
use dataplane::port_bridge::{self, PortBridge};
use impair::tap::{self, Link, TapLocation};
use impair::{LinkSpec, LiveLink, Stats};
use profile::Error as Fault;
use profile::impairment::preset;
use protocol::unit::Size;
use run::graph::GraphView;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use system::rpc::{BAD_PARAMS, Error, NOT_READY, NOTHING_THERE, TOO_MANY};

/// Links that there may be: each has threads and memory of its own.
pub const LINKS: usize = 64;
/// How often those who watch are told how links do.
const EACH: Duration = Duration::from_secs(1);
/// Longest name of an interface, `IFNAMSIZ` without its end.
const NAME_MAX: usize = 15;

/// One end, as asked for.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LinkEnd {
    /// Name of a namespace, or the path of its file; `None`: the one that the daemon is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    /// Name of the interface there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    name: String,
    /// In place of these: a port, by its PCI address or as a virtual device of DPDK.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    /// Largest IP packet, bytes.
    #[serde(default = "mtu")]
    mtu: u16,
    /// Its Ethernet address; `None`: a random one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
}

/// How a link is carried, as asked for.
#[derive(Debug, Clone)]
pub struct Carried {
    /// A thread for each direction.
    pub two_threads: bool,
    /// The threads' cores.
    pub cores: Vec<usize>,
    /// Between ports: use huge pages.
    pub huge_pages: bool,
    /// Between ports: memory for what is on its way.
    pub memory: Size,
}

fn mtu() -> u16 {
    1500
}

impl LinkEnd {
    fn display_name(&self) -> &str {
        self.device.as_ref().unwrap_or(&self.name)
    }

    /// Whether all that it names may be named.
    pub fn check(&self, at: &str, files: Files<'_>) -> Result<(), Error> {
        let namespace = self.namespace.as_deref().map_or(Ok(()), |name| files.namespace(at, name));
        let device =
            self.device.as_deref().map_or(Ok(()), |device| files.device(&format!("{at}.device"), device));
        namespace.and(device)
    }

    /// The port that it is, if it is one.
    fn port(&self, at: &str) -> Result<Option<&str>, Error> {
        let Some(device) = &self.device else { return Ok(None) };
        if self.namespace.is_some() || !self.name.is_empty() || self.mac.is_some() {
            let what = "a port has no namespace, name or mac";
            return Err(Error::params(&format!("{at}.device"), what));
        }
        Ok(Some(device))
    }

    fn tap_location(&self, at: &str) -> Result<TapLocation, Error> {
        let name = &self.name;
        let usable = !name.is_empty() && name.len() <= NAME_MAX && !name.starts_with('.');
        if !usable || name.contains(|c: char| c == '/' || c == '%' || c.is_whitespace()) {
            let what = format!("{name:?} cannot name an interface of at most {NAME_MAX} bytes");
            return Err(Error::params(&format!("{at}.name"), what));
        }
        let mac = match &self.mac {
            None => None,
            Some(text) => Some(profile::parse_mac(text).ok_or_else(|| {
                Error::params(&format!("{at}.mac"), format!("{text:?} is no Ethernet address"))
            })?),
        };
        let namespace = self.namespace.as_ref().map(|name| match name.contains('/') {
            true => PathBuf::from(name),
            false => Path::new("/run/netns").join(name),
        });
        Ok(TapLocation { namespace, name: name.clone(), mtu: self.mtu, mac })
    }
}

/// The counters of a direction.
#[derive(Debug, Serialize)]
pub struct DirectionStats {
    #[serde(flatten)]
    stats: Stats,
    /// Frames that the kernel dropped before we could fetch them; in no other count, and not asked for.
    missed: u64,
}

/// How a link does. The counters are those since its start.
#[derive(Debug, Serialize)]
pub struct Status {
    /// Its id.
    pub link: String,
    /// Seconds since its start.
    pub elapsed: f64,
    /// Why it carries nothing any more, if so.
    pub error: Option<Fault>,
    /// From a to b.
    pub a_to_b: DirectionStats,
    /// From b to a.
    pub b_to_a: DirectionStats,
}

/// A link as it was asked for.
#[derive(Debug, Serialize)]
pub struct LinkDescription {
    link: String,
    a: LinkEnd,
    b: LinkEnd,
    spec: LinkSpec,
    elapsed: f64,
    error: Option<Fault>,
}

/// What carries it.
enum Carrier {
    Taps(Box<Link>),
    Ports(Box<PortBridge>),
}

impl Carrier {
    fn live(&self) -> &Arc<LiveLink> {
        match self {
            Self::Taps(link) => link.live(),
            Self::Ports(link) => link.live(),
        }
    }

    fn missed_frames(&self) -> [u64; 2] {
        match self {
            Self::Taps(link) => link.missed_frames(),
            Self::Ports(link) => link.missed_frames(),
        }
    }

    fn end_reason(&self) -> Option<String> {
        match self {
            Self::Taps(link) => link.end_reason().map(ToString::to_string),
            Self::Ports(link) => link.end_reason(),
        }
    }
}

struct Entry {
    ends: [LinkEnd; 2],
    spec: LinkSpec,
    began: Instant,
    link: Carrier,
}

impl Entry {
    fn error(&self) -> Option<Fault> {
        let fix = "Stop it; whoever took the interface, its namespace or the port away knows more";
        self.link.end_reason().map(|why| Fault::new("ND-91-02", "", why, fix))
    }

    fn status(&self, id: &str) -> Status {
        let ([there, back], missed) = (self.link.live().stats(), self.link.missed_frames());
        let (a_to_b, b_to_a) = (
            DirectionStats { stats: there, missed: missed[0] },
            DirectionStats { stats: back, missed: missed[1] },
        );
        Status { link: id.into(), elapsed: self.elapsed(), error: self.error(), a_to_b, b_to_a }
    }

    fn elapsed(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }
}

#[derive(Default)]
struct LinkTable {
    last: u64,
    links: BTreeMap<String, Entry>,
    told: Option<Instant>,
}

/// All links of this daemon.
#[derive(Default)]
pub struct Links {
    made: Mutex<LinkTable>,
    /// Who follows packets.
    pub tracing: TraceLock,
}

impl Links {
    fn lock(&self) -> MutexGuard<'_, LinkTable> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Make both ends and carry frames between them. Gives the link's id.
    pub fn start(&self, a: LinkEnd, b: LinkEnd, spec: LinkSpec, how: Carried) -> Result<String, Error> {
        if self.lock().links.len() >= LINKS {
            let what = format!("there are {LINKS} links already");
            return Err(Error::new(TOO_MANY, "ND-104-11", "impair.start", what, "Stop one with impair.stop"));
        }
        let link = carry(&a, &b, &spec, how)?;
        let mut made = self.lock();
        made.last += 1;
        let id = format!("link-{}", made.last);
        tracing::info!(link = %id, a = %a.display_name(), b = %b.display_name(), "impaired link started");
        made.links.insert(id.clone(), Entry { ends: [a, b], spec, began: Instant::now(), link });
        Ok(id)
    }

    /// Change a link's parameters; with a seed, its draws begin anew.
    pub fn set(&self, id: &str, spec: LinkSpec, seed: Option<u64>) -> Result<(), Error> {
        let mut made = self.lock();
        let entry = made.links.get_mut(id).ok_or_else(|| unknown_link(id))?;
        entry.link.live().set_drawn(&spec, seed);
        entry.spec = spec;
        Ok(())
    }

    /// How a link does.
    pub fn status(&self, id: &str) -> Result<Status, Error> {
        self.lock().links.get(id).map(|entry| entry.status(id)).ok_or_else(|| unknown_link(id))
    }

    /// The elements of a link between ports.
    pub fn observe(&self, id: &str) -> Result<Box<dyn GraphView>, Error> {
        match &self.lock().links.get(id).ok_or_else(|| unknown_link(id))?.link {
            Carrier::Ports(link) => Ok(Box::new(link.observe())),
            Carrier::Taps(_) => {
                let what = "a link between hosts has no graph of elements";
                Err(Error::new(NOTHING_THERE, "ND-104-11", "link", what, "See impair.stats"))
            }
        }
    }

    /// Take a link away: how it did to its end, and a specification that does again what it did.
    pub fn stop(&self, id: &str) -> Result<(Status, LinkSpec), Error> {
        let entry = self.lock().links.remove(id).ok_or_else(|| unknown_link(id))?;
        let (mut status, live) = (entry.status(id), Arc::clone(entry.link.live()));
        let recorded = live.recorded();
        drop(entry);
        // Now that nothing is carried any more they are the last.
        [status.a_to_b.stats, status.b_to_a.stats] = live.stats();
        tracing::info!(link = %id, "impaired link stopped");
        Ok((status, recorded))
    }

    /// Take all away; how many there were.
    pub fn clear(&self) -> usize {
        let links = std::mem::take(&mut self.lock().links);
        links.len()
    }

    /// What links there are.
    pub fn list(&self) -> Vec<LinkDescription> {
        let about = |(id, entry): (&String, &Entry)| {
            let [a, b] = entry.ends.clone();
            let (spec, elapsed, error) = (entry.spec.clone(), entry.elapsed(), entry.error());
            LinkDescription { link: id.clone(), a, b, spec, elapsed, error }
        };
        self.lock().links.iter().map(about).collect()
    }

    /// Tell those who watch, once a second, how each link does.
    pub fn publish_status(&self, watchers: &Watchers) {
        let mut made = self.lock();
        if made.links.is_empty() || made.told.is_some_and(|told| told.elapsed() < EACH) {
            return;
        }
        made.told = Some(Instant::now());
        made.links.iter().for_each(|(id, entry)| watchers.publish("impair.sample", &entry.status(id)));
    }
}

fn carry(a: &LinkEnd, b: &LinkEnd, spec: &LinkSpec, how: Carried) -> Result<Carrier, Error> {
    if let (Some(near), Some(far)) = (a.port("a")?, b.port("b")?) {
        let options = port_bridge::Options {
            huge_pages: how.huge_pages,
            memory: how.memory.0,
            mtu: a.mtu.max(b.mtu),
            two_threads: how.two_threads,
            cores: how.cores,
        };
        let made = PortBridge::start([near, far], spec, &options);
        return made.map(|link| Carrier::Ports(Box::new(link))).map_err(|why| {
            let code = if why.code.starts_with("ND-104") { BAD_PARAMS } else { NOT_READY };
            Error::of(code, &why)
        });
    }
    if a.device.is_some() || b.device.is_some() {
        let what = "one end is a port, the other an interface of a host";
        let fix = "Make the interface a port too, such as tap:NAME or af_packet:NAME";
        return Err(Error::new(BAD_PARAMS, "ND-104-07", "b", what, fix));
    }
    let options = tap::Options { two_threads: how.two_threads, cores: how.cores, ..tap::Options::default() };
    let made = Link::start(&a.tap_location("a")?, &b.tap_location("b")?, spec, &options);
    made.map(|link| Carrier::Taps(Box::new(link))).map_err(|why| {
        let fix = "Check that namespace and rights are there and the name is free; see `ip netns list`";
        Error::of(NOT_READY, &Fault::new("ND-92-15", "", why.to_string(), fix))
    })
}

fn unknown_link(id: &str) -> Error {
    Error::new(NOTHING_THERE, "ND-104-11", "link", format!("there is no link {id:?}"), "See impair.list")
}

/// What a link is asked to do: a specification, or the name of a preset, as JSON text.
pub fn read(text: &str) -> Result<LinkSpec, Fault> {
    let names: Vec<&str> = preset::PRESETS.iter().map(|preset| preset.name).collect();
    let fix = format!("Use one of {}, or an object", names.join(", "));
    match profile::read(text)? {
        Value::Object(_) => {}
        Value::String(name) => {
            let unknown = || Fault::new("ND-104-06", "", format!("there is no preset {name:?}"), fix);
            return preset::find(&name).map(|preset| (preset.spec)()).ok_or_else(unknown);
        }
        _ => return Err(Fault::new("ND-104-04", "", "it is neither an object nor a text", fix)),
    }
    let spec: LinkSpec = profile::read(text)?;
    spec.check().map_err(|p| Fault::new("ND-104-05", p.key, p.what, p.fix))?;
    Ok(spec)
}

/// The same, from parameters of a request.
pub fn parse_parameter(spec: &Value) -> Result<LinkSpec, Error> {
    read(&spec.to_string()).map_err(|fault| Error::of(BAD_PARAMS, &fault))
}

/// The JSON Schema of a specification.
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(LinkSpec).to_value();
    schema["$id"] = "urn:netdyno:schema:impair-1".into();
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_specification_or_a_preset_is_read_strictly() {
        assert_eq!(read("\"lte\"").unwrap(), (preset::find("lte").unwrap().spec)());
        assert_eq!(read("{}").unwrap(), LinkSpec::default());
        for (text, code, at) in [
            ("\"lute\"", "ND-104-06", ""),
            ("{", "ND-104-01", ""),
            ("[]", "ND-104-04", ""),
            (r#"{"a_to_b": {"delai": {}}}"#, "ND-104-02", "a_to_b.delai"),
            (r#"{"a_to_b": {"loss": {"independent": 1}}}"#, "ND-104-04", "a_to_b.loss.independent"),
            (r#"{"b_to_a": {"delay": {"constant": "61s"}}}"#, "ND-104-05", "b_to_a.delay.constant"),
        ] {
            let fault = read(text).unwrap_err();
            assert_eq!((fault.code, fault.at.as_str()), (code, at), "{text}: {fault}");
            assert!(!fault.fix.is_empty() && !fault.what.is_empty(), "{fault}");
        }
    }

    #[test]
    fn names_and_addresses_of_ends_are_checked() {
        let end = |name: &str, mac: Option<&str>| LinkEnd {
            namespace: Some("x".into()),
            name: name.into(),
            device: None,
            mtu: 1500,
            mac: mac.map(str::to_owned),
        };
        let place = end("a23456789012345", Some("02:00:00:00:00:01")).tap_location("a").unwrap();
        assert_eq!((place.namespace, place.mac), (Some("/run/netns/x".into()), Some([2, 0, 0, 0, 0, 1])));
        for name in ["", "a234567890123456", "a/b", "a b", "..", "tap%d"] {
            assert_eq!(end(name, None).tap_location("a").unwrap_err().data["at"], "a.name", "{name}");
        }
        for mac in ["02:00", "02:00:00:00:00:+1", "02:00:00:00:00:01:02"] {
            assert_eq!(end("a", Some(mac)).tap_location("b").unwrap_err().data["at"], "b.mac", "{mac}");
        }
    }
}
