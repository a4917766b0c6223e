//! Requests to elements at work and their answers, off the packets' way.
//!
//! ```text
//!  any thread   View::request ──try_send──► mailbox of the worker ──between two turns──► Element::control
//!                     ◄───────────────────────── reply ──────────────────────────────────── Mail::answer
//! ```
//! A worker looks into its mailbox when a bit says that there is something; that bit lies in the word it reads each turn
//! anyway to learn whether it must stop. What an element does with a request it does with its own data: nothing is locked.
//! A request should take no longer than a burst of packets does; large answers are asked for page by page, each page a
//! request that says where it begins and an answer that says where the next one does.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Requests that wait for one worker.
const CAPACITY: usize = 64;
/// Requests that a worker answers between two turns.
const AT_ONCE: usize = 8;

/// A request to an element, and the type of its reply.
///
/// ```
/// # use engine::Request;
/// struct Sessions { from: u32 }
/// struct Page { sessions: Vec<u64>, next: Option<u32> }
/// impl Request for Sessions { type Reply = Page; }
/// ```
pub trait Request: Send + 'static {
    /// The answer.
    type Reply: Send + 'static;
}

/// A request on its way to an element.
pub struct Mail {
    request: Box<dyn Any + Send>,
    reply: SyncSender<Box<dyn Any + Send>>,
}

impl fmt::Debug for Mail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mail")
    }
}

impl Mail {
    /// If it is an `R`, answer it. If not, it is given back, to be tried as something else. Mail that nobody answers is
    /// [`ControlError::NotUnderstood`] to its sender.
    pub fn answer<R: Request>(self, answer: impl FnOnce(R) -> R::Reply) -> Result<(), Mail> {
        let Self { request, reply } = self;
        match request.downcast::<R>() {
            Ok(request) => {
                // Its place is free: a request has one answer. The sender may have stopped waiting.
                let _late = reply.try_send(Box::new(answer(*request)));
                Ok(())
            }
            Err(request) => Err(Mail { request, reply }),
        }
    }
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// There is no such element.
    #[error("there is no element '{name}'; there are: {known}")]
    NoElement {
        /// The name.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// The element does not know such requests.
    #[error("element '{0}' does not understand this request")]
    NotUnderstood(String),
    /// Too many requests wait for the element's worker.
    #[error("element '{0}' has too many requests waiting; ask again later")]
    Busy(String),
    /// The worker did not come to it.
    #[error("element '{0}' gave no answer in time")]
    Late(String),
    /// The graph does not run any more.
    #[error("element '{0}' does not run any more")]
    Stopped(String),
}

/// The graph is to stop.
const STOP: u8 = 1;
/// There is mail.
const MAIL: u8 = 2;

/// The word that a worker reads each turn.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Signal(AtomicU8);

impl Signal {
    /// Whether there is anything to attend to.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn must_stop(&self) -> bool {
        self.0.load(Ordering::Relaxed) & STOP != 0
    }

    pub(crate) fn stop(&self) {
        self.0.fetch_or(STOP, Ordering::Relaxed);
    }

    /// Mail that is sent from now on sets it again.
    fn mail_seen(&self) {
        self.0.fetch_and(!MAIL, Ordering::Acquire);
    }

    fn mail(&self) {
        self.0.fetch_or(MAIL, Ordering::Release);
    }
}

/// Where mail for the elements of one worker is put in.
#[derive(Debug, Clone)]
pub(crate) struct MailSender {
    mail: SyncSender<(usize, Mail)>,
    signal: Arc<Signal>,
}

/// Where the worker takes it out.
#[derive(Debug)]
pub(crate) struct Mailbox {
    mail: Receiver<(usize, Mail)>,
    pub(crate) signal: Arc<Signal>,
}

/// A mailbox.
pub(crate) fn mailbox() -> (MailSender, Mailbox) {
    let (put, take) = sync_channel(CAPACITY);
    let signal = Arc::<Signal>::default();
    (MailSender { mail: put, signal: Arc::clone(&signal) }, Mailbox { mail: take, signal })
}

impl MailSender {
    /// Ask the element at this place of the worker, called `name`, and wait for the answer.
    pub(crate) fn request<R: Request>(
        &self,
        at: usize,
        name: &str,
        request: R,
        patience: Duration,
    ) -> Result<R::Reply, ControlError> {
        let (reply, answer) = sync_channel(1);
        let mail = Mail { request: Box::new(request), reply };
        self.mail.try_send((at, mail)).map_err(|why| match why {
            TrySendError::Full(_) => ControlError::Busy(name.into()),
            TrySendError::Disconnected(_) => ControlError::Stopped(name.into()),
        })?;
        self.signal.mail();
        match answer.recv_timeout(patience) {
            Ok(answer) => {
                answer.downcast().map(|answer| *answer).map_err(|_| ControlError::NotUnderstood(name.into()))
            }
            Err(RecvTimeoutError::Timeout) => Err(ControlError::Late(name.into())),
            Err(RecvTimeoutError::Disconnected) if self.signal.must_stop() => {
                Err(ControlError::Stopped(name.into()))
            }
            Err(RecvTimeoutError::Disconnected) => Err(ControlError::NotUnderstood(name.into())),
        }
    }

    pub(crate) fn stop(&self) {
        self.signal.stop();
    }
}

impl Mailbox {
    /// Give some of the mail that waits to `deliver(place, mail)`; the rest after the next turn.
    pub(crate) fn empty(&self, mut deliver: impl FnMut(usize, Mail)) {
        self.signal.mail_seen();
        for _ in 0..AT_ONCE {
            match self.mail.try_recv() {
                Ok((at, mail)) => deliver(at, mail),
                Err(_) => return,
            }
        }
        // There may be more.
        self.signal.mail();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Double(u32);
    impl Request for Double {
        type Reply = u64;
    }
    struct Unknown;
    impl Request for Unknown {
        type Reply = ();
    }

    const SHORT: Duration = Duration::from_millis(1);
    const LONG: Duration = Duration::from_secs(20);

    fn serve(mailbox: &Mailbox) -> usize {
        let mut seen = 0;
        mailbox.empty(|at, mail| {
            seen += 1;
            let _unknown = mail.answer(|Double(n)| u64::from(n) * 2 + at as u64);
        });
        seen
    }

    #[test]
    fn a_request_is_answered_by_its_kind() {
        let (sender, mailbox) = mailbox();
        let asker = std::thread::spawn(move || {
            let answers = (sender.request(100, "a", Double(21), LONG), sender.request(0, "a", Unknown, LONG));
            sender.stop();
            answers
        });
        while !mailbox.signal.must_stop() {
            if mailbox.signal.is_set() {
                serve(&mailbox);
            }
            std::thread::yield_now();
        }
        let answers = asker.join().expect("it asked");
        assert_eq!(answers, (Ok(142), Err(ControlError::NotUnderstood("a".into()))));
    }

    #[test]
    fn what_waits_is_bounded_and_worked_off_in_parts() {
        let (sender, mailbox) = mailbox();
        for _ in 0..CAPACITY {
            assert_eq!(sender.request(0, "a", Double(1), SHORT), Err(ControlError::Late("a".into())));
        }
        assert_eq!(sender.request(0, "a", Double(1), SHORT), Err(ControlError::Busy("a".into())));
        for _ in 0..CAPACITY / AT_ONCE {
            assert!(mailbox.signal.is_set());
            assert_eq!(serve(&mailbox), AT_ONCE);
        }
        // It was full to the last: one look more.
        assert_eq!((mailbox.signal.is_set(), serve(&mailbox), mailbox.signal.is_set()), (true, 0, false));
        mailbox.signal.stop();
        assert!(mailbox.signal.must_stop() && mailbox.signal.is_set());
        drop(mailbox);
        assert_eq!(sender.request(0, "a", Double(1), SHORT), Err(ControlError::Stopped("a".into())));
    }
}
