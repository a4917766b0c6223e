"""Messages by Call-ID: the ladder of each, how it ended, and which of its messages were sent again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pydantic import BaseModel

from netdyno.core import redaction
from netdyno.sip.ladder.arrow import Arrow, arrow
from netdyno.sip.ladder.capture import Message
from netdyno.sip.ladder.framing import LWS, is_response
from netdyno.sip.ladder.text import parties

_CALL_ID = re.compile(
    rb"^(?:Call-ID|i)[ \t]*:" + LWS + rb"([^\r\n]*?)[ \t]*\r?$", re.IGNORECASE | re.MULTILINE
)
_CSEQ = re.compile(
    rb"^CSeq[ \t]*:" + LWS + rb"(\d{1,10})(?:[ \t]|\r?\n[ \t])+(\S{1,64})", re.IGNORECASE | re.MULTILINE
)
CHALLENGES = (401, 407)
NO_ANSWER = "no final response"


class CallRecord(BaseModel):
    """A call as JSON and pages have it."""

    call_id: str
    began: str
    parties: list[str]
    failures: list[str]
    unknown: list[str] = []
    repeated: int
    messages: list[Arrow]


@dataclass
class Call:
    """The messages of one Call-ID."""

    call_id: str
    began: float
    """Seconds since 1970."""
    transport: str = "udp"
    """Of its first message."""
    arrows: list[Arrow] = field(default_factory=list)
    answers: dict[tuple[int, str], int] = field(default_factory=dict)
    """The last status of each request, by sequence number and method; 0: none."""
    cut: bool = False
    """Whether packets of the capture are cut: an answer that is not there may have been in one of them."""
    _sent: set[tuple[str, str, bytes]] = field(default_factory=set)

    def add(self, message: Message) -> None:
        """One more message."""
        key = (message.source, message.to, message.data)
        again = message.transport == "udp" and key in self._sent
        self._sent.add(key)
        at = (message.at - self.began) * 1000
        self.arrows.append(arrow(at, message.source, message.to, message.data, again))
        self.note(message.data)

    def note(self, message: bytes) -> None:
        """What a message says of its request: that it was sent, or its status."""
        found = _CSEQ.search(message)
        if found is None:
            return
        request = int(found[1]), found[2].decode("utf-8", "replace")
        if not is_response(message):
            if request[1] != "ACK":
                self.answers.setdefault(request, 0)
            return
        if not message[8:11].isdigit():
            return
        status = int(message[8:11])
        self.answers[request] = max(status, self.answers.get(request, 0))

    @property
    def parties(self) -> list[str]:
        """Its parties from left to right."""
        return parties(self.arrows)

    @property
    def repeated(self) -> int:
        """Messages that were sent again."""
        return sum(one.again for one in self.arrows)

    @property
    def method(self) -> str:
        """The method of its first request."""
        return next((name for _, name in self.answers), "")

    @property
    def failures(self) -> list[str]:
        """Requests that were rejected or not answered; a challenge that was answered is none."""
        found = []
        methods = [name for _, name in self.answers]
        for at, ((_, method), status) in enumerate(self.answers.items()):
            if status in CHALLENGES and method in methods[at + 1 :]:
                continue
            if status < 200:
                if not self.cut:
                    found.append(f"{method}: {NO_ANSWER}")
            elif status >= 300:
                found.append(f"{method}: {status}")
        return found

    @property
    def unknown(self) -> list[str]:
        """Requests whose final response may have been in a packet that is cut."""
        unanswered = [method for (_, method), status in self.answers.items() if status < 200]
        why = "the final response may be in a truncated packet"
        return [f"{method}: {why}" for method in unanswered if self.cut]

    @property
    def result(self) -> str:
        """How it ended, in words."""
        return "; ".join([*self.failures, *self.unknown]) or "no request failed"

    def record(self) -> CallRecord:
        """What JSON and pages have of it."""
        return CallRecord(
            call_id=redaction.hide_known(self.call_id),
            began=datetime.fromtimestamp(self.began, UTC).isoformat(),
            parties=self.parties,
            failures=self.failures,
            unknown=self.unknown,
            repeated=self.repeated,
            messages=self.arrows,
        )


def call_id(message: bytes) -> str:
    """The Call-ID of a message; empty without one."""
    found = _CALL_ID.search(message.split(b"\r\n\r\n", 1)[0])
    return found[1].decode("utf-8", "replace") if found else ""


def calls(messages: Iterable[Message], wanted: Sequence[str] = (), most: int | None = None) -> list[Call]:
    """At most `most` calls in order of their first message; their Call-IDs have one of `wanted` in them."""
    found: dict[str, Call] = {}
    for message in messages:
        name = call_id(message.data)
        if name not in found:
            if (wanted and not any(one in name for one in wanted)) or (
                most is not None and len(found) >= most
            ):
                continue
            found[name] = Call(name, message.at, message.transport)
        found[name].add(message)
    return list(found.values())
