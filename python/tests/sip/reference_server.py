"""A small SIP server over UDP for tests: registrar, proxy and redirect server that conforms, or has one fault.

`Server(role, fault="P04")` breaks what the purpose P04 checks, and nothing else on purpose. It keeps to RFC 3261 as far as
the test files go and no further: it is no server for anything but tests.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

DOMAIN = "example.test"
USERS = {"alice": "wonderland", "bob": "builder"}
MINIMUM, DEFAULT = 60, 3600

Address = tuple[str, int]
LONG = {"v": "via", "f": "from", "t": "to", "i": "call-id", "m": "contact", "l": "content-length"}
LISTS = {"via", "contact", "route", "record-route"}


def split(text: str) -> list[str]:
    """Values between commas outside of angle brackets and quotes."""
    return [one.strip() for one in re.findall(r'(?:[^,<"]|<[^>]*>|"[^"]*")+', text) if one.strip()]


def uri(value: str) -> str:
    found = re.search(r"<([^>]*)>", value)
    return found[1] if found else value.split(";")[0].strip()


def param(value: str, name: str) -> str | None:
    tail = value.rsplit(">", 1)[-1]
    found = re.search(rf';\s*{name}\s*=\s*"?([^";,]+)', tail, re.IGNORECASE)
    return found[1].strip() if found else None


def host_port(where: str) -> Address | None:
    found = re.fullmatch(r"sips?:(?:[^@]*@)?([0-9.]+)(?::(\d+))?(?:;.*)?", where)
    return (found[1], int(found[2] or 5060)) if found else None


def user_host(where: str) -> tuple[str, str]:
    found = re.fullmatch(r"sips?:(?:([^@]*)@)?([^;:?]+)(?::\d+)?.*", where)
    return (found[1] or "", found[2]) if found else ("", "")


@dataclass
class Message:
    start: str
    headers: list[tuple[str, str]]
    body: str = ""

    @classmethod
    def read(cls, data: bytes) -> Message:
        head, _, body = data.decode("utf-8", "replace").partition("\r\n\r\n")
        start, *lines = head.split("\r\n")
        headers = []
        for line in lines:
            name, _, value = line.partition(":")
            name = LONG.get(name.strip().lower(), name.strip().lower())
            headers += [(name, one) for one in (split(value) if name in LISTS else [value.strip()])]
        return cls(start, headers, body)

    def all(self, name: str) -> list[str]:
        return [value for known, value in self.headers if known == name]

    def get(self, name: str) -> str:
        return next(iter(self.all(name)), "")

    def remove(self, name: str) -> None:
        self.headers = [one for one in self.headers if one[0] != name]

    def pop(self, name: str) -> None:
        self.headers.remove((name, self.get(name)))

    def copy(self) -> Message:
        return Message(self.start, list(self.headers), self.body)

    @property
    def method(self) -> str:
        return self.start.split(" ")[0]

    @property
    def uri(self) -> str:
        return self.start.split(" ")[1]

    @property
    def code(self) -> int:
        return int(self.start.split(" ")[1])

    @property
    def branch(self) -> str:
        return param(self.get("via"), "branch") or ""

    def bytes(self) -> bytes:
        headers = "".join(f"{name}: {value}\r\n" for name, value in self.headers)
        return f"{self.start}\r\n{headers}\r\n{self.body}".encode()


@dataclass
class Incoming:
    """A server transaction."""

    request: Message
    source: Address
    last: Message | None = None
    final: bool = False
    acknowledged: bool = False
    branches: list[Outgoing] = field(default_factory=list)


@dataclass
class Outgoing:
    """A client transaction."""

    request: Message
    target: Address
    parent: Incoming
    provisional: bool = False
    final: Message | None = None


@dataclass
class Binding:
    expires: float
    call_id: str
    cseq: int
    q: str | None


class Server:
    def __init__(self, role: str, fault: str = "", t1: float = 0.1, nonce_lifetime: float = 1.0) -> None:
        self.role, self.fault, self.t1, self.nonce_lifetime = role, fault, t1, nonce_lifetime
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.address: Address = self.socket.getsockname()
        self.bindings: dict[str, dict[str, Binding]] = {}
        self.nonces: dict[str, float] = {}
        self.incoming: dict[tuple[str, str], Incoming] = {}
        self.outgoing: dict[str, Outgoing] = {}
        self.timers: list[tuple[float, int, Callable[[], None]]] = []
        self.timer_number = 0
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self) -> Server:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()
        self.socket.close()

    def run(self) -> None:
        while not self.done.is_set():
            now = time.monotonic()
            due = sorted(one for one in self.timers if one[0] <= now)
            self.timers = [one for one in self.timers if one[0] > now]
            for _, _, call in due:
                call()
            wait = min((one[0] - now for one in self.timers), default=0.05)
            if not due and select.select([self.socket], [], [], max(0.0, min(wait, 0.05)))[0]:
                data, source = self.socket.recvfrom(65535)
                message = Message.read(data)
                if message.start.startswith("SIP/2.0"):
                    self.response(message)
                else:
                    self.request(message, source)

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self.timer_number += 1
        self.timers.append((time.monotonic() + seconds, self.timer_number, call))

    def send(self, message: Message, to: Address) -> None:
        self.socket.sendto(message.bytes(), to)

    # --- server transactions

    def answer(self, tx: Incoming, code: int, reason: str, *headers: tuple[str, str]) -> None:
        copied = [one for one in tx.request.headers if one[0] in ("via", "from", "to", "call-id", "cseq")]
        response = Message(f"SIP/2.0 {code} {reason}", copied)
        to = response.get("to")
        if code > 100 and not param(to, "tag") and not (self.fault == "D02" and 300 <= code < 400):
            at = response.headers.index(("to", to))
            response.headers[at] = ("to", f"{to};tag={secrets.token_hex(4)}")
        response.headers += [*headers, ("content-length", "0")]
        self.finish(tx, response)

    def finish(self, tx: Incoming, response: Message) -> None:
        """Send a response; a final one that is none of class 2 is repeated until ACK."""
        tx.last = response
        self.send(response, tx.source)
        if response.code >= 200:
            tx.final = True
            if tx.request.method == "INVITE" and response.code >= 300 and self.fault != "D06":
                self.after(self.t1, lambda: self.repeat(tx, self.t1))

    def repeat(self, tx: Incoming, gap: float) -> None:
        if not tx.acknowledged and tx.last and gap < 64 * self.t1:
            self.send(tx.last, tx.source)
            self.after(min(2 * gap, 8 * self.t1), lambda: self.repeat(tx, 2 * gap))

    def request(self, message: Message, source: Address) -> None:
        method, branch = message.method, message.branch
        if method == "ACK":
            tx = self.incoming.get((branch, "INVITE"))
            if tx:
                tx.acknowledged = True
                if self.fault == "P17" and tx.branches:
                    message.start = tx.branches[0].request.start.replace("INVITE", "ACK")
                    self.pass_on(message, tx.branches[0].target)
            else:
                self.stateless(message)
            return
        known = self.incoming.get((branch, method))
        stateless = {"R19": "REGISTER", "P20": "INVITE", "D06": "INVITE"}.get(self.fault) == method
        if known and not stateless:
            if known.last:
                self.send(known.last, known.source)
            return
        tx = self.incoming[branch, method] = Incoming(message, source)
        if method == "CANCEL":
            self.cancel(tx)
        elif method == "REGISTER":
            self.register(tx)
        elif self.role == "redirect":
            self.redirect(tx)
        else:
            self.proxy(tx)

    def stateless(self, message: Message) -> None:
        self.routes(message)
        next_hop = host_port(uri(message.get("route")) if message.get("route") else message.uri)
        if next_hop:
            self.pass_on(message, next_hop)

    def pass_on(self, message: Message, to: Address) -> None:
        self.via(message)
        self.send(message, to)

    def via(self, message: Message) -> str:
        branch = message.branch if self.fault == "P03" else f"z9hG4bK{secrets.token_hex(6)}"
        host, port = self.address
        message.headers.insert(0, ("via", f"SIP/2.0/UDP {host}:{port};branch={branch}"))
        return branch

    # --- digest

    def authorized(self, tx: Incoming, code: int, reason: str, asks: str, answers: str) -> str | None:
        """The user whose credentials the request has; None where it was challenged."""
        value = tx.request.get(answers)
        found = dict(re.findall(r'(\w+)="?([^",]+)"?', value))
        user, nonce = found.get("username", ""), found.get("nonce", "")
        ha1 = hashlib.md5(f"{user}:{DOMAIN}:{USERS.get(user, '')}".encode()).hexdigest()
        ha2 = hashlib.md5(f"{tx.request.method}:{found.get('uri', '')}".encode()).hexdigest()
        text = f"{ha1}:{nonce}:{found.get('nc')}:{found.get('cnonce')}:{found.get('qop')}:{ha2}"
        right = user in USERS and hashlib.md5(text.encode()).hexdigest() == found.get("response")
        right = right or (self.fault == "R15" and user in USERS)
        age = time.monotonic() - self.nonces.get(nonce, float("-inf"))
        if right and age <= self.nonce_lifetime:
            return user
        fresh = secrets.token_hex(8)
        self.nonces[fresh] = time.monotonic()
        challenge = f'Digest realm="{DOMAIN}", nonce="{fresh}", qop="auth", algorithm=MD5'
        if right and self.fault != "R16":
            challenge += ", stale=true"
        hidden = (self.fault, code) in (("R14", 401), ("P23", 407))
        headers = [] if hidden else [(asks, challenge)]
        self.answer(tx, code, reason, *headers)
        return None

    # --- registrar

    def register(self, tx: Incoming) -> None:
        request, fault = tx.request, self.fault
        if user_host(request.uri)[1] != DOMAIN and fault != "R12":
            return self.answer(tx, 403, "Forbidden")
        if request.get("require") and fault != "R13":
            return self.answer(tx, 420, "Bad Extension", ("unsupported", request.get("require")))
        user = self.authorized(tx, 401, "Unauthorized", "www-authenticate", "authorization")
        if user is None:
            return None
        name, host = user_host(uri(request.get("to")))
        if host != DOMAIN and fault not in ("R11", "R12"):
            return self.answer(tx, 404, "Not Found")
        if name != user and fault != "R17":
            return self.answer(tx, 403, "Forbidden")
        return self.bind(tx, name)

    def bind(self, tx: Incoming, name: str) -> None:
        request, fault = tx.request, self.fault
        bindings = self.bindings.setdefault(name, {})
        contacts, header = request.all("contact"), request.get("expires")
        call_id, cseq = request.get("call-id"), int(request.get("cseq").split()[0])
        old = [one for one in bindings.values() if one.call_id == call_id and one.cseq >= cseq]
        if contacts and old and fault != "R10":
            return self.answer(tx, 500, "CSeq Too Low")
        if "*" in contacts:
            if (len(contacts) > 1 or header != "0") and fault != "R09":
                return self.answer(tx, 400, "Bad Request")
            if fault != "R08":
                bindings.clear()
            contacts = []
        wanted: list[tuple[str, int, str | None]] = []
        for contact in contacts:
            asked = param(contact, "expires") or header
            if fault == "R04" and header:
                asked = header
            seconds = int(asked) if asked else DEFAULT
            if 0 < seconds < MINIMUM:
                least = [] if fault == "R06" else [("min-expires", str(MINIMUM))]
                return self.answer(tx, 423, "Interval Too Brief", *least)
            wanted.append((uri(contact), seconds, None if fault == "R18" else param(contact, "q")))
        for where, seconds, q in wanted:
            if seconds == 0:
                bindings.pop(where, None)
                if fault == "R07":
                    bindings.clear()
            elif not (fault == "R03" and where in bindings):
                bindings[where] = Binding(time.monotonic() + seconds, call_id, cseq, q)
        listed = []
        for where, one in bindings.items():
            left = "" if fault in ("R01", "R05") else f";expires={round(one.expires - time.monotonic())}"
            listed.append(("contact", f"<{where}>" + (f";q={one.q}" if one.q else "") + left))
        if fault == "R02" and not request.all("contact"):
            listed = listed[:1]
        return self.answer(tx, 200, "OK", *listed)

    # --- redirect server

    def redirect(self, tx: Incoming) -> None:
        name, _ = user_host(tx.request.uri)
        if name not in USERS:
            return self.answer(tx, *((480, "Unavailable") if self.fault == "D03" else (404, "Not Found")))
        bound = [one for one in self.bindings.get(name, {}) if self.fault == "D07" or one != tx.request.uri]
        if not bound:
            return self.answer(tx, *((404, "Not Found") if self.fault == "D04" else (480, "Unavailable")))
        contacts = [] if self.fault == "D01" else [("contact", f"<{one}>") for one in bound]
        return self.answer(tx, 302, "Moved Temporarily", *contacts)

    # --- proxy

    def cancel(self, tx: Incoming) -> None:
        invite = self.incoming.get((tx.request.branch, "INVITE"))
        if self.fault == "D05":
            return self.answer(tx, 405, "Method Not Allowed")
        if invite is None:
            return self.answer(tx, 481, "Call/Transaction Does Not Exist")
        self.answer(tx, 200, "OK")
        for branch in invite.branches:
            if not branch.final and self.fault != "P19":
                self.cancel_branch(branch)
        return None

    def cancel_branch(self, branch: Outgoing) -> None:
        request = branch.request
        kept = [one for one in request.headers if one[0] in ("from", "to", "call-id", "route")]
        number = request.get("cseq").split()[0]
        more = [("cseq", f"{number} CANCEL"), ("max-forwards", "70"), ("content-length", "0")]
        start = request.start.replace("INVITE", "CANCEL", 1)
        self.send(Message(start, [("via", request.get("via")), *kept, *more]), branch.target)

    def ours(self, where: str) -> bool:
        return host_port(where) == self.address

    def routes(self, message: Message) -> None:
        """RFC 3261 section 16.4."""
        routes = message.all("route")
        if self.ours(message.uri) and ";lr" in message.uri and routes:
            message.start = f"{message.method} {uri(routes[-1])} SIP/2.0"
            message.headers.remove(("route", routes[-1]))
        if message.get("route") and self.ours(uri(message.get("route"))):
            message.pop("route")

    def proxy(self, tx: Incoming) -> None:
        request, fault = tx.request, self.fault
        if not request.uri.startswith(("sip:", "sips:")):
            return self.answer(tx, *((404, "Not Found") if fault == "P07" else (416, "Unsupported Scheme")))
        if request.get("max-forwards") == "0" and fault != "P06":
            return self.answer(tx, 483, "Too Many Hops")
        if request.get("proxy-require") and fault != "P08":
            return self.answer(tx, 420, "Bad Extension", ("unsupported", request.get("proxy-require")))
        if request.method == "INVITE" and not param(request.get("to"), "tag"):
            asked = (407, "Proxy Authentication Required", "proxy-authenticate", "proxy-authorization")
            if self.authorized(tx, *asked) is None:
                return None
        if request.method == "OPTIONS" and self.ours(request.uri):
            able = [] if fault == "P25" else [("accept", "application/sdp"), ("supported", "")]
            return self.answer(tx, 200, "OK", *able)
        message = request.copy()
        own = request.get("route")
        self.routes(message)
        targets = self.targets(message)
        if not targets:
            return self.answer(tx, *((500, "Server Error") if fault == "P11" else (480, "Unavailable")))
        if request.method == "INVITE" and fault != "P02":
            trying = Message(
                "SIP/2.0 100 Trying",
                [one for one in request.headers if one[0] in ("via", "from", "to", "call-id", "cseq")]
                + [("content-length", "0")],
            )
            self.finish(tx, trying)
        for target in targets:
            copy = message.copy()
            if fault == "P09" and own:
                copy.headers.append(("route", own))
            self.forward(tx, copy, target)
        return None

    def targets(self, message: Message) -> list[str]:
        name, host = user_host(message.uri)
        if host == DOMAIN and not message.get("route"):
            return list(self.bindings.get(name, {}))
        reachable = host_port(uri(message.get("route"))) if message.get("route") else host_port(message.uri)
        return [message.uri] if reachable else []

    def forward(self, tx: Incoming, message: Message, target: str) -> None:
        fault = self.fault
        if fault == "P10" and target == message.uri:
            message.start = f"{message.method} {target.replace('someone', 'rewritten')} SIP/2.0"
        elif fault != "P01":
            message.start = f"{message.method} {target} SIP/2.0"
        hops = message.get("max-forwards")
        if fault not in ("P04", "P05", "P06") or (hops and fault == "P05"):
            message.remove("max-forwards")
            message.headers.append(("max-forwards", str(int(hops) - 1) if hops else "70"))
        if message.method == "INVITE":
            host, port = self.address
            lr = "" if fault == "P13" else ";lr"
            message.headers.insert(0, ("record-route", f"<sip:{host}:{port}{lr}>"))
        route = uri(message.get("route"))
        next_hop = (
            host_port(route) if route and not (fault == "P09" and self.ours(route)) else host_port(target)
        )
        if route and ";lr" not in route and fault != "P12":
            message.headers.append(("route", f"<{target}>"))
            message.pop("route")
            message.start = f"{message.method} {route} SIP/2.0"
        assert next_hop
        branch = self.via(message)
        out = self.outgoing[branch] = Outgoing(message, next_hop, tx)
        tx.branches.append(out)
        self.send(message, next_hop)
        self.after(self.t1, lambda: self.resend(out, self.t1))
        self.after(64 * self.t1, lambda: self.time_out(out))

    def resend(self, out: Outgoing, gap: float) -> None:
        invite = out.request.method == "INVITE"
        if out.final or (invite and out.provisional):
            return
        self.send(out.request, out.target)
        longer = 2 * gap
        if not invite and self.fault != "P22":
            longer = min(longer, 8 * self.t1)
        if self.fault == "P21":
            longer = gap
        self.after(longer, lambda: self.resend(out, longer))

    def time_out(self, out: Outgoing) -> None:
        invite = out.request.method == "INVITE"
        if not out.final and not (invite and out.provisional):
            start = out.parent.request
            kept = [one for one in start.headers if one[0] in ("via", "from", "to", "call-id", "cseq")]
            out.final = Message("SIP/2.0 408 Request Timeout", [*kept, ("content-length", "0")])
            if invite:
                self.decide(out.parent)

    # --- client transactions

    def response(self, message: Message) -> None:
        out = self.outgoing.get(message.branch)
        if out is None or message.get("cseq").split()[1] == "CANCEL":
            return
        code, tx, invite = message.code, out.parent, out.request.method == "INVITE"
        upstream = message.copy()
        if not (self.fault == "P14" and code == 180):
            upstream.pop("via")
        if invite and code >= 300 and self.fault != "P16":
            self.acknowledge(out, message)
        if code == 100:
            out.provisional = True
        elif code < 200:
            out.provisional = True
            self.finish(tx, upstream)
        elif code < 300 and invite:
            if out.final and self.fault == "P15":
                return
            out.final = upstream
            self.finish(tx, upstream)
            for other in tx.branches:
                if not other.final and self.fault != "P18":
                    self.cancel_branch(other)
        elif not out.final:
            out.final = upstream
            if self.fault == "P24" and code == 481:
                upstream.start = "SIP/2.0 500 Server Error"
            if invite:
                self.decide(tx)
            else:
                self.finish(tx, upstream)

    def acknowledge(self, out: Outgoing, response: Message) -> None:
        request = out.request
        kept = [one for one in request.headers if one[0] in ("from", "call-id", "route")]
        number = request.get("cseq").split()[0]
        more = [("to", response.get("to")), ("cseq", f"{number} ACK"), ("content-length", "0")]
        start = request.start.replace("INVITE", "ACK", 1)
        self.send(Message(start, [("via", request.get("via")), *kept, *more]), out.target)

    def decide(self, tx: Incoming) -> None:
        """Send the best response once all branches have one (RFC 3261 section 16.7 step 6)."""
        if not tx.final and all(out.final for out in tx.branches):
            best = min((out.final for out in tx.branches if out.final), key=lambda final: final.code)
            self.finish(tx, best)
