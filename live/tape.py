"""Record what a live dispatcher was told and decided, and put the same to another one.

The two worlds share the dispatcher; a tape shows that the shared code, given the recorded graph
states, places every request alike.
"""

import json
from pathlib import Path
from typing import Any, Final

import numpy as np

from dispatch.dispatcher import Dispatcher
from dispatch.fleet import DeviceInfo
from dispatch.graph import TopologyGraph
from dispatch.registry import policy
from dispatch.request import Request

_GRAPH: Final = (
    *("observe_memory", "observe_queue", "observe_kv", "observe_pcie", "observe_ring"),
    *("observe_many", "set_health"),
)
_ENDS: Final = ("started", "first_token", "finished", "failed", "cancelled", "wake", "expire")
_FIELDS: Final = ("id", "prompt_tokens", "max_tokens", "model", "kernel_hint", "attempt")


class Tape:
    """Calls in order, each with its time; decisions with what they decided."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, str, list[Any]]] = []
        self.decisions: list[tuple[int, int, int]] = []  # request, attempt, device

    def attach(self, dispatcher: Dispatcher) -> None:
        """Record every call on *dispatcher* and its graph from now on."""
        for name in _GRAPH:
            self._wrap(dispatcher.graph, name, dispatcher)
        for name in _ENDS:
            self._wrap(dispatcher, name, dispatcher)
        submit = dispatcher.submit

        def recorded(request: Request) -> Any:
            fields = {name: getattr(request, name) for name in _FIELDS}
            fields |= {"tried": list(request.tried), "deadline_s": request.deadline_s}
            self.calls.append((dispatcher.clock(), "submit", [fields]))
            decision = submit(request)
            self.decisions.append((request.id, request.attempt, decision.device))
            return decision

        dispatcher.submit = recorded  # type: ignore[method-assign]

    def _wrap(self, owner: Any, name: str, dispatcher: Dispatcher) -> None:
        call = getattr(owner, name)

        def recorded(*args: Any, **kwargs: Any) -> Any:
            given = [_plain(value) for value in (*args, *kwargs.values())]
            self.calls.append((dispatcher.clock(), name, given))
            return call(*args, **kwargs)

        setattr(owner, name, recorded)

    def save(self, path: Path, devices: list[DeviceInfo], policy_name: str, seed: int) -> None:
        """Write the tape with what is needed to put it to another dispatcher."""
        from dataclasses import asdict

        about = {
            "devices": [asdict(device) for device in devices],
            "policy": policy_name,
            "seed": seed,
            "calls": self.calls,
            "decisions": self.decisions,
        }
        path.write_text(json.dumps(about), encoding="utf-8")


def _plain(value: Any) -> Any:
    """Return arrays, alone or in a sequence, as lists that JSON can hold."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def agreement(path: Path, params: dict[str, Any] | None = None) -> dict[str, Any]:
    """Put the tape at *path* to a fresh dispatcher; return how many decisions came out alike."""
    about = json.loads(path.read_text(encoding="utf-8"))
    now = [0.0]
    graph = TopologyGraph([DeviceInfo(**device) for device in about["devices"]])
    dispatcher = Dispatcher(
        policy(about["policy"], params or {}, seed=about["seed"]),
        graph,
        lambda: now[0],
        hold_limit=1 << 20,
        seed=about["seed"],
    )
    found = []
    for time_s, name, args in about["calls"]:
        now[0] = time_s
        if name == "submit":
            given = args[0]
            request = Request(arrival_s=time_s, **{**given, "tried": tuple(given["tried"])})
            found.append((request.id, request.attempt, dispatcher.submit(request).device))
        elif name in _ENDS:
            getattr(dispatcher, name)(*args)
        elif name == "observe_many":
            signal, devices, samples, source_s = args
            graph.observe_many(signal, np.array(devices), samples, source_s)
        else:
            getattr(graph, name)(*args)
    recorded = [tuple(row) for row in about["decisions"]]
    alike = sum(a == b for a, b in zip(found, recorded, strict=True))
    share = alike / len(recorded) if recorded else 1.0
    return {"decisions": len(recorded), "alike": alike, "share": share}
