"""Configurations of real routers come in, and what does not fit is listed."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dispatch.errors import InputError
from dispatch.legacy.imports import ImportedPeer, read_file, read_own
from dispatch.legacy.imports.envoy import load_document, read_envoy
from dispatch.legacy.imports.nginx import read_nginx, seconds

NGINX = """
worker_processes 4;
http {
  map $http_x_model_hint $pool { default small; llama-2-70b big; "~^mistral" big; }
  map $http_x_precision_preference $pool2 { bf16 big; tf32 big; }
  upstream small {
    server 10.0.0.1:8000 weight=5 max_fails=2 fail_timeout=20s;   # a comment; with { braces }
    server 10.0.0.2:8000 max_conns=8 max_fails=2 fail_timeout=20s slow_start=30s;
  }
  upstream big {
    least_conn;
    server 10.0.1.1:8000 weight=2 max_fails=3 fail_timeout=20s;
    server 10.0.1.2:8000 down max_fails=2 fail_timeout=20s;
  }
  server { location / { proxy_pass http://$pool; proxy_read_timeout 90s;
    proxy_next_upstream error timeout http_404 non_idempotent; proxy_next_upstream_tries 3; } }
}
"""


def test_nginx_weights_limits_and_drained_servers_come_over() -> None:
    assert read_nginx(NGINX, "x.conf").peers == [
        ImportedPeer("small", "10.0.0.1:8000", 5),
        ImportedPeer("small", "10.0.0.2:8000", 1, max_conns=8),
        ImportedPeer("big", "10.0.1.1:8000", 2),
        ImportedPeer("big", "10.0.1.2:8000", 1, down=True),
    ]


def test_nginx_maps_time_outs_and_retries_become_keys() -> None:
    found = read_nginx(NGINX, "x.conf")
    assert found.settings == {
        "max_fails": 2,
        "fail_timeout_s": 20.0,
        "worker_processes": 4,
        "default_group": "small",
        "model_groups": "llama-2-70b=big",
        "bf16_group": "big",
        "timeout_s": 90.0,
        "retry_on": "fault,timeout",
        "retry_non_idempotent": True,
        "retries": 2,
    }


def test_what_nginx_says_beyond_the_keys_is_listed_with_its_line() -> None:
    left = {(row.place, row.what) for row in read_nginx(NGINX, "x.conf").left}
    assert ("x.conf:11", "least_conn") in left
    assert ("x.conf:8", "slow_start=30s") in left
    assert ("x.conf:4", "~^mistral") in left
    assert ("x.conf:5", "tf32") in left
    assert ("x.conf:16", "http_404") in left
    assert ("x.conf", "max_fails 3") in left


def test_a_shared_zone_makes_one_round_robin_of_many_processes() -> None:
    text = "worker_processes 8; upstream a { zone a 64k; server x; }"
    assert "worker_processes" not in read_nginx(text, "x").settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("upstream a { server x weight=0; }", "weight=0 is an error in nginx"),
        ("upstream a { server x }", "unexpected '}'"),
        ("upstream a { server x;", "the file ends inside a block"),
        ('upstream a { server "x; }', "a quote is not closed"),
        ("server { listen 80; }", "no upstream block"),
        ("upstream a { server x weight=two; }", "'two' is no whole number"),
    ],
)
def test_a_broken_nginx_file_is_refused_with_its_reason(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_nginx(text, "x.conf")


def test_nginx_times_are_read_in_their_units() -> None:
    assert [seconds(t, "") for t in ("10", "10s", "500ms", "1m 30s")] == [10, 10, 0.5, 90]


def envoy() -> dict[str, Any]:
    def endpoint(host: str, **more: Any) -> dict[str, Any]:
        address = {"socket_address": {"address": host, "port_value": 80}}
        return {"endpoint": {"address": address}, **more}

    cluster = {
        "name": "big",
        "lb_policy": "MAGLEV",
        "http2_protocol_options": {},
        "circuit_breakers": {"thresholds": [{"max_requests": 9, "max_retries": 3}]},
        "outlier_detection": {"consecutive_5xx": 4, "base_ejection_time": "12s"},
        "load_assignment": {
            "endpoints": [
                {
                    "lb_endpoints": [
                        endpoint("a", load_balancing_weight=3),
                        endpoint("b", health_status="DRAINING"),
                    ]
                }
            ]
        },
    }
    hint = {"name": "x-model-hint", "string_match": {"exact": "llama-2-70b"}}
    precision = {"name": "x-precision-preference", "exact_match": "fp8"}
    retry = {"num_retries": 2, "retry_on": "5xx,retriable-4xx"}
    routes = [
        {"match": {"headers": [hint]}, "route": {"cluster": "big", "timeout": "45s"}},
        {"match": {"headers": [precision]}, "route": {"cluster": "big", "retry_policy": retry}},
        {"match": {"prefix": "/"}, "route": {"cluster": "rest"}},
        {"match": {"prefix": "/x"}, "route": {"weighted_clusters": {}}},
    ]
    listeners = [{"route_config": {"virtual_hosts": [{"routes": routes}]}}]
    return {"static_resources": {"clusters": [cluster], "listeners": listeners}}


def test_envoy_clusters_become_peers() -> None:
    assert read_envoy(envoy(), "e.json").peers == [
        ImportedPeer("big", "a:80", 3.0, 9),
        ImportedPeer("big", "b:80", 1.0, 9, down=True),
    ]


def test_envoy_routes_on_the_two_headers_become_keys() -> None:
    assert read_envoy(envoy(), "e.json").settings == {
        "max_fails": 4,
        "fail_timeout_s": 12.0,
        "timeout_s": 45.0,
        "model_groups": "llama-2-70b=big",
        "retries": 2,
        "retry_non_idempotent": True,
        "retry_on": "fault",
        "fp8_group": "big",
        "default_group": "rest",
    }


def test_what_envoy_says_beyond_the_keys_is_listed() -> None:
    what = {row.what for row in read_envoy(envoy(), "e.json").left}
    assert {
        "lb_policy MAGLEV",
        "http2_protocol_options",
        "circuit_breakers.max_retries",
        "retry_on retriable-4xx",
        "weighted_clusters",
    } <= what


def test_envoy_yaml_is_read_where_yaml_can_be_imported() -> None:
    yaml = pytest.importorskip("yaml")
    text = yaml.safe_dump(envoy())
    assert read_envoy(load_document(text, "e"), "e") == read_envoy(envoy(), "e")


def test_without_yaml_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(InputError, match="pip install pyyaml, or convert the file to JSON"):
        load_document("a: [1", "e.yaml")


def test_an_import_written_as_our_own_toml_reads_back_the_same(tmp_path: Path) -> None:
    path = tmp_path / "e.json"
    path.write_text(json.dumps(envoy()))
    first = read_file(path)
    again = read_own(first.as_toml(), "own.toml")
    assert (again.settings, again.peers, again.left) == (first.settings, first.peers, [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[config]\nmax_fail = 1", "did you mean max_fails"),
        ("[other]", "unknown table other"),
        ("[[peer]]\nweight = 1", "a peer without an address"),
        ("[[peer]]\naddress = 'x'\nwait = 1", "unknown key wait"),
        ("[config", "no TOML"),
    ],
)
def test_a_broken_file_of_ours_is_refused_with_its_reason(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_own(text, "own.toml")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_file(tmp_path / "none.conf")


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000])
def test_a_file_nested_beyond_reason_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="nested too deeply"):
        load_document(text, "deep.json")
