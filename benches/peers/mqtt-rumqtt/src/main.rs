//! A peer for the MQTT bench: clients of rumqttc on one thread, each publishing at QoS 1 with so many messages in
//! flight (one, unless told otherwise), and again when the broker acknowledged one.

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use rumqttc::{AsyncClient, Event, EventLoop, MqttOptions, NetworkOptions, Packet, QoS};
use tokio::sync::Barrier;
use tokio::task::LocalSet;
use tokio::time::{Instant, timeout_at};

/// What there is to set, by `--name value`.
struct Options {
    host: String,
    port: u16,
    clients: usize,
    seconds: f64,
    size: usize,
    inflight: u16,
}

impl Options {
    fn read() -> Result<Options, Box<dyn Error>> {
        let mut options = Options {
            host: "127.0.0.1".into(),
            port: 1883,
            clients: 50,
            seconds: 4.0,
            size: 64,
            inflight: 1,
        };
        let mut words = std::env::args().skip(1);
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name} lacks its value"))?;
            match name.as_str() {
                "--host" => options.host = value,
                "--port" => options.port = value.parse()?,
                "--clients" => options.clients = value.parse()?,
                "--seconds" => options.seconds = value.parse()?,
                "--size" => options.size = value.parse()?,
                "--inflight" => options.inflight = value.parse()?,
                _ => return Err(format!("no option {name}").into()),
            }
        }
        Ok(options)
    }
}

/// What all clients together counted.
#[derive(Default)]
struct Counts {
    acked: Cell<u64>,
    failed: Cell<u64>,
}

fn more(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

async fn client(number: usize, options: Rc<Options>, begin: Rc<Barrier>, counts: Rc<Counts>) {
    let mut mqtt = MqttOptions::new(format!("peer-{number}"), &options.host, options.port);
    mqtt.set_keep_alive(Duration::from_secs(60)).set_inflight(options.inflight);
    let (client, mut events) = AsyncClient::new(mqtt, usize::from(options.inflight) + 1);
    let mut network = NetworkOptions::new();
    network.set_tcp_nodelay(true);
    events.set_network_options(network);
    match events.poll().await {
        Ok(Event::Incoming(Packet::ConnAck(_))) => {}
        other => {
            eprintln!("client {number} is not connected: {other:?}");
            std::process::exit(1);
        }
    }
    begin.wait().await;
    let until = Instant::now() + Duration::from_secs_f64(options.seconds);
    publish(&client, &mut events, number, until, &options, &counts).await;
}

/// Publish until the time is over; a connection that ends has failed, and is not made again.
async fn publish(
    client: &AsyncClient,
    events: &mut EventLoop,
    number: usize,
    until: Instant,
    options: &Options,
    counts: &Counts,
) {
    let (topic, payload) = (format!("nd/{number}"), vec![b'x'; options.size]);
    let again = || {
        if client.try_publish(topic.as_str(), QoS::AtLeastOnce, false, payload.clone()).is_err() {
            more(&counts.failed);
        }
    };
    for _ in 0..options.inflight {
        again();
    }
    while let Ok(event) = timeout_at(until, events.poll()).await {
        match event {
            Ok(Event::Incoming(Packet::PubAck(_))) => {
                more(&counts.acked);
                again();
            }
            Ok(_) => {}
            Err(error) => {
                eprintln!("client {number}: {error}");
                more(&counts.failed);
                return;
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Rc::new(Options::read()?);
    let (begin, counts) = (Rc::new(Barrier::new(options.clients)), Rc::new(Counts::default()));
    let all = LocalSet::new();
    let clients: Vec<_> = (0..options.clients)
        .map(|number| all.spawn_local(client(number, options.clone(), begin.clone(), counts.clone())))
        .collect();
    all.run_until(async {
        for each in clients {
            each.await?;
        }
        Ok::<(), tokio::task::JoinError>(())
    })
    .await?;
    println!("{{\"acked\": {}, \"failed\": {}}}", counts.acked.get(), counts.failed.get());
    Ok(())
}
