"""A load from the form of the dashboard: registrations, calls, redirections or OPTIONS at a rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netdyno import units
from netdyno.errors import Error
from netdyno.sip import profile, uri

KINDS = ("register", "call", "redirect", "options")
TEXTS = ("kind", "server", "transport", "rate", "users", "duration", "domain", "user", "to", "auth_user",
         "password", "hold")  # fmt: skip
FLAGS = ("media", "insecure")


def document(form: Mapping[str, Any]) -> dict[str, Any]:
    """The profile of a form. Raises Error."""
    if unknown := sorted(form.keys() - {*TEXTS, *FLAGS}):
        fix = f"There are {', '.join((*TEXTS, *FLAGS))}"
        raise Error("ND-104-10", f"there is no parameter {unknown[0]!r}", fix=fix)
    said = {key: text for key in TEXTS if (text := _text(form, key))}
    kind = said.get("kind", "register")
    if kind not in KINDS:
        raise Error("ND-104-22", f"there is no load {kind!r}", at="kind", fix=f"Use {', '.join(KINDS)}")
    audio = form.get("media") is True
    if audio and kind != "call":
        raise Error("ND-104-03", "only calls have audio", at="--media", fix="Leave it out, or choose call")
    server = uri.parse(said.get("server", ""), said.get("transport"))
    named = server.user
    registers = kind in profile.REGISTERS
    options = profile.Options(
        server=server,
        rate=_rate(said.get("rate", "100/s")),
        users=_whole(said.get("users")),
        duration=_seconds(said.get("duration", "10s"), "--duration"),
        hold=_seconds(said.get("hold", "0s"), "--hold"),
        user=said.get("user") or (named if registers else None),
        callee=None if registers else said.get("to") or named,
        domain=said.get("domain"),
        auth_user=said.get("auth_user"),
        password=profile.password(said.get("password")),
        insecure=form.get("insecure") is True,
        media={} if audio else None,
    )
    if kind == "register":
        return profile.register(options)
    return profile.call(options) if kind == "call" else profile.scenario(options, {"preset": kind}, kind)


def _text(form: Mapping[str, Any], key: str) -> str:
    value = form.get(key)
    if value is None:
        return ""
    if not isinstance(value, str | int) or isinstance(value, bool) or len(str(value)) > 1024:
        raise Error("ND-104-10", f"{key} is no text", at=f"--{key.replace('_', '-')}")
    return str(value).strip()


def _rate(text: str) -> float:
    rate = units.RATE.value(text if "/" in text else f"{text}/s", "--rate")
    if rate <= 0:
        raise Error("ND-104-05", "no flow ever begins at this rate", at="--rate", fix="Use a rate above 0/s")
    return rate


def _whole(text: str | None) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or not int(text):
        raise Error("ND-104-04", "it is not a whole number above 0", at="--users", fix="Like 100")
    return int(text)


def _seconds(text: str, option: str) -> float:
    return units.TIME.value(text, option) / 1e9
