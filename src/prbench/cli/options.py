"""Options that several commands share, spelled and explained in one place."""

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console

from prbench.errors import UsageError
from prbench.specs import AtLeast, known_names, read_value

if TYPE_CHECKING:
    from prbench.context.labels import Labels as LabelledPairs
    from prbench.data import DataSettings
    from prbench.schema import Progress as OnProgress

DATA, MODEL, CONTEXT, SCALE, OUTPUT = "Data", "Model", "What the model may know", "Scale", "Output"

# Texts from data and paths are shown as they are: no markup is read in them.
out_console = Console(highlight=False, markup=False)
notes = Console(stderr=True, highlight=False, markup=False)


def _apply_config(context: typer.Context, path: Path | None) -> Path | None:
    """Take the options of a YAML or JSON file as defaults; what stands on the command line wins."""
    if path is None:
        return None
    known = {
        option.lstrip("-").replace("-", "_"): parameter
        for parameter in context.command.params
        if parameter.name != "config"
        for option in parameter.opts
    }
    defaults: dict[str, object] = {}
    for key, value in _read_config(path).items():
        name, where = str(key).lstrip("-").replace("-", "_"), f"--config {path}: {key}"
        if name not in known:
            raise UsageError(
                f"--config {path}: unknown option {key!r} of `{context.command_path}`. "
                f"{known_names('options', name, known)}"
            )
        parameter = known[name]
        if parameter.name in defaults:
            raise UsageError(f"{where}: is given twice. Give it once.")
        defaults[str(parameter.name)] = _as_typed(value, parameter, where)
        try:
            cast("Any", parameter).process_value(context, defaults[str(parameter.name)])
        except typer.BadParameter as error:
            raise UsageError(f"{where}: {error.format_message()}") from None
    context.default_map = {**(context.default_map or {}), **defaults}
    return path


def _as_typed(value: object, parameter: Any, where: str) -> object:
    """Return a value of a file as the command line would have it: a list of texts, or one value."""
    plain = value if isinstance(value, list) else [value]
    if not all(isinstance(one, str | int | float) for one in plain):
        raise UsageError(f"{where}: must be a value or a list of values.")
    if any(isinstance(one, bool) for one in plain) and not getattr(parameter, "is_flag", False):
        raise UsageError(f"{where}: YAML reads yes, no, on and off as true or false. Put the value in quotes.")
    if parameter.multiple:
        return [str(one) for one in plain]
    return ",".join(map(str, plain)) if isinstance(value, list) else value


def typed(context: typer.Context, *names: str) -> dict[str, Any]:
    """Return those parameters of a command that were typed or stand in --config: no defaults."""
    sources = {name: context.get_parameter_source(name) for name in names}
    return {name: context.params[name] for name, source in sources.items() if source and source.name != "DEFAULT"}


def _read_config(path: Path) -> dict[object, object]:
    import yaml

    class Loader(yaml.SafeLoader):  # YAML itself lets the last of two equal keys win, without a word
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            doubles = [key for place, key in enumerate(keys) if key in keys[:place]]
            if doubles:
                raise UsageError(f"--config {path}: {doubles[0]} stands twice. Give it once.")
            return super().construct_mapping(node, deep)

    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader)
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {path}: not valid YAML or JSON: {error}") from None
    if not isinstance(content, dict):
        raise UsageError(
            f"--config {path}: must be YAML or JSON of option names with values, e.g. `model: control:overlap`."
        )
    return content


Config = Annotated[
    Path | None,
    typer.Option(help="YAML or JSON file of options; flags override it.", callback=_apply_config, is_eager=True),
]
Data = Annotated[
    str,
    typer.Option(
        help="`lab`, a JSONL or Parquet file, a folder laid out like the hub dataset, or a hub id.",
        rich_help_panel=DATA,
    ),
]
Subset = Annotated[str | None, typer.Option(help="Config of a hub dataset; default: all.", rich_help_panel=DATA)]
Split = Annotated[str | None, typer.Option(help="Split of a hub dataset; default: test.", rich_help_panel=DATA)]
Revision = Annotated[str | None, typer.Option(help="Revision of a hub dataset.", rich_help_panel=DATA)]
Limit = Annotated[int | None, typer.Option(help="Take only the first N rows.", min=1, rich_help_panel=DATA)]
SkipBadRows = Annotated[
    int, typer.Option(help="Tolerate up to N bad rows; they are counted and shown.", min=0, rich_help_panel=DATA)
]
Models = Annotated[
    list[str],
    typer.Option(
        help="Reward model, e.g. `control:overlap`, `classifier:PATH`, `judge:openai:NAME@URL`; may be repeated.",
        rich_help_panel=MODEL,
    ),
]
BatchSize = Annotated[
    str,
    typer.Option(help="Sequences per forward pass; `auto`: as many as the memory holds.", rich_help_panel=MODEL),
]
SharePrefixes = Annotated[
    bool, typer.Option(help="Compute what inputs have in common once, where a model allows.", rich_help_panel=MODEL)
]
Compile = Annotated[bool, typer.Option(help="Run decoders through torch.compile.", rich_help_panel=MODEL)]
MaxLength = Annotated[
    int | None,
    typer.Option(help="Window in tokens; posts beyond it are dropped.", min=1, rich_help_panel=MODEL),
]
Dtype = Annotated[str, typer.Option(help="`auto`, `float32`, `bfloat16` or `float16`.", rich_help_panel=MODEL)]
ChatTemplate = Annotated[
    Path | None, typer.Option(help="Jinja file; default: the tokenizer's own.", rich_help_panel=MODEL)
]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.", rich_help_panel=MODEL)
]
ContextKind = Annotated[
    str,
    typer.Option(
        help="`none`, `profile`, `plan` or `oracle` (the gold rubric: a ceiling, never ranked).",
        rich_help_panel=CONTEXT,
    ),
]
Posts = Annotated[int, typer.Option(help="How many posts of the profile to show.", min=0, rich_help_panel=CONTEXT)]
Rank = Annotated[str, typer.Option(help="Which posts: `recent`, `bm25` or `dense`.", rich_help_panel=CONTEXT)]
EncoderName = Annotated[
    str,
    typer.Option(help="For `dense`: `minilm` or any encoder, e.g. facebook/contriever.", rich_help_panel=CONTEXT),
]
Labels = Annotated[
    str,
    typer.Option(
        help="Pairs that the users compared before, to show the model: a file of ours, a folder, or `lab`.",
        rich_help_panel=CONTEXT,
    ),
]
Shots = Annotated[
    int | None,
    typer.Option(help="How many labelled pairs of a user to show; default: 10.", min=1, rich_help_panel=CONTEXT),
]
CheckEncoder = Annotated[
    str,
    typer.Option(
        "--encoder",
        help="Sentence encoder of the checks by meaning: `minilm`, a folder or hub id, or `none` to skip them.",
    ),
]
Html = Annotated[Path | None, typer.Option(help="Where to write the page.", rich_help_panel=OUTPUT)]
Planner = Annotated[
    str,
    typer.Option(
        help="For `plan`: the LLM that infers aspects, or a trained planner's folder.", rich_help_panel=CONTEXT
    ),
]
Probes = Annotated[str, typer.Option(help="Ask each pair with the own, no, and another user's profile.")]
Orders = Annotated[str, typer.Option(help="Judges: `both` orders, or `one` (a fixed coin per item).")]
GroupBy = Annotated[
    list[str], typer.Option(help="Also report by this field: category, user_id, or any field of `meta`.")
]
MaxFailed = Annotated[float, typer.Option(help="Exit with 1 when more than this share of items failed.", min=0, max=1)]
EngineName = Annotated[
    str,
    typer.Option("--engine", help="`local` (this process) or `ray` (a pool of workers).", rich_help_panel=SCALE),
]
Workers = Annotated[
    int | None,
    typer.Option(
        help="Ray: workers, each with the model; default: one per GPU, or one per node without GPUs.",
        min=1,
        rich_help_panel=SCALE,
    ),
]
WorkerGpus = Annotated[
    float | None,
    typer.Option(
        help="Ray: GPUs of each worker, e.g. 0.5 or 2; default: 1 where there are any.", min=0, rich_help_panel=SCALE
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        help="Ray: HOST:PORT of a cluster's head, or `auto`; default: start Ray here.", rich_help_panel=SCALE
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start over instead of continuing.", rich_help_panel=OUTPUT)]
Seed = Annotated[int, typer.Option(help="Seed of everything that is drawn.", min=0)]
Out = Annotated[Path, typer.Option(help="Folder for runs.", rich_help_panel=OUTPUT)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead.", rich_help_panel=OUTPUT)]


@contextmanager
def progress_bar(label: str, *, quiet: bool = False) -> "Iterator[OnProgress | None]":
    """Show rate and time left on a terminal; give `None` where nobody watches."""
    with progress_of_steps(quiet=quiet) as begin:
        yield begin(label)


@contextmanager
def progress_of_steps(*, quiet: bool = False) -> "Iterator[Callable[[str], OnProgress | None]]":
    """Give a function that begins the next step of a long command, and returns what hears of its progress."""
    if quiet or not notes.is_terminal:
        yield lambda label: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=notes, transient=True) as bar:

        def begin(label: str) -> "OnProgress":
            for known in bar.task_ids:
                bar.remove_task(known)
            task = bar.add_task(label, total=None, rate="")

            def advance(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)
                speed = bar.tasks[0].speed
                bar.update(task, rate=f"{speed:.1f}/s" if speed else "")

            return advance

        yield begin


def parse_batch_size(text: str) -> int:
    """Return the number, or AUTO."""
    from prbench.reward_models.base import AUTO

    if text == "auto":
        return AUTO
    number: int = read_value(Annotated[int, AtLeast(1)], text, "--batch-size")
    return number


def one_of(option: str, value: str, known: tuple[str, ...]) -> str:
    """Return the value if it is one of the known ones."""
    if value not in known:
        raise UsageError(f"{option} {value}: unknown. Use {', '.join(known[:-1])} or {known[-1]}.")
    return value


def open_labels_of(which: "DataSettings", source: str, shots: int | None) -> "LabelledPairs | None":
    """Read what `--labels` and `--shots` name, for the users of `which`; nothing where no labels are asked for."""
    from prbench.context.labels import SHOTS
    from prbench.evaluation import open_labels

    if shots and not source:
        raise UsageError(f"--shots {shots}: there are no labelled pairs to show. Name some with --labels.")
    return open_labels(source, which, shots=shots or SHOTS) if source else None


def print_json(content: object) -> None:
    """Print one JSON document and nothing else."""
    sys.stdout.write(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def command_line() -> str:
    """Return the command as typed, for the manifest."""
    return shlex.join(["prbench", *sys.argv[1:]])
