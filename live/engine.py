"""Continuous batching on one device: admit, grow, one pass, sample; memory errors stay local."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import torch

from dispatch.errors import InputError
from dispatch.hints import plan_for
from live.clock import KernelClock
from live.config import LiveEngine
from live.kv import ContiguousKv, KvCache, PagedKv
from live.memory_errors import MEMORY_ERRORS, is_memory_error
from live.model import Llama
from live.sampling import sample
from live.segments import Segments
from live.sequence import Event, Job, Kind, Run, Sequence
from live.steps import Step, sizes

Deliver = Callable[[list[Event]], None]


class Engine:
    """Serves jobs on one model and one KV cache; call :meth:`step` while :attr:`busy`.

    Not thread-safe: its device's worker owns it.
    """

    def __init__(self, model: Llama, limits: LiveEngine, kv_bytes: int, deliver: Deliver) -> None:
        self.model = model
        self.limits = limits
        self.cache: KvCache = (
            PagedKv(model.shape, kv_bytes, model.device, limits.block_tokens)
            if limits.kv == "paged"
            else ContiguousKv(model.shape, kv_bytes, model.device)
        )
        paged_gpu = limits.kv == "paged" and model.device.type == "cuda"
        self.segments = Segments(model.device) if paged_gpu else None
        self.blocks = kernel_blocks(model, limits.kernels)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.steps = 0
        self.log: list[Step] | None = None
        self.ooms = 0
        self._clock = KernelClock(model.device)
        self._deliver = deliver
        self._events: list[Event] = []
        self._unstarted: list[tuple[int, object]] = []

    @property
    def fragmentation(self) -> float:
        """1 - largest free block / free bytes: of the KV arena, or of the segments beside pages."""
        if self.segments is not None:
            return self.segments.view().fragmentation
        return self.cache.arena.fragmentation

    @property
    def busy(self) -> bool:
        """Whether a step would do something."""
        return bool(self.waiting or self.running)

    def submit(self, job: Job) -> None:
        """Queue *job*; one more than ``max_waiting`` ends as failed."""
        sequence = Sequence(job, list(job.prompt))
        if len(self.waiting) >= self.limits.max_waiting:
            self._end(sequence, Kind.failed, "the engine's queue is full")
            self.flush()
            return
        self.waiting.append(sequence)

    def cancel(self, ids: Iterable[int]) -> None:
        """Drop the jobs of *ids* and give their memory back."""
        wanted = set(ids)
        for sequence in [s for s in (*self.running, *self.waiting) if s.job.id in wanted]:
            self._drop(sequence)
            self._end(sequence, Kind.cancelled, "cancelled")
        self.flush()

    def fail_all(self, why: str) -> None:
        """End everything as failed: the device is lost."""
        for sequence in [*self.running, *self.waiting]:
            self._drop(sequence)
            self._end(sequence, Kind.failed, why)
        self.flush()

    def step(self) -> None:
        """Admit what fits, then run one pass over running sequences and deliver its events."""
        self._admit()
        runs = self._plan()
        if runs:
            self.steps += 1
            shape = sizes(runs) if self.log is not None else None
            begin_s = time.monotonic()
            self._pass(runs)
            if self.log is not None and shape is not None:
                self.log.append(Step(begin_s, time.monotonic(), *shape))
        self.flush()

    def flush(self) -> None:
        """Deliver the events of this step together."""
        if self._events:
            events, self._events = self._events, []
            self._deliver(events)

    # -- memory ------------------------------------------------------------------------------

    def _admit(self) -> None:
        while self.waiting:
            sequence = self.waiting[0]
            if len(self.running) >= self._limit(sequence, "max_num_seqs"):
                return
            if not self._reserve(sequence, self._first_need(sequence)):
                lone = not self.running  # nothing will ever be given back
                if self.limits.admission == "guarded" and not lone:
                    return
                self.waiting.popleft()
                self._oom(sequence, "no room for the prompt")
                continue
            self.waiting.popleft()
            self.running.append(sequence)

    def _limit(self, sequence: Sequence, name: str) -> int:
        """Return the engine's limit *name*, or the smaller one of the request's tuning profile."""
        own: int = getattr(self.limits, name)
        plan = plan_for(sequence.job.kernel_hint)
        return own if plan is None else min(own, getattr(plan, name))

    def _first_need(self, sequence: Sequence) -> int:
        if self.cache.reserves_output:
            return len(sequence.job.prompt) + sequence.job.max_tokens
        return len(sequence.tokens) + 1

    def _reserve(self, sequence: Sequence, tokens: int) -> bool:
        try:
            return self.cache.reserve(sequence.held, tokens)
        except MEMORY_ERRORS:
            return False

    def _grow(self, sequence: Sequence) -> bool:
        """Make room for the next token; preempt the youngest others first where that is set."""
        while not self._reserve(sequence, len(sequence.tokens)):
            victim = self.running[-1]
            if self.limits.preemption == "none" or victim is sequence:
                return False
            self._preempt(victim)
        return True

    def _preempt(self, victim: Sequence) -> None:
        self.running.remove(victim)
        self.cache.release(victim.held)
        victim.preemptions += 1
        self.waiting.appendleft(victim)

    def _drop(self, sequence: Sequence) -> None:
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        self.cache.release(sequence.held)

    def _oom(self, sequence: Sequence, why: str) -> None:
        self.ooms += 1
        self._drop(sequence)
        self._end(sequence, Kind.oom, why)

    # -- one pass ----------------------------------------------------------------------------

    def _plan(self) -> list[Run]:
        """Choose the tokens of this pass: decodes first, then prompts within the token limit."""
        budget = self.limits.max_num_batched_tokens
        chosen: list[tuple[Sequence, int]] = []
        for sequence in list(self.running):
            if sequence not in self.running or sequence.pending != 1:
                continue
            if not self._grow(sequence):
                self._oom(sequence, "no block for the next token")
                continue
            chosen.append((sequence, 1))
        chosen = [(s, n) for s, n in chosen if s in self.running]  # preempted since
        budget -= len(chosen)
        for sequence in self.running:
            if sequence.pending == 1 or budget <= 0:
                continue
            count = min(sequence.pending, budget, self._limit(sequence, "max_num_batched_tokens"))
            if count < sequence.pending and not self.limits.chunked_prefill and chosen:
                continue  # a whole prompt waits for a pass of its own
            if not self.limits.chunked_prefill:
                count = sequence.pending
            chosen.append((sequence, count))
            budget -= count
        runs, start = [], 0
        for sequence, count in chosen:
            runs.append(Run(sequence, start, count))
            start += count
        return runs

    def _pass(self, runs: list[Run]) -> None:
        try:
            self._mark_started(runs)
            sampled = self._forward(runs)
        except (*MEMORY_ERRORS, RuntimeError) as error:
            if not is_memory_error(error):
                raise
            self._isolate(runs, error)
            return
        self._store(runs, sampled)

    def _isolate(self, runs: list[Run], error: BaseException) -> None:
        """Run each sequence alone after a failed pass; only those that fail alone end."""
        if len(runs) == 1:
            self._oom(runs[0].sequence, str(error).splitlines()[0] or "out of memory")
            return
        for run in runs:
            self._pass([Run(run.sequence, 0, run.count)])

    def _forward(self, runs: list[Run]) -> list[int]:
        device = self.model.device
        flat: list[int] = []
        positions: list[int] = []
        last: list[int] = []
        for run in runs:
            past, end = run.past, run.past + run.count
            flat += run.sequence.tokens[past:end]
            positions += range(past, end)
            last.append(run.start + run.count - 1)
        tokens, ends = torch.tensor(flat, device=device), torch.tensor(last, device=device)
        if self.blocks is not None:
            logits = self.blocks.forward(tokens, ends, self.cache, runs)
        else:
            where = torch.tensor(positions, device=device)
            logits = self.model.forward(tokens, where, ends, self.cache.bind(runs))
        return sample(logits, [run.sequence for run in runs])

    def _mark_started(self, runs: list[Run]) -> None:
        for run in runs:
            if not run.sequence.started:
                run.sequence.started = True
                self._unstarted.append((run.sequence.job.id, self._clock.mark()))

    def _store(self, runs: list[Run], sampled: list[int]) -> None:
        for id_, mark in self._unstarted:
            self._events.append(Event(id_, Kind.started, self._clock.time_s(mark)))
        self._unstarted.clear()
        now, context = time.monotonic(), self.model.shape.context_tokens
        score = self.fragmentation
        for run, token in zip(runs, sampled, strict=True):
            sequence, yields = run.sequence, run.yields
            sequence.held.stored_tokens += run.count
            if not yields:
                continue
            sequence.tokens.append(token)
            event = Event(sequence.job.id, Kind.tokens, now, (token,), "", score)
            self._events.append(event)
            if token == sequence.job.stop_token:
                self._finish(sequence, "stop")
            elif sequence.produced >= sequence.limit or len(sequence.tokens) >= context:
                self._finish(sequence, "length")

    def _finish(self, sequence: Sequence, reason: str) -> None:
        score = self.fragmentation
        self._drop(sequence)
        self._end(sequence, Kind.finished, reason, score)

    def _end(
        self, sequence: Sequence, kind: Kind, reason: str, fragmentation: float | None = None
    ) -> None:
        score = self.fragmentation if fragmentation is None else fragmentation
        event = Event(sequence.job.id, kind, time.monotonic(), (), reason, score)
        event.preemptions = sequence.preemptions
        self._events.append(event)


def kernel_blocks(model: Llama, wanted: str) -> Any:
    """Return what runs *model*'s blocks on the kernels, or None where plain torch runs them.

    *wanted* is auto (kernels on a GPU of compute capability 8.0 or later), torch or triton. Raises
    InputError where triton is asked for and not there.
    """
    cuda = model.device.type == "cuda"
    able = cuda and torch.cuda.get_device_capability(model.device) >= (8, 0)
    if wanted == "torch" or (wanted == "auto" and not able):
        return None
    try:
        from live.blocks import KernelBlocks  # Triton takes a second to load
    except ImportError as error:
        raise InputError.at(
            "engine.kernels", f"triton cannot be imported ({error})", "install zerolayer[live]"
        ) from None
    blocks = KernelBlocks(model)
    why = blocks.self_test() if cuda else ""
    if why and wanted != "auto":
        raise InputError.at("engine.kernels", why, "use torch or auto")
    if why:
        print(f"zerolayer: {why}; torch runs the blocks", file=sys.stderr)
        return None
    return blocks
