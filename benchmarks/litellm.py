"""What a general proxy adds: ``python -m benchmarks.litellm PATH/TO/litellm [--calls 300]``.

Beside LiteLLM's proxy (``pip install 'litellm[proxy]'``, best in an environment of its own) before
the same engine: a door of ours over an engine that answers at once. Theirs is the round trip
through the proxy minus the round trip without it, in interleaved rounds of one client. Ours is
counted against us: the whole round trip through our door, HTTP server and client included. Prints
both at p50 and p99, their ratios, and the bar, 0.25; exit code 1 where it is missed.
"""

import argparse
import asyncio
import json
import os
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from live.bench import InstantBackend, request_s
from live.config import LiveConfig
from live.door.app import build_app
from live.serve import listen

BAR = 0.25
ROUNDS = 10
ENVIRONMENT = {  # no network, no log, and no key to check: all in its favour
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOG": "ERROR",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
}
SETUP = """
model_list:
  - model_name: tiny
    litellm_params:
      model: text-completion-openai/tiny
      api_base: {url}/v1
      api_key: none
"""


@asynccontextmanager
async def proxy(executable: str, engine_url: str, port: int) -> AsyncIterator[str]:
    """Run LiteLLM's proxy before *engine_url*; yields its URL once it answers."""
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        setup = Path(folder) / "proxy.yaml"
        setup.write_text(SETUP.format(url=engine_url))
        command = [executable, "--config", str(setup), "--host", "127.0.0.1", "--port", str(port)]
        environment = {**os.environ, **ENVIRONMENT}
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            await _answers(url, process)
            yield url
        finally:
            process.terminate()
            process.wait(30)


async def _answers(url: str, process: "subprocess.Popen[bytes]") -> None:
    limit = time.monotonic() + 600  # it imports much
    async with httpx.AsyncClient(timeout=5) as http:
        while True:
            try:
                if (await http.get(f"{url}/health/liveliness")).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            if process.poll() is not None or time.monotonic() > limit:
                raise SystemExit(f"the proxy does not answer at {url} (exit {process.poll()})")
            await asyncio.sleep(0.5)


async def measure(executable: str, calls: int, port: int) -> dict[str, Any]:
    """Return what both add, and whether the bar holds."""
    config = LiveConfig()
    app = build_app(InstantBackend(), config.limits)
    ours: list[float] = []
    theirs: list[float] = []
    async with listen(app, "127.0.0.1", 0, config) as (_, url), proxy(executable, url, port) as via:
        await request_s(via, 20)  # warm
        for _ in range(ROUNDS):
            ours += (await request_s(url, calls // ROUNDS))[0]
            theirs += (await request_s(via, calls // ROUNDS))[0]
    found: dict[str, Any] = {"calls": calls, "bar": BAR}
    for name, quantile in (("p50", 0.5), ("p99", 0.99)):
        alone, through = (float(np.quantile(t, quantile)) * 1e3 for t in (ours, theirs))
        added = through - alone
        found[name] = {"ours_ms": alone, "theirs_ms": added, "ratio": alone / added}
    found["holds"] = all(0 < found[name]["ratio"] <= BAR for name in ("p50", "p99"))
    return found


def main() -> int:
    """Print the figures and the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("executable")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--port", type=int, default=4321)
    asked = parser.parse_args()
    found = asyncio.run(measure(asked.executable, asked.calls, asked.port))
    print(json.dumps(found, indent=1))
    return 0 if found["holds"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
