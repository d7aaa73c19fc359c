"""The books under random interleavings of arrivals, samples, failures and completions."""

import math
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dispatch import registry
from dispatch.audit import check_books
from dispatch.breaker import Breaker, BreakerParams
from dispatch.decision import Decision
from dispatch.dispatcher import Dispatcher
from dispatch.graph import TopologyGraph
from dispatch.outcomes import Reason
from dispatch.request import Request
from tests.dispatch.core_world import GIB, device

HOLDING = ["topology", "topology_free", "topology_no_block"]
NAMES = [n for n in registry.names() if n != "oracle"]
BYTES = st.floats(0, 40 * GIB) | st.sampled_from([math.nan, math.inf, -1.0])


class CoreMachine(RuleBasedStateMachine):
    """Two dispatchers of drawn policies over one graph; a plain model says what must hold."""

    @initialize(first=st.sampled_from(HOLDING), second=st.sampled_from(NAMES), paged=st.booleans())
    def begin(self, first: str, second: str, paged: bool) -> None:
        self.now = 0.0
        self.next = 0
        self.fleet = [
            device(f"d{i}", gpus=1 + i % 2, reserve_output=not paged, model="mn"[i % 2])
            for i in range(4)
        ]
        self.graph = TopologyGraph(self.fleet)
        self.doors = [
            Dispatcher(
                registry.policy(name, seed=1),
                self.graph,
                lambda: self.now,
                hold_limit=3,
                breaker=Breaker(self.graph, BreakerParams(faults=2, out_s=5.0)),
            )
            for name in (first, second)
        ]
        for i in range(4):  # little room, so that requests come to be held
            self.graph.observe_memory(i, 2 * GIB, 2 * GIB, 0.0)
        self.state: dict[int, str] = {}
        self.waiting: dict[tuple[int, str], list[int]] = {}
        for at, door in enumerate(self.doors):
            door.on_placed = lambda request, decision, at=at: self.woken(at, request, decision)

    def woken(self, at: int, request: Request, decision: Decision) -> None:
        line = self.waiting[at, request.model]
        if decision.reason == Reason.deadline:
            line.remove(request.id)
        else:
            assert line.pop(0) == request.id, "held requests wake first come first served"
        self.note(request, decision)

    def note(self, request: Request, decision: Decision) -> None:
        if decision.device >= 0:
            assert self.graph.usable[decision.device]
            assert self.graph.weight[decision.device] > 0
            assert self.graph.devices[decision.device].model == request.model
            assert decision.device not in request.tried
            assert decision.generation == self.graph.generation[decision.device]
            self.state[request.id] = "flying"
        else:
            self.state[request.id] = "held" if decision.reason == Reason.held else "rejected"

    @rule(
        at=st.integers(0, 1),
        prompt=st.integers(1, 20_000),
        output=st.integers(0, 4000),
        model=st.sampled_from("mn"),
        session=st.integers(-1, 3),
        patience=st.floats(0, 20),
        tried=st.sets(st.integers(0, 3), max_size=1),
    )
    def submit(
        self, at: int, prompt: int, output: int, model: str, session: int, patience: float,
        tried: set[int],
    ) -> None:  # fmt: skip
        self.next += 1
        request = Request(
            self.next, self.now, prompt, output, model=model, session=session,
            block_hashes=(session, prompt % 3), deadline_s=self.now + patience, tried=tuple(tried),
        )  # fmt: skip
        decision = self.doors[at].submit(request)
        self.note(request, decision)
        if decision.reason == Reason.held and decision.device < 0:
            self.waiting.setdefault((at, model), []).append(request.id)

    @precondition(lambda self: self.next)
    @rule(
        at=st.integers(0, 1),
        which=st.integers(1, 40),
        end=st.sampled_from(["finished", "failed", "fault", "cancelled"]),
    )
    def end(self, at: int, which: int, end: str) -> None:
        door, request_id = self.doors[at], 1 + which % self.next
        flying = request_id in door.flights
        held = door.held.get(request_id)
        if end == "finished":
            done = door.finished(request_id)
        elif end == "cancelled":
            if held is not None:
                self.waiting[at, held.model].remove(request_id)
            done = door.cancelled(request_id)
        else:
            done = door.failed(request_id, fault=end == "fault")
        assert done == (flying or (end == "cancelled" and held is not None))
        if done:
            self.state[request_id] = "ended"

    @precondition(lambda self: self.next)
    @rule(at=st.integers(0, 1), which=st.integers(1, 40), what=st.sampled_from(["s", "t"]))
    def progress(self, at: int, which: int, what: str) -> None:
        door, request_id = self.doors[at], 1 + which % self.next
        flying = request_id in door.flights
        call = door.started if what == "s" else door.first_token
        assert call(request_id) == flying

    @rule(
        i=st.integers(0, 3),
        free=BYTES,
        share=st.floats(0, 1.1),
        age=st.floats(-1, 3),
        wake=st.booleans(),
    )
    def memory(self, i: int, free: float, share: float, age: float, wake: bool) -> None:
        good = 0 <= free < math.inf and free * share <= free
        room = self.graph.room[i]
        if not self.graph.observe_memory(i, free, free * share, self.now - age):
            assert self.graph.room[i] == room
        else:
            assert good
        if wake:
            self.wake()

    @rule(i=st.integers(0, 3), usage=BYTES.map(lambda b: b / (40 * GIB)), free=st.floats(0, 1e5))
    def kv(self, i: int, usage: float, free: float) -> None:
        kv = self.graph.signals["kv"]
        before = [float(column[i]) for column in kv.values]
        taken = self.graph.observe_kv(i, usage, free, self.now)
        assert not taken or 0 <= usage <= 1
        assert taken or str(before) == str([float(column[i]) for column in kv.values])
        self.graph.observe_queue(i, free / 1e4, free / 1e3, self.now)

    @rule(i=st.integers(0, 3), up=st.booleans())
    def health(self, i: int, up: bool) -> None:
        self.graph.set_health(i, up, self.now)

    @rule(i=st.integers(0, 3), weight=st.sampled_from([0.0, 0.5, 3.0]))
    def weigh(self, i: int, weight: float) -> None:
        self.graph.set_weight(i, weight)

    @rule(i=st.integers(0, 3))
    def flap(self, i: int) -> None:
        if self.graph.present(i):
            self.graph.remove_device(i)
        else:
            self.graph.add_device(self.fleet[i], source_s=self.now)

    @rule(step=st.floats(0.001, 10))
    def wait(self, step: float) -> None:
        self.now += step
        for door in self.doors:
            door.expire(self.now)
        self.wake()

    def wake(self) -> None:
        """Wake all; then no request at the head of its line would fit anywhere that it may go."""
        for door in self.doors:
            door.wake()
        for (at, model), line in self.waiting.items():
            if not line or self.doors[at].policy.name not in ("topology", "topology_free"):
                continue
            request = self.doors[at].held[line[0]]
            for i in self.graph.eligible(model, "").devices:
                need = self.graph.devices[i].need_bytes(request)
                assert i in request.tried or self.graph.room[i] < need, "held beside room"

    @invariant()
    def every_request_is_accounted_for_once(self) -> None:
        if not hasattr(self, "doors"):
            return
        check_books(self.doors)
        flying = {r for r, s in self.state.items() if s == "flying"}
        assert flying == {r for d in self.doors for r in d.flights}
        held = {r for r, s in self.state.items() if s == "held"}
        assert held == {r for d in self.doors for r in d.held}

    @invariant()
    def rooms_follow_from_samples_and_reservations(self) -> None:
        if not hasattr(self, "graph"):
            return
        graph: Any = self.graph
        assert (graph.reserved >= -1).all()
        for i in range(graph.count):
            room = graph.room[i]
            if not graph.usable[i]:
                assert room == -math.inf
            elif graph.base[i] < 0:
                assert room == -1.0
            else:
                assert room == max(0.0, graph.base[i] - graph.reserved[i])


CoreMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestCoreMachine = CoreMachine.TestCase
