//! From the names of fields that vary to their places and values.

use super::address::MacAddress;
use super::error::FrameError;
use super::field::{self, Field, Form, fields};
use super::flow::Flow;
use super::headers::Placed;
use super::layer::Layer;
use super::recipe::Devices;
use super::vary::{Change, Value, Values, Vary};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A field that varies.
#[derive(Debug, Clone)]
pub(super) struct Selected {
    pub field: Field,
    /// Where its window begins in the frame.
    pub at: usize,
    pub values: Values,
    /// The upper half of an IPv6 address of which the lower half varies.
    pub prefix: Option<u64>,
    /// In errors: `vary[0].field`.
    pub name: String,
}

impl Selected {
    /// The bytes of its window in the frame.
    pub fn window(&self) -> std::ops::Range<usize> {
        self.at..self.at + usize::from(self.field.width)
    }

    /// Make the field's bits zero.
    pub fn clear(&self, bytes: &mut [u8]) {
        let width = usize::from(self.field.width);
        let mask = self.field.mask().to_be_bytes();
        let window = bytes.get_mut(self.at..self.at + width).into_iter().flatten();
        window.zip(&mask[8 - width..]).for_each(|(byte, mask)| *byte &= !mask);
    }
}

/// Find all fields that vary.
pub(super) fn select(vary: &[Vary], placed: &[Placed<'_>], seed: u64) -> Result<Vec<Selected>, FrameError> {
    let mut all: Vec<Selected> = Vec::new();
    for (i, one) in vary.iter().enumerate() {
        let name = format!("vary[{i}]");
        let (field, at) = find(&one.field, placed, &format!("{name}.field"))?;
        let same = |other: &Selected| {
            let apart = other.at + usize::from(other.field.width) <= at
                || at + usize::from(field.width) <= other.at
                || (other.at == at && other.field.mask() & field.mask() == 0);
            // The windows of the two Ethernet addresses overlap, the addresses do not.
            let both_mac = other.field.form == Form::Mac && field.form == Form::Mac && other.at != at;
            !(apart || both_mac)
        };
        if let Some(other) = all.iter().position(same) {
            let what = format!("{} varies already, in vary[{other}]", one.field);
            return Err(FrameError::new(format!("{name}.field"), what, "Let each field vary once"));
        }
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(i as u64);
        let (values, prefix) = values(one, &field, &name, seed)?;
        all.push(Selected { field, at, values, prefix, name: format!("{name}.field") });
    }
    Ok(all)
}

/// Let what differs from device to device vary with the device: the source port and address of the outermost
/// headers, where the recipe does not give them.
pub(super) fn devices(all: &mut Vec<Selected>, placed: &[Placed<'_>], flow: &Flow, devices: &Devices<'_>) {
    let mut add = |layer: &str, name: &str, values: Vec<u64>, prefix: Option<u64>| {
        let Ok((field, at)) = find(&format!("{layer}.{name}"), placed, "") else { return };
        if !all.iter().any(|other| other.at == at && other.field.mask() & field.mask() != 0) {
            let name = format!("{layer}.{name}");
            all.push(Selected { field, at, values: Values::of_devices(values), prefix, name });
        }
    };
    let open = |one: &&Placed<'_>| match one.layer {
        Layer::Udp(udp) => udp.source_port.is_none(),
        Layer::Tcp(tcp) => tcp.source_port.is_none(),
        _ => false,
    };
    let first = |which: fn(&Layer) -> bool| placed.iter().find(|one| which(one.layer));
    if devices.count > 1
        && let Some(l4) = first(|layer| matches!(layer, Layer::Udp(_) | Layer::Tcp(_))).filter(open)
    {
        let ports = u64::from(devices.ports.max(1));
        let port = |device: u32| (u64::from(flow.source.port()) + u64::from(device) % ports) & 0xffff;
        add(l4.layer.name(), "source_port", (0..devices.count).map(port).collect(), None);
    }
    let ip = first(|layer| matches!(layer, Layer::Ipv4(_) | Layer::Ipv6(_)));
    if devices.sources.len() < 2 {
        return;
    }
    let Some(ip) = ip else { return };
    let wide = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    };
    let values = || devices.sources.iter().map(wide);
    match ip.layer {
        Layer::Ipv4(v4) if v4.source.is_none() => {
            add("ipv4", "source", values().map(|ip| ip as u64).collect(), None);
        }
        Layer::Ipv6(v6) if v6.source.is_none() => {
            add("ipv6", "source_prefix", values().map(|ip| (ip >> 64) as u64).collect(), None);
            add("ipv6", "source", values().map(|ip| ip as u64).collect(), None);
        }
        _ => {}
    }
}

/// The field called `name` (`ipv4[1].source`), and where its window begins.
fn find(name: &str, placed: &[Placed<'_>], at: &str) -> Result<(Field, usize), FrameError> {
    let unknown = |what: String| {
        let fix = "Write LAYER.FIELD, like ipv4.source; the second layer of a kind is ipv4[1].source";
        FrameError::new(at, what, fix)
    };
    let (layer, wanted) =
        name.split_once('.').ok_or_else(|| unknown(format!("{name:?} names no field of a layer")))?;
    let (kind, number) = match layer.strip_suffix(']').and_then(|layer| layer.split_once('[')) {
        Some((kind, number)) => {
            (kind, number.parse().map_err(|_| unknown(format!("{number:?} is no number of a layer")))?)
        }
        None => (layer, 0),
    };
    let Some(one) = placed.iter().filter(|one| one.layer.name() == kind).nth(number) else {
        let there: Vec<_> = placed.iter().map(|one| one.layer.name()).collect();
        return Err(unknown(format!("the frame has no layer {layer:?}; it has {}", there.join(", "))));
    };
    if let Layer::Payload(_) = one.layer {
        let place =
            wanted.parse().ok().and_then(field::payload).ok_or_else(|| {
                unknown(format!("{wanted:?} is no even place in the payload, like payload.8"))
            })?;
        return Ok((place, one.at + place.at));
    }
    match fields(one.layer).iter().find(|field| field.name == wanted) {
        Some(field) => Ok((*field, one.at + field.at)),
        None => {
            let names: Vec<_> = fields(one.layer).iter().map(|field| field.name).collect();
            Err(unknown(format!("{kind} has no field {wanted:?} that can vary; it has {}", names.join(", "))))
        }
    }
}

/// The values of a field, and the upper half of the addresses whose lower half they are.
fn values(vary: &Vary, field: &Field, name: &str, seed: u64) -> Result<(Values, Option<u64>), FrameError> {
    let error = |key: &str, what: String, fix| Err(FrameError::new(format!("{name}.{key}"), what, fix));
    if vary.each == 0 {
        return error("each", "a value must hold for one frame at least".into(), "Give 1 or more");
    }
    let mut prefixes = Vec::new();
    let mut read = |value: &Value, key: &str| {
        let (value, prefix) = read(value, field, &format!("{name}.change.{key}"))?;
        prefixes.extend(prefix);
        Ok(value)
    };
    let values = match &vary.change {
        Change::Increment(steps) | Change::Decrement(steps) => {
            let up = matches!(vary.change, Change::Increment(_));
            let key = if up { "increment" } else { "decrement" };
            let from = read(&steps.from, &format!("{key}.from"))?;
            if steps.count == 0 {
                return error(&format!("change.{key}.count"), "there is no value".into(), "Give 1 or more");
            }
            let way = u128::from(steps.step) * u128::from(steps.count - 1);
            let room = if up { field.max() - from } else { from };
            if way > u128::from(room) {
                let what =
                    format!("{} values run out of the field's range, 0 to {}", steps.count, field.max());
                return error(&format!("change.{key}.count"), what, "Use fewer values or smaller steps");
            }
            let step = if up { steps.step } else { steps.step.wrapping_neg() };
            Values::steps(from, step, steps.count, vary.each)
        }
        Change::Random(range) => {
            let (from, to) = (read(&range.from, "random.from")?, read(&range.to, "random.to")?);
            if from > to {
                return error("change.random", "from is greater than to".into(), "Change them round");
            }
            Values::random(from, to, seed, vary.each)
        }
        Change::List(list) if list.is_empty() => {
            return error("change.list", "there is no value".into(), "Give at least one");
        }
        Change::List(list) => {
            let all = list.iter().enumerate().map(|(i, value)| read(value, &format!("list[{i}]")));
            Values::list(all.collect::<Result<_, _>>()?, vary.each)
        }
    };
    if prefixes.iter().any(|prefix| *prefix != prefixes[0]) {
        let what = "the addresses differ in their upper 64 bits, which do not vary with this field".into();
        return error(
            "change",
            what,
            "Keep to one /64, and vary source_prefix or destination_prefix for the upper half",
        );
    }
    Ok((values, prefixes.first().copied()))
}

/// A value of `field`, and the upper half if it is an IPv6 address.
fn read(value: &Value, field: &Field, at: &str) -> Result<(u64, Option<u64>), FrameError> {
    let number = match (value, field.form) {
        (Value::Number(number), Form::Number | Form::Mac | Form::Ipv4) => Some((*number, None)),
        (Value::Text(text), Form::Mac) => text.parse::<MacAddress>().ok().map(|mac| {
            let mut wide = [0; 8];
            wide[2..].copy_from_slice(&mac.0);
            (u64::from_be_bytes(wide), None)
        }),
        (Value::Text(text), Form::Ipv4) => {
            text.parse::<Ipv4Addr>().ok().map(|ip| (u64::from(ip.to_bits()), None))
        }
        (Value::Text(text), Form::Ipv6) => {
            text.parse::<Ipv6Addr>().ok().map(|ip| (ip.to_bits() as u64, Some((ip.to_bits() >> 64) as u64)))
        }
        _ => None,
    };
    let Some((number, prefix)) = number else {
        let (what, fix) = match field.form {
            Form::Number => ("not a number", "Give a number"),
            Form::Mac => ("not an Ethernet address", "Write it like 02:00:00:00:00:01"),
            Form::Ipv4 => ("not an IPv4 address", "Write it like 10.0.0.1"),
            Form::Ipv6 => ("not an IPv6 address", "Write it like 2001:db8::1"),
        };
        let shown = match value {
            Value::Number(number) => number.to_string(),
            Value::Text(text) => format!("{text:?}"),
        };
        return Err(FrameError::new(at, format!("{shown} is {what}"), fix));
    };
    if number > field.max() {
        let what = format!("{number} is more than {}", field.max());
        return Err(FrameError::new(at, what, "Give a value that fits the field"));
    }
    Ok((number, prefix))
}
