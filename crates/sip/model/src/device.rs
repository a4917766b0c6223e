//! A device of the `sip` model: a user agent out of line, so that devices of all models stay small.

use crate::agent::UserAgent;
use crate::config::Config;
use protocol::media::MediaPacket;
use protocol::meter::Failure;
use protocol::model::{Cx, Model};
use protocol::time::Time;
use std::sync::Arc;

/// One virtual user agent.
#[derive(Debug)]
pub struct Device(Box<UserAgent>);

impl Config {
    /// A new user agent.
    pub fn device(self: &Arc<Self>, index: u32) -> Device {
        self.expect_callee(index);
        Device(Box::new(UserAgent::new(Arc::clone(self))))
    }
}

impl Model for Device {
    fn start(&mut self, cx: &mut Cx<'_>) {
        self.0.start(cx);
    }

    fn connected(&mut self, cx: &mut Cx<'_>) {
        self.0.connected(cx);
    }

    fn received(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> usize {
        self.0.received(cx, bytes)
    }

    fn timer(&mut self, cx: &mut Cx<'_>) {
        self.0.timer(cx);
    }

    fn media(&mut self, cx: &mut Cx<'_>, packet: MediaPacket<'_>) {
        self.0.media(cx, packet);
    }

    fn closed(&mut self, cx: &mut Cx<'_>, why: Failure) {
        self.0.closed(cx, why);
    }

    fn stop(&mut self, cx: &mut Cx<'_>) {
        self.0.stop(cx);
    }

    fn abandoned(&mut self, cx: &mut Cx<'_>) {
        self.0.abandoned(cx);
    }

    fn leaves_behind(&self) -> bool {
        self.0.leaves_behind()
    }

    fn clean_up(&mut self, cx: &mut Cx<'_>) {
        self.0.clean_up(cx);
    }

    fn cleaned_up(&mut self, cx: &mut Cx<'_>) {
        self.0.cleaned_up(cx);
    }

    fn waiting_since(&self) -> Time {
        self.0.waiting_since()
    }

    fn is_free(&self) -> bool {
        self.0.is_free()
    }
}
