"""A live run's tables between processes: one Parquet file a table."""

from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from dispatch.journal import SCHEMAS, Journal
from live.steps import COLUMNS, Step


def save(journal: Journal, folder: Path) -> None:
    """Write every table of *journal*, which kept its rows itself, into *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    for table in SCHEMAS:
        journal.to_pandas(table).to_parquet(folder / f"{table}.parquet", index=False)


def save_steps(logs: Sequence[Sequence[Step] | None], path: str) -> None:
    """Write the iterations of each device as one Parquet file."""
    import pandas as pd

    rows = [(at, *astuple(step)) for at, log in enumerate(logs) for step in log or ()]
    pd.DataFrame(rows, columns=list(COLUMNS)).to_parquet(path, index=False)


def load(folder: Path) -> dict[str, Any]:
    """Return the tables of *folder* as pandas frames."""
    import pandas as pd

    return {table: pd.read_parquet(folder / f"{table}.parquet") for table in SCHEMAS}
