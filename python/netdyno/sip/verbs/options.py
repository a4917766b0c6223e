"""Options that the load verbs of `netdyno sip` share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno import units
from netdyno.cli import values
from netdyno.cli.options import Fleet, Tolerate, insert, output_options, parameter
from netdyno.errors import Error
from netdyno.sip import info_keys, limits, profile, uri
from netdyno.sip.manual.sending import header_fields
from netdyno.sip.verbs import passwords, targets

USERS, NETWORK, AUDIO = "User agents", "Network", "Audio"
SRTP_SUITES = (
    "AES_CM_128_HMAC_SHA1_80",
    "AES_CM_128_HMAC_SHA1_32",
    "AES_256_CM_HMAC_SHA1_80",
    "AES_256_CM_HMAC_SHA1_32",
    "AEAD_AES_256_GCM",
    "AEAD_AES_128_GCM",
)
QUALITY = ("min_mos", "min_heard")
"""Options of what calls are to hear, which give them no audio by themselves."""
MEDIA_MODES = ("send-receive", "echo", "send-only", "receive-only")

Rate = Annotated[
    str,
    typer.Option(
        help="Flows per second, like 200/s: registrations or calls.",
        metavar="RATE",
        parser=values.rate("--rate"),
    ),
]
Users = Annotated[
    int | None,
    typer.Option(
        help="User agents; default: as many as the rate needs.",
        metavar="N",
        parser=values.whole("--users"),
        rich_help_panel=USERS,
    ),
]
Duration = Annotated[
    str, typer.Option(help="Length of the measure phase.", metavar="TIME", parser=values.time("--duration"))
]
Warmup = Annotated[
    str,
    typer.Option(
        help="Length of the warm-up; of calls, after callees have registered.",
        metavar="TIME",
        parser=values.time("--warmup"),
    ),
]
Arrival = Annotated[
    str,
    typer.Option(
        help="Gaps between arrivals: poisson, uniform or constant.",
        metavar="NAME",
        parser=values.one_of("--arrival", "poisson", "uniform", "constant"),
    ),
]
User = Annotated[
    str | None,
    typer.Option(
        help="User part of the address of record, like alice or user{device}.",
        metavar="TEXT",
        rich_help_panel=USERS,
    ),
]
Domain = Annotated[
    str | None,
    typer.Option(
        help="Domain of the addresses of record; default: the server's host.",
        metavar="TEXT",
        rich_help_panel=USERS,
    ),
]
AuthUser = Annotated[
    str | None,
    typer.Option(
        help="User name for digest authentication; default: --user.", metavar="TEXT", rich_help_panel=USERS
    ),
]
Password = Annotated[
    str | None,
    typer.Option(
        help="Password for digest authentication.",
        metavar=passwords.METAVAR,
        rich_help_panel=USERS,
    ),
]
Expires = Annotated[
    str | None,
    typer.Option(
        help="Lifetime of a registration. Default: 3600s.",
        metavar="TIME",
        parser=values.time("--expires"),
        rich_help_panel=USERS,
    ),
]
KeepBindings = Annotated[
    bool,
    typer.Option(
        "--keep-bindings",
        help="Leave registrations with the server when the run is over. Default: remove them.",
        rich_help_panel=USERS,
    ),
]
MaxCalls = Annotated[
    int | None,
    typer.Option(
        help="Calls at a time; those that are due beyond it are never begun, as with -l of SIPp. Default: no "
        "limit.",
        metavar="N",
        parser=values.whole("--max-calls"),
    ),
]
Alias = Annotated[
    bool,
    typer.Option(
        "--alias",
        help="Over TCP and TLS: let the server reuse connections for its requests (RFC 5923). Default: not.",
        rich_help_panel=NETWORK,
    ),
]
SdpSize = Annotated[
    str | None,
    typer.Option(
        help="Pad session descriptions to this size. Default: no padding.",
        metavar="SIZE",
        parser=values.size("--sdp-size"),
        rich_help_panel=USERS,
    ),
]
SessionTimer = Annotated[
    str | None,
    typer.Option(
        help="Session interval of calls (RFC 4028): refreshed halfway, or the call ends. Default: none.",
        metavar="TIME",
        parser=values.time("--session-timer"),
        rich_help_panel=USERS,
    ),
]
Refresh = Annotated[
    str | None,
    typer.Option(
        help="With --session-timer: refresh by update (default) or invite.",
        metavar="METHOD",
        parser=values.one_of("--refresh", "update", "invite"),
        rich_help_panel=USERS,
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        "-H",
        help="Add a header field to requests.",
        metavar="'NAME: VALUE'",
        rich_help_panel=USERS,
    ),
]
Transport = Annotated[
    str | None,
    typer.Option(
        help="udp, tcp, tls, ws, wss or sctp; default: as the URI says, else udp.",
        metavar="NAME",
        parser=values.one_of("--transport", *uri.TRANSPORTS),
        rich_help_panel=NETWORK,
    ),
]
Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--source", help="Addresses to send from, in turn.", metavar="ADDRESS|PREFIX", rich_help_panel=NETWORK
    ),
]
Sockets = Annotated[
    str | None,
    typer.Option(
        help="Over UDP: shared, one socket for all user agents of a worker and an address; or own, one each"
        " (default).",
        metavar="NAME",
        parser=values.one_of("--sockets", *profile.SOCKETS),
        rich_help_panel=NETWORK,
    ),
]


def _connections(text: str | int) -> str | int:
    """`one`, `each`, or a number."""
    if isinstance(text, str) and text in ("one", profile.EACH):
        return text
    return values.whole("--connections")(str(text))


Connections = Annotated[
    str | None,
    typer.Option(
        help="Over TCP and TLS: one connection for all user agents, N that they share, or one each. Default:"
        " each.",
        metavar="one|N|each",
        parser=_connections,
        rich_help_panel=NETWORK,
    ),
]
CaCert = Annotated[
    Path | None,
    typer.Option(
        "--cacert", help="Trust this certificate authority.", metavar="FILE", rich_help_panel=NETWORK
    ),
]
OutboundProxy = Annotated[
    bool,
    typer.Option(
        "--outbound-proxy",
        help="Send requests within a dialog to the server too. Default: over UDP to the Contact of the other "
        "side, or its Record-Route.",
        rich_help_panel=NETWORK,
    ),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", "-k", help="Do not verify the server's certificate.", rich_help_panel=NETWORK),
]
Success = Annotated[
    float,
    typer.Option(
        help="Share of attempts that must succeed.", metavar="SHARE", parser=values.share("--success")
    ),
]
Thresholds = Annotated[
    list[str] | None,
    typer.Option(
        "--threshold", help="Add a criterion, like 'delay.registration.p99 <= 100ms'.", metavar="TEXT"
    ),
]
Conformance = Annotated[
    bool,
    typer.Option(
        "--conformance", help="Test first whether the server conforms; one that does not is not loaded."
    ),
]
Waive = Annotated[
    str | None,
    typer.Option("--waive", help="With --conformance: skip these tests, like R07,P13.", metavar="LIST"),
]
Capture = Annotated[bool, typer.Option("--capture", help="Keep packets for Wireshark.")]
Trace = Annotated[
    int | None,
    typer.Option(
        help="Keep the messages of the first N calls, the first N registrations and the first N that failed: "
        "ladders in the report, and for `netdyno sip ladder`. Default: none.",
        metavar="N",
        parser=values.whole("--trace", 1, 10_000),
    ),
]
Ladder = Annotated[
    bool,
    typer.Option(
        "--ladder",
        help="Draw the messages of the first call and the first registration as they come, in the place of "
        "live figures; they are in the report, too, as with `--trace 1`.",
    ),
]
_SHARED: Mapping[str, tuple[Any, Any]] = {
    "rate": (Rate, "100/s"),
    "users": (Users, None),
    "duration": (Duration, "10s"),
    "warmup": (Warmup, "1s"),
    "arrival": (Arrival, "poisson"),
    "success": (Success, "100%"),
    "threshold": (Thresholds, None),
    "capture": (Capture, False),
    "trace": (Trace, None),
    "ladder": (Ladder, False),
    "fleet": (Fleet, None),
    "tolerate": (Tolerate, 0),
    "conformance": (Conformance, False),
    "waive": (Waive, None),
    "user": (User, None),
    "domain": (Domain, None),
    "auth_user": (AuthUser, None),
    "password": (Password, None),
    "expires": (Expires, None),
    "keep_bindings": (KeepBindings, False),
    "sdp_size": (SdpSize, None),
    "session_timer": (SessionTimer, None),
    "refresh": (Refresh, None),
    "header": (Headers, None),
    "transport": (Transport, None),
    "source": (Sources, None),
    "sockets": (Sockets, None),
    "connections": (Connections, None),
    "outbound_proxy": (OutboundProxy, False),
    "alias": (Alias, False),
    "cacert": (CaCert, None),
    "insecure": (Insecure, False),
    **targets.OPTIONS,
}
_MEDIA: Mapping[str, tuple[Any, Any]] = {
    "media": (
        Annotated[
            bool,
            typer.Option("--media", help="Give calls audio: G.711 over RTP.", rich_help_panel=AUDIO),
        ],
        False,
    ),
    "audio": (
        Annotated[
            str | None,
            typer.Option(
                help="Audio of calls: a file (.wav, .ul, .al, .pcap) or a tone like 440Hz; default: 1004Hz.",
                metavar="FILE|HZ",
                rich_help_panel=AUDIO,
            ),
        ],
        None,
    ),
    "codec": (
        Annotated[
            str | None,
            typer.Option(
                help="Codec offered first: pcmu or pcma. Default: pcmu.",
                metavar="NAME",
                parser=values.one_of("--codec", "pcmu", "pcma"),
                rich_help_panel=AUDIO,
            ),
        ],
        None,
    ),
    "media_mode": (
        Annotated[
            str | None,
            typer.Option(
                help=f"Direction of callers' audio: {', '.join(MEDIA_MODES)}. Default: send-receive.",
                metavar="MODE",
                parser=values.one_of("--media-mode", *MEDIA_MODES),
                rich_help_panel=AUDIO,
            ),
        ],
        None,
    ),
    "callee_media_mode": (
        Annotated[
            str | None,
            typer.Option(
                help="Direction of netdyno's callees' audio. Default: send-receive.",
                metavar="MODE",
                parser=values.one_of("--callee-media-mode", *MEDIA_MODES),
                rich_help_panel=AUDIO,
            ),
        ],
        None,
    ),
    "keys": (
        Annotated[
            str | None,
            typer.Option(
                "--dtmf",
                help="Keys that callers press, like 1234#. Default: none.",
                metavar="KEYS",
                rich_help_panel=AUDIO,
            ),
        ],
        None,
    ),
    "srtp": (
        Annotated[
            bool,
            typer.Option(
                "--srtp",
                help="Protect audio: SRTP with keys in SDP (RFC 4568); calls without it fail. Default: RTP.",
                rich_help_panel=AUDIO,
            ),
        ],
        False,
    ),
    "srtp_suite": (
        Annotated[
            list[str] | None,
            typer.Option(
                help=f"Suite of SRTP, most wanted first; repeatable: {', '.join(SRTP_SUITES)}. Default: all.",
                metavar="NAME",
                parser=values.one_of("--srtp-suite", *SRTP_SUITES),
                rich_help_panel=AUDIO,
            ),
        ],
        None,
    ),
    "dtmf_mode": (
        Annotated[
            str,
            typer.Option(
                help="How keys are sent: rfc4733 (telephone events) or info (INFO, application/dtmf-relay).",
                metavar="MODE",
                parser=values.one_of("--dtmf-mode", "rfc4733", "info"),
                rich_help_panel=AUDIO,
            ),
        ],
        "rfc4733",
    ),
    "min_mos": (
        Annotated[
            float,
            typer.Option(
                help="Minimum listening MOS for 95 % of calls of a second or longer, or off.",
                metavar="MOS",
                parser=values.limit("--min-mos", 1, 4.5),
                rich_help_panel=AUDIO,
            ),
        ],
        limits.MOS,
    ),
    "min_heard": (
        Annotated[
            float,
            typer.Option(
                help="Minimum share of the audio heard in each such call, in both directions, or off.",
                metavar="SHARE",
                parser=values.limit("--min-heard", 0, 1),
                rich_help_panel=AUDIO,
            ),
        ],
        limits.HEARD,
    ),
    "playout_buffer": (
        Annotated[
            str | None,
            typer.Option(
                help="Playout buffer of listeners; default 60ms.",
                metavar="TIME",
                parser=values.time("--playout-buffer"),
                rich_help_panel=AUDIO,
            ),
        ],
        None,
    ),
}
_MEDIA_KEYS = re.compile(r"[0-9*#A-Da-d]{1,64}")
_TONE = re.compile(r"(\d{1,5})\s*Hz", re.IGNORECASE)


def with_media(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options of audio, which come as `**given`."""
    insert(verb, [parameter(name, one, default) for name, (one, default) in _MEDIA.items()])
    return verb


def media(given: Mapping[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Audio of callers, and of callees where theirs is another; None: calls have none."""
    keys = checked_keys(given.get("keys"))
    in_audio = keys if given.get("dtmf_mode") != "info" else None
    silent = ("keys", "dtmf_mode", *QUALITY)
    if not in_audio and not any(given.get(name) for name in _MEDIA if name not in silent):
        return None, None
    found: dict[str, Any] = {key: given[key] for key in ("codec", "playout_buffer") if given[key] is not None}
    if (audio := given["audio"]) is not None:
        tone = _TONE.fullmatch(audio.strip())
        found["source"] = {"tone": int(tone[1])} if tone else {"file": str(Path(audio).absolute())}
    if (suites := given.get("srtp_suite")) or given.get("srtp"):
        found["srtp"] = {"suites": list(dict.fromkeys(suites))} if suites else {}
    modes = (given["media_mode"], given["callee_media_mode"])
    caller, callee = (found | ({"mode": mode} if mode else {}) for mode in modes)
    if in_audio:
        caller, callee = caller | {"keys": in_audio}, callee | {"expected_keys": in_audio}
    return caller, callee


def checked_keys(keys: str | None) -> str | None:
    """Keys of a telephone."""
    if keys is not None and not _MEDIA_KEYS.fullmatch(keys):
        fix = "Use up to 64 of 0 to 9, *, #, A to D"
        raise Error("ND-104-04", f"{keys!r} are no keys of a telephone", at="--dtmf", fix=fix)
    return keys


def pressed(keys: str | None, mode: str) -> float:
    """Seconds that a call needs for its keys."""
    if not keys:
        return 0.0
    return info_keys.lasts(keys) if mode == "info" else 0.6 + 0.2 * len(keys)


def described(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options that describe a load, which come as `**given`, behind its own."""
    left_out = ("threshold", "capture", "trace", "ladder", "fleet", "tolerate", "conformance", "waive")
    insert(verb, [parameter(name, *_SHARED[name]) for name in _SHARED if name not in left_out])
    return verb


def shared(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options of a load and of its output, which come as `**given`, behind its own."""
    insert(verb, [parameter(name, one, default) for name, (one, default) in _SHARED.items()])
    output_options("json html junit markdown csv prometheus runs quiet")(verb)
    return verb


def searched(verb: Callable[..., None]) -> Callable[..., None]:
    """The same for a verb of many runs, whose packets nobody would look at."""
    left_out = ("capture", "trace", "ladder")
    insert(verb, [parameter(name, *_SHARED[name]) for name in _SHARED if name not in left_out])
    output_options("json html junit markdown csv prometheus runs quiet")(verb)
    return verb


def automated(verb: Callable[..., None]) -> Callable[..., None]:
    """The same for a verb that tests conformance by itself, and writes its files to a folder."""
    left_out = ("capture", "trace", "ladder", "conformance")
    insert(verb, [parameter(name, *_SHARED[name]) for name in _SHARED if name not in left_out])
    output_options("json runs quiet")(verb)
    return verb


def read(server: str, given: Mapping[str, Any], **more: Any) -> profile.Options:
    """The shared options as what a profile is made from."""
    rate = units.RATE.value(given["rate"], "--rate")
    if rate <= 0:
        raise Error("ND-104-05", "no flow ever begins at this rate", at="--rate", fix="Use a rate above 0/s")
    found = uri.parse(server, given["transport"])
    user, named = given["user"], (found.user or "").replace("{", "{{").replace("}", "}}") or None
    if "callee" in more:
        more["callee"] = named if more["callee"] is None else more["callee"]
    elif named and user not in (None, named):
        fix = "Leave one of them out"
        raise Error("ND-104-03", f"the URI says {found.user!r} already", at="--user", fix=fix)
    else:
        user = user or named
    found, failover = targets.located(found, given)
    return profile.Options(
        server=found,
        failover=failover,
        rate=rate,
        users=given["users"],
        duration=seconds(given["duration"], "--duration"),
        warmup=seconds(given["warmup"], "--warmup"),
        arrival=given["arrival"],
        user=user,
        domain=given["domain"],
        auth_user=given["auth_user"],
        password=profile.password(passwords.noted(given["password"])),
        expires=given["expires"],
        sdp_size=given["sdp_size"],
        session_timer=_session_timer(given),
        headers=dict(header_fields(given["header"] or [])),
        sources=tuple(given["source"] or ()),
        sockets=given["sockets"],
        connections=_shared_connections(found, given["connections"]),
        keep_bindings=given["keep_bindings"],
        alias=given["alias"],
        outbound_proxy=given["outbound_proxy"],
        ca=str(given["cacert"].absolute()) if given["cacert"] else None,
        insecure=given["insecure"],
        success=given["success"],
        **more,
    )


def _session_timer(given: Mapping[str, Any]) -> dict[str, str] | None:
    expires, method = given["session_timer"], given["refresh"]
    if expires is None:
        if method is not None:
            fix = "Add --session-timer, like 90s"
            raise Error("ND-104-03", "there is no session timer", at="--refresh", fix=fix)
        return None
    return {"expires": expires} | ({"method": method} if method else {})


def _shared_connections(server: uri.Server, given: str | int | None) -> str | int | None:
    if given not in (None, profile.EACH) and server.transport not in ("tcp", "tls", "sctp"):
        what = f"user agents share connections over TCP and TLS, not over {server.transport.upper()}"
        fix = "Use --transport tcp, or --sockets shared over UDP"
        raise Error("ND-104-03", what, at="--connections", fix=fix)
    return given


def read_call(
    server: str, given: Mapping[str, Any], *, hold: str, ring: str, early_media: bool, **more: Any
) -> profile.Options:
    """The options of a call, with those of its audio."""
    audio, callee_audio = media(given)
    least = pressed(given["keys"], given["dtmf_mode"])
    if seconds(hold, "--hold") < least:
        what = f"pressing {given['keys']} takes {least:.1f} s, and calls last {hold}"
        raise Error("ND-104-07", what, at="--dtmf", fix=f"Use --hold {least:.1f}s or longer")
    in_info = given["keys"] if given["dtmf_mode"] == "info" else None
    if in_info and early_media:
        what = "calls with early media send no keys by INFO"
        raise Error("ND-104-07", what, at="--dtmf-mode", fix="Leave one of them out")
    return read(
        server,
        given,
        info_keys=in_info,
        media=audio,
        callee_media=callee_audio,
        min_mos=given["min_mos"],
        min_heard=given["min_heard"],
        hold=seconds(hold, "--hold"),
        ring=seconds(ring, "--ring"),
        early_media=early_media,
        **more,
    )


def callee_address(text: str, given: Mapping[str, Any]) -> tuple[str, int]:
    """Address and port to be called at."""
    address, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or not 0 < int(port) < 65536:
        raise Error("ND-104-22", f"{text!r} is no ADDRESS:PORT", at="--listen", fix="Like 192.0.2.5:5070")
    for name in ("sockets", "source"):
        if given[name]:
            raise Error("ND-104-03", "--listen says it already", at=f"--{name}", fix="Leave one of them out")
    return address.strip("[]"), int(port)


def seconds(text: str, option: str) -> float:
    """A length of time in seconds."""
    return units.TIME.value(text, option) / 1e9
