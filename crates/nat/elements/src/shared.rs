//! What the elements of one NAT have in common. It is made with the first of them, and found by the others.

use crate::announce::VlanChannel;
use crate::arp::ResolverChannel;
use crate::sites::assigning::{SlotRelease, SlotUpdate};
use crate::state::{Bound, Keeper, Survey};
use ::element::kind::{Build, Endings};
use nat_core::neighbours::{Host, Neighbour, Neighbours};
use nat_core::{Hop, Ownership, Realm, SiteConfig};
use nat_pair::{Duty, Pair};
use profile::Error;
use rand::TryRngCore;
use rand::rngs::OsRng;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Endings, and subscribers that are asked for, under way between two elements.
const ENDINGS: usize = 1_024;
/// Subscribers that come and go under way to the element that has public addresses.
const SUBSCRIBERS: usize = 4_096;

/// A subscriber whose binding is over: its sessions are to end, and then nothing goes by its next hop any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindingEnd {
    /// Its private address.
    pub inside: u32,
    /// Its tags.
    pub realm: Realm,
    /// The next hop towards it.
    pub hop: Hop,
}

/// By which next hop a subscriber is reached, since somebody asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResolvedHop {
    /// Which.
    pub host: Host,
    /// The next hop; none: it is nowhere.
    pub hop: Option<Hop>,
}

/// What the NAT table tells the sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindingEvent {
    /// A binding is over.
    Ended(BindingEnd),
    /// A subscriber was asked for.
    Resolved(ResolvedHop),
}

/// A subscriber that came, or went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscriber {
    /// Its private address.
    pub inside: u32,
    /// Its tags.
    pub realm: Realm,
    /// Whether it came.
    pub there: bool,
}

/// Tells the element that has public addresses of subscribers, if there is such an element.
#[derive(Debug)]
pub struct SubscriberTeller {
    wanted: Arc<AtomicBool>,
    tell: SyncSender<Subscriber>,
    /// What was to be told and is not yet.
    untold: Option<Subscriber>,
}

impl SubscriberTeller {
    /// Tells whoever has the other end.
    #[cfg(test)]
    pub fn to(tell: SyncSender<Subscriber>) -> Self {
        Self { wanted: Arc::new(true.into()), tell, untold: None }
    }

    /// Whether there is room for one more. Asked before anything is told.
    pub fn is_ready(&mut self) -> bool {
        if let Some(subscriber) = self.untold.take()
            && let Err(TrySendError::Full(subscriber)) = self.tell.try_send(subscriber)
        {
            self.untold = Some(subscriber);
        }
        self.untold.is_none()
    }

    /// Tell of one.
    pub fn tell(&mut self, subscriber: Subscriber) {
        if self.wanted.load(Ordering::Relaxed) {
            self.untold = Some(subscriber);
            let _later_if_not_now = self.is_ready();
        }
    }
}

/// What the element that has public addresses shares with the others.
#[derive(Debug)]
struct SiteChannels {
    wanted: Arc<AtomicBool>,
    subscribers: (SyncSender<Subscriber>, Option<Receiver<Subscriber>>),
    /// To each worker's sessions: made with the first of them, which knows how many there are.
    workers: Arc<OnceLock<Vec<SyncSender<SlotUpdate>>>>,
    told: Vec<Option<Receiver<SlotUpdate>>>,
    /// And back.
    vacated: (SyncSender<SlotRelease>, Option<Receiver<SlotRelease>>),
}

impl SiteChannels {
    fn new() -> Self {
        let ((tell, told), (vacate, vacated)) = (sync_channel(SUBSCRIBERS), sync_channel(ENDINGS));
        Self {
            wanted: Arc::default(),
            subscribers: (tell, Some(told)),
            workers: Arc::default(),
            told: Vec::new(),
            vacated: (vacate, Some(vacated)),
        }
    }
}

/// The end of the element that has public addresses.
#[derive(Debug)]
pub struct SiteEnd {
    /// Who comes and goes.
    pub subscribers: Receiver<Subscriber>,
    /// Tells each worker what its slots have.
    pub workers: Arc<OnceLock<Vec<SyncSender<SlotUpdate>>>>,
    /// Slots by which nothing goes any more.
    pub vacated: Receiver<SlotRelease>,
    /// Which worker has which site, and is reached by which address.
    pub ownership: Arc<OnceLock<(u16, Ownership)>>,
}

/// The sessions' end of that.
#[derive(Debug)]
pub struct SlotEnd {
    /// What slots have.
    pub told: Receiver<SlotUpdate>,
    /// Tells which of them are empty.
    pub vacated: SyncSender<SlotRelease>,
}

/// What the NAT table of a worker and its sessions tell each other.
#[derive(Debug)]
pub struct TableLink {
    /// Where next hops are: written by the NAT table.
    pub neighbours: Arc<Neighbours>,
    /// From the NAT table.
    told: (Option<SyncSender<BindingEvent>>, Option<Receiver<BindingEvent>>),
    /// And back.
    released: (Option<SyncSender<Hop>>, Option<Receiver<Hop>>),
    asked: (Option<SyncSender<Host>>, Option<Receiver<Host>>),
    /// Subscribers that are to be bound, since the other NAT of a pair has them.
    wanted: (SyncSender<Bound>, Option<Receiver<Bound>>),
    /// And their next hops.
    bound: (SyncSender<Bound>, Option<Receiver<Bound>>),
}

impl TableLink {
    fn new() -> Self {
        let ((tell, told), (release, released)) = (sync_channel(ENDINGS), sync_channel(ENDINGS));
        let (ask, asked) = sync_channel(ENDINGS);
        let ((want, wanted), (bind, bound)) = (sync_channel(ENDINGS), sync_channel(ENDINGS));
        Self {
            neighbours: Arc::new(Neighbours::default()),
            told: (Some(tell), Some(told)),
            released: (Some(release), Some(released)),
            asked: (Some(ask), Some(asked)),
            wanted: (want, Some(wanted)),
            bound: (bind, Some(bound)),
        }
    }
}

/// The NAT table's end.
#[derive(Debug)]
pub struct TableEnd {
    /// Tells whose binding is over, and where a subscriber is.
    pub tell: SyncSender<BindingEvent>,
    /// Next hops that are free.
    pub released: Receiver<Hop>,
    /// Subscribers that are to be found.
    pub asked: Receiver<Host>,
}

/// The sessions' end.
#[derive(Debug)]
pub struct SessionEnd {
    /// Whose binding is over, and where a subscriber is.
    pub told: Receiver<BindingEvent>,
    /// Tells which next hop is free.
    pub released: SyncSender<Hop>,
    /// Has a subscriber found.
    pub ask: SyncSender<Host>,
}

/// Asks the NAT table for next hops of subscribers.
#[derive(Debug)]
pub struct BindingAsker {
    /// Of whom, without a next hop.
    pub wanted: SyncSender<Bound>,
    /// The answers.
    pub bound: Receiver<Bound>,
}

/// The NAT table's end of that.
#[derive(Debug)]
pub struct BindingAnswerer {
    /// Who is to be bound.
    pub wanted: Receiver<Bound>,
    /// The answers.
    pub bound: SyncSender<Bound>,
}

/// What the elements of one NAT have in common.
#[derive(Debug)]
pub struct Shared {
    /// What hashes are drawn from.
    pub seed: [u8; 32],
    /// The number of the inside port, and who owns what: said by the first of the elements that keep sessions.
    pub ownership: Arc<OnceLock<(u16, Ownership)>>,
    /// The router outside.
    pub gateway: Arc<Neighbour>,
    /// Who keeps what sessions know over a restart, if somebody does.
    pub keeper: Option<Arc<Keeper>>,
    /// What was kept, if it is of use.
    pub survey: Option<Survey>,
    /// Subscribers that were bound before a restart, by replica: said by who keeps sessions, before the first packet comes.
    pub bound: Arc<OnceLock<Vec<Vec<Bound>>>>,
    /// Whether this NAT translates.
    pub duty: Arc<Duty>,
    /// The other NAT that takes over, if it is one of a pair.
    pub pair: Option<Arc<Pair>>,
    /// Who is told what fails at the end.
    pub endings: Endings,
    /// Until when the log may take what ends with the NAT: said by the first that stops.
    pub ending: Arc<OnceLock<Instant>>,
    /// By replica.
    table_links: Vec<TableLink>,
    /// The element that keeps sessions.
    nat44: Option<String>,
    /// Sites, as the first of the elements that know of them says.
    sites: Option<SiteConfig>,
    site_channels: SiteChannels,
    /// Who asks for subscribers by ARP.
    pub resolver: ResolverChannel,
    /// Who announces the box to subscribers in VLANs.
    pub vlans: VlanChannel,
}

impl Shared {
    /// Of the graph that is being built.
    pub fn of<'a>(cx: &'a mut Build<'_>) -> Result<&'a mut Self, Error> {
        if cx.extensions.get_mut::<Self>().is_none() {
            let mut seed = [0; 32];
            // Nobody is to know what ports and places in tables are drawn from.
            OsRng.try_fill_bytes(&mut seed).map_err(|why| cx.fault("inside", &why.to_string()))?;
            let shared = Self {
                endings: Endings::of(cx),
                seed,
                ownership: Arc::default(),
                gateway: Arc::default(),
                keeper: None,
                survey: None,
                bound: Arc::default(),
                duty: Arc::default(),
                pair: None,
                ending: Arc::default(),
                table_links: Vec::new(),
                nat44: None,
                sites: None,
                site_channels: SiteChannels::new(),
                resolver: ResolverChannel::new(),
                vlans: VlanChannel::new(),
            };
            cx.extensions.insert(shared);
        }
        let none = Error::new("ND-104-06", format!("elements.{}", cx.name), "no state to share", "");
        cx.extensions.get_mut::<Self>().ok_or(none)
    }

    fn table_link(&mut self, replica: usize) -> &mut TableLink {
        while self.table_links.len() <= replica {
            self.table_links.push(TableLink::new());
        }
        &mut self.table_links[replica]
    }

    /// Where the next hops of a replica are.
    pub fn neighbours(&mut self, replica: usize) -> Arc<Neighbours> {
        Arc::clone(&self.table_link(replica).neighbours)
    }

    /// For the NAT table of this number, once.
    pub fn table_end(&mut self, replica: usize) -> Option<TableEnd> {
        let link = self.table_link(replica);
        let (tell, released) = (link.told.0.take()?, link.released.1.take()?);
        Some(TableEnd { tell, released, asked: link.asked.1.take()? })
    }

    /// For the sessions of this number, once.
    pub fn session_end(&mut self, replica: usize) -> Option<SessionEnd> {
        let link = self.table_link(replica);
        let (told, released) = (link.told.1.take()?, link.released.0.take()?);
        Some(SessionEnd { told, released, ask: link.asked.0.take()? })
    }

    /// For the sessions of this number, once.
    pub fn binding_asker(&mut self, replica: usize) -> Option<BindingAsker> {
        let link = self.table_link(replica);
        Some(BindingAsker { wanted: link.wanted.0.clone(), bound: link.bound.1.take()? })
    }

    /// For the NAT table of this number, once.
    pub fn binding_answerer(&mut self, replica: usize) -> Option<BindingAnswerer> {
        let link = self.table_link(replica);
        Some(BindingAnswerer { wanted: link.wanted.1.take()?, bound: link.bound.0.clone() })
    }

    /// Whether this is what was said of sites before, if anything was.
    pub fn agree(&mut self, sites: SiteConfig) -> bool {
        *self.sites.get_or_insert(sites) == sites
    }

    /// For whoever knows of subscribers.
    pub fn subscriber_teller(&self) -> SubscriberTeller {
        let SiteChannels { wanted, subscribers, .. } = &self.site_channels;
        SubscriberTeller { wanted: Arc::clone(wanted), tell: subscribers.0.clone(), untold: None }
    }

    /// For the element that has public addresses, once.
    pub fn site_end(&mut self) -> Option<SiteEnd> {
        let channels = &mut self.site_channels;
        channels.wanted.store(true, Ordering::Relaxed);
        Some(SiteEnd {
            subscribers: channels.subscribers.1.take()?,
            workers: Arc::clone(&channels.workers),
            vacated: channels.vacated.1.take()?,
            ownership: Arc::clone(&self.ownership),
        })
    }

    /// For the sessions of this number, of so many, once: where they are told of public addresses.
    pub fn slot_end(&mut self, replica: usize, replicas: usize) -> Option<SlotEnd> {
        let SiteChannels { workers, told, vacated, .. } = &mut self.site_channels;
        workers.get_or_init(|| {
            let (tell, made): (Vec<_>, Vec<_>) = (0..replicas).map(|_| sync_channel(ENDINGS)).unzip();
            *told = made.into_iter().map(Some).collect();
            tell
        });
        Some(SlotEnd { told: told.get_mut(replica)?.take()?, vacated: vacated.0.clone() })
    }

    /// Whether `name` is the element that keeps sessions: the first that asks is.
    pub fn is_nat44(&mut self, name: &str) -> bool {
        self.nat44.get_or_insert_with(|| name.to_owned()) == name
    }
}
