"""What a backend answers to what the dispatcher refused, and the ids it gives to requests."""

from collections.abc import Container, Mapping
from typing import Final

from dispatch.outcomes import Reason
from live.flow import Refused

FIRST_ID: Final = 1 << 40  # ids of requests that are no rows of a replay

_STATUS: Final = {
    Reason.held: (503, "no device has room", "no_capacity"),
    Reason.queue_full: (503, "too many requests wait for room", "queue_full"),
    Reason.no_device: (503, "no healthy device serves this model", "no_device"),
    Reason.no_weight: (503, "every device of this model has weight 0", "no_weight"),
    Reason.too_large: (400, "no device could ever hold this request", "request_too_large"),
    Reason.deadline: (503, "no device had room before the deadline", "deadline"),
    Reason.slo: (503, "the request would miss its objective", "slo"),
    Reason.unknown_hint: (400, "unknown x-kernel-hint", "invalid_value"),
    Reason.context: (400, "the prompt exceeds the context", "context_length_exceeded"),
}


def request_id(headers: Mapping[str, str], count: int, taken: Container[int]) -> int:
    """Return the row N of ``x-request-id: replay-N``, else a number beyond all rows."""
    word, _, row = headers.get("x-request-id", "").partition("-")
    if word == "replay" and row.isdecimal() and len(row) < 9 and int(row) not in taken:
        return int(row)
    return FIRST_ID + count


def refusal(reason: Reason) -> Refused:
    """Return the HTTP answer to a dispatcher's *reason*."""
    status, message, code = _STATUS.get(reason, (503, "refused", "refused"))
    return Refused(status, message, code, retry=status == 503)
