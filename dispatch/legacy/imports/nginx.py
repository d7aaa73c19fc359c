"""Import nginx upstream blocks, the header maps beside them, and the proxy directives."""

import re
from collections.abc import Callable
from typing import Final

from dispatch.legacy.imports.lexer import Directive, parse
from dispatch.legacy.imports.passes import HEADERS, choose_default
from dispatch.legacy.imports.result import Imported, ImportedPeer, another_policy, need

_SECONDS: Final = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_METHODS: Final = {
    "least_conn": another_policy("weighted_least_requests"),
    "ip_hash": another_policy("session_affinity"),
    "hash": another_policy("prefix_hash", "session_affinity"),
    "random": another_policy("weighted_random", "weighted_p2c"),
    "least_time": another_policy("latency_ewma"),
    "sticky": another_policy("session_affinity"),
    "keepalive": "connections are kept by the workers' channel",
    "keepalive_requests": "connections are kept by the workers' channel",
    "keepalive_timeout": "connections are kept by the workers' channel",
    "ntlm": "no authenticated upstream connections here",
    "queue": "the router does not queue; see the wait section's hold_limit",
    "slow_start": "a device takes its full weight at once",
}
_WORDS: Final = {
    "upstream": 1, "map": 2, "worker_processes": 1, "proxy_read_timeout": 1,
    "grpc_read_timeout": 1, "proxy_next_upstream_tries": 1, "grpc_next_upstream_tries": 1,
}  # fmt: skip
_NEXT: Final = {"error": "fault", "timeout": "timeout", "http_503": "oom"}


def read_nginx(text: str, place: str) -> Imported:
    """Import nginx *text*; weights, failure limits, retries, time-outs and header maps."""
    root = parse(text, place)
    found = Imported(place)
    for name, least in _WORDS.items():
        for item in root.all(name):
            way_out = f"write what {name} needs"
            need(len(item.words) > least, f"{place}:{item.line}", f"{name} lacks a word", way_out)
    upstreams = list(root.all("upstream"))
    need(bool(upstreams), place, "no upstream block", "give the file that holds them")
    max_fails: list[int] = []
    fail_timeouts: list[float] = []
    for upstream in upstreams:
        for item in upstream.block or []:
            where = f"{place}:{item.line}"
            if item.name == "server":
                _server(item, upstream.words[1], where, found, max_fails, fail_timeouts)
            elif item.name != "zone":
                why = _METHODS.get(item.name, "no key of the legacy configuration does this")
                found.leave(where, " ".join(item.words), why)
    found.set_common("max_fails", max_fails, place)
    found.set_common("fail_timeout_s", fail_timeouts, place)
    _processes(root, upstreams, place, found)
    _maps(root, place, found)
    choose_default(root, place, found)
    _proxy(root, place, found)
    found.check_groups("upstream")
    whole = "# configuration file " in text  # `nginx -T` prints what is included after that
    for item in root.all("include"):
        if not whole and not item.words[-1].endswith(("mime.types", "_params")):
            why = "what it includes was not read; import the output of `nginx -T`"
            found.leave(f"{place}:{item.line}", " ".join(item.words), why)
    return found


def seconds(text: str, place: str) -> float:
    """Read an nginx time such as ``10s``, ``1m 30s`` or ``500ms``."""
    parts = re.findall(r"(\d+)(ms|[smhd])?", text)
    need("".join(n + u for n, u in parts) == text.replace(" ", ""), place, f"{text!r} is no time")
    return sum(int(number) * _SECONDS[unit or "s"] for number, unit in parts)


def _server(
    item: Directive,
    group: str,
    where: str,
    found: Imported,
    max_fails: list[int],
    fail_timeouts: list[float],
) -> None:
    need(len(item.words) > 1, where, "server without an address")
    options = dict(word.partition("=")[::2] for word in item.words[2:])
    weight, conns = _whole(options.pop("weight", "1"), where), options.pop("max_conns", "0")
    need(weight > 0, where, "weight=0 is an error in nginx", "use 'down' to drain a server")
    max_fails.append(_whole(options.pop("max_fails", "1"), where))
    fail_timeouts.append(seconds(options.pop("fail_timeout", "10s"), where))
    down = options.pop("down", None) is not None
    backup = options.pop("backup", None) is not None
    peer = ImportedPeer(group, item.words[1], weight, _whole(conns, where), down, backup)
    found.peers.append(peer)
    if backup:
        found.leave(where, "backup", "kept on the peer; the round robin has no second tier")
    for name, value in options.items():
        text = f"{name}={value}" if value else name
        found.leave(where, text, _METHODS.get(name, "no key does this"))


def _whole(text: str, where: str) -> int:
    need(text.isdecimal(), where, f"{text!r} is no whole number")
    return int(text)


def _processes(root: Directive, upstreams: list[Directive], place: str, found: Imported) -> None:
    shared = [u for u in upstreams if any(item.name == "zone" for item in u.block or [])]
    for item in root.all("worker_processes"):
        if len(shared) == len(upstreams):
            continue  # one shared state, whatever the number of processes
        if item.words[1].isdecimal():
            found.settings["worker_processes"] = int(item.words[1])
        else:
            why = "the number of cores of that machine is not in the file"
            found.leave(f"{place}:{item.line}", " ".join(item.words), why)


def _maps(root: Directive, place: str, found: Imported) -> None:
    for item in root.all("map"):
        where = f"{place}:{item.line}"
        kind = HEADERS.get(item.words[1])
        if kind is None:
            why = "only maps of the two headers have keys"
            found.leave(where, " ".join(item.words), why)
            continue
        for row in item.block or []:
            line = f"{place}:{row.line}"
            if row.name == "default" and len(row.words) == 2:
                continue  # which default counts hangs on where requests are passed
            if len(row.words) != 2 or "$" in row.words[1]:
                found.leave(line, " ".join(row.words), "not a plain pair")
            elif row.name.startswith("~"):
                found.leave(line, row.name, "regular expressions; the table takes shell patterns")
            elif kind == "model":
                found.add_rule(row.name, row.words[1], line)
            elif row.name.lower() in ("fp16", "bf16", "fp8", "int4"):
                key = f"{row.name.lower()}_group"
                found.settle(key, row.words[1], line, " ".join(row.words))
            else:
                found.leave(line, row.name, "no group key for this precision")


def _proxy(root: Directive, place: str, found: Imported) -> None:
    readers: dict[str, Callable[[Directive, str, Imported], None]] = {
        "proxy_read_timeout": _timeout,
        "grpc_read_timeout": _timeout,
        "proxy_next_upstream": _next,
        "grpc_next_upstream": _next,
        "proxy_next_upstream_tries": _tries,
        "grpc_next_upstream_tries": _tries,
    }
    for name, read in readers.items():
        for item in root.all(name):
            read(item, f"{place}:{item.line}", found)
    for name in ("proxy_connect_timeout", "proxy_send_timeout", "proxy_next_upstream_timeout"):
        for item in root.all(name):
            found.leave(f"{place}:{item.line}", " ".join(item.words), "one time-out an attempt")


def _timeout(item: Directive, where: str, found: Imported) -> None:
    found.settle("timeout_s", seconds(item.words[1], where), where, " ".join(item.words))


def _next(item: Directive, where: str, found: Imported) -> None:
    words = item.words[1:]
    classes = [_NEXT[word] for word in words if word in _NEXT]
    found.settle("retry_on", ",".join(dict.fromkeys(classes)), where, " ".join(item.words))
    found.settle("retry_non_idempotent", "non_idempotent" in words, where, " ".join(item.words))
    for word in words:
        if word not in (*_NEXT, "off", "non_idempotent"):
            found.leave(where, word, "retries know fault, timeout and oom")


def _tries(item: Directive, where: str, found: Imported) -> None:
    tries = _whole(item.words[1], where)
    if tries == 0:
        found.leave(where, "tries 0", "nginx tries every server; retries here are a number")
        return
    found.settle("retries", tries - 1, where, " ".join(item.words))
