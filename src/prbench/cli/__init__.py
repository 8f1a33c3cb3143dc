"""The command line: parse, call the library, print. Errors that a user can fix are one line and exit code 2."""

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, NoReturn, Protocol, runtime_checkable

import typer
from typer.core import TyperCommand, TyperGroup

from prbench.errors import PrbenchError

HELP_WIDTH = "120"  # columns, where no terminal says how many there are: no option is cut
INTERRUPTED = 130  # what a shell expects after Ctrl-C; the option parser returns it as well
SUMMARY = "Does a reward model know whom it is talking to, and does that show in the policy it trains?"
# The panels of `prbench --help`, and each command's first line there: nothing has to be imported to show it. A command
# is the `app`, or else the function, of the module in this package that has its name.
COMMANDS: Mapping[str, Mapping[str, str]] = {
    "Evaluate": {
        "eval": "Score every pair of a dataset with one reward model, with and without the user.",
        "report": "Print the board of some runs, recomputed from their rows, and write one self-contained HTML page.",
        "diagnose": "Say where models fail, which items to label next, and write the hard slice as training data.",
        "export": "Write runs in the form of another tool or site; upload runs, models and datasets, if asked twice.",
        "leaderboard": "Check submitted runs, every figure anew from the rows, and build a site of those that hold.",
        "meta": "Does a benchmark's ranking of reward models predict what policies get? From result files alone.",
    },
    "Optimize": {
        "bon": "Best-of-N: what does a user get when a reward model picks the best of n answers, for every n up to N?",
        "ppo": "Train a policy by a reward model's scores of its answers, and measure it by gold where that is known.",
        "serve": "Serve one reward model over HTTP; what arrives together is scored together.",
    },
    "Train": {
        "train": "Train a reward model on pairs, and measure it on users that it has not seen.",
        "eval-planner": "Compare planned aspects with the rubrics: precision and recall, with intervals over users.",
    },
    "Data and people": {
        "build": "Build preference pairs: both responses are good, and only `chosen` serves what this user looks for.",
        "data": "Check a dataset, write the lab, convert between formats, or remove a person from everything.",
        "annotate": "People check the pairs: a small web app on one SQLite file, with a personal link per annotator.",
    },
    "Tools": {
        "demo": "Evaluate the controls and small models on the lab, print the board, write one HTML page.",
        "models": "List what `--model` takes, with examples; or what else can be named, or what is installed here.",
        "bench": "Score the same rows by padded batches of 16 and by shared prefixes, side by side, and compare.",
    },
}
_MODULES = {"eval": "evaluate"}  # where the name differs: `eval` is Python's own
_HOW: dict[str, Any] = {"rich_markup_mode": "markdown", "pretty_exceptions_enable": False}


class LazyGroup(TyperGroup):
    """Lists the commands of the table, and imports the one that is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for panel, commands in COMMANDS.items():
            for name, line in commands.items():
                self.add_command(TyperCommand(name, help=line, rich_help_panel=panel))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the called command itself, where the list has its name and help line only."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed and load_command(str(name)), rest


def load_command(name: str) -> Any:
    """Return the command of this name, with its options."""
    from prbench.cli.options import add, new_app

    module_name = _MODULES.get(name, name.replace("-", "_"))
    module = import_module(f"{__name__}.{module_name}")
    found: typer.Typer | None = getattr(module, "app", None)
    if found is None:
        found = new_app(name)
        add(found, name)(getattr(module, module_name))
    return typer.main.get_command(found)


app = typer.Typer(
    name="prbench",
    help=SUMMARY,
    cls=LazyGroup,
    no_args_is_help=True,
    # Commands take these over from their group; `--batch_size` and `--batch-size` are the same option everywhere.
    context_settings={
        "token_normalize_func": lambda token: token.replace("_", "-"),
        "help_option_names": ["-h", "--help"],
    },
    **_HOW,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"prbench {version('prbench')}")  # noqa: T201
        raise typer.Exit


@app.callback(help=SUMMARY)
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version),
    ] = False,
) -> None: ...


@runtime_checkable
class _Explains(Protocol):
    """An error of the option parser that can name the option it is about."""

    def format_message(self) -> str: ...


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    if sys.stdout is None or not sys.stdout.isatty():  # None where the shell closed it
        os.environ.setdefault("TERMINAL_WIDTH", HELP_WIDTH)  # read by typer when it first prints help
    try:
        code = app(standalone_mode=False)
    except PrbenchError as error:
        _fail(str(error), code=error.exit_code)
    except typer.TyperException as error:
        _fail(error.format_message() if isinstance(error, _Explains) else str(error))
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}." if error.filename else str(error))
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:
        _fail("interrupted; run the same command again to continue", code=INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, *, code: int = 2) -> NoReturn:
    one_line = " ".join(message.split())
    if one_line:  # empty where the parser printed the help instead
        print(f"prbench: {one_line}", file=sys.stderr)  # noqa: T201
    sys.exit(code)
