"""Where a router's file leaves a choice, the import takes the router's and lists the rest."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.errors import InputError
from dispatch.legacy.imports import Imported, ImportedPeer, read_file, read_own
from dispatch.legacy.imports.envoy import read_envoy
from dispatch.legacy.imports.nginx import read_nginx
from dispatch.legacy.imports.scenario import GPU, as_scenario
from dispatch.registry import shipped
from scenarios.load import load
from scenarios.schema import Scenario
from tests.legacy.test_legacy_imports import NGINX, envoy
from zerolayer.cli import main

UPSTREAMS = "upstream a { server x; } upstream b { server y; }\n"
MAPS = """map $http_x_model_hint $p { default a; llama b; }
map $http_x_precision_preference $q { default b; fp8 b; }
"""


@pytest.mark.parametrize(
    ("passes", "group"),
    [
        ("proxy_pass http://a;", "a"),
        ("proxy_pass http://b/v1/;", "b"),
        ("proxy_pass http://$p;", "a"),
        ("proxy_pass http://${q}/v1;", "b"),
        ("grpc_pass grpc://$q;", "b"),
        ("set $pool $q; proxy_pass http://$pool;", "b"),
        ("proxy_pass http://127.0.0.1:9; proxy_pass http://b;", "b"),
        ("proxy_pass http://b; proxy_pass http://$p;", "a"),
        ("", "a"),
    ],
)
def test_the_target_of_the_pass_decides_the_default_group(passes: str, group: str) -> None:
    text = f"{MAPS}{UPSTREAMS}server {{ location / {{ {passes} }} }}"
    assert read_nginx(text, "x.conf").settings["default_group"] == group


def test_the_default_of_the_map_that_does_not_decide_is_listed() -> None:
    text = f"{MAPS}{UPSTREAMS}server {{ location / {{ proxy_pass http://a; }} }}"
    left = {(row.place, row.what): row.why for row in read_nginx(text, "x.conf").left}
    assert left["x.conf:2", "default b"].startswith("default_group is 'a'")
    assert ("x.conf:1", "default a") not in left


def test_a_map_of_a_header_that_nothing_uses_is_listed() -> None:
    text = f"{MAPS}{UPSTREAMS}server {{ location / {{ proxy_pass http://$p; }} }}"
    unused = [row.what for row in read_nginx(text, "x.conf").left if "nothing here uses" in row.why]
    assert unused == ["map $http_x_precision_preference $q"]


def test_a_map_whose_default_is_the_other_map_leads_to_that_ones_default() -> None:
    text = (
        "map $http_x_model_hint $p { default $q; llama b; }\n"
        "map $http_x_precision_preference $q { default b; }\n"
        f"{UPSTREAMS}server {{ location / {{ proxy_pass http://$p; }} }}"
    )
    assert read_nginx(text, "x.conf").settings["default_group"] == "b"


@pytest.mark.parametrize("target", ["$loop", "$nowhere", "x$p", "127.0.0.1:80", "unix:/tmp/s"])
def test_a_target_that_the_file_does_not_tell_is_listed_and_sets_no_default(target: str) -> None:
    text = (
        "map $http_z $loop { default $loop; }\n"
        f"{UPSTREAMS}server {{ location / {{ proxy_pass http://{target}; }} }}"
    )
    found = read_nginx(text, "x.conf")
    assert "default_group" not in found.settings
    assert f"proxy_pass http://{target}" in {row.what for row in found.left}


def test_a_second_pass_to_another_upstream_is_listed() -> None:
    passes = "location / { proxy_pass http://a; } location /b { proxy_pass http://b; }"
    left = read_nginx(f"{UPSTREAMS}server {{ {passes} }}", "x.conf").left
    assert [row.what for row in left if "'a' was kept" in row.why] == ["proxy_pass http://b"]


def test_groups_that_no_upstream_has_are_listed() -> None:
    text = (
        "map $http_x_model_hint $p { default none; llama gone; }\n"
        "map $http_x_precision_preference $q { fp8 lost; }\n"
        f"{UPSTREAMS}server {{ location / {{ proxy_pass http://$p; }} }}"
    )
    what = {r.what for r in read_nginx(text, "x.conf").left if "no upstream of this" in r.why}
    assert what == {"default_group none", "model_groups gone", "fp8_group lost"}


def test_a_cluster_that_envoys_routes_name_and_nobody_defines_is_listed() -> None:
    assert "default_group rest" in {row.what for row in read_envoy(envoy(), "e.json").left}


def test_envoys_route_for_every_path_decides_wherever_it_stands() -> None:
    document = envoy()
    hosts = document["static_resources"]["listeners"][0]["route_config"]["virtual_hosts"]
    health = {"match": {"prefix": "/health"}, "route": {"cluster": "probe"}}
    hosts[0]["routes"].insert(0, health)
    found = read_envoy(document, "e.json")
    assert found.settings["default_group"] == "rest"
    assert "route to probe" in {row.what for row in found.left}


def test_what_is_said_twice_keeps_the_first_and_lists_the_other() -> None:
    text = UPSTREAMS + (
        "server { location / { proxy_pass http://a; proxy_next_upstream error;"
        " proxy_next_upstream_tries 2; proxy_read_timeout 5; }\n"
        "location /b { proxy_pass http://a; proxy_next_upstream timeout;"
        " proxy_next_upstream_tries 3; proxy_read_timeout 6; } }"
    )
    found = read_nginx(text, "x.conf")
    assert [found.settings[key] for key in ("retry_on", "retries", "timeout_s")] == ["fault", 1, 5]
    assert {row.what for row in found.left if row.place == "x.conf:3"} == {
        "proxy_next_upstream timeout",
        "proxy_next_upstream_tries 3",
        "proxy_read_timeout 6",
    }


def test_files_that_were_not_read_are_listed() -> None:
    text = f"include upstreams/*.conf; include mime.types; {UPSTREAMS}"
    what = {row.what for row in read_nginx(text, "x.conf").left}
    assert "include upstreams/*.conf" in what
    assert "include mime.types" not in what
    dumped = read_nginx(f"# configuration file /etc/nginx/x:\n{text}", "x.conf").left
    assert not [row for row in dumped if row.what.startswith("include")]


def _named(why: str) -> list[str]:
    """Return the policies that a reason names."""
    names = re.search(r"another policy: ([\w ]+)$|\(policy (\w+)\)", why)
    return (names[1] or names[2]).split(" or ") if names else []


def test_every_policy_that_an_import_names_is_registered() -> None:
    methods = "least_conn; ip_hash; hash x; random two; least_time header; sticky cookie c;"
    left = read_nginx(f"upstream a {{ {methods} server x; }}", "x.conf").left
    kinds = ("ROUND_ROBIN", "LEAST_REQUEST", "RANDOM", "RING_HASH", "MAGLEV")
    clusters = [{"name": kind, "lb_policy": kind} for kind in kinds]
    left += read_envoy(clusters, "e.json").left
    names = [_named(row.why) for row in left]
    assert len(names) == 11
    assert all(names)
    assert {name for row in names for name in row} <= set(shipped())
    assert _named(next(r.why for r in left if r.what == "least_conn")) == [
        "weighted_least_requests"
    ]


def test_a_folder_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder; name one configuration file"):
        read_file(tmp_path)


def test_a_configuration_in_utf_16_is_told_and_how_to_convert_it(tmp_path: Path) -> None:
    path = tmp_path / "n.conf"
    path.write_bytes(UPSTREAMS.encode("utf-16"))
    with pytest.raises(InputError, match=r"looks like UTF-16 text.*iconv -f UTF-16 -t UTF-8"):
        read_file(path)


def test_a_configuration_whose_lines_end_in_cr_alone_is_read(tmp_path: Path) -> None:
    path = tmp_path / "n.conf"
    path.write_bytes(b"# a comment\rupstream a { server x; }\r")
    assert read_file(path).peers == [ImportedPeer("a", "x")]


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_text_that_an_import_holds_survives_our_own_toml(group: str, address: str) -> None:
    first = Imported("x\n[config]", {"default_group": group}, [ImportedPeer(group, address)])
    again = read_own(first.as_toml(), "own.toml")
    assert (again.settings, again.peers) == (first.settings, first.peers)


def _scenario(path: Path, text: str) -> Scenario:
    path.write_text(text)
    return load(path)


def test_an_import_as_a_scenario_is_sound_once_its_gpus_are_filled_in(tmp_path: Path) -> None:
    found = read_nginx(NGINX, "x.conf")
    text = as_scenario(found)
    with pytest.raises(InputError, match="unknown gpu 'FILL-IN'"):
        _scenario(tmp_path / "s.toml", text)
    scenario = _scenario(tmp_path / "s.toml", text.replace(GPU, "A100-40G"))
    legacy, direct = scenario.arms
    assert (legacy.door.kind, direct.door.kind) == ("legacy", "direct")
    assert legacy.door.settings == found.settings
    pools = {(pool.group, pool.weight): pool.count for pool in scenario.fleet.pools}
    assert pools == {("small", 5): 1, ("small", 1): 1, ("big", 2): 1}
    assert "# drained, left out: 10.0.1.2:8000" in text
    assert "# max_conns 8" in text


def test_an_import_without_a_server_makes_no_scenario() -> None:
    found = read_nginx("upstream a { server x down; }", "x.conf")
    with pytest.raises(InputError, match="names no server that takes traffic"):
        as_scenario(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("upstream a { server x; }", "1 server carried over; nothing was left behind\n"),
        ("upstream a { server x; queue 9; }", "carried over; 1 thing not, or not as it was:\n"),
        ("upstream a { queue 9; ip_hash; server x; }", "2 things not, or not as it was:\n"),
    ],
)
def test_the_verb_says_properly_what_was_left(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "n.conf"
    path.write_text(text)
    with pytest.raises(SystemExit) as left:
        main(["legacy", "import", str(path)])
    assert left.value.code == 0
    assert said in capsys.readouterr().err


def test_the_settings_of_an_import_go_under_an_arms_door(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for key, code in (("arms.legacy.door.settings.retries=2", 0), ("arms.door.settings.x=2", 2)):
        with pytest.raises(SystemExit) as left:
            main(["scenarios", "show", "migration-2023q3", "--set", key])
        assert left.value.code == code
    capsys.readouterr()


@pytest.mark.parametrize(
    "text", ["upstream;", "map $x;", "worker_processes;", "proxy_read_timeout;", "upstream { }"]
)
def test_a_directive_without_its_words_is_refused_at_its_line(text: str) -> None:
    with pytest.raises(InputError, match=r"x\.conf:1: .* lacks a word"):
        read_nginx(f"{text} {UPSTREAMS}", "x.conf")


def test_blocks_nested_beyond_reason_are_refused() -> None:
    with pytest.raises(InputError, match="nested too deeply"):
        read_nginx("a {" * 5_000 + "}" * 5_000, "x.conf")


def _places(node: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = node.items() if isinstance(node, dict) else enumerate(node)
    below = [
        place
        for key, value in inner
        for place in (_places(value, (*way, key)) if isinstance(value, dict | list) else
                      [(*way, key)])
    ]  # fmt: skip
    return [way, *below] if way else below


@pytest.mark.parametrize("value", [None, [], {}, "x", 3, [3], {"a": 1}, True, -1.5], ids=str)
def test_a_field_of_another_kind_is_imported_or_refused_never_a_traceback(value: Any) -> None:
    refused = 0
    for place in _places(envoy()):
        document: Any = envoy()
        node = document
        for key in place[:-1]:
            node = node[key]
        node[place[-1]] = value
        try:
            found = read_envoy(document, "e.json")
            found.config()
            as_scenario(found)
        except InputError:
            refused += 1
    assert refused
