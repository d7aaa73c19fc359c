"""The JSON-RPC 2.0 envelope in which a job crosses from the router to a worker."""

import json
from dataclasses import fields
from typing import Final

from live.sequence import Job

_NAMES: Final = tuple(one.name for one in fields(Job))


def envelope(job: Job) -> str:
    """Wrap *job* as a JSON-RPC 2.0 call."""
    params = {name: getattr(job, name) for name in _NAMES}  # asdict would copy token by token
    return json.dumps({"jsonrpc": "2.0", "id": job.id, "method": "generate", "params": params})


def job_of(json_rpc: str) -> Job:
    """Read the job of a JSON-RPC 2.0 call of method ``generate``."""
    call = json.loads(json_rpc)
    if call["jsonrpc"] != "2.0" or call["method"] != "generate":
        raise ValueError("not a JSON-RPC 2.0 call of method generate")
    return Job(**call["params"])
