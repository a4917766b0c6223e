"""A request and all that follows it: retransmission, challenge, ACK, BYE, CANCEL (RFC 3261 section 17)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from netdyno.sip.ladder.arrow import Arrow, arrow
from netdyno.sip.manual import digest
from netdyno.sip.manual.compose import branch, via
from netdyno.sip.manual.message import SipMessage, tag_of, uri_of
from netdyno.sip.manual.next_hop import next_hop
from netdyno.sip.manual.wire import Address, Wire, party

TRIES = 3
"""How often a request is sent with credentials: once more where a nonce was stale, and for a proxy behind."""
ANSWERED = {"OPTIONS": 200, "NOTIFY": 200, "BYE": 200, "INFO": 200, "MESSAGE": 200, "UPDATE": 200}
"""Requests of the other side, and how they are answered."""


@dataclass(frozen=True)
class Account:
    """A user name and its password."""

    user: str
    password: str


@dataclass
class Exchange:
    """One request with all that follows."""

    wire: Wire
    account: Account | None = None
    t1: float = 0.5
    t2: float = 4.0
    timeout: float = 32.0
    """Longest wait for a final response: 64 T1 (Timers B and F)."""
    hold: float = 0.0
    """Seconds from ACK to BYE."""
    wait: float = 0.0
    """Seconds in which requests of the other side are answered, after the final response."""
    told: Callable[[Arrow], None] = lambda _: None
    arrows: list[Arrow] = field(default_factory=list)
    _began: float = 0.0
    _sent: set[bytes] = field(default_factory=set)
    _came: set[bytes] = field(default_factory=set)

    def run(self, request: SipMessage) -> SipMessage | None:
        """The final response, or none where none came in time."""
        self._began = time.monotonic()
        final, sent = self._challenged(request)
        if final is None:
            return None
        if sent.method == "INVITE" and final.status < 300:
            self._call(sent, final)
        if self.wait:
            self._listen(time.monotonic() + self.wait)
        return final

    def _challenged(self, request: SipMessage) -> tuple[SipMessage | None, SipMessage]:
        """The response that is no challenge, and the request that it is to."""
        final = self._transaction(request)
        for _ in range(TRIES):
            if final is None or final.status not in (401, 407) or not self.account:
                break
            again = answered(request, final, self.account, self.wire.transport, self.wire.local)
            if again is None:
                break
            request = again
            final = self._transaction(request)
        return final, request

    def _transaction(self, request: SipMessage, hop: Address | None = None) -> SipMessage | None:
        """One client transaction."""
        data, invite = request.data(), request.method == "INVITE"
        self._say(data, hop)
        now = time.monotonic()
        end, gap = now + self.timeout, self.t1
        again = float("inf") if self.wire.reliable else now + gap
        rings = cancelled = False
        while (now := time.monotonic()) < end or (rings and not cancelled):
            if now >= end:
                # it rings, and nobody answers: the call is given up (section 9.1)
                self._say(_cancel(request).data())
                cancelled, end = True, now + 64 * self.t1
            if now >= again:
                self._say(data, hop)
                gap = gap * 2 if invite else min(gap * 2, self.t2)
                again = now + gap
            message = self._hear(min(end, again))
            if message is None or not _is_to(message, request):
                continue
            if message.status < 200:
                rings = rings or invite
                # section 17.1: INVITE is not sent again, others every T2
                again = float("inf") if invite or self.wire.reliable else time.monotonic() + self.t2
                continue
            if invite and message.status >= 300:
                self._say(ack_failure(request, message).data())
            return message
        return None

    def _call(self, invite: SipMessage, answer: SipMessage) -> None:
        """ACK, and BYE once the call has lasted."""
        ack = in_dialog(invite, answer, "ACK", self.wire.transport, self.wire.local)
        hop = next_hop(ack, self.wire)
        self._say(ack.data(), hop)
        until = time.monotonic() + self.hold
        ended = False
        while not ended and (message := self._hear(until)) is not None:
            if message.status and _is_to(message, invite):
                self._say(ack.data(), hop)  # a 2xx again: its ACK was lost (section 13.2.2.4)
            ended = message.start.startswith("BYE ")
        if not ended:
            bye = in_dialog(invite, answer, "BYE", self.wire.transport, self.wire.local)
            self._transaction(bye, next_hop(bye, self.wire))

    def _listen(self, until: float) -> None:
        while self._hear(until) is not None:
            pass

    def _say(self, data: bytes, hop: Address | None = None) -> None:
        to = party(hop) if hop else self.wire.remote
        self._note(self.wire.local, to, data, self._sent)
        self.wire.send(data, hop)

    def _hear(self, until: float) -> SipMessage | None:
        data = self.wire.receive(until)
        if data is None:
            return None
        source = self.wire.stranger
        self._note(party(source) if source else self.wire.remote, self.wire.local, data, self._came)
        message = SipMessage.read(data)
        if not message.status and message.method != "ACK":
            self._say(_answer(message).data(), source)
        return message

    def _note(self, source: str, to: str, data: bytes, known: set[bytes]) -> None:
        again = not self.wire.reliable and data in known
        known.add(data)
        one = arrow((time.monotonic() - self._began) * 1000, source, to, data, again)
        self.arrows.append(one)
        self.told(one)


def _is_to(message: SipMessage, request: SipMessage) -> bool:
    """Section 17.1.3: branch and method are those of the request."""
    same = message.branch == request.branch or not request.branch
    return bool(message.status) and same and message.method == request.method


def answered(
    request: SipMessage, response: SipMessage, account: Account, transport: str, local: str
) -> SipMessage | None:
    """The request again, with the answer to a challenge; none where there is none, or it was given before."""
    proxy = response.status == 407
    asks = "Proxy-Authenticate" if proxy else "WWW-Authenticate"
    answers = "Proxy-Authorization" if proxy else "Authorization"
    challenge = digest.choose(response.all(asks), proxy)
    if challenge is None or (request.get(answers) and not challenge.stale):
        return None
    made = SipMessage(request.start, list(request.fields), request.body)
    made.put("CSeq", f"{request.number + 1} {request.method}")
    made.put("Via", via(transport, local, branch()))
    made.drop(answers)
    value = challenge.answer(account.user, account.password, made.method, made.uri, made.body)
    made.fields.insert(-1, (answers, value))
    return made


def _derived(request: SipMessage, method: str, to: str) -> SipMessage:
    """CANCEL, or ACK to a failure: branch, Route and number of the INVITE (sections 9.1, 17.1.1.3)."""
    routes = [("Route", one) for one in request.all("Route")]
    fields = [
        ("Via", request.get("Via")),
        *routes,
        ("Max-Forwards", "70"),
        ("From", request.get("From")),
        ("To", to),
        ("Call-ID", request.get("Call-ID")),
        ("CSeq", f"{request.number} {method}"),
        ("Content-Length", "0"),
    ]
    return SipMessage(f"{method} {request.uri} SIP/2.0", fields)


def ack_failure(request: SipMessage, response: SipMessage) -> SipMessage:
    """ACK to a final response from 300 up."""
    return _derived(request, "ACK", response.get("To"))


def _cancel(request: SipMessage) -> SipMessage:
    return _derived(request, "CANCEL", request.get("To"))


def in_dialog(invite: SipMessage, answer: SipMessage, method: str, transport: str, local: str) -> SipMessage:
    """A request of the dialog that a 2xx made (section 12.2.1.1)."""
    routes = list(reversed(answer.all("Record-Route")))
    target = uri_of(answer.get("Contact")) or invite.uri
    number = invite.number if method == "ACK" else invite.number + 1
    credentials = [
        one for one in invite.fields if method == "ACK" and one[0] in ("Authorization", "Proxy-Authorization")
    ]
    fields = [
        ("Via", via(transport, local, branch())),
        *(("Route", one) for one in routes),
        ("Max-Forwards", "70"),
        ("From", invite.get("From")),
        ("To", answer.get("To")),
        ("Call-ID", invite.get("Call-ID")),
        ("CSeq", f"{number} {method}"),
        *credentials,
        ("Content-Length", "0"),
    ]
    return SipMessage(f"{method} {target} SIP/2.0", fields)


def _answer(request: SipMessage) -> SipMessage:
    """The response to a request that the other side sends (section 8.2.6)."""
    status = ANSWERED.get(request.method, 486 if request.method == "INVITE" else 405)
    reason = {200: "OK", 486: "Busy Here", 405: "Method Not Allowed"}[status]
    to = request.get("To")
    fields = [("Via", one) for one in request.all("Via")]
    fields += [("Record-Route", one) for one in request.all("Record-Route")]
    fields += [
        ("From", request.get("From")),
        ("To", to if tag_of(to) else f"{to};tag=netdyno"),
        ("Call-ID", request.get("Call-ID")),
        ("CSeq", request.get("CSeq")),
    ]
    if status == 405:
        fields.append(("Allow", ", ".join([*ANSWERED, "ACK", "INVITE"])))
    return SipMessage(f"SIP/2.0 {status} {reason}", [*fields, ("Content-Length", "0")])
