"""The verdict on proofs of a chain, which every command that proves one asks here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from netdyno.errors import Error
from netdyno.switch.chain import verify as verifying
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.verify import Verification


def proven(lab: ChainLab, name: str, note: Callable[[str], None] = lambda _: None) -> Verification:
    """The verification of a chain. Raises Error if a packet does not follow its path."""
    proof = verifying.verify(lab)
    must_hold(proof, name)
    note(f"verified in {proof.seconds:.1f} s: every class followed its path")
    return proof


def must_hold(proof: Verification, name: str) -> None:
    """Raises Error if a packet did not follow its path."""
    if not proof.good:
        fix = "`netdyno chain verify` shows every hop"
        raise Error("ND-99-40", proof.first_fault, at=name, fix=fix)


def first_fault(proofs: Mapping[str, Verification | None]) -> str:
    """The first departure that any of these proofs shows, with the words on when; empty: none does."""
    for when, proof in proofs.items():
        if proof and not proof.good:
            return f"{when}, {proof.first_fault}"
    return ""
