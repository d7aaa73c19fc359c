"""One answer of ``/v1/completions``: body in, limits, whole or stream out, errors told once."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

from live.door.choices import Choice, Choices, Piece
from live.door.door import Door
from live.door.protocol import ApiError, Ask, parse

_LOG = logging.getLogger(__name__)

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Scope = MutableMapping[str, Any]


class Completions:
    """ASGI endpoint of ``/v1/completions``; one instance serves all requests."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await _Answer(self._door, scope, receive, send).run(time.monotonic())


class _Answer:
    def __init__(self, door: Door, scope: Scope, receive: Receive, send: Send) -> None:
        self.door = door
        self.receive = receive
        self.send = send
        raw = scope["headers"]
        self.size = sum(len(name) + len(value) for name, value in raw)
        self.headers = {n.decode("latin-1").lower(): v.decode("latin-1") for n, v in raw}
        self.id = self.headers.get("x-request-id", "")[:128] or uuid4().hex
        self.begun = False

    async def run(self, received_s: float) -> None:
        door = self.door
        door.inside += 1
        choices: Choices | None = None
        try:
            if self.size > door.limits.max_header_bytes:
                raise ApiError(431, "the headers are too large", code="headers_too_large")
            door.inside -= 1
            try:
                door.admit(self.headers)
            finally:
                door.inside += 1
            ask = self._parse(await self._body())
            choices = Choices(ask, door.backend, door.metrics, received_s)
            choices.open()
            await self._while_connected(self._answer(ask, choices))
        except ApiError as error:
            await self._fail(error)
        except (_ClientLeft, ConnectionError):
            pass  # nobody is there to be told
        except Exception:  # a fault of ours: told to the caller as one, and to the log in full
            _LOG.exception("request %s failed inside the door", self.id)
            message = "the door failed; its log says more"
            await self._fail(ApiError(500, message, type="server_error", code="internal_error"))
        finally:
            door.inside -= 1
            if choices is not None:
                choices.close()

    def _parse(self, raw: bytes) -> Ask:
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            raise ApiError(400, "the body is no JSON", code="invalid_json") from None
        backend = self.door.backend
        return parse(
            body,
            self.headers,
            model=backend.model_name,
            context_tokens=backend.context_tokens,
            vocab=backend.vocab,
            default_max_tokens=self.door.limits.default_max_tokens,
        )

    async def _body(self) -> bytes:
        limit = self.door.limits.max_body_bytes
        declared = self.headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > limit:
            raise ApiError(413, f"the body exceeds {limit} bytes", code="body_too_large")
        chunks, size = [], 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise _ClientLeft
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise ApiError(413, f"the body exceeds {limit} bytes", code="body_too_large")
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)

    async def _while_connected(self, answer: Awaitable[None]) -> None:
        """Run *answer*; drop it at once when the client goes."""
        task = asyncio.ensure_future(answer)
        watch = asyncio.ensure_future(self._gone())
        try:
            await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise _ClientLeft
            await task
        finally:
            for each in (task, watch):
                each.cancel()
                with suppress(asyncio.CancelledError, ApiError, ConnectionError):
                    await each

    async def _gone(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def _answer(self, ask: Ask, choices: Choices) -> None:
        if ask.stream:
            await self._stream(ask, choices)
        else:
            await self._whole(ask, choices)

    async def _whole(self, ask: Ask, choices: Choices) -> None:
        done = []
        for choice in choices.items:
            texts, reason = [], None
            async for piece in choices.pieces(choice):
                texts.append(piece.text)
                reason = piece.finish_reason
            done.append(_choice(choice.index, "".join(texts), reason))
        body = {**self._head(ask), "choices": done, "usage": choices.usage()}
        payload = json.dumps(body).encode()
        await self._start(200, "application/json", choices, len(payload))
        await self.send({"type": "http.response.body", "body": payload})

    async def _stream(self, ask: Ask, choices: Choices) -> None:
        head = self._head(ask)
        merged: asyncio.Queue[Piece | ApiError] = asyncio.Queue(1)
        followers = [asyncio.ensure_future(_follow(choices, c, merged)) for c in choices.items]
        left = len(followers)
        try:
            while left:
                piece = await merged.get()
                if isinstance(piece, ApiError):
                    raise piece
                left -= piece.finish_reason is not None
                if not self.begun:
                    await self._start(200, "text/event-stream; charset=utf-8", choices)
                body: dict[str, Any] = {
                    **head,
                    "choices": [_choice(piece.index, piece.text, piece.finish_reason)],
                }
                # The last chunk bears the two figures whether or not usage was asked for.
                body["usage"] = None if left else choices.usage()
                await self._event(body)
            if ask.include_usage:
                await self._event({**head, "choices": [], "usage": choices.usage()})
            await self.send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
        finally:
            for follower in followers:
                follower.cancel()

    async def _event(self, body: dict[str, Any]) -> None:
        data = b"data: " + json.dumps(body).encode() + b"\n\n"
        await self.send({"type": "http.response.body", "body": data, "more_body": True})

    async def _start(
        self, status: int, kind: str, choices: Choices, length: int | None = None
    ) -> None:
        self.begun = True
        headers = [
            (b"content-type", kind.encode()),
            (b"x-request-id", self.id.encode("latin-1", "replace")),
            (b"x-handling-time-ms", f"{choices.handling_s * 1e3:.4f}".encode()),
        ]
        if choices.ask.hint:
            headers.append((b"x-kernel-hint", choices.ask.hint.encode()))
        if length is None:
            headers += [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        else:
            headers.append((b"content-length", str(length).encode()))
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def _fail(self, error: ApiError) -> None:
        self.door.metrics.errors.labels(str(error.status)).inc()
        payload = json.dumps(error.body).encode()
        with suppress(ConnectionError):
            if self.begun:  # the status is out already: say it in the stream, then close
                data = b"data: " + payload + b"\n\n"
                await self.send({"type": "http.response.body", "body": data})
                return
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(payload)).encode()),
                (b"x-request-id", self.id.encode("latin-1", "replace")),
            ]
            if error.status in (413, 431):
                headers.append((b"connection", b"close"))
            if error.retry_after_s is not None:
                headers.append((b"retry-after", str(error.retry_after_s).encode()))
            start = {"type": "http.response.start", "status": error.status, "headers": headers}
            await self.send(start)
            await self.send({"type": "http.response.body", "body": payload})

    def _head(self, ask: Ask) -> dict[str, Any]:
        return {
            "id": f"cmpl-{self.id}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": ask.model,
        }


async def _follow(
    choices: Choices, choice: Choice, merged: "asyncio.Queue[Piece | ApiError]"
) -> None:
    try:
        async for piece in choices.pieces(choice):
            await merged.put(piece)
    except ApiError as error:
        await merged.put(error)


class _ClientLeft(Exception):
    """The client closed the connection."""


def _choice(index: int, text: str, reason: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": reason}
