"""The command line: verbs by name, one error path, exit codes as documented.

0 holds, 1 does not hold, 2 wrong use or bad input, 3 inconclusive, 4 base not measurable.
"""

import sys

from cyclopts import App

from zerolayer import __version__

app = App(
    name="zerolayer",
    help="Test, on your own traffic, whether an LLM routing layer can be deleted.",
    version=__version__,
)

# Verbs are named by import path, so that --help loads none of their libraries.
_VERBS = {
    "evidence": "zerolayer.verbs.evidence:evidence",
    "run": "zerolayer.verbs.evidence:run",
    "scenarios": "zerolayer.verbs.scenarios:app",
    "trace": "zerolayer.verbs.trace:app",
    "predict": "zerolayer.verbs.cost:predict",
    "validate": "zerolayer.verbs.cost:validate",
    "policies": "zerolayer.verbs.policies:policies",
    "legacy": "zerolayer.verbs.legacy:app",
    "bench": "zerolayer.verbs.bench:app",
    "kernels": "zerolayer.verbs.kernels:app",
}
for _name, _path in _VERBS.items():
    app.command(_path, name=_name)


def main(argv: list[str] | None = None) -> None:
    """Run one command and exit with its code."""
    from dispatch.errors import ZerolayerError

    try:
        result = app(argv, result_action="return_value")
    except ZerolayerError as error:
        print(f"zerolayer: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("zerolayer: interrupted", file=sys.stderr)
        sys.exit(130)
    sys.exit(result if isinstance(result, int) else 0)


if __name__ == "__main__":
    main()
