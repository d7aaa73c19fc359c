"""Single values as logs write them: times to whole nanoseconds, token counts, absent values."""

import calendar
import functools
import math
import re
from fractions import Fraction
from typing import Any, Final

from traces.rows import MISSING, BadRow

UNITS_NS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
MOST_TOKENS: Final = 100_000_000
_MOST_NS: Final = (1 << 63) - 1
_LAST_YEAR: Final = 2261  # the last whole one that 64 bits of nanoseconds hold
_ABSENT: Final = frozenset({"", "-", "null", "none", "nan", "n/a", "undefined"})
_ISO: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9})\d*)?)?"
    r"\s*(Z|z|UTC|[+-]\d\d:?\d\d)?"
)
_DECIMAL: Final = re.compile(r"([+-]?)(\d+)(?:\.(\d*))?")


def is_absent(value: Any) -> bool:
    """Return whether *value* says "nothing here": null, "", "-", "NaN" and the like."""
    if value is None:
        return True
    if isinstance(value, float):
        return math.isnan(value)
    return isinstance(value, str) and value.strip().lower() in _ABSENT


def clip(value: Any, longest: int = 60) -> str:
    """Return *value* as it can be quoted in an error."""
    text = repr(value)
    return text if len(text) <= longest else text[: longest - 3] + "..."


@functools.lru_cache(maxsize=4096)
def _day_s(date: str) -> int | None:
    """Return seconds from 1970 to a day, None where no calendar has it."""
    year, month, day = (int(part) for part in date.split("-"))
    if not (1970 <= year <= _LAST_YEAR and 1 <= month <= 12):
        return None
    if not 1 <= day <= calendar.monthrange(year, month)[1]:
        return None
    return calendar.timegm((year, month, day, 0, 0, 0))


def iso_ns(text: str) -> int | None:
    """Return nanoseconds since 1970 of an ISO 8601 time, None where it is none.

    One to nine fractional digits count, all of them; a time without a zone is taken as UTC.
    """
    found = _ISO.fullmatch(text.strip())
    if found is None:
        return None
    date, hours, minutes, seconds_, fraction_, zone = found.groups()
    day = _day_s(date)
    hour, minute, second = int(hours), int(minutes), int(seconds_ or 0)
    if day is None or hour > 23 or minute > 59 or second > 60:
        return None
    whole = day + hour * 3600 + minute * 60 + second
    fraction = int(fraction_.ljust(9, "0")) if fraction_ else 0
    if zone is not None and zone[0] in "+-":
        shift = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
        whole -= shift if zone[0] == "+" else -shift
    return whole * 10**9 + fraction


def _no_iso(text: str, name: str) -> str:
    """Say what is wrong with a time that is written like one of a calendar, and is none."""
    found = _COMMON.fullmatch(text)
    year = int(found[3] if found else text[:4])
    if 1970 <= year <= _LAST_YEAR:
        return f"{name} is no date or time of day: {clip(text)}"
    return f"{name} is out of range: {clip(text)}; a trace lies between 1970 and 2100"


_COMMON: Final = re.compile(r"(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d:\d\d:\d\d) ([+-]\d{4})")
_MONTHS: Final = "JanFebMarAprMayJunJulAugSepOctNovDec"


def common_log_ns(text: str) -> int | None:
    """Return nanoseconds since 1970 of a time as in the Common Log Format, else None."""
    found = _COMMON.fullmatch(text.strip())
    if found is None or found[2] not in _MONTHS:
        return None
    month = _MONTHS.index(found[2]) // 3 + 1
    return iso_ns(f"{found[3]}-{month:02d}-{found[1]}T{found[4]}{found[5]}")


def time_ns(value: Any, unit: str, name: str = "time") -> int:
    """Return *value* in nanoseconds: ISO text as it says, a number in *unit*, exact to the digit.

    An absent time is a BadRow: it is never taken as 0.
    """
    if type(value) is int:  # most numbers of most logs
        return _in_range(value * UNITS_NS[unit], value, name)
    if is_absent(value):
        raise BadRow(f"{name} is missing; a missing time is not 0")
    if isinstance(value, str):
        at = iso_ns(value)
        if at is not None:
            return at
        value = _number(value, name)
    return _in_range(_scaled(value, UNITS_NS[unit], name), value, name)


def _in_range(ns: int, value: Any, name: str) -> int:
    if ns < 0:
        raise BadRow(f"{name} is negative: {clip(value)}")
    if ns > _MOST_NS:
        raise BadRow(f"{name} is beyond the year 2262: {clip(value)}; is the unit right?")
    return ns


def _scaled(value: Any, factor: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        raise BadRow(f"{name} is no time: {clip(value)}")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BadRow(f"{name} is not finite: {value}")
        value = Fraction(repr(value))
    exact: int = round(value * factor)
    return exact


def _number(text: str, name: str) -> int | Fraction:
    """Return a decimal text exactly; float would lose digits of an epoch time."""
    text = text.strip()
    found = _DECIMAL.fullmatch(text)
    if found is not None and len(text) < 40:
        if found[3] is None:
            return int(text)
        return Fraction(text if found[3] else text[:-1])
    if _ISO.fullmatch(text) or _COMMON.fullmatch(text):
        raise BadRow(_no_iso(text, name))
    try:
        number = float(text)
    except ValueError:
        raise BadRow(f"{name} is no number and no ISO time: {clip(text)}") from None
    if not math.isfinite(number):
        raise BadRow(f"{name} is not finite: {clip(text)}")
    return Fraction(repr(number))


_EPOCHS: Final = (
    ("s", 9e8, 4.2e9),
    ("ms", 9e11, 4.2e12),
    ("us", 9e14, 4.2e15),
    ("ns", 9e17, 4.2e18),
)


def epoch_unit(value: Any) -> str | None:
    """Return the unit in which *value* is a date between 1998 and 2103; "s" for ISO text."""
    if isinstance(value, str):
        if _ISO.fullmatch(value.strip()):
            return "s"
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "s" if value is None else None
    for unit, low, high in _EPOCHS:
        if low <= value <= high:
            return unit
    return None


def seconds(value: Any, name: str, unit: str = "s") -> float:
    """Return a duration in seconds, NaN where it is absent; a negative one is a BadRow."""
    if is_absent(value):
        return math.nan
    return time_ns(value, unit, name) / 1e9


def tokens(value: Any, name: str) -> int:
    """Return a token count, MISSING where absent; text such as "512" and 512.0 are numbers."""
    if type(value) is str and len(value) < 9 and value.isascii() and value.isdigit():
        return int(value)
    if type(value) is int and 0 <= value <= MOST_TOKENS:
        return value
    if is_absent(value):
        return MISSING
    if isinstance(value, str):
        value = _number(value, name)
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        raise BadRow(f"{name} is no token count: {clip(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise BadRow(f"{name} is not finite: {value}")
    if value != int(value):
        raise BadRow(f"{name} is not a whole number: {clip(float(value))}")
    count = int(value)
    if count < 0:
        raise BadRow(f"{name} is negative: {count}")
    if count > MOST_TOKENS:
        raise BadRow(f"{name} is {count}; more than {MOST_TOKENS:,} tokens is no request")
    return count


def positive(value: Any, name: str) -> int:
    """Return a token count that must be there and at least 1."""
    count = tokens(value, name)
    if count == MISSING:
        raise BadRow(f"{name} is missing")
    if count == 0:
        raise BadRow(f"{name} is 0; a request has at least one token")
    return count


def text(value: Any) -> str:
    """Return an id or a name as text, "" where absent."""
    if is_absent(value) or isinstance(value, dict | list):
        return ""
    return str(value)


def block_ids(value: Any, name: str = "hash_ids") -> list[int]:
    """Return prefix-block ids as 64-bit numbers; text ids are hashed, the same way every time."""
    if not isinstance(value, list):
        raise BadRow(f"{name} is no list: {clip(value)}")
    return [_block_id(item, name) for item in value]


def _block_id(item: Any, name: str) -> int:
    if isinstance(item, int) and not isinstance(item, bool):
        return ((item + (1 << 63)) % (1 << 64)) - (1 << 63)
    if isinstance(item, str):
        import hashlib

        digest = hashlib.blake2b(item.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "little", signed=True)
    raise BadRow(f"{name} holds {clip(item)}, not a block id")
