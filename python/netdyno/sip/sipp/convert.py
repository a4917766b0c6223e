"""A SIPp scenario as steps: sends, receives with their options, pauses, labels, branches and actions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from netdyno.errors import Error
from netdyno.importer.xml import Element
from netdyno.sip.sipp import audio
from netdyno.sip.sipp.keywords import variable, whole_field
from netdyno.sip.sipp.message import Sent
from netdyno.sip.sipp.message import read as message
from netdyno.sip.sipp.message import step as sent_step

TABLE = "fields"
"""Name of the table with the values of `-inf`."""
IGNORED = {
    "ResponseTimeRepartition": "delays of netdyno have percentiles",
    "CallLengthRepartition": "delays of netdyno have percentiles",
    "timewait": "user agents answer repeated requests by themselves",
    "Global": "variables are taken where they are set",
    "User": "variables are taken where they are set",
    "Reference": "variables are taken where they are set",
    "init": "it is empty",
}
"""Elements that nothing is lost without, and why."""
METHODS = {
    "ACK", "BYE", "CANCEL", "INFO", "INVITE", "MESSAGE", "NOTIFY", "OPTIONS", "PRACK", "PUBLISH", "REFER",
    "REGISTER", "SUBSCRIBE", "UPDATE",
}  # fmt: skip
"""Methods that scenarios may wait for."""
PLAIN_ACTIONS = ("log", "warning")
DIALOG = "call"
"""Name of the dialog of a scenario that registers too: a call of SIPp has one Call-ID."""
BODY = re.compile(r"Content-Type:.*", re.IGNORECASE)
"""A regular expression that takes the body with its type: SIPp's points match line breaks."""

STATUS = re.compile(r"[1-6][0-9]{2}")
MILLISECONDS = re.compile(r"[0-9]{1,8}")
CHANCE = re.compile(r"0|1|1\.0{1,20}|0?\.[0-9]{1,20}")

Step = dict[str, Any]


@dataclass
class Converted:
    """What a file became."""

    steps: list[Step] = field(default_factory=list)
    user: str | None = None
    callee: str | None = None
    answers: bool = False
    """It waits to be called: user agents register first."""
    authenticates: bool = False
    login: dict[str, str] = field(default_factory=dict)
    """`username` and `password` of [authentication]."""
    table: bool = False
    """Values of a CSV file are named."""
    media: dict[str, Any] | None = None
    """Audio of its calls, as the model `sip` has it."""
    notes: list[str] = field(default_factory=list)
    """What was left out, by line."""


@dataclass
class _Receive:
    """A <recv>."""

    element: Element
    expect: dict[str, Any]
    optional: bool
    next: str | None
    chance: str | None
    test: str | None
    labels: list[str] = field(default_factory=list)
    """Labels that stand before it."""

    @property
    def passed_over(self) -> bool:
        """Whether our user agents do without it: a provisional response that nothing depends on."""
        provisional = str(self.expect.get("status", "")).startswith("1")
        return self.optional and provisional and not self.next and "capture" not in self.expect


def convert(
    root: Element,
    name: str,
    direct: bool = False,
    commands: bool = False,
    accounts: Collection[str] = frozenset(),
) -> Converted:
    """The scenario; raises with the line of what cannot be played.

    `direct`: who is called does not register. `commands`: steps `command` stand for those of 3PCC.
    `accounts`: columns of the CSV file whose cells are [authentication …].
    """
    return _Converter(root, name, direct, commands, accounts).run()


class _Converter:
    def __init__(
        self, root: Element, name: str, direct: bool, commands: bool, accounts: Collection[str]
    ) -> None:
        self.root, self.name, self.direct, self.commands = root, name, direct, commands
        self.accounts = accounts
        self.made = Converted()
        self.bodies: set[str] = set()
        self.said: set[str] = set()
        self.codecs: tuple[str, ...] = ()
        self.faults: list[dict[str, Any]] = []
        self.groups = 0
        self.invited = False

    def run(self) -> Converted:
        elements = [one for one in self.root.children if not self._ignored(one)]
        at = 0
        while at < len(elements):
            at = self._element(elements, at)
        if not self.faults and not self.made.steps:
            self._fault(self.root, "there is nothing to play", "Add <send> and <recv>")
        if self.faults:
            raise Error.of(self.faults[0] | ({"all": self.faults} if len(self.faults) > 1 else {}))
        self._end_label()
        if self.made.answers:
            self._called_again()
        elif {one["send"]["method"] == "REGISTER" for one in self.made.steps if "send" in one} == {
            True,
            False,
        }:
            self._one_call()
        return self.made

    def _ignored(self, one: Element) -> bool:
        if one.name in IGNORED:
            if one.name not in ("ResponseTimeRepartition", "CallLengthRepartition"):
                self._note(one, IGNORED[one.name])
            return True
        return False

    def _fault(self, one: Element, what: str, fix: str) -> None:
        at = f"{self.name}:{one.line} <{one.name}>"
        self.faults.append(Error("ND-104-73", what, at=at, fix=fix).as_dict())

    def _message(self, one: Element) -> Sent:
        """The message of a <send>, with the account that it names and notes on what is not sent."""
        strange: list[str] = []
        sent = message(one.text, TABLE, strange.append, self.bodies, self.accounts)
        for word in strange:
            fix = "Write the text itself, or a keyword that netdyno knows"
            if whole_field(word):
                fix = "For [authentication …] in a CSV file: netdyno sip import FILE.xml --inf FILE.csv"
            self._fault(one, f"{_short(word)!r} cannot be sent", fix)
        self.made.login = self.made.login or sent.login
        self.made.table = self.made.table or f"{{{TABLE}." in str(sent)
        for note in sent.notes:
            if note not in self.said:
                self.said.add(note)
                self.made.notes.append(f"line {one.line} <{one.name}>: {note}")
        return sent

    def _note(self, one: Element, why: str) -> None:
        self.made.notes.append(f"line {one.line} <{one.name}>: left out, {why}")

    def _element(self, all_: list[Element], at: int) -> int:
        """The step at a place; where the next one begins."""
        one = all_[at]
        match one.name:
            case "send":
                return self._send(all_, at)
            case "recv":
                return self._receives(all_, at)
            case "pause":
                self._pause(one)
            case "label":
                self.made.steps.append({"label": _label(one.get("id") or "")})
            case "nop":
                self._nop(one)
            case "sendCmd" | "recvCmd" if self.commands:
                self._command(one)
            case "sendCmd" | "recvCmd":
                fix = "Import both controllers: netdyno sip import 3pcc-C-A.xml --with 3pcc-C-B.xml"
                self._fault(one, "commands to another SIPp program (3PCC) need its scenario too", fix)
            case _:
                self._fault(one, "this element is unknown", "Remove it")
        return at + 1

    # --- send

    def _send(self, all_: list[Element], at: int) -> int:
        one = all_[at]
        sent = self._message(one)
        self.codecs = self.codecs or sent.codecs
        self._people(sent)
        self.made.authenticates = self.made.authenticates or sent.authenticates
        if not (sent.method == "ACK" and self._acknowledges_failure(all_, at)):
            self.made.steps.append(sent_step(sent))
        self._goto(one)
        for action in _actions(one):
            self._fault(action, "actions of <send> cannot be played", "Move the action to a <recv>")
        return at + 1

    def _people(self, sent: Sent) -> None:
        if sent.method and sent.method != "ACK":
            self.made.user = self.made.user or sent.caller
            self.made.callee = self.made.callee or sent.callee

    def _acknowledges_failure(self, all_: list[Element], at: int) -> bool:
        """Whether this ACK is to a failure: user agents acknowledge those by themselves."""
        before = next((one for one in reversed(all_[:at]) if one.name == "recv"), None)
        status = (before.get("response") or "") if before else ""
        return status[:1] in ("3", "4", "5", "6")

    # --- recv

    def _receives(self, all_: list[Element], at: int) -> int:
        """Optional receives up to the next one that is not; which of them comes decides where it goes on."""
        group: list[_Receive] = []
        labels: list[str] = []
        while at < len(all_) and (all_[at].name == "recv" or (group and all_[at].name == "label")):
            if all_[at].name == "label":
                labels.append(_label(all_[at].get("id") or ""))
                at += 1
                continue
            one = self._receive(all_[at])
            one.labels, labels = labels, []
            at += 1
            if one.element.flag("auth"):
                return self._challenge(all_, at, one)
            if not one.passed_over or one.labels:
                group.append(one)
            if not one.optional:
                break
        else:
            if group and at >= len(all_):
                self._fault(
                    group[-1].element, "no <recv> follows that is not optional", "Make the last one required"
                )
                return at
        if group:
            self._wait(group)
        return at

    def _receive(self, one: Element) -> _Receive:
        response, request = one.get("response"), one.get("request")
        expect: dict[str, Any] = {}
        if response and STATUS.fullmatch(response):
            expect["status"] = response
        elif request and (request == ".*" or (request.isupper() and not one.flag("regexp_match"))):
            expect["request"] = "any" if request == ".*" else request
            if request not in METHODS and request != ".*":
                self._fault(one, f"{request} is no method of SIP: it never comes", "Remove it")
            if not self.made.steps:
                self.made.answers = True
        else:
            self._fault(one, "it names no status and no method", 'Like response="200" or request="BYE"')
        if one.get("response_txn"):
            self._note(one, "responses are matched to transactions by their branch")
        if (optional := one.get("optional")) and optional.lower() == "global":
            self._fault(one, 'optional="global" cannot be played', "Make it optional where it may come")
        if timeout := one.get("timeout"):
            expect["timeout"] = self._time(one, timeout)
        if target := one.get("ontimeout"):
            expect["on_timeout"] = _label(target)
        if captures := dict(self._captures(one)):
            expect["capture"] = captures
        test = one.get("test")
        return _Receive(one, expect, one.flag("optional"), one.get("next"), one.get("chance"), test)

    def _challenge(self, all_: list[Element], at: int, one: _Receive) -> int:
        """A challenge: the ACK and the request with credentials are the user agent's."""
        while at < len(all_) and all_[at].name == "send":
            sent = self._message(all_[at])
            at += 1
            if sent.authenticates:
                self.made.authenticates = True
                self._note(one.element, "challenges are answered by the user agent")
                return at
            if sent.method != "ACK":
                break
        fix = "Send the request again with [authentication] behind it"
        self._fault(one.element, "no request with [authentication] follows", fix)
        return at

    def _wait(self, group: list[_Receive]) -> None:
        """SIPp's rule: any of the optional ones may come, in order, before the one that is required."""
        last = group[-1]
        if len(group) == 1:
            self.made.steps.append({"expect": last.expect | self._then(last)})
            self._goto(last.element)
            return
        self.groups += 1
        names = [f"sipp-{self.groups}-{at}" for at in range(1, len(group) + 1)]
        for at in range(len(group)):
            # where each optional one goes on by itself, nothing waits between
            if at and self._then(group[at - 1]) and not group[at].labels:
                continue
            if at:
                self.made.steps.append({"label": names[at - 1]})
            self.made.steps += [{"label": label} for label in group[at].labels]
            alternatives = []
            for index in range(at, len(group)):
                where = self._then(group[index]) or {"then": names[index]}
                alternatives.append(deepcopy(group[index].expect) | where)
            self.made.steps.append({"expect_any": alternatives})
        self.made.steps.append({"label": names[-1]})
        self._goto(last.element)

    def _then(self, one: _Receive) -> dict[str, str]:
        """Where it goes on, if that does not depend on anything; a required receive has a step for that."""
        if one.next and not one.chance and not one.test and one.optional:
            return {"then": _label(one.next)}
        if one.next and one.optional:
            fix = "Put the condition on a <nop> behind it"
            self._fault(one.element, "an optional <recv> with `test` or `chance` cannot be played", fix)
        return {}

    def _captures(self, one: Element) -> Iterator[tuple[str, dict[str, Any]]]:
        for action in _actions(one):
            if action.name != "ereg":
                self._action(action)
                continue
            where: dict[str, Any] = {}
            if action.get("search_in") == "hdr":
                where["header"] = (action.get("header") or "").strip().rstrip(":").strip()
            elif action.get("search_in") not in (None, "msg", "body"):
                self._fault(
                    action, f"search_in={action.get('search_in')!r} cannot be played", "Use msg or hdr"
                )
            names = [name.strip() for name in (action.get("assign_to") or "").split(",") if name.strip()]
            if not names:
                self._fault(action, "assign_to names no variable", 'Like assign_to="1"')
            if BODY.fullmatch(action.get("regexp") or "") and "header" not in where and len(names) == 1:
                self.bodies.add(variable(names[0]))
                yield variable(names[0]), {"body": True}
                continue
            for group, name in enumerate(names):
                capture = where | {"regex": action.get("regexp") or "", "group": group}
                if action.flag("check_it") and not group:
                    capture["required"] = True
                if action.flag("check_it_inverse"):
                    self._fault(action, "check_it_inverse cannot be played", "Branch on the variable")
                yield variable(name), capture

    # --- others

    def _pause(self, one: Element) -> None:
        if one.get("distribution", "variable"):
            fix = "Use milliseconds"
            self._fault(one, "pauses by a distribution or a variable cannot be played", fix)
        self.made.steps.append({"pause": self._time(one, one.get("milliseconds") or "0")})
        self._goto(one)

    def _time(self, one: Element, milliseconds: str) -> str:
        """A time as steps have it."""
        if not MILLISECONDS.fullmatch(milliseconds):
            self._fault(
                one, f"{_short(milliseconds)!r} is no time below 100,000 s", "Use milliseconds, like 500"
            )
        return f"{milliseconds}ms"

    def _nop(self, one: Element) -> None:
        for action in _actions(one):
            self._action(action)
        self._goto(one)

    def _action(self, one: Element) -> None:
        if one.name in PLAIN_ACTIONS:
            self._note(one, "failures are reported with their messages")
            return
        if one.name == "exec" and (recording := one.get("play_pcap_audio")):
            self._recording(one, recording)
            return
        media = one.name == "exec" and any(key.startswith(("play_", "rtp_")) for key in one.attributes)
        what = "media cannot be played from a scenario" if media else "this action cannot be played"
        self._fault(one, what, "Remove it")

    def _recording(self, one: Element, recording: str) -> None:
        """A call plays its first recording."""
        if self.made.media is not None:
            why = "a call plays one recording; tones of keys (RFC 4733) are not sent"
            self._note(one, why)
            return
        path = audio.find(recording, self.name)
        if path is None:
            fix = "Put it beside the scenario, or install SIPp's recordings (Debian: sip-tester)"
            self._fault(one, f"the recording {recording} is not there", fix)
            return
        self.made.media = audio.media(path, self.codecs)
        self._note(one, "the recording is played from the answer on, and again while the call lasts")

    def _command(self, one: Element) -> None:
        """A command to the other program, or from it: names of the bodies that it carries."""
        if one.name == "recvCmd":
            taken = dict(self._captures(one))
            if any(capture != {"body": True} for capture in taken.values()):
                fix = 'Like <ereg regexp="Content-Type:.*" search_in="msg" assign_to="1"/>'
                self._fault(one, "of a command only the body can be taken", fix)
            self.made.steps.append({"command": {"receive": list(taken)}})
            return
        names = [variable(word[2:-1]) for line in one.text.splitlines() if (word := line.strip())[:2] == "[$"]
        if any(name not in self.bodies for name in names):
            self._fault(one, "a command can carry a body alone", 'Like [$1], taken with "Content-Type:.*"')
        self.made.steps.append({"command": {"send": names}})

    def _goto(self, one: Element) -> None:
        """A jump behind a step."""
        target = one.get("next")
        if not target or (one.name == "recv" and one.flag("optional")):
            return
        jump: Any = _label(target)
        if test := one.get("test"):
            jump = {"label": jump, "given": variable(test)}
        elif chance := one.get("chance"):
            if CHANCE.fullmatch(chance):
                jump = {"label": jump, "chance": float(chance)}
            else:
                what = f"chance={_short(chance)!r} is no number from 0 to 1"
                self._fault(one, what, 'Like chance="0.25"')
        self.made.steps.append({"goto": jump})

    def _end_label(self) -> None:
        """Labels of the end that nothing follows are fine; jumps to labels that are not there are not."""
        known = {one["label"] for one in self.made.steps if "label" in one}
        for one in self.root.children:
            for key in ("next", "ontimeout"):
                target = one.get(key)
                if target and _label(target) not in known:
                    at = f"{self.name}:{one.line} <{one.name}>"
                    fix = f'Add <label id="{target}"/>'
                    raise Error("ND-104-73", f"no label is called {target!r}", at=at, fix=fix)

    def _one_call(self) -> None:
        """All requests have one Call-ID."""
        for one in self.made.steps:
            for key in ("send", "expect", "answer"):
                if key in one:
                    one[key]["dialog"] = DIALOG
            for alternative in one.get("expect_any", ()):
                alternative["dialog"] = DIALOG

    def _called_again(self) -> None:
        """Who is called answers until the load ends, registered meanwhile unless called directly."""
        steps = self.made.steps
        first: Step = next((one["expect"] for one in steps if "expect" in one), {})
        if self.direct or first.get("request") == "REGISTER":
            if not self.direct:
                self.made.notes.append("it begins with REGISTER: play it with --listen")
            self.made.steps = [{"repeat": {"count": 0, "steps": steps}}]
            return
        self.made.steps = [
            {"send": {"method": "REGISTER"}},
            {"expect": {"status": "200"}},
            {"repeat": {"count": 0, "steps": steps}},
            {"send": {"method": "REGISTER", "expires": "0s"}},
            {"expect": {"status": "200"}},
        ]


def _actions(one: Element) -> Iterator[Element]:
    for child in one.children:
        if child.name == "action":
            yield from child.children


def _label(text: str) -> str:
    return f"sipp-{text}"


def _short(text: str) -> str:
    """As much of a text as an error shows."""
    return text if len(text) <= 40 else f"{text[:40]}…"
