"""The ledger covers the 47 keys, and its tests are real."""

from pathlib import Path

import pytest

from dispatch.errors import InputError
from dispatch.legacy import HARDWARE_KEYS, KEYS, OTHER_KEYS, PROBE_KEYS, LegacyConfig
from dispatch.legacy.ledger import LedgerRow, has_test, ledger

ROOT = Path(__file__).parents[2]


def test_there_are_47_keys_19_bound_to_hardware_and_7_to_dead_probes() -> None:
    assert (len(HARDWARE_KEYS), len(PROBE_KEYS), len(OTHER_KEYS)) == (19, 7, 21)
    assert len(set(KEYS)) == 47


def test_every_hardware_key_names_a_gpu_model() -> None:
    assert all(key.startswith(("v100", "a100")) for key in HARDWARE_KEYS)


def test_every_key_has_a_row_that_says_what_becomes_of_it() -> None:
    rows = ledger()
    assert [row.key for row in rows] == list(KEYS)
    assert {row.without for row in rows} == {"gone", "replaced", "needed"}
    assert all(row.does and row.how for row in rows)


@pytest.mark.parametrize("row", ledger(), ids=lambda row: row.key)
def test_the_test_a_row_names_exists_and_names_the_key(row: LedgerRow) -> None:
    assert has_test(row, ROOT)
    assert row.test.partition("::")[2].startswith(f"test_{row.key}_")


def test_no_two_keys_share_a_test() -> None:
    tests = [row.test for row in ledger()]
    assert len(set(tests)) == len(tests)


def test_a_test_that_does_not_exist_is_noticed() -> None:
    row = ledger()[0]
    path = row.test.partition("::")[0]
    gone = LedgerRow(row.key, row.kind, "", row.does, row.without, row.how, f"{path}::test_x")
    assert has_test(gone, ROOT) is False
    assert has_test(row, Path("/nowhere")) is None


def test_an_unknown_key_is_refused_with_the_near_miss() -> None:
    with pytest.raises(InputError, match="did you mean max_fails") as caught:
        LegacyConfig.from_settings({"max_fail": 1, "retries": -1})
    assert len(caught.value.problems) == 2
