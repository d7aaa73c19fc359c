"""Every format that traces come in, most telling first."""

from typing import Final

from traces.formats import block_jsonl, columns, engine, gateway, otel, plain_csv, simulators
from traces.formats.base import Format

_ORDER: Final = (
    *gateway.FORMATS, *otel.FORMATS, *engine.FORMATS, *simulators.FORMATS, *block_jsonl.FORMATS,
    *plain_csv.FORMATS, *columns.FORMATS,
)  # fmt: skip
ALL: Final[dict[str, Format]] = {known.name: known for known in _ORDER}
