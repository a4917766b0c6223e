//! The trace log: to standard error for people or as JSON, and the last entries kept for `log.tail`.

use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::fmt;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Entries kept.
const KEPT: usize = 10_000;

/// One entry.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    /// Its number, from 1.
    pub seq: u64,
    /// When, UTC, RFC 3339.
    pub time: String,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: &'static str,
    /// The part of the program.
    pub target: String,
    /// What happened.
    pub message: String,
    /// The particulars.
    pub fields: Map<String, Value>,
}

/// The last entries.
#[derive(Debug, Clone, Default)]
pub struct Tail(Arc<Mutex<(u64, VecDeque<Entry>)>>);

impl Tail {
    /// Entries after number `after`, at `level` or graver.
    pub fn entries_after(&self, after: u64, level: Level) -> Vec<Entry> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let grave = |e: &&Entry| e.level.parse::<Level>().is_ok_and(|l| l <= level);
        kept.1.iter().filter(|e| e.seq > after).filter(grave).cloned().collect()
    }
}

impl<S: Subscriber> Layer<S> for Tail {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.0 += 1;
        let entry = Entry {
            seq: kept.0,
            time: crate::clock::now(),
            level: match *event.metadata().level() {
                Level::ERROR => "error",
                Level::WARN => "warn",
                Level::INFO => "info",
                Level::DEBUG => "debug",
                Level::TRACE => "trace",
            },
            target: event.metadata().target().to_owned(),
            message: fields.message,
            fields: fields.rest,
        };
        kept.1.push_back(entry);
        if kept.1.len() > KEPT {
            kept.1.pop_front();
        }
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    rest: Map<String, Value>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.rest.insert(field.name().to_owned(), text.into());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.rest.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.rest.insert(field.name().to_owned(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.rest.insert(field.name().to_owned(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.rest.insert(field.name().to_owned(), value.into());
    }
}

/// Begin to log.
pub fn start(level: Level, json: bool) -> Tail {
    let tail = Tail::default();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let lines = if json { lines.json().boxed() } else { lines.with_target(false).compact().boxed() };
    tracing_subscriber::registry().with(LevelFilter::from_level(level)).with(lines).with(tail.clone()).init();
    tail
}
