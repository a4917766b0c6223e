//! Everything that touches raw packets is an [`Element`]; elements form a [`Graph`]; a [`Placement`] says
//! which worker runs which element; [`Engine::start`] runs it.
//!
//! ```text
//!  Graph      generator ──► tx        rx ──► receiver          what is done
//!  Placement  worker 0: generator, tx     worker 1: rx, receiver    where
//! ```
//! Elements on one worker call each other straight (run-to-completion). Where an edge crosses workers a
//! single-producer ring carries it (pipeline). The elements do not know the difference.
//!
//! What a stage with state needs, such as a NAT:
//! - a [`Parser`] before it writes what is in the headers into each packet's [`Meta`](dpdk::Meta); no stage parses again;
//! - several of it by [`Graph::add_replicable`] and [`Placement::replicas`](Placement), each on its worker, with an
//!   [`Affinity`] that keeps what belongs together on one: flows, subscribers, port blocks;
//! - outputs with back-pressure: [`Cx::room`], [`Cx::offer`], [`Element::refused`];
//! - settings changed and tables read while it works: [`View::request`], [`Element::control`], [`Mail`];
//! - up to 60 reasons to drop; timers in `timer::TimerWheel`, looked at from [`Element::poll`].
//!
//! On the packet path nothing allocates, locks or waits. Counters are written by one worker each and read
//! by any thread; other reports an element sends from [`Element::tick`].

pub mod affinity;
pub mod clock;
pub mod counters;
mod distributor;
pub mod element;
pub mod graph;
mod idle;
pub mod mailbox;
pub mod parser;
pub mod pauses;
pub mod placement;
pub mod port;
mod replicas;
mod run;
pub mod trace;
mod worker;

pub use affinity::{Affinity, MakeAffinity};
pub use clock::Clock;
pub use counters::{ElementStats, WorkerStats};
pub use element::{Cx, Element, ElementInfo};
pub use graph::{ElementId, Graph, GraphError};
pub use idle::IdlePolicy;
pub use mailbox::{ControlError, Mail, Request};
pub use parser::Parser;
pub use pauses::PauseStats;
pub use placement::{Placement, Replicas, WorkerSpec};
pub use run::{Engine, EngineError, Options, View};
