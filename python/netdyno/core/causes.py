"""Failures in words: how often each cause was seen, and what to do about it. The one table of advice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from netdyno import escape
from netdyno.core import models
from netdyno.core.wire import Counts, FailureCount

SHOWN = 6
"""Causes of a kind that are listed, the most frequent first."""
WORDS = 160
"""Characters of an example that are shown in a line."""

CREDENTIALS = "the server wants other credentials: check user name, password or token"
ACL = "the broker does not let this user use the topic: check user name, password and its access list"
SERVER = "the server failed: see its log"
PATH = "there is nothing at this path: check the path"
USE_TLS = "the port speaks TLS: use a scheme with TLS, like https://, mqtts:// or sips:"

ADVICE: Sequence[tuple[str, str, str]] = (
    # kind, pattern of the whole cause, what to do
    ("", "TLS on this port", USE_TLS),
    ("", "plain HTTP on this port", "the port speaks plain HTTP: check the port, or use http://"),
    ("", "SSH on this port", "an SSH server listens there: check the port"),
    ("", "closed during the TLS handshake", "is there TLS on this port? If so, see the server's log"),
    # HTTP (RFC 9110 §15)
    ("rejected", "401|407|511", CREDENTIALS),
    ("rejected", "403", "the server forbids it: check credentials, path and its access rules"),
    ("rejected", "404|410", PATH),
    ("rejected", "405|501", "the server does not take this method here: check method and path"),
    ("rejected", "408", "the server waited too long for the request: see its timeouts"),
    ("rejected", "413|414|431", "the request is too large for the server: check body, path and headers"),
    ("rejected", "429", "a rate limit of the server: lower the load, or lift the limit"),
    ("rejected", "502|504", "a proxy gets no answer from the server behind it: see the logs of both"),
    ("rejected", "503", "the server is overloaded or not ready: see its log, or load it less"),
    ("rejected", r"3\d\d", "the server redirects: name the address that it points to"),
    ("rejected", r"4\d\d", "the server rejects the request: check path, method, headers and body"),
    ("rejected", r"[5-9]\d\d", SERVER),
    ("rejected", r"[12]\d\d", "the profile does not expect this status: see `expect`"),
    ("rejected", "no value to capture", "nothing in the response where the capture looks: check the capture"),
    ("", "ended without TLS close_notify",
     "the end of the body is not confirmed: let the server send Content-Length, or close_notify"),
    ("", "in the head|in the body|after an interim response",
     "the response was cut: see the log and the limits of the server and of proxies before it"),
    ("protocol", "content in .*",
     "such a response ends with its head: fix the application or proxy that sends a body with it"),
    # CoAP (RFC 7252 §5.9)
    ("rejected", r"4\.01|4\.03", CREDENTIALS),
    ("rejected", r"4\.04", PATH),
    ("rejected", r"4\.05", "the server does not take this method here: check method and path"),
    ("rejected", r"4\.13", "the request is too large for the server: check payload and block size"),
    ("rejected", r"4\.29", "a rate limit of the server: lower the load, or lift the limit"),
    ("rejected", r"4\.\d\d", "the server rejects the request: check path, options and payload"),
    ("rejected", r"5\.\d\d", SERVER),
    # SIP (RFC 3261 §21)
    ("rejected", "(401|403|407) .*",
     "the server wants credentials, or others: check --password, --user, --auth-user and --domain"),
    ("rejected", "(404|410|604) .*",
     "the server does not know this user: check --user, --to, --domain, and who is registered"),
    ("rejected", "(480|430) .*", "the callee is known and cannot be reached: check its registration"),
    ("rejected", "(486|600) .*", "the callee is in another call: use more user agents (--users)"),
    ("rejected", "603 .*", "the callee declined the call"),
    ("rejected", "(408|504) .*", "a server behind got no answer in time: see the logs of both"),
    ("rejected", "(482|483) .*", "the request goes round in circles: check the server's routes and domains"),
    ("rejected", "(405|501) .*", "the server does not take this method: check the scenario"),
    ("rejected", "423 .*", "the server wants a longer registration: raise --expires"),
    ("rejected", "(413|513) .*", "the message is too large for the server: see --sdp-size and --header"),
    ("rejected", "503 .*", "the server is overloaded or not ready: see its log, or load it less"),
    ("rejected", r"3\d\d .*", "the server redirects: use preset `redirect`, or call the address it names"),
    ("rejected", r"4\d\d .*", "the server rejects the request: check the scenario, and see the server's log"),
    ("rejected", r"[56]\d\d .*", SERVER),
    ("protocol", "a 200 to REGISTER .*", "the registrar says 200 and keeps no binding: see its log"),
    ("closed", "the other side ended the call", "the callee hung up before the scenario was over"),
    ("rejected", "other keys heard", "keys were lost or changed on the way: see the media relays"),
    # WebSocket (RFC 6455, RFC 7118)
    ("rejected", "WebSocket handshake: (404|426)", "no WebSocket at this path: check it, like wss://HOST:8089/ws"),
    ("rejected", "WebSocket handshake.*", "the server refuses WebSocket clients: see its log and rules"),
    ("protocol", "WebSocket subprotocol", "what listens at this path is no SIP: check the path"),
    ("protocol", "no WebSocket on this port", "what listens there speaks no WebSocket: check port and path"),
    ("protocol", "WebSocket .*", "the server breaks RFC 6455: see its log"),
    ("closed", "WebSocket closed", "the server closed the WebSocket connection: see its code and log"),
    ("timeout", "no answer to the WebSocket handshake", "check that WebSocket is served at this port"),
    ("", "closed during the WebSocket handshake", "is WebSocket served at this port? If so, see its log"),
    # MQTT (3.1.1 §3.2.2.3, 5.0 §2.4)
    ("", r".* 0x(9c|9d) .*", "the broker says to use another server: see its server reference"),
    ("rejected", r"CONNACK 0x8c .*", "the broker wants another way to authenticate than a password"),
    ("rejected", r"CONNACK 0x(04|05|86|87) .*", "check user name, password and the broker's access list"),
    ("rejected", r"CONNACK 0x(01|84) .*", "the broker speaks another version of MQTT: set `version`"),
    ("rejected", r"CONNACK 0x(02|85) .*", "the broker refuses this client identifier: set `client_id`"),
    ("rejected", r"CONNACK 0x(03|88|89) .*", "the broker takes no connections now: see its log"),
    ("rejected", r"CONNACK 0x8a .*", "the broker has banned this client: see its access list"),
    ("", r".* 0x(96|97|9f) .*", "a limit of the broker: raise it, or load it less"),
    ("rejected", r"(SUBACK|PUBACK|PUBREC|PUBCOMP) 0x(80|87) .*", ACL),
    ("rejected", r".* 0x(8f|90) .*", "the broker does not accept this topic: check its name"),
    ("rejected", r".* 0x95 .*", "the packet is too large for the broker: check payload and its limit"),
    ("rejected", "QoS not supported|.* 0x9b .*", "the broker takes no such QoS: lower `qos`"),
    ("rejected", "retain not supported|.* 0x9a .*", "the broker retains no messages: leave `retain` out"),
    ("rejected", "SUBACK 0x(9e|a1|a2) .*", "the broker has no such subscriptions: change `subscribe`"),
    ("closed", "DISCONNECT 0x98 .*", "an operator or a rule of the broker ended the session: see its log"),
    ("closed", "DISCONNECT 0xa0 .*", "the broker limits how long a client is connected: raise its limit"),
    ("closed", "DISCONNECT 0x8b .*", "the broker shut down: see its log"),
    ("closed", "DISCONNECT 0x8d .*", "the broker heard nothing for its keep alive: see `keep_alive`"),
    ("closed", "DISCONNECT 0x8e .*", "another client took this client identifier: make `client_id` unique"),
    ("closed", "DISCONNECT .*", "the broker ended the session: see its log"),
    ("", "closed before CONNACK", "does the port expect TLS (mqtts://), or another `version`? See its log"),
    ("", "before any response", "see the server's log; a port that expects TLS closes like this: https://"),
    # TLS (RFC 8446 §6.2)
    ("tls", "certificate of an unknown issuer", "name its CA (`tls.ca`), or --insecure"),
    ("tls", "certificate of a CA", "name this very certificate (`tls.ca`), or use one that the CA signed"),
    ("tls", "certificate expired", "renew the server's certificate, or use --insecure"),
    ("tls", "certificate not valid yet", "check the clocks of both hosts"),
    ("tls", "certificate for another name", "name the host that the certificate is for (`tls.server_name`)"),
    ("tls", "client certificate required|alert certificate_required|closed after asking for a client .*",
     "the server wants a client certificate: name it (`tls.cert`, `tls.key`, or --cert, --key)"),
    ("tls", "client certificate refused", "the server does not accept the client certificate: see its log"),
    ("tls", "client key of another kind required",
     "the server takes no signature of the client's key: use a key of another kind"),
    ("tls", "renegotiation",
     "the server asked for renegotiation, which this client does not do: let it ask in the first handshake"),
    ("tls", "alert handshake_failure after ServerHello",
     "the server ended the handshake after it had chosen version and cipher: see its log"),
    ("tls", "certificate .*|no certificate", "check the server's certificate, or use --insecure"),
    ("tls", "alert (protocol_version|handshake_failure|insufficient_security)|no common .*",
     "the server shares no TLS version (1.2, 1.3), cipher or kind of key with us: check its settings"),
    ("tls", "alert unrecognized_name", "the server knows no such name: check `tls.server_name`"),
    ("tls", "no TLS on this port", "what listens there speaks no TLS: check the port and the scheme"),
    # the kernel
    ("local", "called before its registration",
     "calls began before their callees had registered: use a longer warm-up (--warmup)"),
    ("local", "out of local ports", "add source addresses (--source), or use fewer connections"),
    ("local", "out of file descriptors", "raise the limit of open files (ulimit -n)"),
    ("local", "not permitted", "see `netdyno doctor`"),
    ("unreachable", "prohibited by a filter", "a firewall on the way rejects it: check its rules"),
    ("timeout", "no connection in time", "no answer to the connect: check address, firewall, server"),
    ("timeout", "no CONNACK in time", "no answer to CONNECT: check that a broker listens there"),
)  # fmt: skip
"""By cause, the first that fits; a kind of `""` is any."""

KINDS: Mapping[str, str] = {
    "unanswered": "no answer came: check address, port and firewall, and that the server works",
    "refused": "nothing listens there: check host and port, and that the server runs",
    "unreachable": "no route to host: check the address, the network and the firewall",
    "timeout": "no answer came in time: check that the server runs and nothing is dropped, or load it less",
    "reset": "the connection was cut: see the server's log and its limit of connections",
    "closed": "the server hung up too early: see its log and its limits",
    "protocol": "the answer is not of this protocol: check the port and the scheme",
    "rejected": "the server rejected the request: see its log",
    "tls": "TLS failed: see the server's log and its TLS settings",
    "local": "this machine ran out of ports, files or memory: see `netdyno doctor`",
}
"""Where nothing more is known than the kind."""


REFUSED = "nothing listens there, as the refused ones show: a host says so only so often (limit of ICMP)"
"""Advice on messages without an answer, where others were refused."""
_NOTHING_KNOWN = "no answer to any of them, and nothing shows that they arrived: check "
SILENCE: Mapping[tuple[str, bool], str] = {
    ("datagram", False):
        f"{_NOTHING_KNOWN}the address (ping), the port, firewalls on the way, and that the server runs",
    ("datagram", True):
        "others were answered: these or their answers were lost, or the server dropped them: see its log and "
        "drops on the way, or load it less",
    ("icmp", False): f"{_NOTHING_KNOWN}the address, the route, and firewalls that drop ICMP",
    ("icmp", True): "others were answered: these or their answers were lost, or a limit of ICMP dropped them",
    ("stream", False):
        "no answer on any connection: check that the server behind the port works, and see its log",
    ("stream", True): "others were answered: see the server's log, or load it less",
}  # fmt: skip
"""Advice on requests without an answer, by what carries them and whether any was answered."""


def advice(
    kind: str, cause: str = "", target: str = "", *, answered: bool = False, refused: bool = False
) -> str:
    """What to do about failures of a kind, by their cause if it is known.

    `target` and whether any request was `answered` or `refused` tell what is known where no answer came.
    """
    for of, pattern, what in ADVICE:
        if cause and of in ("", kind) and re.fullmatch(pattern, cause):
            return what
    scheme, colon, _ = target.partition("://")
    if kind == "unanswered" and colon:
        carrier = next((one.carrier for one in models.schemes() if one.name == scheme.lower()), "")
        if refused and not answered and scheme.lower() in ("udp", "coap"):
            return REFUSED
        return SILENCE.get((carrier, answered), KINDS[kind])
    return KINDS.get(kind, "see the report")


def frequencies(causes: Mapping[str, int], count: int = 0) -> str:
    """Causes by frequency, as in `404 × 118, 503 × 2`.

    `count`: how many failures there are with those of no cause.
    """
    some = sorted(((n, cause) for cause, n in causes.items() if n), key=lambda one: -one[0])
    said = [f"{escape.visible(cause)} × {n:,}" for n, cause in some[:SHOWN]]
    rest = max(count, sum(n for n, _ in some)) - sum(n for n, _ in some[:SHOWN])
    return ", ".join([*said, f"other × {rest:,}"] if said and rest else said)


def of_error(error: FailureCount) -> str:
    """The causes of one kind."""
    return frequencies({cause.cause: cause.count for cause in error.causes}, error.count)


def brief(errors: Sequence[FailureCount]) -> str:
    """All failures in a few words, as in `rejected (404 × 118), refused × 3`."""
    return ", ".join(
        f"{error.kind} ({causes})" if (causes := of_error(error)) else f"{error.kind} × {error.count:,}"
        for error in errors
        if error.count
    )


def measured(errors: Sequence[FailureCount], counts: Counts) -> list[FailureCount]:
    """What failed in the measure phase; of a result of a former version by kind alone."""
    by = {error.kind: error for error in errors}
    return [by.get(kind, FailureCount(kind=kind, count=n)) for kind, n in counts.failures.items() if n]


def lines(name: str, target: str, errors: Sequence[FailureCount], until: str = "") -> list[str]:
    """Failures of a group: what, how often, what to do, and what the first one looked like.

    `until`: when it answered for the last time, if it ever did.
    """
    said = []
    refused = any(error.kind == "refused" for error in errors)
    to_do = partial(advice, target=target, answered=bool(until), refused=refused)
    for error in errors:
        causes = of_error(error)
        head = f"{name}: {error.count:,} × {error.kind} at {target}" + (f": {causes}" if causes else "")
        by: dict[str, list[str]] = {}
        for cause in error.causes[:SHOWN]:
            if cause.count:
                by.setdefault(to_do(error.kind, cause.cause), []).append(cause.cause)
        if error.kind == "refused" and until:
            said.append(f"{head}; it answered until {until}, then refused connections: see its log")
        elif len(by) <= 1:
            said.append(f"{head}; {next(iter(by), to_do(error.kind))}")
        else:
            said.append(head)
            said += [f"  {escape.visible(', '.join(of))}: {what}" for what, of in by.items()]
        if example := first(error):
            said.append(f"  first: {example}")
    return said


STACKS: Mapping[str, str] = {
    "dropped_bad_checksum":
        "packets with wrong checksums dropped: of a kernel's interface at the other end, have them filled in "
        "(ethtool -K INTERFACE tx off)",
    "dropped_duplicate_address":
        "messages of another host that has an address of this port: give the port one of its own",
}  # fmt: skip
"""Counters of stacks over ports that say what is wrong, and what to do."""


def ports(repetitions: Iterable[Mapping[str, Mapping[str, int]]]) -> list[str]:
    """What the counters of interfaces say of failures, each once: of ports with a stack of ours."""
    found: Counter[tuple[str, str]] = Counter()
    for interfaces in repetitions:
        for port, counters in interfaces.items():
            found.update({(port, what): n for what, n in counters.items() if n and what in STACKS})
    return [f"port {port}: {n:,} {STACKS[what]}" for (port, what), n in found.items()]


def first(error: FailureCount) -> str:
    """What the first failure looked like, in a line; nothing where its cause says it all."""
    text = escape.visible(error.example or "")
    if not text or text in (cause.cause for cause in error.causes):
        return ""
    return text if len(text) <= WORDS else f"{text[: WORDS - 1]}…"
