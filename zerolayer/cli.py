"""The command line: verbs by name, one error path, exit codes as documented.

0 holds, 1 does not hold, 2 wrong use or bad input, 3 inconclusive, 4 base not measurable. What
breaks on the way is no verdict: 70 (as in sysexits.h) is a fault of the program itself.
"""

import io
import sys
import traceback
from typing import TYPE_CHECKING, Any, Final

from zerolayer import __version__

if TYPE_CHECKING:
    from cyclopts import App

_ABOUT = "Test, on your own traffic, whether an LLM routing layer can be deleted."

# Verbs are named by import path, so that --help loads none of their libraries.
_VERBS: Final = {
    "evidence": ("zerolayer.verbs.evidence:evidence", "Is it safe to delete the layer?"),
    "run": ("zerolayer.verbs.evidence:run", "Replay all arms: tables and manifest, no report."),
    "verify": ("zerolayer.verbs.verify:verify", "Does a run folder come out the same again?"),
    "explain": ("zerolayer.verbs.explain:explain", "One request's story in every arm."),
    "diff": ("zerolayer.verbs.diff:diff", "Two run folders side by side."),
    "whatif": ("zerolayer.verbs.whatif:whatif", "A grid of what-ifs, all arms at every point."),
    "plan": ("zerolayer.verbs.plan:plan", "How many of which GPU hold the SLOs?"),
    "scenarios": ("zerolayer.verbs.scenarios:app", "List, show and check scenarios."),
    "trace": ("zerolayer.verbs.trace:app", "Describe, convert, make and change traces."),
    "predict": ("zerolayer.verbs.cost:predict", "What the cost model says of one shape."),
    "validate": ("zerolayer.verbs.cost:validate", "The cost model against measured data."),
    "policies": ("zerolayer.verbs.policies:policies", "The placement policies."),
    "legacy": ("zerolayer.verbs.legacy:app", "The legacy router's 47 keys; import a config."),
    "live": ("zerolayer.verbs.live:app", "Serve, replay and validate on real devices."),
    "bench": ("zerolayer.verbs.bench:app", "How fast dispatch and simulation are."),
    "gate": ("zerolayer.verbs.gate:app", "Did this commit place differently, or get slower?"),
    "kernels": ("zerolayer.verbs.kernels:app", "Bounds and checks of the fused kernels."),
}


def build() -> "App":
    """Return the command line with every verb registered, none of them imported."""
    from cyclopts import App

    from zerolayer.help import Formatter

    # Plain help: Markdown and tables would cost a third of the start-up time.
    app = App(
        name="zerolayer", help=_ABOUT, help_format="plaintext", help_formatter=Formatter(),
        version=__version__,
    )  # fmt: skip
    for name, (path, _) in _VERBS.items():
        app.command(path, name=name)
    return app


def __getattr__(name: str) -> Any:
    if name == "app":
        return build()
    raise AttributeError(name)


def main(argv: list[str] | None = None) -> None:
    """Run one command and exit with its code."""
    from dispatch.errors import FAULT, ZerolayerError

    words = sys.argv[1:] if argv is None else argv
    # Python has no stream where the shell closed it (`>&-`): then nobody reads what is printed.
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    try:
        result = (
            _summary()
            if words in ([], ["--help"], ["-h"])
            else build()(words, result_action="return_value")
        )
        sys.stdout.flush()
    except ZerolayerError as error:
        print(f"zerolayer: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("zerolayer: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has left; nothing to tell it
        sys.exit(141)
    except OSError as error:  # a disk that is full, a name too long, a folder that takes no file
        print(f"zerolayer: {_told(error)}", file=sys.stderr)
        sys.exit(2)
    except Exception as error:
        traceback.print_exc()
        print(
            f"zerolayer: {type(error).__name__} is a fault of zerolayer itself, and no verdict; "
            "please report it with the lines above",
            file=sys.stderr,
        )
        sys.exit(FAULT)
    sys.exit(result if isinstance(result, int) else 0)


def _told(error: OSError) -> str:
    what = error.strerror or str(error)
    return f"{error.filename}: {what}" if error.filename else what


def _summary() -> int:
    """Print what ``--help`` says, without loading the parser."""
    width = max(len(name) for name in _VERBS)
    print(f"Usage: zerolayer VERB ...\n\n{_ABOUT}\n\nVerbs:")
    for name, (_, about) in _VERBS.items():
        print(f"  {name:<{width}}  {about}")
    print("\n`zerolayer VERB --help` says more. Exit codes: 0 holds, 1 does not hold, 2 wrong use")
    print("or bad input, 3 inconclusive, 4 base not measurable, 70 a fault of zerolayer itself.")
    return 0


if __name__ == "__main__":
    main()
