"""Writes decisions to the journal, with what the graph said at that moment and how old it was."""

import math
from typing import Final

from dispatch.graph import TopologyGraph
from dispatch.journal import BEST, Journal
from dispatch.policy import Choice
from dispatch.request import Request

_NAN: Final = math.nan
_NEVER: Final = -math.inf
_PAD: Final = tuple((-1,) * n for n in range(BEST + 1))
_PAD_SCORES: Final = tuple((_NAN,) * n for n in range(BEST + 1))


class Recorder:
    """A journal's decision rows for one graph and the signals that a policy reads."""

    def __init__(self, journal: Journal, graph: TopologyGraph, signals: frozenset[str]) -> None:
        self._append = journal.decision
        self._taken = journal.decided
        self._table = journal.decisions
        self._pack, self._buffer = self._table.pack, self._table.buffer
        self._memory = graph.signals["memory"]
        self._ring = graph.signals["ring"]
        self._pcie = graph.signals["pcie"]
        self._used = [graph.signals[s] for s in sorted(signals) if s in graph.signals]

    def placed(
        self,
        request: Request,
        now: float,
        took: float,
        choice: Choice,
        need_bytes: float,
        room_bytes: float,
    ) -> None:
        """Write a placement; *room_bytes* is the room before it."""
        device = choice.device
        oldest = now
        for signal in self._used:
            source_s = signal.source[device]
            if _NEVER < source_s < oldest:
                oldest = source_s
        best, scores = choice.best, choice.scores
        if len(best) < BEST:
            best = (*best, *_PAD[BEST - len(best)])
        if len(scores) < BEST:
            scores = (*scores, *_PAD_SCORES[BEST - len(scores)])
        best0, best1, best2, best3, best4 = best
        score0, score1, score2, score3, score4 = scores
        self._pack(  # in place: a decision is worth sparing the call of journal.decision
            self._buffer,
            self._table.at,
            request.id,
            request.attempt,
            now,
            took,
            device,
            0,
            need_bytes,
            room_bytes if room_bytes >= 0.0 else _NAN,
            self._memory.cells[0][device],
            self._ring.cells[0][device],
            self._pcie.cells[0][device],
            now - oldest,
            choice.candidates,
            best0,
            best1,
            best2,
            best3,
            best4,
            score0,
            score1,
            score2,
            score3,
            score4,
        )
        self._taken()

    def refused(
        self, request: Request, now: float, took: float, reason: int, candidates: int
    ) -> None:
        """Write a decision that placed nothing."""
        self._append(
            request.id,
            request.attempt,
            now,
            took,
            -1,
            reason,
            *(_NAN,) * 6,
            candidates,
            *_PAD[BEST],
            *_PAD_SCORES[BEST],
        )
