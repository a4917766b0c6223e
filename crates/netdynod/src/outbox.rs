//! What waits to be written to one connection.
//!
//! Answers wait for room, which holds back only him who asked. What is told unasked never waits: who leaves
//! too much of it unread is hung up on.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes beyond which nothing more is put in.
const ROOM: usize = 8 << 20;

/// What is to be written to a connection, bounded.
pub struct Outbox {
    queue: Mutex<Queue>,
    changed: Condvar,
    hang_up: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Arc<str>>,
    bytes: usize,
    /// Nothing more is taken; what is there still goes out.
    ended: bool,
    /// Nothing more is taken after the next answer.
    ends_by_answer: bool,
    /// Nothing more is written.
    closed: bool,
}

impl Outbox {
    /// An empty one; `hang_up` makes whoever reads or writes the connection stop.
    pub fn new(hang_up: impl Fn() + Send + Sync + 'static) -> Self {
        Self { queue: Mutex::default(), changed: Condvar::new(), hang_up: Box::new(hang_up) }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, queue: MutexGuard<'a, Queue>, f: impl Fn(&Queue) -> bool) -> MutexGuard<'a, Queue> {
        self.changed.wait_while(queue, |q| f(q)).unwrap_or_else(PoisonError::into_inner)
    }

    /// Put in an answer, once there is room.
    pub fn answer(&self, line: String) {
        let mut queue = self.wait(self.queue(), |q| q.bytes >= ROOM && !q.ended);
        queue.put(line.into());
        queue.ended |= queue.ends_by_answer;
        self.changed.notify_all();
    }

    /// Put in what was not asked for. False when there was no room: the connection has been hung up on.
    pub fn tell(&self, line: &Arc<str>) -> bool {
        let mut queue = self.queue();
        let room = queue.bytes < ROOM || queue.ended;
        if room {
            queue.put(Arc::clone(line));
        } else {
            *queue = Queue { ended: true, ..Queue::default() };
            (self.hang_up)();
        }
        self.changed.notify_all();
        room
    }

    /// The next line to write, once there is one; `None` when there will be no more.
    pub fn next(&self) -> Option<Arc<str>> {
        let mut queue = self.wait(self.queue(), |q| q.lines.is_empty() && !q.ended);
        let line = queue.lines.pop_front()?;
        queue.bytes -= line.len();
        self.changed.notify_all();
        Some(line)
    }

    /// Take nothing more; what waits still goes out.
    pub fn end(&self) {
        self.queue().ended = true;
        self.changed.notify_all();
    }

    /// Take nothing more after the next answer.
    pub fn end_by_answer(&self) {
        self.queue().ends_by_answer = true;
    }

    /// Nothing more is written: it cannot be, or all that waited is out.
    pub fn hang_up(&self) {
        let mut queue = self.queue();
        (queue.ended, queue.closed) = (true, true);
        drop(queue);
        self.changed.notify_all();
        (self.hang_up)();
    }

    /// Wait until nothing more is written. False when that took longer than `at_most`.
    pub fn wait_closed(&self, at_most: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.queue(), at_most, |q| !q.closed);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl Queue {
    fn put(&mut self, line: Arc<str>) {
        if !self.ended {
            self.bytes += line.len();
            self.lines.push_back(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn outbox() -> (Arc<Outbox>, Arc<AtomicUsize>) {
        let hung_up = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&hung_up);
        let hang_up = move || {
            seen.fetch_add(1, Ordering::Relaxed);
        };
        (Arc::new(Outbox::new(hang_up)), hung_up)
    }

    fn line(bytes: usize) -> Arc<str> {
        "x".repeat(bytes).into()
    }

    #[test]
    fn lines_leave_in_order_and_the_end_comes_after_them() {
        let (outbox, hung_up) = outbox();
        outbox.answer("a".into());
        assert!(outbox.tell(&"b".into()));
        outbox.end();
        outbox.answer("late".into());
        assert!(outbox.tell(&"late".into()), "an end is no fault of the reader's");
        assert_eq!(outbox.next().as_deref(), Some("a"));
        assert_eq!(outbox.next().as_deref(), Some("b"));
        assert_eq!(outbox.next(), None);
        assert_eq!(hung_up.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_last_answer_is_out_before_it_is_closed() {
        let (outbox, hung_up) = outbox();
        outbox.end_by_answer();
        assert!(outbox.tell(&"a".into()), "not an answer");
        outbox.answer("b".into());
        outbox.answer("late".into());
        assert!(!outbox.wait_closed(Duration::from_millis(1)), "two lines wait");
        let writing = Arc::clone(&outbox);
        let thread = std::thread::spawn(move || {
            let lines: Vec<_> = std::iter::from_fn(|| writing.next()).collect();
            writing.hang_up();
            lines
        });
        assert!(outbox.wait_closed(Duration::from_secs(60)));
        assert_eq!(thread.join().unwrap(), ["a".into(), "b".into()]);
        assert_eq!(hung_up.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn who_does_not_read_is_hung_up_on_at_the_limit() {
        let (outbox, hung_up) = outbox();
        assert!(outbox.tell(&line(ROOM - 1)), "one byte of room");
        assert!(outbox.tell(&line(100)), "what comes into the room may be larger");
        assert_eq!(hung_up.load(Ordering::Relaxed), 0);
        assert!(!outbox.tell(&line(1)));
        assert_eq!(hung_up.load(Ordering::Relaxed), 1);
        assert_eq!(outbox.next(), None, "nothing is kept for him");
    }

    #[test]
    fn an_answer_waits_for_room() {
        let (outbox, _) = outbox();
        outbox.answer("y".repeat(ROOM));
        let waiting = Arc::clone(&outbox);
        let thread = std::thread::spawn(move || waiting.answer("z".into()));
        assert_eq!(outbox.next().map(|l| l.len()), Some(ROOM));
        assert_eq!(outbox.next().as_deref(), Some("z"));
        thread.join().unwrap();
    }

    #[test]
    fn who_waits_for_room_is_let_go_when_the_connection_ends() {
        let (outbox, hung_up) = outbox();
        outbox.answer("y".repeat(ROOM));
        let waiting = Arc::clone(&outbox);
        let thread = std::thread::spawn(move || waiting.answer("z".into()));
        outbox.hang_up();
        thread.join().unwrap();
        assert_eq!(hung_up.load(Ordering::Relaxed), 1);
    }
}
