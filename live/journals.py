"""A live run's tables between processes: one Parquet file a table."""

from pathlib import Path
from typing import Any

from dispatch.journal import SCHEMAS, Journal


def save(journal: Journal, folder: Path) -> None:
    """Write every table of *journal*, which kept its rows itself, into *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    for table in SCHEMAS:
        journal.to_pandas(table).to_parquet(folder / f"{table}.parquet", index=False)


def load(folder: Path) -> dict[str, Any]:
    """Return the tables of *folder* as pandas frames."""
    import pandas as pd

    return {table: pd.read_parquet(folder / f"{table}.parquet") for table in SCHEMAS}
