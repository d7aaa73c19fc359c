"""axe-core in a real headless Chromium: no serious finding, light and dark, wide and narrow.

Needs `chromium` on the path and axe-core's axe.min.js (npm) under node_modules or at $AXE_CORE;
skips with a reason without them, and fails instead where ZEROLAYER_AXE=required.
"""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
WAIT = "--virtual-time-budget=60000"
PROBE = """<script>%s</script><script>
document.querySelectorAll('details').forEach(d => { d.open = true });
axe.run(document, {resultTypes: ['violations']}).then(r => {
  const out = document.createElement('pre');
  out.id = 'axe-out';
  out.textContent = JSON.stringify(r.violations.map(v => [v.id, v.impact, v.nodes.length]));
  document.body.appendChild(out);
});
</script></body>"""


@pytest.fixture(scope="module")
def tools() -> tuple[str, Path]:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    default = ROOT / "node_modules" / "axe-core" / "axe.min.js"
    axe = Path(os.environ.get("AXE_CORE", default))
    if browser is None or not axe.is_file():
        message = "chromium or axe-core is not installed"
        if os.environ.get("ZEROLAYER_AXE") == "required":
            pytest.fail(message)
        pytest.skip(message)
    return browser, axe


@pytest.mark.slow
@pytest.mark.parametrize("width", [1440, 400])
@pytest.mark.parametrize("scheme", [0, 1], ids=["dark", "light"])
def test_axe_finds_nothing(
    stand_in: tuple[Path, dict[str, Any]],
    tools: tuple[str, Path],
    tmp_path: Path,
    width: int,
    scheme: int,
) -> None:
    browser, axe = tools
    page = (stand_in[0] / "report.html").read_text("utf-8")
    probe = tmp_path / "probe.html"
    probe.write_text(page.replace("</body>", PROBE % axe.read_text("utf-8")), "utf-8")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", WAIT, "--dump-dom",
        f"--blink-settings=preferredColorScheme={scheme}", f"--window-size={width},900",
        f"--user-data-dir={tmp_path / 'profile'}", probe.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    found = re.search(r'<pre id="axe-out">(.*?)</pre>', done.stdout, re.S)
    assert found is not None
    assert json.loads(html.unescape(found[1])) == []
