"""``zerolayer bench``: how fast dispatch, the simulator and the live path are on this machine."""

from cyclopts import App

app = App(name="bench", help="Measure dispatch, simulation and the live path on this machine.")

# By import path, so that --help loads none of their libraries.
_BENCHES = {
    "dispatch": "zerolayer.verbs.bench_dispatch:dispatch",
    "sim": "zerolayer.verbs.bench_sim:sim",
    "live": "zerolayer.verbs.bench_live:live",
}
for _name, _path in _BENCHES.items():
    app.command(_path, name=_name)
