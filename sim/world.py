"""One simulated run: door, dispatcher, replicas, and the life of every request between them."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from dispatch import registry
from dispatch.dispatcher import Decision, Dispatcher
from dispatch.graph import TopologyGraph
from dispatch.journal import Journal
from dispatch.legacy import LegacyConfig, LegacyRouter
from dispatch.legacy.policy import legacy_devices, legacy_policy
from dispatch.outcomes import Outcome, Reason, RootCause
from dispatch.policy import Policy
from dispatch.request import Request
from sim import causes, clairvoyant, recorded
from sim.call import FINISHED, IN_FLIGHT, NO_CAUSE, Call
from sim.channel import staleness
from sim.clock import Alarm, Clock, nanoseconds
from sim.config import Setup
from sim.ends import Ends
from sim.engine import Engine
from sim.faults import Faults
from sim.feed import Parts
from sim.fleet import Replica, build_kinds, build_replicas, device_infos
from sim.handover import PREFILL, Handover
from sim.links import Links
from sim.memory import ContiguousKv
from sim.network import Network
from sim.sequence import Sequence

if TYPE_CHECKING:
    from sim.doors import Door
    from sim.telemetry import Telemetry

_REFUSALS: Final = {
    Reason.queue_full: RootCause.queue,
    Reason.no_device: RootCause.fault,
    Reason.no_weight: RootCause.router,
    Reason.too_large: RootCause.fleet_full,
    Reason.slo: RootCause.queue,
    Reason.unknown_hint: RootCause.client,
    Reason.context: RootCause.context,
    Reason.deadline: RootCause.fleet_full,
}


class World(Ends):
    """Everything of one run; the door calls :meth:`place`, engines report to it as their host."""

    __slots__ = (
        "decision_s", "faults", "graph", "held_alarm", "held_set", "kinds", "links", "policy",
        "replicas", "router", "seed", "telemetry",
    )  # fmt: skip

    def __init__(
        self, parts: Parts, setup: Setup, seed: int, journal: Journal,
        progress: Callable[[int], None] | None,
    ) -> None:  # fmt: skip
        self.parts, self.setup, self.seed, self.journal = parts, setup, seed, journal
        self.progress = progress
        self.env = Clock()
        self.kinds = build_kinds(setup)
        self.replicas: list[Replica] = build_replicas(setup, self.kinds, self.env, self)
        self.engines = [replica.engine for replica in self.replicas]
        infos = device_infos(setup, self.replicas)
        self.router: LegacyRouter | None = None
        if setup.door.kind == "legacy":
            settings = {
                "timeout_s": setup.door.timeout_s, "retries": setup.door.retries,
                **setup.door.settings,
            }  # fmt: skip
            config = LegacyConfig.from_settings(settings, "door.settings")
            self.router = LegacyRouter(config, {d.group for d in infos})
            infos = legacy_devices(self.router, infos)
        self.graph = TopologyGraph(
            infos, reservations=setup.telemetry.reservations, staleness=staleness(setup.telemetry)
        )
        self.policy = self._policy()
        self.dispatcher = Dispatcher(
            self.policy, self.graph, self.env.seconds, journal=journal,
            hold_limit=setup.wait.hold_limit, seed=seed, decision_time=lambda _: self.decision_s,
            on_placed=self._woken,
        )  # fmt: skip
        self.decision_s = 0.0
        self.held_alarm = Alarm(self.env, self._wake)
        self.held_set = False
        self.door: Door
        self.telemetry: Telemetry
        self.faults: Faults | None = None
        network = Network(self.env)
        self.links = Links(self.replicas, network, setup.transfer.nic_gb_per_s * 1e9)
        self.handover = Handover(self) if setup.transfer.enabled else None
        super().__init__()

    def _policy(self) -> Policy:
        setup = self.setup
        if self.router is not None and setup.policy.name == "static_weights":
            infos = device_infos(setup, self.replicas)
            return legacy_policy(self.router, infos, seed=self.seed)
        if setup.policy.name == recorded.NAME:
            placements = str(setup.policy.params.get("placements", ""))
            return recorded.policy(placements, lambda r: self.live[r.id].source_row)
        policy = registry.policy(setup.policy.name, setup.policy.params, seed=self.seed)
        if hasattr(policy, "finish_s"):
            clairvoyant.tell(policy, self)
        return policy

    def arrivals(self) -> Iterator[Call]:
        """Yield the requests that reach the door, in order; those beyond the context do not."""
        contexts = {"": min(kind.context_tokens for kind in self.kinds)}
        for kind in self.kinds:
            name = kind.model_config.name
            contexts[name] = min(contexts.get(name, kind.context_tokens), kind.context_tokens)
        if any(pool.model is not None for pool in self.setup.fleet.pools):
            contexts[""] = contexts.get(self.setup.model.name, contexts[""])
        for call in self.parts.calls(self.setup, contexts):
            self.live[call.row] = call
            if call.request.max_tokens < 1:
                self.close(call, Outcome.rejected_context, RootCause.context, call.arrival_ns)
                continue
            if self.handover is not None:
                call.request.group = PREFILL
            if self.faults is not None:
                self.faults.touch(call)
            yield call

    # -- placement -----------------------------------------------------------------------------

    def place(self, call: Call) -> None:
        """Have the dispatcher decide on *call*, and hand it on to the engine it chose."""
        call.handled_ns = self.env.ns
        call.attempts += 1
        self.attempts += 1
        self.submit(call)

    def submit(self, call: Call) -> None:
        """Hand *call* to the dispatcher and do as it says."""
        decision = self.dispatcher.submit(call.request)
        device = decision.device
        if device >= 0:
            self.deliver(call, device)
        elif decision.reason == Reason.held:
            call.held = True
            if not self.held_set:
                self.held_set = True
                self.env.ring(self.held_alarm, self.telemetry.next_ns())
        else:
            self.refused(call, decision.reason)

    def _woken(self, request: Request, decision: Decision) -> None:
        """A held request got a device, or was given up."""
        call = self.live.get(request.id)
        if call is None:
            return
        call.held = False
        now = self.env.ns
        if decision.device < 0:
            self.refused(call, decision.reason)
            return
        call.handled_ns = now + nanoseconds(self.decision_s)
        woken = (call, decision.device, request.attempt)
        self.env.call_at(call.handled_ns, self._deliver_woken, woken)

    def _deliver_woken(self, woken: tuple[Call, int, int]) -> None:
        call, device, attempt = woken
        if call.outcome is IN_FLIGHT and call.request.attempt == attempt:
            self.deliver(call, device)

    def _wake(self, _: Alarm) -> None:
        """New samples have arrived while requests are held: see who fits now."""
        self.dispatcher.wake()
        self.held_set = bool(self.dispatcher.held)
        if self.held_set:
            self.env.ring(self.held_alarm, self.telemetry.next_ns())

    def refused(self, call: Call, reason: Reason) -> None:
        """The dispatcher or the router's rules turned *call* away."""
        cause = _REFUSALS[reason]
        outcome = Outcome.timed_out if reason == Reason.deadline else Outcome.rejected
        self.close(call, outcome, cause, self.env.ns)

    def deliver(self, call: Call, device: int) -> None:
        """Hand *call* to the engine of *device*."""
        request = call.request
        if self.handover is not None:
            if call.handed:
                self.handover.send(call, device)
                return
            sequence = self.handover.prefill(call)
        else:
            sequence = Sequence(
                call, request.prompt_tokens, call.output, request.max_tokens, request.priority,
                request.block_hashes, request.block_tokens,
            )  # fmt: skip
        call.device = device
        self.enter(call, sequence)

    def enter(self, call: Call, sequence: Sequence) -> None:
        """Let *sequence* into the engine of its device, or refuse it there."""
        engine = self.engines[call.device]
        call.sequence = sequence
        if engine.down:
            self.failed(call, "fault", RootCause.fault)
        elif engine.waiting_count >= self.setup.engine.max_waiting:
            self.failed(call, "refused", RootCause.queue)
        elif not engine.optimistic and not engine.kv.ever_fits(sequence):
            self.failed(call, "refused", causes.of_memory(self, call, engine, sequence))
        else:
            engine.submit(sequence)

    # -- what engines report -------------------------------------------------------------------

    def started(self, sequence: Sequence) -> None:
        """Memory is allocated, the first kernel starts now."""
        call: Call = sequence.owner
        if not call.handed:
            call.started_ns = self.env.ns
        call.cached += sequence.cached if sequence.preemptions == 0 else 0
        self.dispatcher.started(call.row)

    def first_token(self, sequence: Sequence) -> None:
        """The first token is out."""
        call: Call = sequence.owner
        call.first_ns = self.env.ns
        self.dispatcher.first_token(call.row)

    def finished(self, sequence: Sequence) -> None:
        """The last token is out."""
        call: Call = sequence.owner
        if self.handover is not None and not call.handed and call.output > 1:
            self.handover.begin(call)
            return
        if call.slow_client > 1.0 and call.first_ns < self.env.ns:
            sequence.emitted = call.output
            spread = (self.env.ns - call.first_ns) * call.slow_client
            self.env.call_at(call.first_ns + round(spread), self._drained, call)
            return
        call.preemptions += sequence.preemptions
        if self.handover is None or call.handed:
            self.dispatcher.finished(call.row)
        self.close(call, FINISHED, NO_CAUSE, self.env.ns)

    def _drained(self, call: Call) -> None:
        """A slow client has read the last token."""
        if call.outcome is IN_FLIGHT and call.sequence is not None:
            call.preemptions += call.sequence.preemptions
            self.dispatcher.finished(call.row)
            self.close(call, FINISHED, NO_CAUSE, self.env.ns)

    def out_of_memory(self, engine: Engine, sequence: Sequence) -> None:
        """CUDA out-of-memory: it kills the request, or the process with all it held."""
        call: Call = sequence.owner
        call.oom_events += 1
        self.oom_events += 1
        cause = causes.of_memory(self, call, engine, sequence)
        if self.setup.engine.oom_kills == "process":
            self.restart(engine, self.setup.engine.restart_s, cause)
        self.failed(call, "oom", cause)

    # -- replicas that go and come -------------------------------------------------------------

    def restart(self, engine: Engine, seconds: float, cause: RootCause) -> None:
        """Let the process of *engine* die with all it holds, and come back after *seconds*."""
        replica = self.replicas[engine.index]
        self.take_down(replica, cause)
        self.env.call_at(self.env.ns + nanoseconds(seconds), self.bring_up, replica)

    def take_down(self, replica: Replica, cause: RootCause) -> None:
        """Take *replica* down, with all it holds; what it had is tried again where that may be."""
        replica.downs += 1
        if replica.downs > 1:
            return
        lost = replica.engine.crash()
        replica.leaked_bytes = 0.0
        replica.turn(False, self.env.ns)
        self.telemetry.note(replica.index, "health", "memory")
        for sequence in lost:
            if sequence.owner is not None:
                sequence.owner.device = replica.index  # not that which its copy was to reach
                self.failed(sequence.owner, "fault", cause)

    def bring_up(self, replica: Replica) -> None:
        """Let *replica* come back, empty, unless something else holds it down."""
        replica.downs -= 1
        if not replica.downs:
            replica.engine.restart()
            replica.turn(True, self.env.ns)
            self.telemetry.note(replica.index, "health")

    def leak(self, replica: Replica, size: float) -> None:
        """Let *size* bytes of *replica* go, or come back where *size* is negative.

        First goes what the engine leaves alone; then what it allocates as it runs. Where nothing is
        left, somebody's allocation fails: the youngest request dies of it, or the process.
        """
        engine = replica.engine
        if engine.down:
            return
        replica.leaked_bytes += size
        now = self.env.ns
        watch = engine.watch
        assert watch is not None
        watch.amid(now)
        if isinstance(engine.kv, ContiguousKv):
            room = engine.kv.leak(max(0.0, replica.leaked_bytes - replica.kind.slack_bytes))
        else:
            assert engine.segments is not None
            room = engine.segments.leak(replica.leaked_bytes, now)
        watch.resume(now)
        self.telemetry.note(replica.index, "memory")
        if room or size <= 0:
            return
        victim = engine.youngest()
        if self.setup.engine.oom_kills == "process":
            self.oom_events += 1
            self.restart(engine, self.setup.engine.restart_s, RootCause.fault)
        elif victim is not None:
            call: Call = victim.owner
            call.oom_events += 1
            self.oom_events += 1
            engine.cancel(victim)
            self.failed(call, "oom", RootCause.fault)
