"""What all requests of a door share: its backend, its limits, and who may come in."""

import hmac

from live.config import DoorLimits
from live.door.choices import Backend
from live.door.metrics import Metrics
from live.door.protocol import ApiError


class Door:
    """What all requests of a door share."""

    def __init__(
        self, backend: Backend, limits: DoorLimits, metrics: Metrics, api_key: str
    ) -> None:
        self.backend = backend
        self.limits = limits
        self.metrics = metrics
        self.draining = False
        self.inside = 0
        self._key = f"Bearer {api_key}".encode() if api_key else b""

    def admit(self, headers: dict[str, str]) -> None:
        """Raise :class:`ApiError` unless a request may come in."""
        if self._key and not hmac.compare_digest(
            headers.get("authorization", "").encode(), self._key
        ):
            raise ApiError(401, "wrong or missing API key", code="invalid_api_key")
        wait_s = self.limits.retry_after_s
        if self.draining:
            raise ApiError(
                503, "shutting down", type="server_error", code="draining", retry_after_s=wait_s
            )
        if self.inside >= self.limits.max_requests:
            message = f"{self.inside} requests are inside already"
            raise ApiError(
                429, message, type="server_error", code="too_many_requests", retry_after_s=wait_s
            )
