//! Rates of a run's groups, changed by hand while it goes on.

use super::{Run, State};
use run::rates::{self, RateRequest};
use std::collections::BTreeMap;
use system::rpc::{BAD_PARAMS, Error};

impl Run {
    /// From the next point of the series on these rates: all of these groups, or none when one of them cannot be.
    pub fn set_rates(
        &self,
        requests: &BTreeMap<String, RateRequest>,
    ) -> Result<Vec<rates::RateChange>, Error> {
        let mut progress = self.progress();
        let moment = self.control.now().filter(|_| matches!(progress.state, State::Running | State::Paused));
        let Some(now) = moment else {
            return Err(Error::state(
                "the run sends no load now",
                "Change rates while it is `running` or `paused`",
            ));
        };
        let at = rates::moment(&self.control, now).ok_or_else(|| {
            Error::state("the load ends before a change could take effect", "Start another run")
        })?;
        let changes =
            rates::change(&self.plan, at, requests).map_err(|fault| Error::of(BAD_PARAMS, &fault))?;
        self.control.note_rate_change();
        for change in &changes {
            tracing::info!(run = %self.id, group = %change.group, t = change.t, rate = change.rate, "its rate was changed");
        }
        progress.rates.extend(changes.iter().cloned());
        Ok(changes)
    }
}
