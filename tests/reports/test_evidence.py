"""The whole report of a stand-in run: what it says, and that three formats say the same."""

import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import synthetic_journal as sj

from dispatch.errors import InputError
from reports import evidence
from reports.html import LIMIT_BYTES

Run = tuple[Path, dict[str, Any]]


def text_of(run: Run, name: str) -> str:
    return (run[0] / name).read_text("utf-8")


def summary(run: Run) -> dict[str, Any]:
    return dict(json.loads(text_of(run, "summary.json")))


def test_every_file_of_a_run_folder_is_written(stand_in: Run) -> None:
    assert all((stand_in[0] / name).stat().st_size > 0 for name in evidence.FILES)


def test_the_page_opens_with_the_verdict(stand_in: Run) -> None:
    page = text_of(stand_in, "report.html")
    main = page[page.index("<main>") :]
    assert main.index(
        "Deleting the routing layer is safe with new placement; by itself there"
    ) < main.index("SLO by SLO")


def test_the_sections_come_in_the_order_of_what_a_reader_asks(stand_in: Run) -> None:
    page = text_of(stand_in, "report.md")
    titles = re.findall(r"^## (.*)$", page, re.M)
    wanted = ["Verdict", "Latency", "OOM, time-outs", "GPU utilisation", "Who got worse"]
    assert all(t.startswith(w) for t, w in zip(titles, wanted, strict=False))


def test_the_page_is_one_small_file_without_script_or_anything_from_elsewhere(
    stand_in: Run,
) -> None:
    page = text_of(stand_in, "report.html")
    assert len(page.encode()) < LIMIT_BYTES
    assert "<script" not in page
    outside = [u for u in re.findall(r'(?:src|href)="([^"#][^"]*)"', page) if "data:" not in u]
    assert outside == []
    assert "@import" not in page
    assert set(re.findall(r"https?://[^\"' )]+", page)) <= {"http://www.w3.org/1999/xlink"}


class Structure(HTMLParser):
    """What a screen reader hangs on: ids, headings, table headers, names of pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.refs: list[str] = []
        self.headings: list[int] = []
        self.bare_headers = 0
        self.pictures: list[dict[str, str | None]] = []
        self.lang = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if found.get("id"):
            self.ids.append(str(found["id"]))
        for name in ("aria-labelledby", "aria-describedby"):
            self.refs += str(found.get(name) or "").split()
        if str(found.get("href") or "").startswith("#"):
            self.refs.append(str(found["href"])[1:])
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "th" and found.get("scope") not in ("col", "row"):
            self.bare_headers += 1
        if tag == "svg":
            self.pictures.append(found)
        if tag == "html":
            self.lang = str(found.get("lang"))


def test_a_screen_reader_finds_its_way(stand_in: Run) -> None:
    page = Structure()
    page.feed(text_of(stand_in, "report.html"))
    assert page.lang == "en"
    assert len(page.ids) == len(set(page.ids))
    assert set(page.refs) <= set(page.ids)
    assert page.headings[0] == 1
    steps = pairwise(page.headings)
    assert all(b - a <= 1 for a, b in steps)
    assert page.bare_headers == 0
    assert page.pictures
    assert all(p.get("role") == "img" and p.get("aria-labelledby") for p in page.pictures)


def luminance(colour: str) -> float:
    if len(colour) == 4:
        colour = "#" + "".join(2 * c for c in colour[1:])
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1, 2], ids=["light", "dark", "print"])
def test_text_and_lines_stand_out_from_their_ground(stand_in: Run, theme: int) -> None:
    blocks = re.findall(r":root\{([^}]*)\}", text_of(stand_in, "report.html"))
    light, chosen = (dict(re.findall(r"--(\w+):(#\w{3,6})", b)) for b in (blocks[0], blocks[theme]))
    colours = light | chosen

    def contrast(name: str) -> float:
        pair = sorted((luminance(colours[name]), luminance(colours["bg"])))
        return (pair[1] + 0.05) / (pair[0] + 0.05)

    assert all(contrast(n) >= 4.5 for n in ("ink", "soft", "link", "good", "bad", "open"))
    assert all(contrast(f"s{i}") >= 3 for i in range(6))


def numbers_of_tables(markdown: str) -> list[str]:
    rows = [line for line in markdown.splitlines() if line.startswith("| ")]
    return re.findall(r"\d[\d,.]*", " ".join(rows))


def test_html_and_markdown_say_the_same(stand_in: Run) -> None:
    page = re.sub(r"<[^>]+>", " ", text_of(stand_in, "report.html")).replace("\u00a0", " ")
    missing = [n for n in numbers_of_tables(text_of(stand_in, "report.md")) if n not in page]
    assert missing == []


def test_pdf_holds_every_section_and_selectable_text(stand_in: Run) -> None:
    pages = (stand_in[0] / "report.pdf").read_bytes()
    assert pages.startswith(b"%PDF")
    assert b"/ToUnicode" in pages  # text, not outlines
    assert b"CreationDate" not in pages


def test_pdf_says_every_number_of_the_markdown(
    stand_in: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reports import pdf

    lines: list[str] = []
    real = pdf.page_text

    def listen(page: list[Any]) -> Any:
        lines.extend(line[0] for line in page)
        return real(page)

    monkeypatch.setattr(pdf, "page_text", listen)
    pdf.render(evidence.compose(evidence.analyse(*stand_in)), "")
    text = " ".join(lines)
    missing = [n for n in numbers_of_tables(text_of(stand_in, "report.md")) if n not in text]
    assert missing == []


def test_every_interval_is_named_with_its_level(stand_in: Run) -> None:
    assert "[95 % interval]" in text_of(stand_in, "report.md")


def test_the_summary_holds_both_arms_slo_by_slo(stand_in: Run) -> None:
    found = summary(stand_in)
    assert [e["key"] for e in found["slo"]] == ["ttft_p99", "tpot_p99", "e2e_p99", "oom_rate"]
    assert found["verdict"]["answer"] == "safe"
    assert found["verdict"]["binds"]


def test_failures_show_as_infinity_with_their_number(stand_in: Run) -> None:
    assert re.search(r"∞ \(\d+ failed\)", text_of(stand_in, "report.md"))


def test_offered_is_the_sum_of_all_outcomes(stand_in: Run) -> None:
    outcomes = summary(stand_in)["causes"]["outcomes"]
    for arm in outcomes.values():
        assert sum(sum(per_rep) for per_rep in arm.values()) == 5 * 1500


def test_the_timeline_is_a_chrome_trace_whose_slices_nest(stand_in: Run) -> None:
    whole = json.loads(gzip.decompress((stand_in[0] / "timeline.json.gz").read_bytes()))
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in whole["traceEvents"]:
        if event["ph"] == "X" and event["cat"] == "request":
            key = (event["pid"], event["tid"])
            tracks.setdefault(key, []).append((event["ts"], event["ts"] + event["dur"]))
    assert len(tracks) > 4
    for spans in tracks.values():
        spans.sort()
        assert all(b[0] >= a[1] - 1e-3 for a, b in pairwise(spans))
    kinds = {e["name"] for e in whole["traceEvents"] if e["ph"] == "C"}
    assert kinds == {"queue", "running", "KV cache bytes", "fragmentation"}
    assert max(e["ts"] for e in whole["traceEvents"] if "ts" in e) > 1e6  # microseconds


def test_a_capped_timeline_says_what_it_left_out(
    stand_in: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reports import tables, timeline

    monkeypatch.setattr(timeline, "MAX_REQUESTS", 100)
    monkeypatch.setattr(timeline, "MAX_COUNTERS", 400)
    whole = json.loads(gzip.decompress(timeline.render(tables.read_run(*stand_in))))
    told = " ".join(whole["otherData"]["left_out"])
    assert "the first 100 of 1,500 requests" in told
    assert "counters of one in" in told


def digests(folder: Path, hash_seed: str) -> dict[str, str]:
    code = (
        "import json,sys;from pathlib import Path;from reports import evidence;"
        "f=Path(sys.argv[1]);evidence.write(f,json.loads((f/'manifest.json').read_text()))"
    )
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, env=environment)
    return {n: hashlib.sha256((folder / n).read_bytes()).hexdigest() for n in evidence.FILES}


@pytest.mark.slow
def test_two_hash_seeds_give_the_same_bytes_in_every_file(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, n=300, replicates=2)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert digests(tmp_path, "1") == digests(tmp_path, "4711")


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"requests\.parquet"):
        evidence.analyse(tmp_path, {})


def test_arms_that_were_offered_different_requests_are_refused(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    manifest = sj.write(tmp_path, n=50, replicates=2)
    path = tmp_path / "requests.parquet"
    pq.write_table(pq.read_table(path).slice(1), path)
    with pytest.raises(InputError, match="differ in requests"):
        evidence.analyse(tmp_path, manifest)


def test_the_order_of_journal_rows_does_not_matter(tmp_path: Path) -> None:
    import numpy as np
    import pyarrow.parquet as pq

    manifest = sj.write(tmp_path, n=120, replicates=2)
    before = evidence.analyse(tmp_path, manifest).as_dict()
    for name in ("requests", "decisions", "devices"):
        path = tmp_path / f"{name}.parquet"
        table = pq.read_table(path)
        pq.write_table(table.take(np.random.default_rng(1).permutation(len(table))), path)
    assert evidence.analyse(tmp_path, manifest).as_dict() == before
