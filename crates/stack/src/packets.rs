//! Queues of packets that share one memory: emptied places are used again, so a queue that has been as long before allocates
//! nothing.

/// No packet.
const NONE: u32 = u32::MAX;
/// What a packet counts besides its bytes.
const OVERHEAD: usize = 64;
/// Most bytes of all queues together.
const MOST: usize = 256 << 20;

#[derive(Debug)]
struct Slot {
    bytes: Vec<u8>,
    next: u32,
}

/// The memory of all queues.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    slots: Vec<Slot>,
    free: Vec<u32>,
    used: usize,
}

/// One queue.
#[derive(Debug)]
pub(crate) struct Queue {
    head: u32,
    tail: u32,
    used: usize,
    len: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Self { head: NONE, tail: NONE, used: 0, len: 0 }
    }
}

impl Queue {
    /// How many packets are in it.
    pub fn len(&self) -> u64 {
        self.len.into()
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Packets {
    /// Put a packet behind those of `queue`, which holds `room` bytes. `false`: there is no room.
    pub fn push(&mut self, queue: &mut Queue, packet: &[u8], room: usize) -> bool {
        let size = packet.len() + OVERHEAD;
        if queue.used + size > room || self.used + size > MOST {
            return false;
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.slots.push(Slot { bytes: Vec::new(), next: NONE });
                self.slots.len() as u32 - 1
            }
        };
        let slot = &mut self.slots[index as usize];
        slot.bytes.clear();
        slot.bytes.extend_from_slice(packet);
        slot.next = NONE;
        if queue.tail == NONE {
            queue.head = index;
        } else {
            self.slots[queue.tail as usize].next = index;
        }
        queue.tail = index;
        queue.used += size;
        queue.len += 1;
        self.used += size;
        true
    }

    /// The oldest packet of `queue`.
    pub fn front(&self, queue: &Queue) -> Option<&[u8]> {
        self.slots.get(queue.head as usize).map(|slot| &slot.bytes[..])
    }

    /// Let go of the oldest packet of `queue`.
    pub fn pop(&mut self, queue: &mut Queue) {
        let index = queue.head;
        let Some(slot) = self.slots.get(index as usize) else { return };
        let size = slot.bytes.len() + OVERHEAD;
        queue.head = slot.next;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        queue.used -= size;
        queue.len -= 1;
        self.used -= size;
        self.free.push(index);
    }

    /// Let go of all packets of `queue`; how many there were.
    pub fn clear(&mut self, queue: &mut Queue) -> u64 {
        let len = queue.len();
        while !queue.is_empty() {
            self.pop(queue);
        }
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_keep_their_order_and_give_their_places_back() {
        let mut all = Packets::default();
        let [mut a, mut b] = [(); 2].map(|()| Queue::default());
        for n in 0..5u8 {
            assert!(all.push(&mut a, &[n; 10], 1 << 10) && all.push(&mut b, &[n + 100; 3], 1 << 10));
        }
        assert_eq!((a.len(), all.slots.len()), (5, 10));
        for n in 0..5u8 {
            assert_eq!(all.front(&a), Some(&[n; 10][..]));
            all.pop(&mut a);
        }
        assert!(a.is_empty() && all.front(&a).is_none());
        assert!(all.push(&mut a, &[], 1 << 10) && all.front(&a) == Some(&[][..]));
        assert_eq!(all.slots.len(), 10, "a free place was taken");
        assert_eq!((all.clear(&mut a), all.clear(&mut b), all.used), (1, 5, 0));
    }

    #[test]
    fn a_full_queue_takes_no_more() {
        let (mut all, mut queue) = (Packets::default(), Queue::default());
        assert!(all.push(&mut queue, &[0; 36], 200));
        assert!(!all.push(&mut queue, &[0; 37], 200));
        assert!(all.push(&mut queue, &[0; 36], 200));
        assert_eq!((queue.used, queue.len()), (200, 2));
    }
}
