"""Requests that wait for capacity: one line for each class, first come first served."""

from collections import deque

from dispatch.request import Request

Class = tuple[str, str]  # (model, group)


class Line:
    """Held requests by id, and in the order of their arrival within each class.

    A request leaves by being taken out of ``held``; what is left of it in its line is passed over.
    """

    def __init__(self) -> None:
        self.held: dict[int, Request] = {}
        self._lines: dict[Class, deque[Request]] = {}

    def add(self, request: Request) -> None:
        """Put *request* at the end of its class."""
        self.held[request.id] = request
        self._lines.setdefault((request.model, request.group), deque()).append(request)

    def classes(self) -> list[Class]:
        """Return the classes somebody may wait in."""
        return list(self._lines)

    def first(self, key: Class) -> Request | None:
        """Return who has waited longest of a class, passing over those that left meanwhile."""
        line = self._lines.get(key)
        while line:
            request = line[0]
            if self.held.get(request.id) is request:
                return request
            line.popleft()
        self._lines.pop(key, None)
        return None
