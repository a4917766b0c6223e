"""The systems over this platform: one entry each, which names by strings all that the platform knows of it.

A system is a folder below `netdyno/`. The platform never imports it, and no system another (`./do lint` says
so): what stands here is `module:attribute`, and loaded when it is asked for. Without its folder and its entry
here, and its line in `netdyno/__init__.py` where scripts have functions of it, a system is gone; left are
its error codes (`errors.py`) and advice for its causes (`core/causes.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain


@dataclass(frozen=True)
class Change:
    """A kind of change that a system makes, for the journal."""

    kind: str
    undo: str
    outlives_boot: bool = False


@dataclass(frozen=True)
class Demo:
    """What `netdyno demo WORD` shows."""

    word: str
    about: str
    """In few words, for the help of WORD."""
    help: str
    """A paragraph for the help of the verb."""
    run: str


@dataclass(frozen=True)
class Reproduction:
    """What `netdyno reproduce WORD` measures."""

    word: str
    about: str
    """In few words, for the help of WORD."""
    help: str
    """A paragraph and examples for the help of the verb."""
    parts: str
    """Its tables and figures (`reproduction/part.py`), for one report with those of the other systems; gets
    whether quickly."""
    run: str = ""
    """Measures studies of its own in place of `parts`. Gets names of studies, whether quickly, trials at each
    level, a folder, whether as JSON, and the folder of runs; returns the exit code."""
    listed: str = ""
    """Shows these studies; gets whether as JSON."""


@dataclass(frozen=True)
class DashboardPage:
    """A page of the dashboard."""

    path: str
    """In the address, after `#/`; what follows it there is the page's own."""
    title: str
    """In the navigation; the page has it as a message, too."""
    script: str
    """Its module, in `assets/` of the system's folder."""
    operator: bool = False
    """Whether it is for operators only."""


@dataclass(frozen=True)
class LoadForm:
    """A load that a page of the dashboard starts from a form."""

    profile: str
    """From the form's JSON object to a profile of the system's making."""
    capture: str
    """From the profile to the capture of its trial, or None."""
    then: str
    """Gets result and folder of a run that was captured, once it is over."""


@dataclass(frozen=True)
class ConfigurationPage:
    """The page of the reference, and the schema, of a configuration file."""

    model: str
    """`module:attribute` of its pydantic model."""
    title: str
    about: str
    """Its first paragraph."""


@dataclass(frozen=True)
class System:
    """All that the platform knows of one."""

    name: str
    """Of its folder here."""
    verb: str
    verbs: str
    after: str
    """The verb that help has before it."""
    changes: tuple[Change, ...] = ()
    free: str = ""
    """Whether an entry of the journal may be undone: no living process of ours holds the same. It gets the
    entry and the folder of journals."""
    duts: Mapping[str, str] = field(default_factory=dict)
    """Devices under test, by driver."""
    elements: Mapping[str, str] = field(default_factory=dict)
    """What a graph under test does more where it has an element of a kind: a `Part` (`lab/dut/graph.py`)."""
    searches: Mapping[str, str] = field(default_factory=dict)
    """Kinds of searches."""
    formats: Mapping[str, str] = field(default_factory=dict)
    """What tells what is wrong with a file, by how its format begins; it gets the path and what is in it."""
    pages: Mapping[str, str] = field(default_factory=dict)
    """What makes a page of studies, by their kind."""
    sections: Mapping[str, str] = field(default_factory=dict)
    """What makes a section of a run's report (`report/section.py`) from a file in the run's folder, by the
    file's name; it gets its path."""
    remarks: Mapping[str, str] = field(default_factory=dict)
    """What it says of a result (`core/result.py`) beside thresholds, by the model of its groups."""
    checks: str = ""
    """What `netdyno doctor` looks at."""
    demo: Demo | None = None
    reproduction: Reproduction | None = None
    cores: Mapping[str, str] = field(default_factory=dict)
    """What generates load in place of one daemon, by the option of `netdyno run` that names it; it gets the
    option's value and how many hosts may be lost, and returns a `Connect` (`experiment/measurer.py`)."""
    hosts: Mapping[str, str] = field(default_factory=dict)
    """By the same option: each host by itself, as a `FleetHost`; it gets the option's value."""
    core_names: Mapping[str, str] = field(default_factory=dict)
    """By the same option: the values that it may have now."""
    functions: Mapping[str, str] = field(default_factory=dict)
    """What scripts have as `netdyno.NAME`."""
    more_verbs: Mapping[str, str] = field(default_factory=dict)
    """Further verbs of it, after the first."""
    dashboard: tuple[DashboardPage, ...] = ()
    """Its pages of the dashboard."""
    form: LoadForm | None = None
    """Runs that its page starts at `/api/start`, with `system` and `form`."""
    looks: Mapping[str, str] = field(default_factory=dict)
    """What the dashboard shows of it to anybody who is logged in, at `/api/SYSTEM/NAME` once and at
    `/api/SYSTEM/NAME/live` as it changes: a function from the address' parameters to a JSON object."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """What the dashboard answers an operator below `/api/SYSTEM/`, by the last part of the path: a function
    from the request's JSON object to that of the answer."""
    load_options: Mapping[str, str] = field(default_factory=dict)
    """Of its verbs that load a server: the options that say the `rate` and how many `devices`."""
    uris: Mapping[str, str] = field(default_factory=dict)
    """By scheme, the verbs that load a URI which `netdyno run` does not take; `{uri}` is its place."""
    configurations: Mapping[str, ConfigurationPage] = field(default_factory=dict)
    """Pages of `docs/reference/` and schemas of `schema/`, by their names there."""


NAT = System(
    name="nat",
    verb="nat",
    verbs="netdyno.nat.verbs:app",
    after="graph",
    changes=(Change("route", "netdyno.nat.host:undo_route"),),
    duts={"kernel-nat": "netdyno.nat.dut.kernel_nat:KernelNat"},
    elements={"nat44": "netdyno.nat.dut.sessions:Sessions"},
    searches={
        "capacity": "netdyno.nat.search.capacity:KIND",
        "teardown": "netdyno.nat.search.teardown:KIND",
    },
    formats={"netdyno-nat": "netdyno.nat.check:findings"},
    configurations={
        "nat": ConfigurationPage(
            model="netdyno.nat.file:File",
            title="NAT",
            about="The configuration of a carrier-grade NAT for `netdyno nat run` ([how](../howto/nat.md)). "
            "YAML or JSON; an unknown key is an error. `netdyno nat init` prints one with each key "
            "explained. The schema is [schema/nat.json](../../schema/nat.json).",
        )
    },
    demo=Demo(
        word="nat",
        about="a NAT at work",
        help="""
With `nat`: two subscribers boot by DHCP from Kea, our NAT gets a public address for each by DHCP from
another Kea, and they surf an nginx through it, and through the kernel's NAT beside it. The report shows
addresses, mappings, the throughput of both, cycles per packet of each element and drops by reason. It
takes less than a minute.
""".strip(),
        run="netdyno.nat.verbs.demo:run",
    ),
    reproduction=Reproduction(
        word="nat",
        about="the carrier-grade NAT by frame size and core set",
        help="""
With `nat`: figures 7 to 10 of the paper: throughput up and down by frame size, of both execution models,
l2fwd and the kernel's NAT; and by core set.

    sudo netdyno reproduce nat --quick
""".strip(),
        parts="netdyno.nat.reproduce:parts",
    ),
    dashboard=(DashboardPage("nat", "NAT", "nat.js"),),
    looks={
        name: f"netdyno.nat.dashboard:{name}"
        for name in ("running", "counters", "sessions", "subscribers", "sites", "pools", "trace")
    },
    answers={"clear": "netdyno.nat.dashboard:clear", "hand-over": "netdyno.nat.dashboard:hand_over"},
)

TUNING = System(
    name="tuning",
    verb="tune",
    verbs="netdyno.tuning.verbs:app",
    after="runs",
    changes=(
        Change("tunable", "netdyno.tuning.undo:tunable"),
        Change("tunable_kept", "netdyno.tuning.undo:tunable", outlives_boot=True),
        Change("tunable_remote", "netdyno.tuning.hosts.remote:undo", outlives_boot=True),
        Change("socket", "netdyno.tuning.undo:socket"),
    ),
    free="netdyno.tuning.owners:free",
    formats={"netdyno-tuning/1": "netdyno.tuning.tables:findings"},
    pages={
        "screen": "netdyno.tuning.pages:explored",
        "search": "netdyno.tuning.pages:explored",
        "compare": "netdyno.tuning.pages:compared",
        "compare-hosts": "netdyno.tuning.pages:hosts_compared",
        "reproduce": "netdyno.tuning.pages:compared",
        "learn": "netdyno.tuning.pages:learned",
    },
    checks="netdyno.tuning.doctor:checks",
    dashboard=(DashboardPage("tuning", "Tuning", "tuning.js"),),
    looks={name: f"netdyno.tuning.dashboard:{name}" for name in ("params", "studies", "watches")},
    answers={
        name: f"netdyno.tuning.dashboard:{name}" for name in ("preview", "apply", "undo", "restore", "stop")
    },
    functions={
        "Comparison": "netdyno.tuning.results:Comparison",
        "Screening": "netdyno.tuning.results:Screening",
        "Tuning": "netdyno.tuning.results:Tuning",
        "compare": "netdyno.tuning.api:compare",
        "screen": "netdyno.tuning.api:screen",
        "tune": "netdyno.tuning.api:tune",
    },
    reproduction=Reproduction(
        word="tuning",
        about="two sets of kernel parameters against the defaults",
        help="""
With `tuning`: tables 7 to 9 of the paper by `netdyno tune reproduce paper`.

    sudo netdyno reproduce tuning --quick
""".strip(),
        parts="netdyno.tuning.reproduce_parts:parts",
    ),
)

_SIP_LOADS = "netdyno sip register, netdyno sip call or netdyno sip load {uri}"
SIP = System(
    name="sip",
    verb="sip",
    verbs="netdyno.sip.verbs:app",
    after="graph",
    duts={
        "kamailio": "netdyno.sip.dut.kamailio:Kamailio",
        "ejabberd": "netdyno.sip.dut.ejabberd:Ejabberd",
        "knot": "netdyno.sip.dut.knot:Knot",
        "mariadb": "netdyno.sip.dut.mariadb:Mariadb",
        "postgresql": "netdyno.sip.dut.postgresql:Postgresql",
        "rtpengine": "netdyno.sip.dut.rtpengine:Rtpengine",
        "sip-dns": "netdyno.sip.dut.own_dns:OwnDns",
        "sippy": "netdyno.sip.dut.sippy:Sippy",
    },
    demo=Demo(
        word="sip",
        about="a SIP server under registrations and calls",
        help="""
With `sip`: 1,000 users register at Kamailio with digest authentication, then 200 calls are set up through
it and ended. The report shows delays and ratios by RFC 6076, and the verdict. It takes less than a minute.
""".strip(),
        run="netdyno.sip.demo:run",
    ),
    reproduction=Reproduction(
        word="sip",
        about="a SIP server under registrations and calls",
        help="""
With `sip`: figures 10, 11 and 12 of the paper (registration over UDP and TCP by users who are registered,
calls through a proxy) against Kamailio and ejabberd; and users, databases, DNS, arrivals, transport,
authentication, forking, workers, provisional responses, session timers and size of session descriptions.

    sudo netdyno reproduce sip --quick
    sudo netdyno reproduce sip location transport --keep results
    netdyno reproduce sip --list
""".strip(),
        parts="netdyno.sip.reproduce.parts:parts",
        run="netdyno.sip.reproduce.run:run",
        listed="netdyno.sip.reproduce.run:listed",
    ),
    sections={"ladder.json": "netdyno.sip.ladder.page:section"},
    remarks={"sip": "netdyno.sip.remarks:remarks"},
    load_options={"rate": "--rate", "devices": "--users"},
    uris={"sip": _SIP_LOADS, "sips": _SIP_LOADS},
    dashboard=(
        DashboardPage("sip-load", "SIP load", "sip-load.js", operator=True),
        DashboardPage("sip", "SIP message", "sip.js", operator=True),
    ),
    form=LoadForm(
        profile="netdyno.sip.load_form:document",
        capture="netdyno.sip.dashboard:capture",
        then="netdyno.sip.dashboard:keep",
    ),
    answers={"preview": "netdyno.sip.dashboard:preview", "send": "netdyno.sip.dashboard:exchange"},
)

SWITCH = System(
    name="switch",
    verb="switch",
    verbs="netdyno.switch.verbs:app",
    after="graph",
    changes=(Change("lent_interface", "netdyno.switch.lent:undo"),),
    duts={
        "linux-bridge": "netdyno.switch.driver.bridge:LinuxBridge",
        "ovs-netdev": "netdyno.switch.driver.ovs:OvsNetdev",
        "ovs-afxdp": "netdyno.switch.driver.ovs:OvsAfXdp",
        "ovs-dpdk": "netdyno.switch.driver.ovs_dpdk:OvsDpdk",
        "ovs-kernel": "netdyno.switch.driver.ovs:OvsKernel",
        "vpp": "netdyno.switch.driver.vpp:Vpp",
        "xdp": "netdyno.switch.driver.xdp:Xdp",
        "tc": "netdyno.switch.driver.tc:Tc",
        "l2fwd": "netdyno.switch.driver.l2fwd:L2fwd",
    },
    demo=Demo(
        word="switch",
        about="virtual switches and a service chain",
        help="""
With `switch`: the kernel's bridge and Open vSwitch's datapath in user space are compared over TCP, six trials
each in randomised order. Then packets go through a firewall and a NAT steered by OpenFlow rules, and each hop
is proven. It takes less than 90 seconds.
""".strip(),
        run="netdyno.switch.demo:run",
    ),
    more_verbs={"chain": "netdyno.switch.verbs:chain_app"},
    dashboard=(DashboardPage("chains", "Chains", "chains.js"),),
    looks={name: f"netdyno.switch.dashboard:{name}" for name in ("chains", "chain")},
    formats={
        "netdyno-chain": "netdyno.switch.chain.spec:findings",
        "netdyno-switch-study": "netdyno.switch.reproduce.study:findings",
    },
    reproduction=Reproduction(
        word="switches",
        about="virtual switches and service chains",
        help="""
With `switches`: throughput of each repetition for the kernel's bridge, Open vSwitch in user space and over
DPDK, on a local path and on a wide-area one; chains of none to four functions on both; and the longest chain
that holds a target. Variance is explained by autocorrelation, changes of level and outliers.

    sudo netdyno reproduce switches --quick
    sudo netdyno reproduce switches lan wan --keep results
    netdyno reproduce switches --list
""".strip(),
        parts="netdyno.switch.reproduce.parts:parts",
        run="netdyno.switch.reproduce.run:run",
        listed="netdyno.switch.reproduce.run:listed",
    ),
    pages={
        "switch-compare": "netdyno.switch.pages:compared",
        "chain-run": "netdyno.switch.pages:compared",
        "chain-search": "netdyno.switch.pages:searched",
    },
)

FLEET = System(
    name="fleet",
    verb="fleet",
    verbs="netdyno.fleet.verbs:app",
    after="daemon",
    changes=(
        Change("fleet", "netdyno.fleet.rise:undo", outlives_boot=True),
        Change("fleet_agent", "netdyno.fleet.rise:undo_agent", outlives_boot=True),
    ),
    cores={"fleet": "netdyno.fleet.connect:connector"},
    hosts={"fleet": "netdyno.fleet.connect:hosts"},
    core_names={"fleet": "netdyno.fleet.agents:names"},
    dashboard=(DashboardPage("fleets", "Fleets", "fleets.js"),),
    looks={"fleets": "netdyno.fleet.dashboard:fleets"},
)

WEB = System(
    name="web",
    verb="web",
    verbs="netdyno.web.verbs:web",
    after="report",
    dashboard=(DashboardPage("graphs", "Graphs", "graphs.js"),),
    looks={name: f"netdyno.web.graphs:{name}" for name in ("graphs", "graph", "plan")},
)

SYSTEMS = (NAT, SIP, SWITCH, TUNING, WEB, FLEET)


def named(what: str) -> dict[str, str]:
    """What all systems have by name of one field: `duts`, `searches`, `functions`, …"""
    return dict(chain.from_iterable(getattr(one, what).items() for one in SYSTEMS))
