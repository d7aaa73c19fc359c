"""The legacy router's rules: headers in, a group, a precision, a time-out and retries out.

It looks at the request and at its configuration and at nothing else: no memory of a device, no
link. The pick inside the group is smooth weighted round robin (policy ``static_weights``), fed by
:meth:`LegacyRouter.peers` and :meth:`LegacyRouter.policy_params`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Final

from dispatch.errors import InputError
from dispatch.legacy.config import PROBE_KEYS, LegacyConfig
from dispatch.legacy.values import hardware_kind, pairs, retry_classes
from dispatch.outcomes import Reason
from dispatch.request import Request

MODEL_HEADER: Final = "x-model-hint"
PRECISION_HEADER: Final = "x-precision-preference"
_CACHE_ROWS: Final = 4096  # distinct (model, precision) pairs remembered; then it starts over


@dataclass(frozen=True, slots=True)
class Translated:
    """What the legacy router made of one request.

    ``group`` empty means every device; ``reject`` is a reason where it refused, else None.
    ``retries`` holds only for failure classes in ``retry_on`` and, unless ``resend``, only while
    no body was sent upstream. ``kernel_plan`` empty leaves the engine's own.
    """

    group: str
    model: str
    precision: str
    timeout_s: float
    retries: int
    retry_on: frozenset[str]
    resend: bool
    kernel_plan: str = ""
    reject: Reason | None = None
    detail: str = ""

    def may_retry(self, failure: str, attempt: int, body_sent: bool) -> bool:
        """Say whether *attempt* (from 0), failed by class *failure*, may be followed by another."""
        return (
            attempt < self.retries and failure in self.retry_on and (self.resend or not body_sent)
        )


@dataclass(frozen=True, slots=True)
class Peer:
    """One device as the round robin sees it; ``max_conns`` 0 is no limit."""

    name: str
    group: str
    weight: float
    max_conns: int


@dataclass(frozen=True, slots=True)
class _Rule:
    """What the headers alone decide, cached per (model hint, precision)."""

    group: str
    model: str
    precision: str


class _Refused(Exception):
    """The ladder ends without a group; carries the reason."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class LegacyRouter:
    """Apply a :class:`LegacyConfig` to requests; pure, some microseconds a request.

    *groups* names the groups that devices are in; a rule that points elsewhere is handled by
    ``missing_group``. None takes every group to exist. *probes* are readings of monitoring probes
    that still answer; the probes are gone, so by default each key keeps its configured value.
    """

    def __init__(
        self,
        config: LegacyConfig | None = None,
        groups: Iterable[str] | None = None,
        probes: Mapping[str, Any] | None = None,
    ) -> None:
        base = config or LegacyConfig()
        alive = {k: v for k, v in (probes or {}).items() if v is not None}
        if unknown := sorted(set(alive) - set(PROBE_KEYS)):
            raise InputError.at("probes", f"no such probe: {', '.join(unknown)}")
        self.config = LegacyConfig.from_settings({**base.model_dump(), **alive}) if alive else base
        self._groups = None if groups is None else frozenset(groups)
        self._aliases = dict(pairs("model_aliases", self.config.model_aliases))
        self._table = pairs("model_groups", self.config.model_groups)
        self._retry_on = retry_classes(self.config.retry_on)
        self._by_precision = {
            name: getattr(self.config, f"{name}_group") for name in ("fp16", "bf16", "fp8", "int4")
        }
        self._ladder = (
            self.config.v100_group,
            self.config.a100_40g_group,
            self.config.a100_80g_group,
        )
        self._limits = (
            self.config.v100_max_prompt_tokens,
            self.config.a100_40g_max_prompt_tokens,
            self.config.a100_80g_max_prompt_tokens,
        )
        self._on_v100 = {"bf16": self.config.v100_bf16_as, "int4": self.config.v100_int4_as}
        self._plain = self.config.model_dump()  # attribute access of a model costs more than ours
        self._rules: dict[tuple[str, str], _Rule] = {}
        self._answers: dict[tuple[str, str, str], Translated] = {}

    def translate(
        self,
        source: Request | Mapping[str, str],
        *,
        prompt_tokens: int = 0,
        max_tokens: int = 0,
        model: str = "",
    ) -> Translated:
        """Translate a :class:`Request`, or lower-case HTTP headers with the sizes given beside.

        A request's ``model`` and ``precision`` stand for the two headers.
        """
        if isinstance(source, Request):
            hint, precision = source.model, source.precision
            prompt_tokens, max_tokens = source.prompt_tokens, source.max_tokens
        else:
            hint = source.get(MODEL_HEADER, "") or model
            precision = source.get(PRECISION_HEADER, "").strip().lower()
        rule = self._rules.get((hint, precision))
        if rule is None:
            rule = self._remember(hint, precision)
        return self._size_rules(rule, prompt_tokens, max_tokens)

    def _remember(self, hint: str, precision: str) -> _Rule:
        if len(self._rules) >= _CACHE_ROWS:
            self._rules.clear()
        rule = self._rules[hint, precision] = self._header_rules(hint, precision)
        return rule

    def _header_rules(self, hint: str, precision: str) -> _Rule:
        config = self.config
        model = self._aliases.get(hint, hint)
        precision = precision or config.default_precision
        group = ""
        if model and config.probe_nvlink_up:
            group = next((g for pattern, g in self._table if fnmatchcase(model, pattern)), "")
        group = group or self._by_precision.get(precision, "") or config.default_group
        return _Rule(group, model, precision)

    def _size_rules(self, rule: _Rule, prompt_tokens: int, max_tokens: int) -> Translated:
        config = self._plain
        if config["shed_queue_depth"] and config["probe_queue_depth"] >= config["shed_queue_depth"]:
            return self._refuse(rule, Reason.queue_full, "the router sheds load")
        group, precision = rule.group, rule.precision
        if config["long_prompt_tokens"] and prompt_tokens >= config["long_prompt_tokens"]:
            group = config["long_prompt_group"]
        if group in self._ladder:
            try:
                step = self._ladder.index(group)
                group, precision = self._climb(step, precision, prompt_tokens, max_tokens)
            except _Refused as refused:
                return self._refuse(rule, refused.reason, str(refused))
        if group and not self._exists(group):
            if config["missing_group"] == "reject":
                return self._refuse(rule, Reason.no_device, f"no device is in group {group!r}")
            group = ""
        if config["timeout_per_token_ms"]:
            return self._answer(group, rule.model, precision, max_tokens)
        key = (group, rule.model, precision)
        if (known := self._answers.get(key)) is None:
            if len(self._answers) >= _CACHE_ROWS:
                self._answers.clear()
            known = self._answers[key] = self._answer(group, rule.model, precision, max_tokens)
        return known

    def _answer(self, group: str, model: str, precision: str, max_tokens: int) -> Translated:
        return Translated(
            group=group,
            model=model,
            precision=precision,
            timeout_s=self._timeout_s(group, max_tokens),
            retries=min(self.config.retries, self.config.probe_retry_budget),
            retry_on=self._retry_on,
            resend=self.config.retry_non_idempotent,
            kernel_plan=self._plan(group),
        )

    def _refuse(self, rule: _Rule, reason: Reason, detail: str) -> Translated:
        plain = self._answer("", rule.model, rule.precision, 0)
        return replace(plain, retries=0, reject=reason, detail=detail)

    def _climb(
        self, step: int, precision: str, prompt_tokens: int, max_tokens: int
    ) -> tuple[str, str]:
        """Move up the hardware ladder until a group takes the request, or refuse it."""
        config = self._plain
        need_mb = (prompt_tokens + max_tokens) * config["kv_mb_per_token"]
        while step < len(self._ladder):
            rule = self._on_v100.get(precision, "") if step == 0 else ""
            if rule == "reject":
                raise _Refused(Reason.no_device, f"no {precision} on V100")
            limit = self._limits[step]
            too_long = limit and prompt_tokens > limit
            short = step == 1 and need_mb > config["probe_free_memory_gb"] * 1e3
            if too_long or short or rule == "next":
                step += 1
                continue
            if step and precision == "fp8":
                rule = config["a100_fp8_as"]
                if rule == "reject":
                    raise _Refused(Reason.no_device, "no fp8 on A100")
            return self._ladder[step], rule or precision
        raise _Refused(
            Reason.too_large, f"{prompt_tokens} tokens of prompt exceed the limit of every group"
        )

    def _exists(self, group: str) -> bool:
        if group == self.config.probe_drained_group:
            return False
        return self._groups is None or group in self._groups

    def _timeout_s(self, group: str, max_tokens: int) -> float:
        config = self.config
        factor = 1.0
        if group == config.v100_group:
            factor = config.v100_timeout_factor
        elif group == config.a100_40g_group:
            factor = config.a100_40g_timeout_factor
        own = config.timeout_s + max_tokens * config.timeout_per_token_ms / 1e3
        return own * factor + config.probe_latency_ms / 1e3

    def _plan(self, group: str) -> str:
        if not group or group not in self._ladder:
            return ""
        on_v100 = group == self.config.v100_group
        return self.config.v100_stage_plan if on_v100 else self.config.a100_stage_plan

    def peers(self, devices: Iterable[tuple[str, str, str, float]]) -> list[Peer]:
        """Return the peers of *devices* given as (name, gpu, group, static weight).

        The GPU model is recognised by the catalogue name: ``v100...``, ``a100...40g``, ``a100``.
        """
        config = self.config
        found = []
        for name, gpu, group, weight in devices:
            kind = hardware_kind(gpu)
            factor = getattr(config, f"{kind}_weight_factor") if kind else 1.0
            limit = getattr(config, f"{kind}_max_conns") if kind else 0
            usable = max(1, int(limit * config.probe_headroom_ratio)) if limit else 0
            found.append(Peer(name, group, weight * factor, usable))
        return found

    def policy_params(self) -> dict[str, Any]:
        """Return the parameters of policy ``static_weights`` that the configuration sets."""
        return {
            "max_fails": self.config.max_fails,
            "fail_timeout_s": self.config.fail_timeout_s,
            "workers": self.config.worker_processes,
        }
