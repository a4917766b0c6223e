//! What a user agent that stays registered keeps: there may be a million of them.

use super::*;

/// Bytes of a user agent itself. A registered one has its dialog beside it, and nothing else.
const MOST: usize = 480;

#[test]
fn a_registered_user_agent_keeps_nothing_of_what_came() {
    let (scenario, hold) = (Scenario::Preset(Preset::StayRegistered), Interval::secs(60));
    let mut bench = bench_of(0, Params { scenario, hold, ..Params::default() });
    begin(&mut bench);
    let register = one(&mut bench);
    receive(&mut bench, &response(&register, 200, "s", ""));
    assert_eq!(counter(&bench, "registrations_accepted"), 1);
    let agent = &bench.model;
    assert_eq!(agent.footprint(), (0, 0));
    let queues = (agent.inbox.capacity(), agent.past.capacity(), agent.unacknowledged.capacity());
    assert_eq!((queues, agent.forks.capacity()), ((0, 0, 0), 0));
    assert!(size_of::<UserAgent>() <= MOST, "{} bytes", size_of::<UserAgent>());
}
