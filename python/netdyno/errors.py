"""The one error type, and the table of codes that `docs/reference/errors.md` is made from.

A code is `ND-<exit code>-<number>`. Numbers below 20 are given out by the core (`crates/`), numbers from
20 by this package; a code never changes its meaning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PASS = 0
INVALID = 90
HOST_LOST = 91
ENVIRONMENT = 92
THRESHOLD = 99
CONFIGURATION = 104
INTERRUPTED = 105

EXITS: dict[int, str] = {
    PASS: "pass or no verdict",
    INVALID: "the measurement is invalid",
    HOST_LOST: "a host, daemon or device under test was lost",
    ENVIRONMENT: "the environment is not ready",
    THRESHOLD: "a threshold or check failed",
    CONFIGURATION: "bad configuration or input",
    INTERRUPTED: "interrupted",
}

CODES: dict[str, str] = {
    "ND-90-01": "Less load was offered than intended",
    "ND-90-02": "The generator sent late",
    "ND-90-03": "The generator was starved of CPU",
    "ND-90-04": "The generator lost its own packets",
    "ND-90-05": "The measure phase was cut short",
    "ND-90-06": "A port or worker of the generator was lost",
    "ND-90-07": "An impaired port had no memory for what was on its way",
    "ND-90-08": "Too few connections for the load: all were waiting for answers",
    "ND-90-09": "Nothing fell due in the measure phase",
    "ND-90-10": "A limit is not judged, as nothing was measured for it",
    "ND-90-20": "There is no result of any trial",
    "ND-90-21": "An impaired link dropped what it was not asked to",
    "ND-90-22": "An action on a device under test ended after the measurement window",
    "ND-91-01": "A DPDK port was lost during the run",
    "ND-91-02": "An end of an impaired link was lost",
    "ND-91-03": "Log records of a NAT were not confirmed by their collector, or did not reach it",
    "ND-91-20": "The daemon ended by itself",
    "ND-91-21": "The connection to the daemon was lost",
    "ND-91-22": "The daemon did not answer in time",
    "ND-91-23": "A device under test ended during the run",
    "ND-91-24": "The run failed in the daemon",
    "ND-91-25": "A workload did not end as it should",
    "ND-91-26": "A network namespace that was watched is gone",
    "ND-91-27": "A link or namespace of the topology is gone",
    "ND-91-28": "The virtual machine was lost",
    "ND-91-29": "A device under test stopped answering during a search",
    "ND-91-30": "A device under test answered at no load of a search",
    "ND-91-31": "A SIP server cannot be reached",
    "ND-91-32": "The daemon, or an agent, answered something that is not valid",
    "ND-91-40": "A virtual switch ended, or does not answer",
    "ND-91-41": "A part of a service chain ended",
    "ND-91-42": "A controller of a switch ended, or cannot program it",
    "ND-91-43": "Another machine that is client or server was lost",
    "ND-91-50": "A host of a fleet was lost",
    "ND-91-51": "The controller of a fleet's run was lost",
    "ND-92-01": "Too few open files are allowed",
    "ND-92-02": "Too few local ports for so many devices",
    "ND-92-03": "A name cannot be resolved",
    "ND-92-04": "TLS cannot be set up",
    "ND-92-05": "The system refuses sockets, threads or signals",
    "ND-92-06": "A core cannot be used",
    "ND-92-07": "A source address is not of this machine",
    "ND-92-08": "An interface cannot be captured on",
    "ND-92-09": "A capture file cannot be written",
    "ND-92-10": "A port cannot be listened on",
    "ND-92-11": "The daemon cannot serve",
    "ND-92-12": "DPDK ports cannot be set up",
    "ND-92-13": "Where frames of a DPDK port go is not known",
    "ND-92-14": "A DPDK placement cannot be made",
    "ND-92-15": "An impaired link cannot be made",
    "ND-92-16": "A DPDK port does not offer the work asked of it",
    "ND-92-17": "The link of a DPDK port is down",
    "ND-92-18": "What a NAT keeps over a restart could not be written",
    "ND-90-30": "The baseline cannot be measured",
    "ND-90-31": "Too few pairs of trials are valid",
    "ND-90-32": "Nothing is proposed, as too little is known of such a service",
    "ND-90-33": "A trial of a study was discarded",
    "ND-90-34": "The settings that were compared lost unequal shares of their trials",
    "ND-90-35": "The interval of a search has the target in it: nothing is decided",
    "ND-92-20": "The daemon's program was not found",
    "ND-92-21": "The daemon did not start",
    "ND-92-22": "Root is needed",
    "ND-92-23": "A program is missing",
    "ND-92-24": "A port is in use",
    "ND-92-25": "A device under test did not start",
    "ND-92-26": "A namespace, link or address could not be made",
    "ND-92-27": "A disk is full",
    "ND-92-28": "The store is locked by another program",
    "ND-92-29": "The store was written by a newer netdyno",
    "ND-92-30": "A directory cannot be written",
    "ND-92-31": "Something could not be put back",
    "ND-92-32": "The journal cannot be written",
    "ND-92-33": "A kernel parameter could not be set",
    "ND-92-34": "The store is damaged",
    "ND-92-35": "The machine lacks something that the run needs",
    "ND-92-36": "Another program writes to this daemon",
    "ND-92-37": "A NIC cannot be bound or given back",
    "ND-92-38": "A folder of netdyno's belongs to another user, or is open to others",
    "ND-92-39": "A link, pipe or device of another user stands where a file is to be written",
    "ND-92-40": "Another program tunes this machine",
    "ND-92-41": "What was to be put back was changed by another program since",
    "ND-92-43": "The host's interface of a NAT cannot be made",
    "ND-92-44": "A virtual machine cannot be started",
    "ND-92-45": "The active NAT of a pair takes no standby now",
    "ND-92-46": "A device is gone, of which a value was to be put back",
    "ND-92-47": "The daemon behind a socket is another user's",
    "ND-92-48": "The dashboard cannot listen at its address",
    "ND-92-49": "The SIP server cannot listen",
    "ND-92-50": "A fault of netdyno itself",
    "ND-92-51": "A server to test against cannot listen",
    "ND-92-52": "The kernel lacks a transport protocol",
    "ND-92-60": "A virtual switch cannot be set up",
    "ND-92-61": "A network function of a chain cannot be set up",
    "ND-92-62": "A controller of a switch cannot be set up, or the switch cannot connect to it",
    "ND-92-63": "A tunnel between two switches cannot be made, or its other end does not answer",
    "ND-92-65": "A path does not treat packets as it is described",
    "ND-92-64": "Another machine cannot be client or server, or its cable cannot be used",
    "ND-92-90": "An agent of a fleet cannot be started",
    "ND-92-91": "Agents of a fleet are of different versions",
    "ND-92-92": "An agent and its controller do not accept each other's certificates",
    "ND-99-20": "A threshold failed",
    "ND-99-21": "A check failed that every group is held to: nothing was delivered, or devices stalled",
    "ND-99-22": "No subscriber had an outside address and port at that time, by the logs",
    "ND-99-23": "The logs do not tell which of several subscribers had an outside address and port",
    "ND-99-24": "It is not known who had an outside address and port: records are or may be missing",
    "ND-99-44": "Traffic did not take the paths that the policy of a service chain says",
    "ND-99-43": "A failed function of a service chain was not detected, or packets did not go as chosen",
    "ND-99-42": "Packets were lost while a service chain was re-programmed",
    "ND-99-41": "A takeover between controllers of a chain lost something",
    "ND-99-40": "Packets do not follow the path of their service chain",
    "ND-99-30": "A conformance test failed",
    "ND-104-01": "Not JSON",
    "ND-104-02": "An unknown key",
    "ND-104-03": "A missing key",
    "ND-104-04": "A value of the wrong type or form",
    "ND-104-05": "A value out of range",
    "ND-104-06": "A name that refers to nothing, or is used twice",
    "ND-104-07": "Things that do not go together",
    "ND-104-08": "A profile cannot be read",
    "ND-104-10": "Wrong parameters of a request",
    "ND-104-11": "A request at the wrong time",
    "ND-104-12": "Another connection writes",
    "ND-104-13": "A wrong token",
    "ND-104-14": "Nothing for the reflector to listen on",
    "ND-104-15": "Too many connections or subscriptions",
    "ND-104-16": "A file, secret or device that may not be named over TCP or from a browser",
    "ND-104-17": "Too many wrong tokens from one address",
    "ND-104-18": "A viewer of the dashboard may change nothing",
    "ND-104-19": "A request of another site, or for a host name that the dashboard does not serve",
    "ND-104-20": "A file cannot be read",
    "ND-104-21": "A file is neither JSON nor YAML",
    "ND-104-22": "An unknown command or option",
    "ND-104-23": "An unknown preset",
    "ND-104-24": "A wrong experiment",
    "ND-104-25": "An unknown run",
    "ND-104-26": "A target that cannot be used",
    "ND-104-27": "Runs that cannot be compared",
    "ND-104-28": "A request that the daemon does not take",
    "ND-104-29": "A wrong topology",
    "ND-104-30": "A NIC that must not be bound, or is none",
    "ND-104-31": "An unknown workload or case, or one that does not go here",
    "ND-104-32": "A file or document beyond its limit",
    "ND-104-33": "Elements of a graph that are not connected as they must be",
    "ND-104-34": "A wrong configuration of a NAT",
    "ND-104-35": "No such NAT runs here, or one of that name does already",
    "ND-104-36": "A configuration that a NAT cannot go on with while it runs",
    "ND-104-37": "A NAT that is none of a pair, or cannot hand over now",
    "ND-104-40": "An unknown tunable",
    "ND-104-41": "A wrong description of tunables, of a setting or of a class of service",
    "ND-104-42": "A parameter of the whole machine without --global",
    "ND-104-43": "A parameter that cannot be set here",
    "ND-104-50": "A parameter that cannot be tried",
    "ND-104-51": "Trials that were begun otherwise, or are damaged",
    "ND-104-52": "A metric that is not measured",
    "ND-104-53": "No such study of tuning, or of another kind",
    "ND-104-54": "A study without a proven winner to apply",
    "ND-104-55": "There is no experience of tuning, or it cannot be read",
    "ND-104-56": "A metric or SLO of a load command that cannot be understood",
    "ND-104-60": "A secret is missing",
    "ND-104-70": "A conformance test file that cannot be played",
    "ND-104-71": "A capture without SIP messages that can be shown, or no capture",
    "ND-104-72": "A setting of the SIP server that cannot be used",
    "ND-104-73": "A SIPp scenario that cannot be played",
    "ND-104-74": "A setting of a server to test against that cannot be used",
    "ND-104-75": "A JMeter plan or k6 script that a profile cannot stand for",
    "ND-104-80": "A virtual switch that cannot do this, or is not known",
    "ND-104-81": "Ports or flows that a virtual switch cannot have",
    "ND-104-82": "A wrong description of a service chain",
    "ND-104-85": "A wrong description of a tunnel between switches",
    "ND-104-84": "A wrong description of a study of switches",
    "ND-104-86": "A wrong description of a machine that is client or server",
    "ND-104-87": "A service chain lets nothing pass of what a workload sends",
    "ND-104-83": "A controller that is not known, or cannot do this",
    "ND-104-90": "No such fleet is up, or one of that name is",
    "ND-104-91": "A wrong description of the hosts of a fleet",
    "ND-104-92": "A load that hosts of a fleet cannot share",
    "ND-104-93": "No run of a fleet that can be collected",
    "ND-105-20": "Interrupted",
}


_CODE = re.compile(r"ND-(\d{1,3})-\d+")


@dataclass(eq=False)
class Error(Exception):
    """Something that the user should know: what was wrong, where, and what to do about it."""

    code: str
    what: str
    at: str = ""
    fix: str = ""
    all: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    """Every finding, when there is more than one: {code, at, what, fix} each."""

    def __post_init__(self) -> None:
        super().__init__(str(self))

    @property
    def exit_code(self) -> int:
        """The exit code that the error's family stands for."""
        return int(self.code.split("-")[1])

    def __str__(self) -> str:
        where = f" at {self.at}:" if self.at else ""
        fix = f". {self.fix}" if self.fix else ""
        return f"{self.code}:{where} {self.what}{fix}"

    def as_dict(self) -> dict[str, Any]:
        """The form in which errors stand in JSON."""
        plain: dict[str, Any] = {"code": self.code, "at": self.at, "what": self.what, "fix": self.fix}
        if self.all:
            plain["all"] = [dict(one) for one in self.all]
        return plain

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Error:
        """The error that `as_dict` (or the core) wrote; what others wrote may be anything."""
        code, more = str(plain.get("code")), plain.get("all")
        known = _CODE.fullmatch(code)
        return cls(
            code if known and int(known[1]) in EXITS.keys() - {PASS} else "ND-91-24",
            str(plain.get("what") or plain.get("message") or "failed"),
            str(plain.get("at") or ""),
            str(plain.get("fix") or ""),
            tuple(one for one in more if isinstance(one, Mapping)) if isinstance(more, list | tuple) else (),
        )


_LINE = re.compile(r" \(line \d+ column \d+\)")


def placed(finding: Mapping[str, Any]) -> dict[str, Any]:
    """A finding of the core about a document that we wrote for it: its lines are not those of the file."""
    plain: dict[str, Any] = {**finding, "what": _LINE.sub("", str(finding.get("what") or ""))}
    if isinstance(several := plain.get("all"), list | tuple):
        plain["all"] = [placed(one) for one in several if isinstance(one, Mapping)]
    return plain


def reference() -> str:
    """The reference page of exit codes and error codes, as Markdown."""
    lines = [
        "# Exit codes and error codes",
        "",
        "<!-- generated by `python -m netdyno.errors > docs/reference/errors.md`; do not edit -->",
        "",
        "Every error has a stable code `ND-<exit code>-<number>`; it says what was wrong, where, what to do.",
        "",
        "| exit code | meaning |",
        "|---|---|",
        *(f"| {code} | {meaning} |" for code, meaning in EXITS.items()),
        "",
        "| code | meaning |",
        "|---|---|",
        *(f"| `{code}` | {meaning} |" for code, meaning in CODES.items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(reference(), end="")
