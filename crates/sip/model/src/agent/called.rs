//! Calls to user agents of this run, which register before.

use super::UserAgent;
use crate::config::Config;
use protocol::model::Cx;
use protocol::template::Values;
use protocol::time::Time;
use rand::SeedableRng;
use rand::rngs::SmallRng;

impl Config {
    /// User agent number `device` is going to be called.
    pub(crate) fn expect_callee(&self, device: u32) {
        let Some(callees) = self.callees.as_ref().filter(|_| self.is_callee) else { return };
        // what it renders depends on the number alone
        let (values, mut rng) = (Values { device, seq: 0, now: Time::ZERO }, SmallRng::seed_from_u64(0));
        let mut address = Vec::with_capacity(48);
        address.extend_from_slice(if self.is_secure() { b"sips:" } else { b"sip:" });
        self.user.render(values, &mut rng, &mut address);
        address.push(b'@');
        self.domain.render(values, &mut rng, &mut address);
        callees.expect(&address);
    }
}

impl UserAgent {
    /// Our own address of record, where we are called at it.
    fn called_at(&self, cx: &mut Cx<'_>) -> Option<Vec<u8>> {
        let config = self.config.clone();
        let mut address = Vec::with_capacity(48);
        (config.is_callee && config.callees.is_some()).then(|| {
            self.uri(&config.user, cx, &mut address);
            address
        })
    }

    pub(super) fn registration_accepted(&self, cx: &mut Cx<'_>) {
        if let (Some(address), Some(callees)) = (self.called_at(cx), &self.config.callees) {
            callees.registered(&address, cx.now);
        }
    }

    /// The flow has failed, be it with the registration or behind it.
    pub(super) fn registration_failed(&self, cx: &mut Cx<'_>) {
        if let (Some(address), Some(callees)) = (self.called_at(cx), &self.config.callees) {
            callees.failed(&address);
        }
    }

    /// Whether a call that was due at `due` was rejected with `status` as its callee had yet to register.
    pub(super) fn is_called_early(&self, status: u16, due: Time) -> bool {
        let (Some(callees), Some(dialog)) = (&self.config.callees, &self.dialogs.dialog) else {
            return false;
        };
        let unknown = matches!(status, 404 | 480);
        let address = dialog.remote.strip_prefix(b"<").and_then(|rest| rest.strip_suffix(b">"));
        unknown && address.is_some_and(|address| callees.is_early(address, due))
    }
}
