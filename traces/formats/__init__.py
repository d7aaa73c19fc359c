"""Every format that traces come in, most telling first."""

from typing import Final

from traces.formats import block_jsonl, plain_csv
from traces.formats.base import Format

ALL: Final[dict[str, Format]] = {
    known.name: known for known in (*block_jsonl.FORMATS, *plain_csv.FORMATS)
}
