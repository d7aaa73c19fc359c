"""Policies by name: shipped ones, those of an installed package, and what is refused."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dispatch import registry
from dispatch.errors import InputError, UnknownNameError
from dispatch.policies.topology import Topology
from tests.dispatch.core_world import World, devices

MODULE = '''
from dataclasses import dataclass
from typing import Literal

from dispatch.policy import BasePolicy


@dataclass(frozen=True)
class Params:
    """``end``: which end of the fleet is filled."""

    end: Literal["first", "last"] = "first"
    spare: int = 0


class OneEnd(BasePolicy):
    """Fills one end of the fleet."""

    name = "one_end"
    Params = Params

    def choose(self, request, graph, now_s):
        devices = graph.eligible(request.model, request.group).devices
        return self._place(devices[0 if self.params.end == "first" else -1], len(devices))


class Plain:
    name = "plain"
    signals = frozenset()

    def __init__(self, device: int = 0, seed: int = 0):
        self.device = device

    def choose(self, request, graph, now_s):
        from dispatch.policy import Choice

        return Choice(self.device)


def nothing():
    return object()
'''
POINTS = """[zerolayer.policies]
one_end = some_users_policies:OneEnd
plain = some_users_policies:Plain
nothing = some_users_policies:nothing
gone = some_users_policies_of_old:Gone
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package of a user's own, as pip would have laid it down."""
    (tmp_path / "some_users_policies.py").write_text(MODULE)
    info = tmp_path / "some_users_policies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: some-users-policies\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._declared.cache_clear()
    yield
    sys.modules.pop("some_users_policies", None)
    registry._declared.cache_clear()


@pytest.mark.usefixtures("installed")
class TestAPackageOfTheUsers:
    def test_its_policy_is_listed_after_ours(self) -> None:
        assert registry.names()[-4:] == ["gone", "nothing", "one_end", "plain"]
        assert registry.describe("one_end")["summary"] == "Fills one end of the fleet."
        assert not registry.describe("one_end")["shipped"]

    def test_its_policy_places_by_its_own_parameters(self) -> None:
        assert World("one_end", 3).place() == 0
        assert World("one_end", 3, {"end": "last"}).place() == 2

    def test_its_parameters_are_checked_like_ours(self) -> None:
        with pytest.raises(InputError) as told:
            registry.policy("one_end", {"end": "middle", "spar": 1, "spare": "x"})
        assert [str(p) for p in told.value.problems] == [
            "policy one_end.end: found 'middle'; give one of first, last",
            "policy one_end: unknown parameter 'spar'; did you mean spare?",
            "policy one_end.spare: found 'x'; give int",
        ]

    def test_a_plain_class_takes_the_parameters_of_its_signature(self) -> None:
        assert World("plain", 3, {"device": 1}).place() == 1
        with pytest.raises(InputError, match="unknown parameter 'devise'; did you mean device"):
            registry.policy("plain", {"devise": 1})

    def test_what_is_no_policy_is_refused_by_name(self) -> None:
        with pytest.raises(InputError, match="policy nothing: is no policy"):
            registry.policy("nothing")

    def test_a_package_that_does_not_load_is_named(self) -> None:
        with pytest.raises(InputError, match="policy gone: cannot be loaded"):
            registry.policy("gone")
        assert "cannot be loaded" in registry.describe("gone")["summary"]

    @pytest.mark.parametrize("pick", [3, 1])
    def test_a_pick_that_may_not_be_is_refused_and_the_books_balance(self, pick: int) -> None:
        world = World("plain", devices(3, (1, 0, 1)), {"device": pick})
        with pytest.raises(InputError, match=f"policy plain: chose device {pick}"):
            world.place()
        world.dispatcher.check_books()

    def test_an_answer_without_a_device_or_a_reason_counts_as_no_device(self) -> None:
        world = World("plain", 3, {"device": -1})
        assert world.dispatcher.submit(world.request()).reason.name == "no_device"


def test_every_policy_tells_what_it_does_and_where_it_fails() -> None:
    for name in registry.names():
        about = registry.describe(name)
        text = " ".join(str(about["definition"]).split())
        assert about["summary"].endswith("."), name
        for part in ("Signals:", "Ties:", "Source:", "Known failure mode:"):
            assert part in text, (name, part)


def test_every_policy_declares_only_signals_that_exist() -> None:
    from dispatch.signals import SIGNALS

    for name in registry.names():
        assert set(registry.describe(name)["signals"]) <= set(SIGNALS), name


def test_an_unknown_policy_is_named_with_the_near_miss() -> None:
    with pytest.raises(UnknownNameError, match="unknown policy 'topolgy'; did you mean topology"):
        registry.policy("topolgy")


@pytest.mark.parametrize(
    ("name", "params", "told"),
    [
        ("topology", {"mode": "weigthed"}, "topology.mode: found 'weigthed'; give one of"),
        ("topology", {"b_bin_ratio": True}, "topology.b_bin_ratio: found True; give float"),
        ("topology", {"b_bin_ratio": 2}, "policy topology: b_bin_ratio is 2.0; give a share"),
        ("topology", {"b_bin_ratio": float("nan")}, "topology.b_bin_ratio: found nan"),
        ("random", {"seed": 1}, "policy random: unknown parameter 'seed'"),
        ("static_weights", {"workers": 1.5}, "static_weights.workers: found 1.5; give int"),
        ("session_affinity", {"bound": 0.5}, "bound 0 or >= 1"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(
    name: str, params: dict[str, object], told: str
) -> None:
    with pytest.raises(InputError, match=told):
        registry.policy(name, params)


def test_whole_numbers_serve_where_a_float_is_asked_for() -> None:
    policy = registry.policy("topology", {"b_bin_ratio": 0})
    assert isinstance(policy, Topology)
    assert policy.params.b_bin_ratio == 0.0
