"""The command line: parse, call the library, print. Errors that a user can fix are one line and exit code 2."""

import sys
from importlib.metadata import version as installed_version
from typing import Annotated, NoReturn, Protocol, runtime_checkable

import typer

from prbench.cli import (
    agreement,
    annotate,
    bench,
    bon,
    build,
    check,
    demo,
    diagnose,
    doctor,
    evaluate,
    forget,
    lab,
    meta,
    models,
    parity,
    planner,
    ppo,
    report,
    serve,
    train,
)
from prbench.errors import PrbenchError

app = typer.Typer(
    name="prbench",
    help="Does a reward model know whom it is talking to, and does that show in the policy it trains?",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
)
INTERRUPTED = 130  # what a shell expects after Ctrl-C; the option parser returns it as well
# `--batch_size` and `--batch-size` are the same option everywhere.
SPELLING = {"token_normalize_func": lambda token: token.replace("_", "-")}
app.command("demo", context_settings=SPELLING)(demo.demo)
app.command("eval", context_settings=SPELLING)(evaluate.evaluate)
app.command("report", context_settings=SPELLING)(report.report)
app.command("diagnose", context_settings=SPELLING)(diagnose.diagnose)
app.command("check", context_settings=SPELLING)(check.check)
app.add_typer(annotate.app)
app.command("agreement", context_settings=SPELLING)(agreement.agreement)
app.command("serve", context_settings=SPELLING)(serve.serve)
app.command("parity", context_settings=SPELLING)(parity.parity)
app.command("bench", context_settings=SPELLING)(bench.bench)
app.command("bon", context_settings=SPELLING)(bon.bon)
app.command("meta", context_settings=SPELLING)(meta.meta)
app.command("planner", context_settings=SPELLING)(planner.planner)
app.command("forget", context_settings=SPELLING)(forget.forget)
app.command("lab", context_settings=SPELLING)(lab.lab)
app.command("build", context_settings=SPELLING)(build.build)
app.command("train", context_settings=SPELLING)(train.train)
app.command("ppo", context_settings=SPELLING)(ppo.ppo)
app.command("models", context_settings=SPELLING)(models.models)
app.command("doctor", context_settings=SPELLING)(doctor.doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"prbench {installed_version('prbench')}")  # noqa: T201
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    """Does a reward model know whom it is talking to, and does that show in the policy it trains?"""


@runtime_checkable
class _Explains(Protocol):
    """An error of the option parser that can name the option it is about."""

    def format_message(self) -> str: ...


def main() -> NoReturn:
    """Run the command line and exit with its code."""
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
    print(f"prbench: {one_line}", file=sys.stderr)  # noqa: T201
    sys.exit(code)
