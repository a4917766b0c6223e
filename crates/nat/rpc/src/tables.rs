//! `nat.*`: what the connection trackers of a graph have: sessions and subscribers page by page, and numbers. Anybody may ask.
//!
//! Workers answer between two bursts, each request a bounded part of its tables; a page here is put together of many of them.

use crate::filter::{Filter, address};
use engine::{ControlError, Request, View};
use nat_elements::control::{
    HandOver, KIND, PairStatus, PoolPage, PoolView, SessionPage, Status, StatusView, SubscriberPage,
};
use nat_elements::sites::view::{self, SitePage};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};
use system::method::CallContext;
use system::rpc::{Answer, Error, NOTHING_THERE};

/// Entries of a page when nothing is said.
const LIMIT: usize = 100;
/// The most.
const MOST: usize = 1000;
/// A page is given as it is after this long: few of many sessions may be wanted.
const TIME: Duration = Duration::from_millis(500);
/// How long a worker may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where a page begins: at a line of the table of a tracker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Which tracker, in the graph's order.
    pub tracker: usize,
    pub line: u32,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.tracker, self.line)
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let read = || {
            let (tracker, line) = text.split_once(':')?;
            Some(Self { tracker: tracker.parse().ok()?, line: line.parse().ok()? })
        };
        read().ok_or_else(|| bad_cursor(text))
    }
}

fn bad_cursor(text: &str) -> Error {
    Error::params("params.cursor", format!("{text:?} is no cursor; use what `next` of a page says"))
}

/// The connection trackers of a graph at work.
pub struct Trackers {
    view: View,
    pub names: Vec<String>,
}

impl Trackers {
    pub fn of(context: &dyn CallContext, graph: &str) -> Result<Self, Error> {
        let fix = "Name the graph of a NAT; graph.list says which there are";
        Self::of_kind(context, graph, KIND, fix)
    }

    /// Elements of another kind, which are asked as trackers are.
    fn of_kind(context: &dyn CallContext, graph: &str, kind: &str, fix: &str) -> Result<Self, Error> {
        let view = context.graph(graph)?;
        let trackers = view.elements().into_iter().filter(|element| element.kind == kind);
        let names: Vec<String> = trackers.map(|element| element.name).collect();
        if names.is_empty() {
            let what = format!("the graph {graph:?} has no element of the kind {kind}");
            return Err(Error::new(NOTHING_THERE, "ND-104-11", "graph.elements", what, fix));
        }
        Ok(Self { view, names })
    }

    pub fn ask<R: Request>(&self, name: &str, request: R) -> Result<R::Reply, Error> {
        self.view.request(name, request, PATIENCE).map_err(|why| match why {
            ControlError::Busy(_) | ControlError::Late(_) => {
                Error::state(why.to_string(), "Ask again; graph.stats says whether its worker is overloaded")
            }
            _ => {
                let fix = "See graph.list";
                Error::new(NOTHING_THERE, "ND-104-11", "graph", why.to_string(), fix)
            }
        })
    }

    /// Where to begin.
    pub fn cursor(&self, text: Option<&str>) -> Result<Cursor, Error> {
        let from: Cursor = text.map(str::parse).transpose()?.unwrap_or_default();
        if from.tracker < self.names.len() { Ok(from) } else { Err(bad_cursor(&from.to_string())) }
    }

    /// Ask the first: what all of them know alike.
    fn first<R: Request>(&self, request: R) -> Result<R::Reply, Error> {
        let name = self.names.first().map_or("", String::as_str);
        self.ask(name, request)
    }

    /// A page from `cursor` on: `ask(tracker's name, line, how many)`.
    fn page<V>(
        &self,
        context: &dyn CallContext,
        (cursor, limit): (Option<&str>, usize),
        ask: impl Fn(&str, u32, usize) -> Result<PartialPage<V>, Error>,
    ) -> Result<(Vec<V>, Option<String>), Error> {
        if !(1..=MOST).contains(&limit) {
            return Err(Error::params(
                "params.limit",
                format!("a page has 1 to {MOST} entries, not {limit}"),
            ));
        }
        let from = self.cursor(cursor)?;
        let began = Instant::now();
        let go_on = || began.elapsed() < TIME && !context.is_ending();
        let ask = |tracker: usize, line, most| ask(&self.names[tracker], line, most);
        let (found, next) = page(self.names.len(), from, limit, go_on, ask)?;
        Ok((found, next.map(|next| next.to_string())))
    }
}

/// Entries of one tracker, and the line to go on from if there are more.
type PartialPage<V> = (Vec<V>, Option<u32>);

/// Ask tracker after tracker, from `at` on, until there are `limit` entries, all have been asked, or `go_on` says no.
fn page<V>(
    trackers: usize,
    mut at: Cursor,
    limit: usize,
    go_on: impl Fn() -> bool,
    ask: impl Fn(usize, u32, usize) -> Result<PartialPage<V>, Error>,
) -> Result<(Vec<V>, Option<Cursor>), Error> {
    let mut found = Vec::new();
    loop {
        let (more, next) = ask(at.tracker, at.line, limit - found.len())?;
        found.extend(more);
        at = match next {
            Some(line) => Cursor { line, ..at },
            None if at.tracker + 1 < trackers => Cursor { tracker: at.tracker + 1, line: 0 },
            None => return Ok((found, None)),
        };
        if found.len() >= limit || !go_on() {
            return Ok((found, Some(at)));
        }
    }
}

fn default_limit() -> usize {
    LIMIT
}

/// Which sessions, and from where on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sessions {
    graph: String,
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default = "default_limit")]
    limit: usize,
    #[serde(flatten)]
    filter: Filter,
}

/// A page of sessions.
pub fn sessions(context: &dyn CallContext, params: Sessions) -> Answer {
    let trackers = Trackers::of(context, &params.graph)?;
    let filter = params.filter.read()?;
    let ask = |name: &str, from, limit| {
        let SessionPage { sessions, next } =
            trackers.ask(name, nat_elements::control::Sessions { from, limit, filter })?;
        Ok((sessions, next))
    };
    let (sessions, next) = trackers.page(context, (params.cursor.as_deref(), params.limit), ask)?;
    Ok(json!({"sessions": sessions, "next": next}))
}

/// Which subscribers, and from where on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subscribers {
    graph: String,
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default = "default_limit")]
    limit: usize,
    #[serde(default)]
    subscriber: Option<String>,
}

/// A page of subscribers.
pub fn subscribers(context: &dyn CallContext, params: Subscribers) -> Answer {
    let trackers = Trackers::of(context, &params.graph)?;
    let subscriber =
        params.subscriber.as_deref().map(|text| address("params.subscriber", text)).transpose()?;
    let ask = |name: &str, from, limit| {
        let SubscriberPage { subscribers, next } =
            trackers.ask(name, nat_elements::control::Subscribers { from, limit, subscriber })?;
        Ok((subscribers, next))
    };
    let (subscribers, next) = trackers.page(context, (params.cursor.as_deref(), params.limit), ask)?;
    Ok(json!({"subscribers": subscribers, "next": next}))
}

/// From where on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pools {
    graph: String,
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default = "default_limit")]
    limit: usize,
}

/// An address, or the part of it that a tracker has.
#[derive(Debug, Serialize)]
struct TrackerPool {
    element: String,
    #[serde(flatten)]
    pool: PoolView,
}

/// A page of the pool's addresses.
pub fn pools(context: &dyn CallContext, params: Pools) -> Answer {
    let trackers = Trackers::of(context, &params.graph)?;
    let ask = |name: &str, from, limit| {
        let PoolPage { pools, next } = trackers.ask(name, nat_elements::control::Pools { from, limit })?;
        let tracker_pool = |pool| TrackerPool { element: name.to_owned(), pool };
        Ok((pools.into_iter().map(tracker_pool).collect(), next))
    };
    let (pools, next) = trackers.page(context, (params.cursor.as_deref(), params.limit), ask)?;
    Ok(json!({"pools": pools, "next": next}))
}

/// A page of the sites that have a public address of their own.
pub fn sites(context: &dyn CallContext, params: Pools) -> Answer {
    let fix = "Name the graph of a NAT whose configuration has `sites` in place of a pool";
    let there = Trackers::of_kind(context, &params.graph, nat_elements::sites::KIND, fix)?;
    let ask = |name: &str, from, limit| {
        let SitePage { sites, next } = there.ask(name, view::Sites { from, limit })?;
        Ok((sites, next))
    };
    let (sites, next) = there.page(context, (params.cursor.as_deref(), params.limit), ask)?;
    Ok(json!({"sites": sites, "next": next}))
}

/// Which graph.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphParams {
    graph: String,
}

/// A tracker and its numbers.
#[derive(Debug, Serialize)]
struct Worker<'a> {
    element: &'a str,
    #[serde(flatten)]
    status: StatusView,
}

/// The numbers of each tracker.
pub fn status(context: &dyn CallContext, params: GraphParams) -> Answer {
    let trackers = Trackers::of(context, &params.graph)?;
    let workers = trackers.names.iter().map(|element| {
        let status = trackers.ask(element, Status)?;
        Ok(json!(Worker { element, status }))
    });
    let workers = workers.collect::<Result<Vec<_>, Error>>()?;
    let pair = trackers.first(PairStatus)?;
    Ok(json!({"workers": workers, "pair": pair}))
}

/// Let the standby of a pair go on in place of this NAT.
pub fn hand_over(context: &dyn CallContext, params: GraphParams) -> Answer {
    context.may_change()?;
    let trackers = Trackers::of(context, &params.graph)?;
    let fix = "`netdyno nat pair` shows what each of the two is";
    trackers.first(HandOver)?.map_err(|why| Error::state(why.to_owned(), fix))?;
    Ok(json!({}))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables of lines, some of them free, of which three are looked at in a request.
    fn ask(tables: &[Vec<Option<u32>>], tracker: usize, line: u32, most: usize) -> PartialPage<u32> {
        let (lines, mut found) = (&tables[tracker], Vec::new());
        let end = lines.len().min(line as usize + 3);
        for (at, entry) in lines.iter().enumerate().take(end).skip(line as usize) {
            if found.len() == most {
                return (found, Some(at as u32));
            }
            found.extend(*entry);
        }
        (found, (end < lines.len()).then_some(end as u32))
    }

    fn tables() -> Vec<Vec<Option<u32>>> {
        let lines = |from: u32, to: u32| (from..to).map(|n| (n % 5 != 0).then_some(n));
        vec![lines(0, 50).collect(), vec![], (0..20).map(|_| None).chain(lines(100, 111)).collect()]
    }

    #[test]
    fn pages_have_every_entry_of_every_tracker_once() {
        let tables = tables();
        let all: Vec<u32> = tables.iter().flatten().flatten().copied().collect();
        for limit in [1, 2, 7, all.len(), 1000] {
            let (mut shown, mut at) = (Vec::new(), Some(Cursor::default()));
            while let Some(from) = at {
                let asked = |tracker, line, most| Ok(ask(&tables, tracker, line, most));
                let (found, next) = page(tables.len(), from, limit, || true, asked).unwrap();
                assert!(found.len() <= limit && (found.len() == limit || next.is_none()), "{limit}");
                shown.extend(found);
                at = next;
            }
            assert_eq!(shown, all, "{limit}");
        }
    }

    #[test]
    fn when_the_time_is_up_a_page_is_given_as_it_is() {
        let tables = tables();
        let asked = |tracker, line, most| Ok(ask(&tables, tracker, line, most));
        let (found, next) = page(tables.len(), Cursor { tracker: 2, line: 0 }, 10, || false, asked).unwrap();
        assert_eq!((found, next), (vec![], Some(Cursor { tracker: 2, line: 3 })));
        let refused = |_, _, _| Err::<PartialPage<u32>, _>(Error::state("late", "ask again"));
        assert!(page(1, Cursor::default(), 10, || true, refused).is_err());
    }

    #[test]
    fn cursors_are_read_as_they_are_written() {
        let cursor = Cursor { tracker: 3, line: 4_294_967_295 };
        assert_eq!("3:4294967295".parse::<Cursor>(), Ok(cursor));
        assert_eq!(cursor.to_string().parse::<Cursor>(), Ok(cursor));
        for text in ["", ":", "1", "1:", ":1", "1:2:3", "-1:2", "1:4294967296", "one:two", "1: 2"] {
            let error = text.parse::<Cursor>().unwrap_err();
            assert_eq!(
                (error.code, &error.data["at"]),
                (system::rpc::BAD_PARAMS, &json!("params.cursor")),
                "{text}"
            );
        }
    }
}
