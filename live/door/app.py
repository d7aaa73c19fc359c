"""The ASGI application: routes, limits, and the answers of ``/v1/completions``."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from live.config import DoorLimits
from live.door.answer import Completions
from live.door.choices import Backend
from live.door.door import Door
from live.door.metrics import Gauge, Metrics
from live.door.openapi import describe
from live.door.protocol import ApiError


def build_app(
    backend: Backend,
    limits: DoorLimits,
    *,
    gauges: dict[str, tuple[str, Gauge]] | None = None,
    api_key: str = "",
) -> Starlette:
    """Return the application in front of *backend*."""
    metrics = Metrics(gauges or {})
    door = Door(backend, limits, metrics, api_key)

    async def models(request: HttpRequest) -> Response:
        entry = {
            "id": backend.model_name,
            "object": "model",
            "owned_by": "zerolayer",
            "created": 0,
            "context_tokens": backend.context_tokens,
            "vocab": backend.vocab,
        }
        return JSONResponse({"object": "list", "data": [entry]})

    async def health(request: HttpRequest) -> Response:
        devices = [{"name": name, "up": up} for name, up in backend.health()]
        up = any(device["up"] for device in devices) and not door.draining
        body = {"status": "ok" if up else "unavailable", "devices": devices}
        return JSONResponse(body, 200 if up else 503)

    async def page(request: HttpRequest) -> Response:
        return Response(metrics.page(), media_type=metrics.content_type)

    async def openapi(request: HttpRequest) -> Response:
        return JSONResponse(describe(backend.model_name, limits))

    app = Starlette(
        routes=[
            Route("/v1/completions", Completions(door), methods=["POST"]),
            Route("/v1/models", models),
            Route("/healthz", health),
            Route("/metrics", page),
            Route("/openapi.json", openapi),
        ],
        exception_handlers={HTTPException: _no_such_route},
    )
    app.state.door = door
    app.state.metrics = metrics
    return app


async def _no_such_route(request: HttpRequest, error: Exception) -> Response:
    """Answer a wrong path or method in the envelope that clients of this API expect."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}; see /openapi.json"
    envelope = ApiError(error.status_code, message, code="no_such_route").body
    return JSONResponse(envelope, error.status_code, headers=error.headers)
