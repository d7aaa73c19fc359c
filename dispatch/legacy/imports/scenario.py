"""An import as a scenario: its servers as pools, its router as an arm, to be completed by hand."""

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from dispatch.legacy.imports.result import Imported, ImportedPeer, need
from dispatch.toml_text import scalar

GPU: Final = "FILL-IN"
"""Stands where no router's file says anything: on which card a server runs."""


def as_scenario(found: Imported) -> str:
    """Return a scenario as TOML: sound once each pool's GPU is filled in.

    Servers of one group and weight are one pool; those that are drained are left out, as direct
    placement would use them. The imported router stands against that; trace, model and SLOs are
    the defaults of a scenario. An import without a server is an InputError.
    """
    need(
        any(not peer.down for peer in found.peers), found.source,
        "names no server that takes traffic", "a scenario needs a fleet: write its pools by hand",
    )  # fmt: skip
    name = re.sub(r"[^a-z0-9]+", "-", found.source.lower()).strip("-") or "imported"
    lines = [
        f"# imported from {_plain(found.source)}: fill in the GPU of each pool, then",
        "# `zerolayer scenarios check` it; `zerolayer scenarios schema` lists what can be set",
        f"name = {scalar(name)}",
        f"title = {scalar(f'The router of {found.source} against direct placement')}",
        *_pools([peer for peer in found.peers if not peer.down]),
        *(f"# drained, left out: {_plain(peer.address)}" for peer in found.peers if peer.down),
        *_arm("legacy", "the imported router", "static_weights"),
        "",
        "[arms.door]",
        'kind = "legacy"',
        "",
        "[arms.door.settings]",
        *(f"{key} = {scalar(value)}" for key, value in found.settings.items()),
        *_arm("direct", "direct placement", "topology"),
    ]
    return "\n".join(lines) + "\n"


def _arm(name: str, title: str, policy: str) -> Iterator[str]:
    yield from ("", "[[arms]]", f"name = {scalar(name)}", f"title = {scalar(title)}")
    yield f"policy = {{ name = {scalar(policy)} }}"


def _plain(text: str) -> str:
    """Return *text* as it can stand in a comment of one line."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _pools(peers: list[ImportedPeer]) -> Iterator[str]:
    def kind(peer: ImportedPeer) -> tuple[str, float]:
        return peer.group or "default", peer.weight

    places = {peer.group or "default": at for at, peer in reversed(list(enumerate(peers)))}
    ordered = sorted(peers, key=lambda peer: (places[peer.group or "default"], -kind(peer)[1]))
    for (group, weight), servers in groupby(ordered, key=kind):
        members = list(servers)
        yield from ("", "[[fleet.pools]]", f"name = {scalar(f'{group}-w{weight:g}')}")
        yield f"# {', '.join(_plain(peer.address) for peer in members)}"
        limits = sorted({peer.max_conns for peer in members if peer.max_conns})
        if limits:
            listed = ", ".join(map(str, limits))
            yield f"# max_conns {listed}: v100_max_conns, a100_40g_max_conns or a100_80g_max_conns"
        if any(peer.backup for peer in members):
            yield "# a backup among them: the round robin has no second tier"
        yield f"gpu = {scalar(GPU)}"
        yield f"count = {len(members)}"
        yield f"weight = {scalar(weight)}"
        yield f"group = {scalar(group)}"
