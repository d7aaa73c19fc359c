"""An OpenAPI description of the door, from which the tests draw malformed requests."""

from typing import Any

from dispatch.request import HINTS
from live.config import DoorLimits


def describe(model: str, limits: DoorLimits) -> dict[str, Any]:
    """Return the description as a JSON document."""
    whole = {"type": ["integer", "null"], "minimum": 1}
    ids = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
    strings = {"type": "array", "items": {"type": "string", "minLength": 1}}
    completion = {
        "type": "object",
        "required": ["model", "prompt"],
        "additionalProperties": False,
        "properties": {
            "model": {"type": "string", "enum": [model]},
            "prompt": {
                "anyOf": [
                    {"type": "string", "minLength": 1},
                    {**strings, "minItems": 1},
                    ids,
                    {"type": "array", "items": ids, "minItems": 1},
                ]
            },
            "max_tokens": whole,
            "n": {**whole, "maximum": 128},
            "best_of": whole,
            "stream": {"type": ["boolean", "null"]},
            "stream_options": {
                "type": ["object", "null"],
                "properties": {"include_usage": {"type": "boolean"}},
                "additionalProperties": False,
            },
            "stop": {"anyOf": [{"type": "null"}, {"type": "string"}, {**strings, "maxItems": 4}]},
            "echo": {"type": ["boolean", "null"]},
            "seed": {"type": ["integer", "null"]},
            "temperature": {"type": ["number", "null"], "minimum": 0, "maximum": 2},
            "output_tokens": whole,
            "ignore_eos": {"type": ["boolean", "null"]},
            "user": {"type": "string"},
        },
    }
    error = {"type": "object", "required": ["error"], "properties": {"error": {"type": "object"}}}
    answers = {
        str(status): {"description": text, "content": {"application/json": {"schema": error}}}
        for status, text in (
            (400, "the request does not hold"),
            (401, "no or a wrong API key"),
            (404, "no such model"),
            (408, "the reader is too slow"),
            (413, f"the body exceeds {limits.max_body_bytes} bytes"),
            (429, "too many requests inside the door"),
            (431, "headers too large"),
            (503, "no room, no device, out of memory, or shutting down"),
            (504, "no success before the deadline"),
        )
    }
    hint = {"name": "x-kernel-hint", "in": "header", "schema": {"enum": list(HINTS)}}
    post = {
        "parameters": [hint],
        "requestBody": {"content": {"application/json": {"schema": completion}}},
        "responses": {"200": {"description": "a completion, or its stream"}, **answers},
    }
    plain = {"get": {"responses": {"200": {"description": "ok"}}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "zerolayer door", "version": "1"},
        "paths": {
            "/v1/completions": {"post": post},
            "/v1/models": plain,
            "/healthz": plain,
            "/metrics": plain,
        },
    }
