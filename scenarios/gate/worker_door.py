"""What the worker times on ``--path door``: whole requests over loopback through the tree's door.

The door, its HTTP server and the dispatcher are the tree's; the devices answer at once, so that
what is left of a round trip is what a commit can make slower.
"""

import asyncio
import http.client
import importlib
import json
import threading
import time
from collections.abc import Mapping
from typing import Any

_BODY = json.dumps({"model": "tiny", "prompt": "hello", "max_tokens": 1})


class InstantBackend:
    """Places each request as the stream has it, and answers one token at once."""

    model_name = "tiny"
    context_tokens = 4096
    vocab = 320
    in_flight = 0

    def __init__(self) -> None:
        self.flow = importlib.import_module("live.flow").Flow
        self.sequence = importlib.import_module("live.sequence")
        self.next: tuple[Any, Any] = (None, None)
        self.count = 0

    def next_id(self, headers: Mapping[str, str]) -> int:
        """Return the next number."""
        self.count += 1
        return self.count

    def now_s(self) -> float:
        """Return the monotonic clock."""
        return time.monotonic()

    def health(self) -> list[tuple[str, bool]]:
        """Say that all is well."""
        return [("instant", True)]

    async def drain(self, timeout_s: float) -> bool:
        """Nothing is ever left."""
        return True

    def open(self, request: Any, job: Any, headers: Any, received_s: float) -> Any:
        """Decide with the dispatcher under test and return a flow that has ended already."""
        submit, asked = self.next
        submit(asked)
        event, kind = self.sequence.Event, self.sequence.Kind
        flow = self.flow(job.id, 1024, lambda id_, satisfied: None)
        flow.handed_over_s = now = time.monotonic()
        flow.push(event(job.id, kind.started, now))
        flow.push(event(job.id, kind.tokens, now, (65,), "", 0.0))
        flow.push(event(job.id, kind.finished, now, (), "length", 0.0))
        return flow


class DoorPath:
    """A door that serves in a thread of this process, and one client that keeps its connection."""

    def __init__(self) -> None:
        self.backend = InstantBackend()
        self._ready = threading.Event()
        self._address = ("", 0)
        self._failure: BaseException | None = None
        threading.Thread(target=self._serve, daemon=True).start()
        self._ready.wait()
        if self._failure:
            raise self._failure
        self.client = http.client.HTTPConnection(*self._address, timeout=60)

    def _serve(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as failure:
            self._failure = failure
            self._ready.set()

    async def _main(self) -> None:
        build = importlib.import_module("live.door.app").build_app
        listen = importlib.import_module("live.serve").listen
        config = importlib.import_module("live.config").LiveConfig()
        app = build(self.backend, config.limits)
        async with listen(app, "127.0.0.1", 0, config) as (_, url):
            host, _, port = url.removeprefix("http://").partition(":")
            self._address = (host, int(port))
            self._ready.set()
            await asyncio.Event().wait()

    def wrap(self, submit: Any) -> Any:
        """Return a call that sends one request whose placement is *submit*'s."""

        def send(asked: Any) -> None:
            self.backend.next = (submit, asked)
            self.client.request(
                "POST", "/v1/completions", _BODY, {"Content-Type": "application/json"}
            )
            answer = self.client.getresponse()
            body = answer.read()
            if answer.status != 200:
                raise RuntimeError(f"the door answered {answer.status}: {body[:200]!r}")

        return send
