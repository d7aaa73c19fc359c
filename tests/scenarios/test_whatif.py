"""Grids of what-ifs."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dispatch.errors import InputError
from scenarios import whatif
from scenarios.folder import whole
from scenarios.load import load
from scenarios.named import NAMED, applicable
from scenarios.store import Store
from scenarios.sweep import Sweep
from scenarios.whatif_folder import write
from tests.scenarios.small import small


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a.b=1,2", ("1", "2")),
        ("a= 4 , 8", ("4", "8")),
        ("a=[1,2],[3]", ("[1,2]", "[3]")),
        ('a="x,y",z', ('"x,y"', "z")),
        ("a={b=1,c=2},{}", ("{b=1,c=2}", "{}")),
    ],
)
def test_an_axis_is_split_at_its_own_commas_only(text: str, values: tuple[str, ...]) -> None:
    assert whatif.axis(text).values == values


@pytest.mark.parametrize("text", ["a", "a=", "=1", "a=1,,2", "a=1,1"])
def test_what_is_no_axis_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--vary"):
        whatif.axis(text)


def test_a_grid_is_the_product_of_its_axes(tmp_path: Path) -> None:
    vary = ["fleet.pools.a.count=1,2,3", "trace.scale=1,2"]
    made = whatif.grid(str(small(tmp_path)), [], vary, [])
    assert len(made.points) == 6
    assert len(whatif.cells(made)) == 6 * 2 * 2
    counts = [scenario.fleet.pools[0].count for _, scenario in made.points]
    assert counts == [1, 1, 2, 2, 3, 3]


def test_every_wrong_point_is_told_at_once(tmp_path: Path) -> None:
    vary = ["fleet.pools.a.count=1,-1,x", "trace.scale=0"]
    with pytest.raises(InputError) as caught:
        whatif.grid(str(small(tmp_path)), [], vary, [])
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_named_what_if_changes_a_bundled_scenario_or_says_why_not(name: str) -> None:
    done = 0
    for source in ("migration-2023q3", "h100-2024"):
        base = load(source)
        if name in applicable(base):
            changed = load(source, NAMED[name].overrides(base))
            assert changed != base
            done += 1
        else:
            with pytest.raises(InputError, match="does not apply"):
                NAMED[name].overrides(base)
    assert done


def test_the_report_and_the_cells_of_a_grid_are_written_the_same_twice(tmp_path: Path) -> None:
    made = whatif.grid(str(small(tmp_path)), [], ["fleet.pools.a.count=1,2"], ["lose-pool"])
    with Sweep(1, store=Store(tmp_path / "cache"), quiet=True) as sweep:
        whatif.run(made, sweep)
    for name in ("one", "two"):
        with whole(tmp_path / name) as place:
            write(place, made, whatif.rows(made))
    files = [
        json.loads((tmp_path / name / "manifest.json").read_text())["files"]
        for name in ("one", "two")
    ]
    assert files[0] == files[1]
    table = pq.read_table(tmp_path / "one" / "cells.parquet").to_pandas()
    assert len(table) == 3 * 2 * 2
    assert set(table["fleet.pools.a.count"].dropna()) == {1.0, 2.0}
    assert "<svg" in (tmp_path / "one" / "report.html").read_text()
