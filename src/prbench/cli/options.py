"""Options that several commands share, spelled and explained in one place."""

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import wraps
from importlib.util import find_spec
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, cast, get_args, get_origin, get_type_hints

import typer
from rich.console import Console, ConsoleDimensions
from rich.table import Table
from rich.text import Text

from prbench.errors import BudgetError, UsageError
from prbench.lab import LAB
from prbench.specs import AtLeast, known_names, read_value

if TYPE_CHECKING:
    from prbench.backends.llm.spending import Ledger, Limits, Price
    from prbench.context.labels import Labels as LabeledPairs
    from prbench.data import DataSettings, ExampleStore
    from prbench.evaluation import EvalSettings
    from prbench.reward_models import ModelSettings

DATA, MODEL, CONTEXT, SCALE, OUTPUT = "Data", "Model", "What the model may know", "Scale", "Output"
ANSWERS, PEOPLE, SERVER, COST = "Answers", "People", "Server", "Cost and care"
DTYPES = ("auto", "float32", "bfloat16", "float16")
NO_TERMINAL = 10_000  # columns of a pipe or a file: no line is broken, and no cell of a table is cut
SECONDS_BETWEEN_LINES = 30.0


class _WideConsole(Console):
    """A console that is as wide as its lines where they go to a pipe or a file."""

    @property
    def size(self) -> ConsoleDimensions:
        found = super().size
        return found if self.is_terminal else ConsoleDimensions(NO_TERMINAL, found.height)

    @size.setter
    def size(self, new_size: tuple[int, int]) -> None:
        self._width, self._height = new_size


# Texts from data and paths are shown as they are: no markup is read in them.
out_console = _WideConsole(highlight=False, markup=False)
notes = _WideConsole(stderr=True, highlight=False, markup=False)


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


def flag(text: str, panel: str | None = None, *names: str, **how: Any) -> Any:
    """Return an option with its help text and its panel of the help page; names only where the parameter's differs."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **how)


# Options that stand in several commands. A name means the same in all of them; only the default may differ.

Config = Annotated[
    Path | None, flag("YAML or JSON file of options; flags override it.", callback=_apply_config, is_eager=True)
]
_DATA_HELP = "`lab`, a JSONL, Parquet or CSV file, a folder or archive of such files, or a hub id."
_COLUMNS_HELP = (
    "Which columns are meant, where the format is not recognized, e.g. `prompt=ask,chosen=good,rejected=bad`."
)
Data = Annotated[str, flag(_DATA_HELP, DATA)]
DataIfMoved = Annotated[str | None, flag(_DATA_HELP, DATA)]
Subset = Annotated[str | None, flag("Config of a hub dataset; default: all.", DATA)]
Split = Annotated[str | None, flag("Split; default: test, and `train` where a policy learns.", DATA)]
Revision = Annotated[str | None, flag("Revision of a hub dataset.", DATA)]
Limit = Annotated[
    int | None, flag("Take only the first N rows, questions or users that are asked about.", DATA, min=1)
]
SkipBadRows = Annotated[int, flag("Tolerate up to N bad rows; they are counted and shown.", DATA, min=0)]
Users = Annotated[int | None, flag("Take only the first N users, or make so many.", DATA, min=1)]
_MODEL_HELP = "Reward model, e.g. `control:overlap`, `classifier:PATH`; repeat it where several are asked."
RewardModel = Annotated[str, flag(_MODEL_HELP, MODEL)]
RewardModelIfAny = Annotated[str | None, flag(_MODEL_HELP, MODEL)]
RewardModels = Annotated[list[str], flag(_MODEL_HELP, MODEL, "--model")]
_POLICY = flag(
    "What writes the answers: `lab`, `hf:FOLDER_OR_ID`, `openai:NAME@URL`, `local:smollm2`; of `ppo`, what "
    "learns: a folder, `smollm2` or a hub id.",
    ANSWERS,
)
Policy = Annotated[str, _POLICY]
PolicyIfAny = Annotated[str | None, _POLICY]
Judge = Annotated[
    str, flag("LLM that judges by rubrics, or `lab` for rows that the lab wrote; default: the data's own.", MODEL)
]
Temperature = Annotated[float, flag("Sampling temperature of answers; judges have 0.", ANSWERS, min=0)]
MaxNewTokens = Annotated[int | None, flag("Most tokens of an answer.", ANSWERS, min=1)]
BatchSize = Annotated[str, flag("Sequences per forward pass; `auto`: as many as the memory holds.", MODEL)]
Compile = Annotated[bool, flag("Run decoders through torch.compile.", MODEL)]
Dtype = Annotated[str, flag(f"`{'`, `'.join(DTYPES)}`.", MODEL)]
Settings = Annotated[list[str], flag("A further setting, as name=value; may be repeated.", MODEL, "--set")]
ContextKind = Annotated[
    str, flag("`none`, `profile`, `plan` or `oracle` (the gold rubric: a ceiling, never ranked).", CONTEXT)
]
Posts = Annotated[int, flag("How many posts of the profile to show.", CONTEXT, min=0)]
Rank = Annotated[str, flag("Which posts: `recent`, `bm25` or `dense`.", CONTEXT)]
EncoderName = Annotated[str, flag("For `dense`: `minilm` or any encoder, e.g. facebook/contriever.", CONTEXT)]
AuditEncoder = Annotated[
    str, flag("Sentence encoder of the checks by meaning: `minilm`, a folder or hub id, or `none` to skip them.")
]
_PLANNER_HELP = "LLM that infers aspects, e.g. `openai:NAME@URL`, or a trained planner's folder; for `plan`."
Planner = Annotated[str, flag(_PLANNER_HELP, CONTEXT)]
_GROUP_BY_HELP = "Also report by this field: category, user_id, or any field of `meta`; `region,age` crosses two."
GroupBy = Annotated[list[str], flag(_GROUP_BY_HELP)]
_RESAMPLE_HELP = (
    "Intervals for new users (`users`; of `eval` the default), or for new users and new questions (`users,questions`)."
)
Resample = Annotated[str | None, flag(_RESAMPLE_HELP)]
AtKl = Annotated[float | None, flag("Compare policies at so many nats from their reference.", min=0)]
MaxFailed = Annotated[float, flag("Exit with 1 when more than this share of items or rewards failed.", min=0, max=1)]
_TO = flag("File to write; of `export` a form: see `prbench models --of run-exporters`.", OUTPUT)
To = Annotated[str, _TO]
ToFile = Annotated[Path, _TO]
Title = Annotated[str, flag("Title of the dataset's card, or of the site.", OUTPUT)]
LogTo = Annotated[
    list[str],
    flag("Log figures there, too: `tensorboard:FOLDER`, `wandb:PROJECT`, `trackio:PROJECT`; may be repeated.", OUTPUT),
]
Url = Annotated[str | None, flag("Address that people use, e.g. https://annotate.example.org.", PEOPLE)]
Host = Annotated[str, flag("Address to listen on.", SERVER)]
Port = Annotated[int, flag("Port; 0 takes any free one.", SERVER, min=0, max=65535)]
DryRun = Annotated[bool, flag("Show what would happen; send and change nothing.", None, "--dry-run")]
Fresh = Annotated[bool, flag("Start over instead of continuing.", OUTPUT, "--fresh")]
_SEED = flag("Seed of everything that is drawn.", min=0)
Seed = Annotated[int, _SEED]
SeedIfAny = Annotated[int | None, _SEED]
_OUT_HELP = "Folder for what is made; of `eval`, `bon` and `demo` the parent of their runs."
Out = Annotated[Path, flag(_OUT_HELP, OUTPUT)]
OutIfAny = Annotated[Path | None, flag(_OUT_HELP, OUTPUT, "--out")]
Html = Annotated[Path | None, flag("Where to write the page.", OUTPUT)]
Json = Annotated[bool, flag("Print JSON for machines instead.", OUTPUT, "--json")]


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Which data."""

    data: Data = LAB
    subset: Subset = None
    split: Split = None
    revision: Revision = None
    columns: Annotated[str, flag(_COLUMNS_HELP, DATA)] = ""

    def which(self) -> "DataSettings":
        """Return which rows to take."""
        from prbench.data import DataSettings

        return DataSettings(
            source=self.data,
            subset=self.subset,
            split=self.split,
            revision=self.revision,
            columns=self.columns,
        )


@dataclass(frozen=True, kw_only=True)
class DataOptions(SourceOptions):
    """Which rows of which data."""

    limit: Limit = None
    skip_bad_rows: SkipBadRows = 0

    def which(self) -> "DataSettings":
        """Return which rows to take."""
        return replace(super().which(), limit=self.limit, skip_bad_rows=self.skip_bad_rows)


@dataclass(frozen=True, kw_only=True)
class PostOptions:
    """Which posts of a user to show."""

    posts: Posts = 10
    rank: Rank = "recent"
    encoder: EncoderName = "minilm"


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """Which pairs that the users compared before to show."""

    labels: Annotated[
        str,
        flag("Pairs that the users compared before, to show the model: a file of ours, a folder, or `lab`.", CONTEXT),
    ] = ""
    shots: Annotated[int | None, flag("How many labeled pairs of a user to show; default: 10.", CONTEXT, min=1)] = None

    def open(self, which: "DataSettings") -> "LabeledPairs | None":
        """Read the pairs for the users of `which`; nothing where none are asked for."""
        from prbench.context.labels import SHOTS
        from prbench.evaluation import open_labels

        if self.shots and not self.labels:
            raise UsageError(f"--shots {self.shots}: there are no labeled pairs to show. Name some with --labels.")
        return open_labels(self.labels, which, shots=self.shots or SHOTS) if self.labels else None


@dataclass(frozen=True, kw_only=True)
class ContextOptions(PostOptions):
    """What the model may know of the user."""

    context: ContextKind = "profile"
    planner: Planner = ""

    def settings(self, **more: Any) -> "EvalSettings":
        """Return how to ask."""
        from prbench.context import KINDS, RANKS
        from prbench.evaluation import EvalSettings

        return EvalSettings(
            context=one_of("--context", self.context, KINDS),
            posts=self.posts,
            rank=one_of("--rank", self.rank, RANKS),
            planner=self.planner,
            encoder=self.encoder,
            **more,
        )


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How to run a reward model."""

    batch_size: BatchSize = "auto"
    share_prefixes: Annotated[bool, flag("Compute what inputs have in common once, where a model allows.", MODEL)] = (
        True
    )
    compile: Compile = False
    max_length: Annotated[int | None, flag("Window in tokens; posts beyond it are dropped.", MODEL, min=1)] = None
    dtype: Dtype = "auto"
    chat_template: Annotated[Path | None, flag("Jinja file; default: the tokenizer's own.", MODEL)] = None
    trust_remote_code: Annotated[bool, flag("Run code that comes with the model.", MODEL, "--trust-remote-code")] = (
        False
    )

    def settings(self, **more: Any) -> "ModelSettings":
        """Return how to load it."""
        from prbench.reward_models import ModelSettings
        from prbench.reward_models.base import AUTO

        if self.chat_template is not None and not self.chat_template.is_file():
            raise UsageError(f"--chat-template {self.chat_template}: there is no such file.")
        return ModelSettings(
            batch_size=AUTO
            if self.batch_size == "auto"
            else read_value(Annotated[int, AtLeast(1)], self.batch_size, "--batch-size"),
            max_length=self.max_length,
            dtype=one_of("--dtype", self.dtype, DTYPES),
            chat_template=self.chat_template,
            trust_remote_code=self.trust_remote_code,
            share_prefixes=self.share_prefixes,
            compile=self.compile,
            **more,
        )


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """What may be asked of chat models, and what they may cost."""

    max_requests: Annotated[int | None, flag("Stop before request N + 1 to chat models.", COST)] = None
    max_tokens: Annotated[int | None, flag("Stop before so many tokens are passed.", COST)] = None
    max_cost: Annotated[float | None, flag("Stop before so many US dollars are passed.", COST)] = None
    price_input: Annotated[float | None, flag("US dollars per million prompt tokens.", COST)] = None
    price_output: Annotated[float | None, flag("US dollars per million tokens of replies.", COST)] = None

    def limits(self) -> "Limits":
        """Return the limits."""
        from prbench.backends.llm.spending import Limits

        return Limits(max_requests=self.max_requests, max_tokens=self.max_tokens, max_cost=self.max_cost)

    def price(self) -> "Price | None":
        """Return what tokens cost, where that is known."""
        from prbench.backends.llm.spending import Price

        if (self.price_input is None) != (self.price_output is None):
            raise UsageError("Give --price-input and --price-output together, or neither.")
        return None if self.price_input is None else Price(self.price_input, self.price_output or 0.0)

    @contextmanager
    def applied(self) -> "Iterator[Ledger | None]":
        """Count what chat models that are opened inside are asked; at a limit, say how the command goes on."""
        if all(getattr(self, each.name) is None for each in fields(LimitOptions)):
            yield None
            return
        from prbench.backends.llm.spending import Ledger, limited

        ledger = Ledger(self.limits(), price=self.price())
        try:
            with limited(ledger):
                yield ledger
        except BudgetError as error:
            raise BudgetError(f"{error} It was: {command_line()}") from error


def print_spent(ledger: "Ledger | None") -> None:
    """Print what the requests that count towards limits came to."""
    if ledger is None:
        return
    spent = ledger.total()
    cost = "" if spent.cost is None else f", ${spent.cost:.4f}"
    tokens = spent.prompt_tokens + spent.completion_tokens
    notes.print(f"spent under --out: {spent.requests:,} requests, {tokens:,} tokens{cost}", soft_wrap=True)


class Defaults(dict[str, Any]):
    """Stands beside a record in an annotation: `Annotated[DataOptions, Defaults(limit=100)]`."""


def with_records(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameters are the fields of the option records that `function` takes."""
    hints = get_type_hints(function, include_extras=True)
    parameters: list[Parameter] = []
    records: dict[str, Any] = {}
    for parameter in signature(function).parameters.values():
        annotation = hints[parameter.name]
        record, *extras = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
        if not is_dataclass(record):
            parameters.append(parameter.replace(annotation=annotation, kind=Parameter.KEYWORD_ONLY))
            continue
        records[parameter.name] = record
        changed = next((each for each in extras if isinstance(each, Defaults)), Defaults())
        types = get_type_hints(record, include_extras=True)
        for each in fields(record):
            plain = each.default if each.default_factory is MISSING else each.default_factory()
            default = changed.get(each.name, Parameter.empty if plain is MISSING else plain)
            parameters.append(
                Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=types[each.name])
            )

    @wraps(function)
    def command(**given: Any) -> None:
        for name, record in records.items():
            given[name] = record(**{each.name: given.pop(each.name) for each in fields(record)})
        function(**given)

    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def new_app(name: str, **how: Any) -> typer.Typer:
    """Return a command to which `add` adds subcommands; one of its own name alone is the command itself."""
    return typer.Typer(name=name, rich_markup_mode="markdown", add_completion=False, **how)


def add(app: typer.Typer, name: str, **how: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the decorated function to a command with subcommands."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        app.command(name, **how)(with_records(function))
        return function

    return decorate


class OnProgress(Protocol):
    """Hears how far a command is: items done, items in all, and what there is to say of the last ones."""

    def __call__(self, done: int, total: int, said: str = "") -> None: ...


@contextmanager
def progress_bar(label: str, *, quiet: bool = False) -> Iterator[OnProgress | None]:
    """Show rate and time left; give `None` where nobody is to hear of it."""
    with progress_of_steps(quiet=quiet) as begin:
        yield begin(label)


@contextmanager
def progress_of_steps(*, quiet: bool = False) -> Iterator[Callable[[str], OnProgress | None]]:
    """Give a function that begins the next step of a long command, and returns what hears of its progress.

    On a terminal that is a bar; in a pipe or a log, a line every half minute.
    """
    if quiet:
        yield lambda label: None
        return
    if not notes.is_terminal:
        yield progress_lines
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[said]}"),
    )
    with Progress(*columns, console=notes, transient=True) as bar:

        def begin(label: str) -> OnProgress:
            for known in bar.task_ids:
                bar.remove_task(known)
            task = bar.add_task(label, total=None, rate="", said="")

            def advance(done: int, total: int, said: str = "") -> None:
                bar.update(task, completed=done, total=total, said=said)
                speed = bar.tasks[0].speed
                bar.update(task, rate=f"{speed:.1f}/s" if speed else "")

            return advance

        yield begin


def progress_lines(label: str, *, clock: Callable[[], float] = time.monotonic) -> OnProgress:
    """Return what prints a line of progress, but not more than one every half minute."""
    told = clock()
    first: tuple[float, int] | None = None  # the rate counts from here: what a continued run had before cost no time

    def advance(done: int, total: int, said: str = "") -> None:
        nonlocal told, first
        now = clock()
        first = first or (now, done)
        if now - told < SECONDS_BETWEEN_LINES:
            return
        told = now
        rate = (done - first[1]) / (now - first[0]) if now > first[0] else 0.0
        left = f", {(total - done) / rate:.0f} s left" if rate and done < total else ""
        notes.print(f"{label}: {done}/{total}, {rate:.3g}/s{left}{said and ': '}{said}", soft_wrap=True)

    return advance


def one_of(option: str, value: str, known: tuple[str, ...]) -> str:
    """Return the value if it is one of the known ones."""
    if value not in known:
        raise UsageError(f"{option} {value}: unknown. Use {', '.join(known[:-1])} or {known[-1]}.")
    return value


def print_table(names: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """Print a plain table."""
    table = Table(*names, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*row)
    out_console.print(table)


@contextmanager
def open_rows(which: "DataSettings") -> "Iterator[ExampleStore]":
    """Open the rows of a command, with a line about each bad one that is skipped."""
    from prbench.data import open_data

    with open_data(which) as store:
        for line in store.bad_rows:
            notes.print(f"skipped: {line}", soft_wrap=True)
        yield store


def check_trackers(specs: Sequence[str]) -> None:
    """Refuse a tracker that is unknown or not installed, before the work whose figures it gets."""
    from prbench.registry import TRACKERS
    from prbench.specs import parse_spec

    for text in specs:
        kind = TRACKERS.find(parse_spec(text, TRACKERS).kind)
        kind.read_options(parse_spec(text, TRACKERS))
        if not kind.origin and find_spec(kind.name) is None:
            raise UsageError(f"--log-to {text}: needs {kind.name}. Install it with: {kind.install_line()}")


def log_summary(specs: Sequence[str], summary: Mapping[str, Any]) -> None:
    """Log what came out of an evaluation as one run of each tracker."""
    from prbench.backends.trackers import figures_of, tracking

    if specs:
        facts = {name: summary[name] for name in ("run_id", "model", "kind", "context", "seed", "data")}
        with tracking(specs, f"{summary['model']} {summary['context']} {summary['run_id']}", facts) as trackers:
            trackers.log(figures_of({name: each for name, each in summary.items() if name not in facts}))


def print_json(content: object) -> None:
    """Print one JSON document and nothing else."""
    sys.stdout.write(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def command_line() -> str:
    """Return the command as typed, for the manifest."""
    return shlex.join(["prbench", *sys.argv[1:]])
