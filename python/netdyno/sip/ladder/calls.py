"""Messages by Call-ID: the ladder of each, how it ended, and which of its messages were sent again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
_VIA = re.compile(rb"^(?:Via|v)[ \t]*:[^\r\n]*(?:\r?\n[ \t][^\r\n]*)*", re.IGNORECASE | re.MULTILINE)
_HOP = re.compile(rb"SIP\s*/\s*2\.0\s*/", re.IGNORECASE)
_FROM_TAG = re.compile(
    rb"^(?:From|f)[ \t]*:[^\r\n]*?;[ \t]*tag=([^;,\s]{1,256})", re.IGNORECASE | re.MULTILINE
)
CHALLENGES = (401, 407)
NO_ANSWER = "no final response"
OWN = "@netdyno"
"""End of the Call-IDs that netdyno makes."""


class CallRecord(BaseModel):
    """A call as JSON and pages have it."""

    call_id: str
    began: str
    parties: list[str]
    failures: list[str]
    unknown: list[str] = []
    repeated: int
    aliases: dict[str, str] = {}
    """Further addresses of a party that went on from another port, and its first one."""
    messages: list[Arrow]

    @property
    def drawn(self) -> list[Arrow]:
        """The messages with a column for each party, from whichever port it sends."""
        return columns(self.messages, self.aliases)


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
    aliases: dict[str, str] = field(default_factory=dict)
    """Further addresses of a party, and its first one."""
    _sent: set[tuple[str, str, bytes]] = field(default_factory=set)
    _origins: dict[tuple[str, bytes], str] = field(default_factory=dict)
    """First address of a user agent, by its host and the tag of its requests."""

    def add(self, message: Message) -> None:
        """One more message."""
        key = (message.source, message.to, message.data)
        again = message.transport == "udp" and key in self._sent
        self._sent.add(key)
        at = (message.at - self.began) * 1000
        self.arrows.append(arrow(at, message.source, message.to, message.data, again))
        self._meet(message)
        self.note(message.data)

    def _meet(self, message: Message) -> None:
        """Recognise a user agent that sends from another port: same host and tag, and no proxy between."""
        head = message.data.split(b"\r\n\r\n", 1)[0]
        tag = _FROM_TAG.search(head)
        hops = sum(len(_HOP.findall(line)) for line in _VIA.findall(head))
        if tag is None or hops != 1 or is_response(head):
            return
        host = message.source.rpartition(":")[0]
        first = self._origins.setdefault((host, tag[1]), message.source)
        if message.source != first and message.source not in self._origins.values():
            self.aliases[message.source] = first

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
        return parties(self.drawn)

    @property
    def drawn(self) -> list[Arrow]:
        """The messages with a column for each party, from whichever port it sends."""
        return columns(self.arrows, self.aliases)

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
            aliases=self.aliases,
            messages=self.arrows,
        )


def columns(arrows: Sequence[Arrow], aliases: Mapping[str, str]) -> list[Arrow]:
    """Messages between the first addresses of their parties."""
    if not aliases:
        return list(arrows)

    def first(address: str) -> str:
        return aliases.get(address, address)

    return [one.model_copy(update={"source": first(one.source), "to": first(one.to)}) for one in arrows]


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
