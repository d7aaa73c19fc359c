"""A gate result as a table, JSON, JUnit XML, GitHub annotations and a step summary."""

import json
import math
import xml.etree.ElementTree as ET
from dataclasses import asdict
from typing import Any

from reports.gate.verdict import GateResult, Verdict

MARK = {Verdict.passed: "pass", Verdict.regression: "REGRESSION", Verdict.inconclusive: "unclear"}


def sentence(result: GateResult) -> str:
    """Return the one sentence a reviewer reads first."""
    bad = [c for c in result.checks if c.verdict is Verdict.regression]
    if bad:
        return "gate: REGRESSION: " + "; ".join(f"{c.name} {c.detail}" for c in bad)
    unclear = [c for c in result.checks if c.verdict is Verdict.inconclusive]
    if unclear:
        return "gate: inconclusive: " + "; ".join(f"{c.name} {c.detail}" for c in unclear)
    return f"gate: pass: {len(result.checks)} checks in {result.seconds:.1f} s"


def as_dict(result: GateResult) -> dict[str, Any]:
    """Return the result as JSON-able data; NaN becomes null."""
    checks = [
        {k: (None if isinstance(v, float) and math.isnan(v) else v) for k, v in asdict(c).items()}
        for c in result.checks
    ]
    return {
        "verdict": result.verdict.value,
        "sentence": sentence(result),
        "seconds": round(result.seconds, 3),
        "checks": checks,
        "manifest": result.manifest,
    }


def to_json(result: GateResult) -> str:
    """Return :func:`as_dict` as text."""
    return json.dumps(as_dict(result), indent=2, sort_keys=True) + "\n"


def to_junit(result: GateResult) -> str:
    """Return JUnit XML: one test case a check, the failure text a sentence."""
    bad = sum(c.verdict is Verdict.regression for c in result.checks)
    unclear = sum(c.verdict is Verdict.inconclusive for c in result.checks)
    suite = ET.Element(
        "testsuite",
        name="zerolayer gate",
        tests=str(len(result.checks)),
        failures=str(bad),
        skipped=str(unclear),
        time=f"{result.seconds:.3f}",
    )
    properties = ET.SubElement(suite, "properties")
    for key, value in sorted(result.manifest.items()):
        ET.SubElement(properties, "property", name=key, value=str(value))
    for check in result.checks:
        case = ET.SubElement(suite, "testcase", classname=f"gate.tier{check.tier}", name=check.name)
        text = f"{check.name} {check.detail}"
        if check.verdict is Verdict.regression:
            ET.SubElement(case, "failure", message=text).text = text
        elif check.verdict is Verdict.inconclusive:
            ET.SubElement(case, "skipped", message=text)
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def to_annotations(result: GateResult) -> str:
    """Return GitHub workflow commands, one for each check that did not pass."""
    lines = []
    for check in result.checks:
        if check.verdict is Verdict.passed:
            continue
        level = "error" if check.verdict is Verdict.regression else "warning"
        if math.isnan(check.estimate):
            title, text = f"{check.name} {MARK[check.verdict]}", check.detail
        else:
            title = f"{check.name} {check.detail}"
            ends = " → ".join(_value(v, check.unit) for v in (check.base, check.head))
            text = f"{MARK[check.verdict]}: {ends}" if check.unit else MARK[check.verdict]
        lines.append(f"::{level} title={_escape(title, property_=True)}::{_escape(text)}")
    return "\n".join(lines) + ("\n" if lines else "")


def to_markdown(result: GateResult) -> str:
    """Return the step summary: the sentence and a table."""
    rows = [f"### {sentence(result)}", "", "| tier | check | verdict | found |", "|-:|-|-|-|"]
    cells = ([cell.replace("|", "\\|") for cell in row] for row in table_rows(result))
    rows += [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join(rows) + "\n"


def _value(value: float, unit: str) -> str:
    if math.isnan(value):
        return ""
    if unit == "ns":
        return f"{value / 1e3:.2f} µs"
    return f"{value:,.4g} {unit}".strip()


def table_rows(result: GateResult) -> list[tuple[str, str, str, str]]:
    """Return rows (tier, check, verdict, what was found); equal exact cases share one row."""
    equal = [c for c in result.checks if c.tier == 0 and c.verdict is Verdict.passed]
    rows = []
    if equal:
        names = ", ".join(sorted({c.name.split("/")[0] for c in equal}))
        rows.append(("0", f"{len(equal)} simulated arms", "pass", f"equal ({names})"))
    for c in result.checks:
        if c in equal:
            continue
        ends = [_value(v, c.unit) for v in (c.base, c.head)]
        found = f"{' → '.join(ends)}: {c.detail}" if all(ends) else c.detail
        rows.append((str(c.tier), c.name, MARK[c.verdict], found))
    return rows


def _escape(text: str, *, property_: bool = False) -> str:
    """Escape as GitHub's workflow commands ask: newlines always, `:` and `,` in properties."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if property_ else text
