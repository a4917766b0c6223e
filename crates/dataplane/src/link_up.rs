//! Waits for what must be there before a port can be used: the process at its other end, and its link, for which NICs
//! take seconds.

use crate::link_watch::{State, Watch};
use crate::ports::OpenPort;
use profile::Role;
use run::{Control, SetupError};
use std::time::{Duration, Instant};

/// For a peer, or a link.
const PATIENCE: Duration = Duration::from_secs(10);
/// For a peer that was reached. One that listens already and is not ready yet turns us away, and our driver does not
/// connect by itself again: the port is opened once more.
const ANSWER: Duration = Duration::from_secs(1);
/// How often to look.
const AGAIN: Duration = Duration::from_millis(50);

/// Whether the device connects to a process that must be there first: such ports come last, as that may be this one.
pub fn connects(settings: &profile::Port) -> bool {
    settings.device.parse::<dpdk::Device>().is_ok_and(|device| device.connects())
}

/// Whether an interface's fanout group is another process's for now. DPDK takes its number from process and interface, and those of
/// two ports may come to the same.
fn is_taken(why: &SetupError) -> bool {
    why.what.contains("PACKET_FANOUT")
}

/// Open a port: again and again, if it is one that [connects] and nobody is there yet, or one whose fanout group is taken.
pub fn open<'a>(
    settings: &profile::Port,
    control: &Control,
    attempt: impl Fn() -> Result<OpenPort<'a>, SetupError>,
) -> Result<OpenPort<'a>, SetupError> {
    if !connects(settings) {
        return retry_until_up(control, is_taken, attempt);
    }
    retry_until_up(
        control,
        |_| true,
        || {
            let open = attempt()?;
            await_link(&open, Instant::now() + ANSWER, control)?;
            Ok(open)
        },
    )
}

fn retry_until_up<T>(
    control: &Control,
    passes: impl Fn(&SetupError) -> bool,
    mut attempt: impl FnMut() -> Result<T, SetupError>,
) -> Result<T, SetupError> {
    let end = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(why) if passes(&why) && Instant::now() < end && !control.aborted() => {
                std::thread::sleep(AGAIN);
            }
            done => return done,
        }
    }
}

/// Wait until all ports that send, or measure what others send, have their link: what is sent before is lost, and the
/// port does not know its speed.
pub fn links(ports: &[OpenPort<'_>], control: &Control) -> Result<(), SetupError> {
    let end = Instant::now() + PATIENCE;
    let mut loads = ports.iter().filter(|port| port.settings.role == Role::Generator);
    loads.try_for_each(|open| await_link(open, end, control))
}

fn await_link(open: &OpenPort<'_>, end: Instant, control: &Control) -> Result<(), SetupError> {
    let watch = Watch::new(&open.port);
    while watch.state() != State::Up && !control.aborted() {
        if Instant::now() >= end {
            let why = open.port.link_fault().map(|why| format!(": {why}")).unwrap_or_default();
            return Err(SetupError::new(
                "ND-92-17",
                format!("transport.dpdk.ports[{}].device", open.index),
                format!(
                    "the link of the port {} did not come up within {PATIENCE:?}{why}",
                    open.settings.name
                ),
                "Is the cable plugged in, the other end up, and, of a port in memory, the process there running?",
            ));
        }
        std::thread::sleep(AGAIN);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_not_there_yet_is_waited_for() {
        let control = Control::new(0, 1, 0, 1);
        let mut tries = 0;
        let mut attempt = |least: u32| {
            tries += 1;
            let why = || SetupError::new("ND-92-12", "a", tries.to_string(), "Wait");
            if tries < least { Err(why()) } else { Ok(tries) }
        };
        assert_eq!(retry_until_up(&control, |_| true, || attempt(3)), Ok(3));
        let other = retry_until_up(&control, is_taken, || attempt(9));
        assert_eq!(other.map_err(|why| why.what), Err("4".into()));
        let mut taken = ["could not set PACKET_FANOUT", "no such device"].iter();
        let mut refused = || SetupError::new("ND-92-12", "a", *taken.next().expect("two tries"), "Wait");
        let why = retry_until_up(&control, is_taken, || Err::<(), _>(refused()));
        assert_eq!(why.map_err(|why| why.what), Err("no such device".into()));
        control.abort();
        assert_eq!(
            retry_until_up(&control, |_| true, || attempt(9)).map_err(|why| why.what),
            Err("5".into())
        );
        for (device, expected) in [
            ("net_memif,role=client,id=0", true),
            ("net_memif0", true),
            ("net_memif0,role=server", false),
            ("virtio:/run/v", true),
            ("net_virtio_user0,path=/run/v,server=1", false),
            ("net_virtio_user0,path=/dev/vhost-net", false),
            ("net_vhost,iface=/run/v", false),
            ("net_vhost,iface=/run/v,client=1", true),
            ("null", false),
            ("nonsense", false),
        ] {
            let port = serde_json::from_value(serde_json::json!({"name": "a", "device": device}));
            assert_eq!(connects(&port.expect("a port")), expected, "{device}");
        }
    }
}
