"""Import Envoy clusters and the routes that lead to them, from JSON or YAML."""

import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from dispatch.errors import InputError
from dispatch.legacy.imports.result import Imported, ImportedPeer, another_policy, need

_HEADERS: Final = ("x-model-hint", "x-precision-preference")
_CARRIED: Final = {
    "name",
    "type",
    "load_assignment",
    "lb_policy",
    "outlier_detection",
    "circuit_breakers",
    "connect_timeout",
}
_POLICIES: Final = {
    "LEAST_REQUEST": ("envoy_least_request",),
    "RANDOM": ("random", "weighted_random"),
    "RING_HASH": ("session_affinity", "prefix_hash"),
    "MAGLEV": ("session_affinity", "prefix_hash"),
}
_RETRY: Final = {
    "5xx": "fault",
    "connect-failure": "fault",
    "reset": "fault",
    "gateway-error": "fault",
    "unavailable": "fault",
    "deadline-exceeded": "timeout",
    "resource-exhausted": "oom",
}


def load_document(text: str, place: str) -> Any:
    """Read JSON, or YAML where the yaml module can be imported; the module is no dependency."""
    try:
        return _read(text, place)
    except RecursionError:
        raise InputError.at(
            place, "is nested too deeply", "give one router's configuration"
        ) from None


def _read(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        json_error = error
    except ValueError as error:
        raise InputError.at(place, f"holds a number that is none of a router's: {error}") from None
    try:
        yaml = importlib.import_module("yaml")
    except ImportError:
        raise InputError.at(
            f"{place}:{json_error.lineno}",
            f"no JSON ({json_error.msg}), and the yaml module is not installed",
            "pip install pyyaml, or convert the file to JSON",
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError.at(place, "neither JSON nor YAML", " ".join(str(error).split())) from None


def read_envoy(document: Any, place: str) -> Imported:
    """Import the clusters of an Envoy bootstrap, a clusters list or one cluster."""
    found = Imported(place)
    with _plain_words(place):
        clusters = _clusters(document)
    need(bool(clusters), place, "no cluster", "give static_resources.clusters, or a list")
    fails: list[int] = []
    windows: list[float] = []
    for at, cluster in enumerate(clusters):
        where = f"{place}: clusters[{at}]"
        need(isinstance(cluster, dict) and "name" in cluster, where, "a cluster without a name")
        with _plain_words(where):
            _cluster(cluster, where, found, fails, windows)
    found.set_common("max_fails", fails, place)
    found.set_common("fail_timeout_s", windows, place)
    with _plain_words(place):
        routes = _routes(document, place)
    # The route that takes every path decides the default, wherever it stands.
    for where, route in sorted(routes, key=lambda item: not _takes_all(item[1]["match"])):
        with _plain_words(where):
            _route(route, where, found)
    found.check_groups("cluster")
    return found


@contextmanager
def _plain_words(where: str) -> Iterator[None]:
    """Say of a field of a kind that Envoy never has where it stands, instead of a traceback."""
    try:
        yield
    except RecursionError:
        raise InputError.at(
            where, "is nested too deeply", "give one router's configuration"
        ) from None
    except (TypeError, ValueError, AttributeError, LookupError, OverflowError) as error:
        raise InputError.at(
            where, f"has a field of an unexpected kind ({error})", "compare it with Envoy's schema"
        ) from None


def _clusters(document: Any) -> list[Any]:
    if isinstance(document, list):
        return document
    if not isinstance(document, dict):
        return []
    if "static_resources" in document:
        return list((document["static_resources"] or {}).get("clusters") or [])
    if "clusters" in document:
        return list(document["clusters"] or [])
    return [document] if "load_assignment" in document else []


def _cluster(
    cluster: dict[str, Any], where: str, found: Imported, fails: list[int], windows: list[float]
) -> None:
    policy = cluster.get("lb_policy", "ROUND_ROBIN")
    if policy != "ROUND_ROBIN":
        names = _POLICIES.get(policy)
        why = another_policy(*names) if names else "another policy; see `zerolayer policies`"
        found.leave(where, f"lb_policy {policy}", why)
    else:
        why = "Envoy's order is EDF (policy edf_wrr); shares are equal, sequences differ"
        found.leave(where, "the order within ROUND_ROBIN", why)
    limit = 0
    for row in (cluster.get("circuit_breakers") or {}).get("thresholds") or []:
        limit = int(row.get("max_requests") or row.get("max_connections") or limit)
        for key in sorted(set(row) - {"priority", "max_requests", "max_connections"}):
            found.leave(where, f"circuit_breakers.{key}", "no key does this")
    if limit:
        why = "a limit of the whole cluster; kept as each peer's limit"
        found.leave(where, f"circuit_breakers limit {limit}", why)
    outlier = cluster.get("outlier_detection")
    if outlier is not None:
        fails.append(int(outlier.get("consecutive_5xx", 5)))
        windows.append(duration_s(outlier.get("base_ejection_time", "30s"), where))
        for key in sorted(set(outlier) - {"consecutive_5xx", "base_ejection_time"}):
            found.leave(where, f"outlier_detection.{key}", "no key does this")
    for group in (cluster.get("load_assignment") or {}).get("endpoints") or []:
        for endpoint in group.get("lb_endpoints") or []:
            found.peers.append(_peer(cluster["name"], endpoint, limit, where))
        for key in sorted(set(group) & {"priority", "locality", "load_balancing_weight"}):
            found.leave(where, f"endpoints.{key}", "the round robin has no tiers or zones")
    for key in sorted(set(cluster) - _CARRIED):
        found.leave(where, key, "no key does this")
    if "connect_timeout" in cluster:
        found.leave(where, "connect_timeout", "one time-out an attempt")


def _peer(group: str, endpoint: dict[str, Any], limit: int, where: str) -> ImportedPeer:
    address = ((endpoint.get("endpoint") or {}).get("address") or {}).get("socket_address") or {}
    need("address" in address, where, "an endpoint without a socket address")
    health = endpoint.get("health_status", "UNKNOWN")
    return ImportedPeer(
        group=str(group),
        address=f"{address['address']}:{address.get('port_value', 0)}",
        weight=float(endpoint.get("load_balancing_weight", 1)),
        max_conns=limit,
        down=health in ("UNHEALTHY", "DRAINING", "TIMEOUT"),
    )


def _routes(node: Any, place: str) -> list[tuple[str, dict[str, Any]]]:
    """Find every route entry (a dict with ``match`` and ``route``) at any depth, in order."""
    if isinstance(node, dict):
        if "match" in node and "route" in node:
            return [(place, node)]
        inner = [(f"{place}.{key}", value) for key, value in node.items()]
    elif isinstance(node, list):
        inner = [(f"{place}[{at}]", value) for at, value in enumerate(node)]
    else:
        return []
    return [found for where, value in inner for found in _routes(value, where)]


def _takes_all(match: Any) -> bool:
    return isinstance(match, dict) and match.get("prefix") == "/" and not match.get("headers")


def _route(entry: dict[str, Any], where: str, found: Imported) -> None:
    route, match = entry["route"], entry["match"]
    if "timeout" in route:
        timeout = route["timeout"]
        found.settle("timeout_s", duration_s(timeout, where), where, f"timeout {timeout}")
    if retry := route.get("retry_policy"):
        tries = int(retry.get("num_retries", 1))
        found.settle("retries", tries, where, f"num_retries {tries}")
        found.settings["retry_non_idempotent"] = True  # Envoy retries POST like any other request
        wanted = str(retry.get("retry_on", "5xx"))
        classes = [part.strip() for part in wanted.split(",")]
        known = [_RETRY[name] for name in classes if name in _RETRY]
        found.settle("retry_on", ",".join(dict.fromkeys(known)), where, f"retry_on {wanted}")
        for name in classes:
            if name not in _RETRY:
                found.leave(where, f"retry_on {name}", "retries know fault, timeout and oom")
    cluster = route.get("cluster")
    if cluster is None:
        found.leave(where, ", ".join(sorted(route)), "only routes to one named cluster")
        return
    headers = match.get("headers") or []
    if not headers:
        found.settle("default_group", cluster, where, f"route to {cluster}")
        return
    header = headers[0]
    value = header.get("exact_match") or (header.get("string_match") or {}).get("exact")
    if len(headers) > 1 or header.get("name") not in _HEADERS or value is None:
        found.leave(where, f"match on {header.get('name')}", "only exact matches of one header")
    elif header["name"] == _HEADERS[0]:
        found.add_rule(value, cluster, where)
    elif value.lower() in ("fp16", "bf16", "fp8", "int4"):
        found.settle(f"{value.lower()}_group", cluster, where, f"{value} to {cluster}")
    else:
        found.leave(where, f"precision {value}", "no group key for this precision")


def duration_s(value: Any, where: str) -> float:
    """Read a protobuf JSON duration such as ``1.5s``."""
    text = str(value)
    number = text[:-1] if text.endswith("s") else text
    try:
        return float(number)
    except ValueError:
        raise InputError.at(where, f"{text!r} is no duration", "write seconds as 30s") from None
