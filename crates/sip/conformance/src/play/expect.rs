//! What agents expect of the messages that they receive.

use super::{NO_ANSWER, Player, Stop, TICK, file};
use crate::ladder::summary;
use crate::step::{Count, Expect, Kind};
use sip_core::Method;
use sip_core::message::{Message, Name};
use std::time::{Duration, Instant};

impl Player<'_> {
    pub(super) fn expect(&mut self, expect: &Expect) -> Result<(), Stop> {
        let agent = self.agent(&expect.agent)?;
        let target = match &expect.to {
            Some(name) => {
                self.sent.iter().rposition(|sent| sent.agent == agent && sent.name.as_ref() == Some(name))
            }
            None => self
                .sent
                .iter()
                .rposition(|sent| sent.agent == agent && sent.message.method() != Some(&Method::Ack)),
        };
        // Another request in place of this one, with credentials, is the same to the test.
        let name = target.and_then(|at| self.sent[at].name.clone());
        let end = Instant::now() + expect.within.at(self.request.t1_ms);
        loop {
            self.look()?;
            let target = match (&name, target) {
                (Some(name), _) => self.sent.iter().rposition(|sent| sent.name.as_ref() == Some(name)),
                (None, Some(at)) => self.latest(at),
                (None, None) => None,
            };
            if let Some(found) = self.candidate(agent, expect, target)? {
                return self.accept(found, expect);
            }
            if Instant::now() >= end {
                return Err(match &expect.otherwise {
                    Some(why) => Stop::Inconclusive(why.clone()),
                    None => self.timed_out(agent, expect),
                });
            }
            std::thread::sleep(TICK);
        }
    }

    /// The same request with credentials, if it was challenged.
    fn latest(&self, at: usize) -> Option<usize> {
        let (agent, message) = (self.sent[at].agent, &self.sent[at].message);
        self.sent.iter().rposition(|sent| {
            sent.agent == agent
                && sent.message.method() == message.method()
                && sent.message.call_id() == message.call_id()
                && sent.message.values(Name::CallId).eq(message.values(Name::CallId))
        })
    }

    /// The first message that is expected. A final response that is not is an error.
    fn candidate(&self, agent: usize, expect: &Expect, target: Option<usize>) -> Result<Option<usize>, Stop> {
        for (at, one) in self.arrivals.iter().enumerate() {
            if one.agent != agent || one.taken || one.again != expect.again {
                continue;
            }
            let Some(message) = &one.saved.message else {
                let fault = Message::read(&one.saved.bytes).err().map(|fault| fault.to_string());
                return Err(Stop::Fail(format!(
                    "{} received what is no message: {}",
                    expect.agent,
                    fault.unwrap_or_default()
                )));
            };
            if message.code().is_some() && !self.answers(message, agent, target) {
                continue;
            }
            if expect.kinds.iter().any(|kind| is_of_kind(message, kind)) {
                return Ok(Some(at));
            }
            self.check_inconclusive(message, expect)?;
            let responses = expect.kinds.iter().all(|kind| matches!(kind, Kind::Status(..)));
            if responses && !expect.again && message.code().is_some_and(|code| code >= 200) {
                return Err(self.mismatch(message, expect));
            }
        }
        Ok(None)
    }

    /// Whether a response is for a request: by its branch, or where that is not one of ours by its method.
    fn answers(&self, response: &Message, agent: usize, target: Option<usize>) -> bool {
        let Some(target) = target else { return true };
        match self.transaction(agent, response) {
            Some(at) => at == target,
            None => {
                let method = response.cseq().ok().map(|cseq| cseq.method);
                method.is_none_or(|method| self.sent[target].message.method() == Some(&method))
            }
        }
    }

    fn check_inconclusive(&self, message: &Message, expect: &Expect) -> Result<(), Stop> {
        let why = expect.inconclusive.iter().find(|(kind, _)| is_of_kind(message, kind));
        if let Some((_, why)) = why {
            return Err(Stop::Inconclusive(format!("{why} (the server answered {})", line(message))));
        }
        if self.challenged && matches!(message.code(), Some(401 | 407)) {
            return Err(Stop::Inconclusive(NO_ANSWER.into()));
        }
        Ok(())
    }

    fn mismatch(&self, message: &Message, expect: &Expect) -> Stop {
        Stop::Fail(format!("{} expected {}; received {}", expect.agent, kinds(&expect.kinds), line(message)))
    }

    /// The message did not come. A response to another request or agent may say why.
    fn timed_out(&self, agent: usize, expect: &Expect) -> Stop {
        let others = self.arrivals.iter().rev().filter(|one| !one.taken && !one.again);
        let mut other = others.filter_map(|one| Some((one, one.saved.message.as_ref()?)));
        let finals = other.find(|(_, message)| message.code().is_some_and(|code| code >= 200));
        let mut why = "nothing came".to_owned();
        if let Some((one, message)) = finals {
            if one.agent != agent
                && let Err(stop) = self.check_inconclusive(message, expect)
            {
                return stop;
            }
            why = format!("{} received {}", self.agents[one.agent].name, line(message));
        }
        let ms = expect.within.ms(self.request.t1_ms);
        let again = if expect.again { " again" } else { "" };
        let kinds = kinds(&expect.kinds);
        Stop::Fail(format!("{} expected {kinds}{again} within {ms:.0} ms; {why}", expect.agent))
    }

    fn accept(&mut self, found: usize, expect: &Expect) -> Result<(), Stop> {
        self.arrivals[found].taken = true;
        let saved = self.arrivals[found].saved.clone();
        if let Some(message) = &saved.message {
            self.check_inconclusive(message, expect)?;
        }
        if let Some(name) = &expect.name {
            self.names.save(name, saved.clone());
        }
        for check in &expect.checks {
            if let Some(why) = check.failure(&saved, &self.names).map_err(file)? {
                let message = summary(&saved.bytes);
                return Err(Stop::Fail(format!("{} received {message}: {why}", expect.agent)));
            }
        }
        for check in &expect.recommended {
            if let Some(why) = check.failure(&saved, &self.names).map_err(file)? {
                self.warnings.push(format!("{} received {}: {why}", expect.agent, summary(&saved.bytes)));
            }
        }
        Ok(())
    }

    pub(super) fn silence(&mut self, agent: &str, kinds: &[Kind], duration: Duration) -> Result<(), Stop> {
        let (at, begin) = (self.agent(agent)?, Instant::now());
        self.pump(begin + duration)?;
        let heard = self.arrivals.iter().find(|one| {
            let message = one.saved.message.as_ref();
            one.agent == at
                && !one.taken
                && (!one.again || one.saved.at >= begin)
                && (kinds.is_empty() || message.is_some_and(|m| kinds.iter().any(|kind| is_of_kind(m, kind))))
        });
        match heard {
            None => Ok(()),
            Some(one) => {
                Err(Stop::Fail(format!("{agent} expected nothing; received {}", summary(&one.saved.bytes))))
            }
        }
    }

    pub(super) fn count(&mut self, count: &Count) -> Result<(), Stop> {
        let (agent, t1) = (self.agent(&count.agent)?, self.request.t1_ms);
        self.pump(Instant::now() + count.duration.at(t1))?;
        let mut times = Vec::new();
        for one in self.arrivals.iter_mut().filter(|one| one.agent == agent && !one.taken) {
            let message = one.saved.message.as_ref();
            if message.is_some_and(|message| count.kinds.iter().any(|kind| is_of_kind(message, kind))) {
                one.taken = true;
                times.push(one.saved.at);
            }
        }
        let kinds = kinds(&count.kinds);
        let fail = |what: String| Err(Stop::Fail(format!("{} received {kinds} {what}", count.agent)));
        if times.len() < count.least || times.len() > count.most {
            let most = if count.most == usize::MAX { String::new() } else { format!(" to {}", count.most) };
            return fail(format!("{} times; expected {}{most}", times.len(), count.least));
        }
        let gaps: Vec<f64> =
            times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1000.0).collect();
        for (at, expected) in count.gaps.iter().enumerate() {
            let expected = expected.ms(t1);
            let Some(gap) = gaps.get(at) else {
                return fail(format!("{} times; expected another after {expected:.0} ms", times.len()));
            };
            if (gap - expected).abs() > expected * count.tolerance + 10.0 {
                return fail(format!(
                    "retransmission {} after {gap:.0} ms; expected {expected:.0} ms",
                    at + 1
                ));
            }
        }
        let limit = count.longest.map(|longest| longest.ms(t1));
        if let Some((limit, gap)) = limit.zip(gaps.iter().copied().reduce(f64::max))
            && gap > limit
        {
            return fail(format!("{gap:.0} ms apart; expected at most {limit:.0} ms"));
        }
        let last = times.first().zip(times.last()).map(|(a, b)| (*b - *a).as_secs_f64() * 1000.0);
        match count.end.map(|end| end.ms(t1)).zip(last) {
            Some((end, last)) if last > end => {
                fail(format!("{last:.0} ms after the first; expected none after {end:.0} ms"))
            }
            _ => Ok(()),
        }
    }
}

fn is_of_kind(message: &Message, kind: &Kind) -> bool {
    match kind {
        Kind::Method(name) => message.method().is_some_and(|method| method.as_str() == name),
        Kind::Status(from, to) => message.code().is_some_and(|code| (*from..=*to).contains(&code)),
    }
}

fn kinds(kinds: &[Kind]) -> String {
    kinds.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

fn line(message: &Message) -> String {
    summary(&message.to_bytes())
}
