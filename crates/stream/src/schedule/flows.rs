//! The flows of devices that do not send all the time: which of them are under way, which rest, which are over.

use crate::schedule::{Departure, Timing};
use protocol::time::Time;
use std::collections::VecDeque;

/// The flows of a group's devices: at most 16 bytes a device.
#[derive(Debug, Clone)]
pub struct Flows {
    /// When each device's flow began; where it rests, when it wakes; where all its flows are over, never.
    pub since: Vec<u64>,
    /// How many flows of each device are over; empty where flows have no end.
    over: Vec<u32>,
    /// Devices that rest, the first to wake first: all rest equally long.
    resting: VecDeque<u32>,
}

impl Flows {
    /// None has begun.
    pub fn new(timing: &Timing) -> Self {
        let ended = if timing.count > 0 { timing.devices as usize } else { 0 };
        Self {
            since: (0..timing.devices).map(|device| wakes(timing, device)).collect(),
            over: vec![0; ended],
            resting: VecDeque::with_capacity(ended),
        }
    }

    /// Whether the device does not send at `due`.
    #[inline]
    pub fn is_resting(&self, device: u32, due: Time) -> bool {
        self.since.get(device as usize).is_none_or(|since| *since > due.0)
    }

    /// Whether the device has done all its flows.
    #[inline]
    pub fn is_over(&self, device: u32) -> bool {
        self.since.get(device as usize).is_none_or(|since| *since == u64::MAX)
    }

    /// Number `sequence` of a device is sent, due at `due`.
    #[inline]
    pub fn step(&mut self, timing: &Timing, (device, sequence): (u32, u64), due: Time) -> Departure {
        let since = &mut self.since[device as usize];
        let mut departure =
            Departure { device, sequence, due, begins: sequence == 0, ends: false, begun: due };
        let Some(over) = self.over.get_mut(device as usize) else { return departure };
        let first = u64::from(*over) * timing.count;
        departure.begins = sequence == first;
        if departure.begins {
            *since = due.0;
        }
        departure.begun = Time(*since);
        departure.ends = sequence + 1 == first + timing.count;
        if departure.ends {
            *over = over.saturating_add(1);
            *since = match *over == timing.flows {
                true => u64::MAX,
                false => due.0.saturating_add(timing.rest_ns).saturating_add(1),
            };
        }
        departure
    }

    /// Keep account of who rests.
    #[inline]
    pub fn follow(&mut self, departure: &Departure) {
        if departure.ends && !self.is_over(departure.device) {
            self.resting.push_back(departure.device);
        }
    }

    /// What [`Flows::restore`] needs to take a step of the device back.
    pub fn state(&self, device: u32) -> (u64, u32) {
        let at = device as usize;
        (self.since.get(at).copied().unwrap_or(0), self.over.get(at).copied().unwrap_or(0))
    }

    /// As it was.
    pub fn restore(&mut self, device: u32, (since, over): (u64, u32)) {
        if let Some(at) = self.since.get_mut(device as usize) {
            *at = since;
        }
        if let Some(at) = self.over.get_mut(device as usize) {
            *at = over;
        }
    }

    /// Those whose rest is over by `now` rest no more; to be told before any of them sends.
    #[inline]
    pub fn wake(&mut self, now: Time) {
        while let Some(device) = self.resting.front()
            && !self.is_resting(*device, now)
        {
            self.resting.pop_front();
        }
    }

    /// Devices that have begun to be there at `now` and do not rest.
    pub fn awake(&mut self, timing: &Timing, now: Time) -> u32 {
        self.wake(now);
        devices_started(timing, now).saturating_sub(self.resting.len() as u32)
    }

    /// Flows that a device which sent so much has begun.
    pub fn flows_started(&self, timing: &Timing, device: u32, sent: u64) -> u32 {
        let over = self.over.get(device as usize).copied().unwrap_or(0);
        over + u32::from(sent > u64::from(over) * timing.count)
    }
}

#[cfg(test)]
impl Flows {
    /// Bytes that they hold.
    pub fn memory(&self) -> usize {
        let times = self.since.capacity() * size_of::<u64>();
        times + (self.over.capacity() + self.resting.capacity()) * size_of::<u32>()
    }

    /// How many rest, as far as that was told.
    pub fn resting_devices(&self) -> usize {
        self.resting.len()
    }
}

/// When a device first wakes: the ramp begins when the group does.
fn wakes(timing: &Timing, device: u32) -> u64 {
    let at = u128::from(timing.ramp_ns) * u128::from(device) / u128::from(timing.devices.max(1));
    u64::try_from(at).unwrap_or(u64::MAX).saturating_add(timing.after_ns)
}

/// When all devices woke.
#[inline]
pub fn ramp_end(timing: &Timing) -> Time {
    Time(timing.after_ns.saturating_add(timing.ramp_ns))
}

/// How many devices woke for the first time until `now`: `ramp · i / devices`, rounded down, is at most the time since the
/// group began for them.
pub fn devices_started(timing: &Timing, now: Time) -> u32 {
    let Some(passed) = now.0.checked_sub(timing.after_ns) else { return 0 };
    let devices = u128::from(timing.devices);
    let many = (u128::from(passed) + 1) * devices;
    match timing.ramp_ns {
        0 => timing.devices,
        ramp => u32::try_from(many.div_ceil(ramp.into()).min(devices)).unwrap_or(timing.devices),
    }
}

/// The share of the devices that is there from `from` to `to` on average, of those that the ramp wakes.
pub fn awake_share(timing: &Timing, from: Time, to: Time) -> f64 {
    let (devices, ramp) = (f64::from(timing.devices), timing.ramp_ns as f64);
    // The time that all of them together were there by then.
    let together = |at: Time| {
        let passed = at.0.saturating_sub(timing.after_ns) as f64;
        let step = ramp / devices;
        let steps = if ramp > 0.0 { (passed / step).floor().min(devices) } else { devices };
        let last = (steps + 1.0).min(devices);
        steps * (steps + 1.0) / 2.0 * step + last * (passed - steps * step)
    };
    let span = to.0.saturating_sub(from.0) as f64 * devices;
    if span > 0.0 { ((together(to) - together(from)) / span).clamp(0.0, 1.0) } else { 1.0 }
}
