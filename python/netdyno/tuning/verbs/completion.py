"""What the shell completes for `netdyno tune`."""

from __future__ import annotations

from collections.abc import Iterator


def service_class(incomplete: str) -> Iterator[str]:
    """Classes of service that begin so."""
    from netdyno.tuning import service

    return (name for name in service.classes() if name.startswith(incomplete))


def known_setting(incomplete: str) -> Iterator[str]:
    """Settings of the kernel that begin so."""
    from netdyno.tuning import service

    return (name for name in service.settings() if name.startswith(incomplete))


def setting_or_study(incomplete: str) -> Iterator[str]:
    """Settings of the kernel and studies that begin so."""
    from netdyno.experiment.record import folder

    yield from known_setting(incomplete)
    yield from sorted(p.stem for p in folder().glob("*.json") if p.stem.startswith(incomplete))


def workload(incomplete: str) -> Iterator[str]:
    """Workloads that begin so."""
    from netdyno.tuning import benches

    return (name for name in benches.names() if name.startswith(incomplete))
