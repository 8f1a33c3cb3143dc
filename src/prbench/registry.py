"""What can be named: one table each of models, policies, chat models, datasets, methods, reply formats and more.

A table has one row a kind. The loader, help texts, `prbench models` with its `--check`, and the error lines all read
it. Rows name code as text and import it when it is used. Other packages add rows by entry points: the group has the
table's name, the entry point that of the kind, and it points to a `Kind`. One that is broken, or that takes a name
which is taken, is refused in one line where it is used, and leaves all others alone. A class or function of one's own
needs no package: `python:package.module:Factory?key=value` (`prbench.backends.own_code`).
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from typing import Any

from prbench.errors import UsageError, in_one_line
from prbench.schema import NOTHING
from prbench.specs import Spec, bind, describe, known_names

PYTHON = "python"
FOLDER_KIND = "classifier"  # what a folder without a kind most often is
_MEND = "Mend that package, or uninstall it."


class NotInstalledError(UsageError):
    """What a kind needs is not installed; nothing is wrong with the kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One way to use a kind, as `prbench models` lists it."""

    example: str  # a whole spec
    summary: str
    extra: str | None = None  # the pip extra that it needs, where that is not its kind's


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One row: a kind, how it is loaded, and what commands must know of it before they load it."""

    name: str
    example: str  # a whole spec
    summary: str
    load: str  # "package.module:function", imported when used
    options: str = ""  # "package.module:Record"; "": it takes none
    extra: str = ""  # the pip extra of `package` that it needs; "": its core is enough
    package: str = "prbench"  # whose extra
    more: tuple[Usage, ...] = ()  # further examples
    # How its spec is read
    takes_target: bool = True  # `lab` stands alone
    is_free_text: bool = False  # the target is prose, which may hold question marks
    takes_any_option: bool = False  # they are checked by what is loaded
    is_folder: bool = False  # the target is a folder of ours, however its path looks
    # What commands must know of a model
    compares: bool = False  # prefers one of two, and gives no score
    is_recorded: bool = False  # its answers are looked up: it cannot be asked anything else
    light: bool = False  # cheap to hold in memory while something else is sampled
    # What commands must know of a training method
    makes: tuple[str, ...] = ()  # files of its own: `--fresh` removes those of a training that was killed
    # What commands must know of a dataset
    makes_records: bool = False  # its rows are records of ours, which need no second check
    judge: str = ""  # the spec of the judge that knows the truth about its rows
    splits: str = ""  # "package.module:NAMES"; "": none, or each row says its own
    label_splits: str = ""  # likewise those that hold pairs which the users of a split compared before
    questions: str = ""  # "package.module:function" from a number of users to examples that `prbench build` answers
    # What commands must know of a judge
    knows_truth: bool = False  # what any text is worth, asking nobody: it measures plans, and PPO on the way
    # Of a kind of another package, its entry point in words; the table fills it in
    origin: str = ""

    @property
    def usages(self) -> tuple[Usage, ...]:
        """All examples, the first one among them."""
        return (Usage(example=self.example, summary=self.summary), *self.more)

    def install_line(self, extra: str | None = None) -> str:
        """Return the command that installs what it needs; "" where nothing is missing."""
        extra = self.extra if extra is None else extra
        return f"pip install '{self.package}[{extra}]'" if extra else ""

    def loader(self) -> Callable[..., Any]:
        """Return the function that builds it."""
        found = self._import(self.load)
        if not callable(found):
            raise UsageError(f"{self.origin}: its load, {self.load}, is no function. {_MEND}")
        return found  # type: ignore[no-any-return]

    def make(self, *given: object, needs: type | Sequence[str]) -> Any:
        """Return what the loader builds of these; of another package's, it must be of a type, or have some names."""
        load = self.loader()
        with self._in_one_line("its loader raised"):
            made = load(*given)
            if not self.origin:
                return made  # the types of ours are checked before they ship
            lacks = [] if isinstance(needs, type) else [name for name in needs if not hasattr(made, name)]
            if lacks or (isinstance(needs, type) and not isinstance(made, needs)):
                what = f"without {lacks[0]}" if lacks else f"where {_a(getattr(needs, '__name__', ''))} belongs"
                raise UsageError(f"{self.origin}: its loader made {_a(type(made).__name__)} {what}. {_MEND}")
            return made

    def options_type(self) -> type | None:
        """Return the record of its options; `None` where it takes none."""
        found = self._import(self.options) if self.options else None
        if found is not None and not (isinstance(found, type) and is_dataclass(found)):
            raise UsageError(f"{self.origin}: its options, {self.options}, are no dataclass. {_MEND}")
        return found

    def read_options(self, spec: Spec, given: Mapping[str, object] = NOTHING) -> Any:
        """Return the record of a spec's options; those `given` hold where it says nothing and the kind has them."""
        record = self.options_type()
        if record is None:
            return None
        known = {field.name for field in fields(record)}
        defaults = {name: value for name, value in given.items() if name in known and name not in spec.options}
        with self._in_one_line("its options raised"):
            return bind(record, spec.options, where=spec.text, given=defaults)

    def split_names(self) -> tuple[str, ...]:
        """Return the splits of a dataset; none where each row says its own."""
        return self._names(self.splits)

    def label_split_names(self) -> tuple[str, ...]:
        """Return the splits of a dataset that hold pairs which the users of a split compared before."""
        return self._names(self.label_splits)

    def question_source(self) -> Callable[..., Any] | None:
        """Return what draws questions for `prbench build`; `None` where the rows themselves are read."""
        return self._import(self.questions) if self.questions else None

    def _names(self, reference: str) -> tuple[str, ...]:
        found = self._import(reference) if reference else ()
        if isinstance(found, str) or not isinstance(found, Iterable):
            raise UsageError(f"{self.origin}: {reference} is {_a(type(found).__name__)}, no list of names. {_MEND}")
        return tuple(found)

    def _import(self, reference: str) -> Any:
        with self._in_one_line(f"importing {reference} raised"):
            try:
                return resolve_name(reference)
            except ModuleNotFoundError as error:
                missing = str(error.name)
                if not self.extra or missing.partition(".")[0] == reference.partition(".")[0]:
                    raise
                line = f"{self.name} needs {missing}. Install it with: {self.install_line()}"
                raise NotInstalledError(line) from error

    def _in_one_line(self, fact: str) -> AbstractContextManager[None]:
        """Tell what another package's code raises in one line; ours keeps its traceback."""
        return in_one_line(f"{self.origin}: {fact}", remedy=_MEND) if self.origin else nullcontext()


def _a(noun: str) -> str:
    """Return a name with its article."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


class Table:
    """The kinds of one group, by name: those of this package, those of another table, and those of entry points."""

    def __init__(
        self,
        group: str,
        what: str,
        *rows: Kind,
        shared: str = "",  # a record of options that every kind takes
        borrowed: "Table | None" = None,  # another table, whose rows count here as well
        changes: Mapping[str, Any] = NOTHING,  # what those rows have instead
        required: tuple[str, ...] = (),  # options that every kind must have
    ) -> None:
        self.group = group
        self.what = what
        self._own = {row.name: row for row in rows}
        self._shared = shared
        self._borrowed, self._changes = borrowed, changes
        self._required = required

    @property
    def rows(self) -> tuple[Kind, ...]:
        """Every kind that can be used, in the order of the documentation; those of other packages come last."""
        found, _ = self._sorted_out()
        return tuple(found)

    @property
    def broken(self) -> Mapping[str, str]:
        """The kinds that cannot be used, each with what is wrong with it: an entry point, or two of one name."""
        found, faults = self._sorted_out()
        for row in found:
            try:
                if row.origin:
                    row.loader()
            except NotInstalledError:
                continue
            except UsageError as error:
                faults[row.name] = str(error)
        return faults

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all kinds; nothing is imported for them."""
        borrowed = self._borrowed.names if self._borrowed else ()
        return tuple(dict.fromkeys((*self._own, *borrowed, *(point.name for point in self._points()))))

    def find(self, name: str, text: str = "") -> Kind:
        """Return the kind of that name; an unknown one is refused with the known ones and the nearest match."""
        found = self.get(name)
        if found is None:
            where = f" in {text!r}" if text else ""
            if FOLDER_KIND in self.names and os.path.isdir(text):
                fact = f"{text!r} is a folder, and its kind is not said"
                raise UsageError(f"{fact}. If it holds a sequence classifier, write {FOLDER_KIND}:{text}.")
            raise UsageError(f"Unknown kind {name!r} of {self.what}{where}. {known_names('kinds', name, self.names)}")
        return found

    def get(self, name: str) -> Kind | None:
        """Return the kind of that name, where there is one."""
        points = [point for point in self._points() if point.name == name]
        # Which of two things of one name is meant is not for us to guess.
        lent = self._borrowed
        lent_points = [point for point in lent._points() if point.name == name] if lent else []
        ours = name in self._own or (lent is not None and name in lent._own)
        claims = ["prbench itself"] if ours else []
        claims += [_in_words(point) for point in (*points, *lent_points)]
        if len(claims) > 1:
            line = f"The {self.what} {name!r} is named by {' and by '.join(claims)}. Uninstall all but one of them."
            raise UsageError(line)
        if name in self._own:
            return self._own[name]
        if lent is not None and (found := lent.get(name)) is not None:
            return replace(found, **self._changes)
        return self._load_point(points[0]) if points else None

    def option_names(self, name: str) -> tuple[str, ...] | None:
        """Return the options of a kind, with those that every kind takes; `None` where it takes any."""
        kind = self.find(name)
        if kind.takes_any_option:
            return None
        records = (kind.options_type(), self.shared_options)
        return tuple(field.name for record in records if record is not None for field in fields(record))

    @property
    def shared_options(self) -> type | None:
        """Return the record of the options that every kind takes."""
        return resolve_name(self._shared) if self._shared else None

    def _sorted_out(self) -> tuple[list[Kind], dict[str, str]]:
        """Return the kinds that can be used, and what is wrong with the others."""
        found: list[Kind] = []
        faults: dict[str, str] = {}
        for name in self.names:
            try:
                kind = self.get(name)
            except UsageError as error:
                faults[name] = str(error)
            else:
                found += [kind] if kind is not None else []
        return found, faults

    def _points(self) -> Sequence[EntryPoint]:
        return list(entry_points(group=self.group))

    def _load_point(self, point: EntryPoint) -> Kind:
        """Return the row of another package."""
        where = _in_words(point)
        where = where[0].upper() + where[1:]
        with in_one_line(f"{where} cannot be loaded:", remedy=_MEND):
            kind = point.load()
        if not isinstance(kind, Kind) or kind.name != point.name:
            raise UsageError(f"{where} is no prbench.registry.Kind named {point.name!r}. Mend that package.")
        kind = replace(kind, origin=where)
        self._check_options(kind)
        return kind

    def _check_options(self, kind: Kind) -> None:
        """Refuse a row whose record of options cannot be read, lacks what the table needs, or hides what is shared."""
        try:
            record = kind.options_type()
        except NotInstalledError:
            return  # it can be listed all the same
        with in_one_line(f"{kind.origin}: its options cannot be read:", remedy=_MEND):
            names = [each.name for each in describe(record)] if record is not None else []
        lacks = [name for name in self._required if name not in names]
        if lacks:
            raise UsageError(f"{kind.origin}: its options have no {lacks[0]}, and a {self.what} needs one. {_MEND}")
        shared = self.shared_options
        hidden = [field.name for field in fields(shared) if field.name in names] if shared is not None else []
        if hidden:
            raise UsageError(f"{kind.origin}: its option {hidden[0]} is one that every {self.what} has. {_MEND}")


def _in_words(point: EntryPoint) -> str:
    """Return an entry point in words."""
    return f"the entry point {point.name} = {point.value} of {point.dist.name if point.dist else 'its package'}"


_python = Kind(
    name=PYTHON,
    example="python:package.module:Factory",
    summary="",
    load="",
    takes_any_option=True,
)

LLMS = Table(
    "prbench.llms",
    "chat model",
    Kind(
        name="openai",
        example="openai:my-model@http://127.0.0.1:8000/v1",
        summary="a model behind any server that speaks OpenAI's protocol",
        load="prbench.backends.llm.openai_api:load",
        options="prbench.backends.llm.client:LlmOptions",
        extra="llm",
    ),
    Kind(
        name="local",
        example="local:smollm2",
        summary="llama.cpp in this process: the packaged SmolLM2, or a GGUF file",
        load="prbench.backends.llm.local:load",
        options="prbench.backends.llm.client:LlmOptions",
        extra="llm",
    ),
    Kind(
        name="hf",
        example="hf:HuggingFaceTB/SmolLM2-135M-Instruct",
        summary="a hub id or a folder, run by transformers in this process",
        load="prbench.backends.llm.hf:load",
        options="prbench.backends.llm.client:LlmOptions",
        extra="hf",
    ),
    Kind(
        name="vllm",
        example="vllm:org/model",
        summary="says how vLLM serves it; then it is openai:",
        load="prbench.backends.llm.openai_api:explain_vllm",
        options="prbench.backends.llm.client:LlmOptions",
    ),
    Kind(
        name="fake",
        example="fake:A",
        summary="answers with this text: for tests and dry runs; also prose, echo, thinking, error",
        load="prbench.backends.llm.fake:load",
        options="prbench.backends.llm.client:LlmOptions",
        is_free_text=True,
    ),
)

MODELS = Table(
    "prbench.reward_models",
    "reward model",
    Kind(
        name="control",
        example="control:random",
        summary="a fixed coin per question and response",
        load="prbench.reward_models.controls:load",
        options="prbench.reward_models.controls:ControlOptions",
        light=True,
        more=(
            Usage(example="control:longest", summary="the response with more characters"),
            Usage(example="control:shortest", summary="the response with fewer characters"),
            Usage(example="control:overlap", summary="the response that shares more words with the context (BM25)"),
            Usage(example="control:question", summary="the response that repeats more words of the question"),
            Usage(
                example="control:embed",
                summary="the response nearest to the context by sentence embeddings",
                extra="hf",
            ),
            Usage(
                example="control:gold",
                summary="the lab's own instrument with the gold rubric, a ceiling: only where rubrics are the lab's",
            ),
        ),
    ),
    Kind(
        name="classifier",
        example="classifier:org/name",
        summary="sequence classifier: a hub id, a folder or a LoRA adapter",
        load="prbench.reward_models.classifier:load",
        options="prbench.reward_models.classifier:ClassifierOptions",
        extra="hf",
    ),
    Kind(
        name="judge",
        example="judge:openai:model@http://127.0.0.1:8000/v1",
        summary="chat model that compares, in both orders",
        load="prbench.reward_models.generative:load_judge",
        options="prbench.reward_models.generative:JudgeOptions",
        extra="llm",
        compares=True,
        is_free_text=True,
        more=(
            Usage(
                example="judge:local:smollm2?mode=logits",
                summary="the same, by the log-probabilities of A and B",
            ),
            Usage(
                example="judge:openai:model@http://127.0.0.1:8000/v1?template=prometheus2",
                summary="the same, asked and read as a published judge (--of replies)",
            ),
        ),
    ),
    Kind(
        name="rating",
        example="rating:local:smollm2",
        summary="chat model that gives each response a number",
        load="prbench.reward_models.generative:load_rating",
        options="prbench.reward_models.generative:ChatOptions",
        extra="llm",
        is_free_text=True,
    ),
    Kind(
        name="implicit",
        example="implicit:org/policy,org/reference",
        summary="DPO-style log-ratio of two language models",
        load="prbench.reward_models.implicit:load_implicit",
        options="prbench.reward_models.implicit:ImplicitOptions",
        extra="hf",
    ),
    Kind(
        name="pmi",
        example="pmi:org/language-model",
        summary="what the context adds to a response's log-probability",
        load="prbench.reward_models.implicit:load_pmi",
        options="prbench.reward_models.implicit:PmiOptions",
        extra="hf",
    ),
    Kind(
        name="planner",
        example="planner:DIR",
        summary="predicted aspects as criteria: a folder of `prbench train --method planner`",
        load="prbench.reward_models.planner:load",
        options="prbench.reward_models.planner:PlannerOptions",
        extra="hf",
        is_folder=True,
    ),
    Kind(
        name="head",
        example="head:lab-user",
        summary="trained head on embeddings: a folder, or lab-user, lab-average (shipped)",
        load="prbench.reward_models.head:load",
        options="prbench.reward_models.base:EncoderOptions",
        extra="hf",
        light=True,
    ),
    Kind(
        name="match",
        example="match:FOLDER",
        summary="trained weights on what a response touches of the user's likes and dislikes",
        load="prbench.reward_models.match:load",
        options="prbench.reward_models.base:EncoderOptions",
        extra="hf",
        light=True,
    ),
    Kind(
        name="blend",
        example="blend:FOLDER",
        summary="several trained models, weighed on held-out users",
        load="prbench.reward_models.blend:load",
        extra="hf",
        is_folder=True,
    ),
    Kind(
        name="fewshot",
        example="fewshot:FOLDER",
        summary="trained model that adapts to a user's labeled pairs (--labels)",
        load="prbench.reward_models.fewshot:load",
        options="prbench.reward_models.base:EncoderOptions",
        extra="hf",
        light=True,
    ),
    Kind(
        name="server",
        example="server:http://127.0.0.1:8000",
        summary="a reward server: prbench serve, vLLM, SGLang, infinity, TEI or a hosted reranker",
        load="prbench.reward_models.server:load",
        options="prbench.reward_models.server:ServerOptions",
        extra="serve",
        light=True,
        more=(Usage(example="server:https://HOST/v1?api=rerank&model=NAME", summary="a reranker that lists nothing"),),
    ),
    Kind(
        name="scores",
        example="scores:FILE",
        summary="scores that another program computed: a CSV, JSONL or Parquet file, by item",
        load="prbench.reward_models.recorded:load_scores",
        options="prbench.reward_models.recorded:ScoresOptions",
        light=True,
        is_recorded=True,
        more=(Usage(example="scores:FILE?model=NAME", summary="those of one model, where a file holds several"),),
    ),
    Kind(
        name="replies",
        example="replies:FILE",
        summary="replies of a judge that another program asked, by item and order",
        load="prbench.reward_models.recorded:load_replies",
        options="prbench.reward_models.recorded:RepliesOptions",
        compares=True,
        is_recorded=True,
    ),
    Kind(
        name="summary",
        example="summary:FOLDER?cache=FILE",
        summary="reads a short summary of the user, which may be edited",
        load="prbench.reward_models.summaries:load",
        options="prbench.reward_models.summaries:SummaryOptions",
        extra="hf",
        is_folder=True,
    ),
    Kind(
        name="rubric-chain",
        example="rubric-chain:FOLDER?samples=64",
        summary="samples rubrics from a trained planner, and averages",
        load="prbench.reward_models.rubric_chain:load",
        options="prbench.reward_models.rubric_chain:RubricChainOptions",
        extra="hf",
        is_free_text=True,
        more=(
            Usage(
                example="rubric-chain:local:smollm2",
                summary="a chat model writes rubrics, and scores by them",
                extra="llm",
            ),
        ),
    ),
    Kind(
        name="fake",
        example="fake:keyword=WORD",
        summary="stand-in for tests; also fake:constant and fake:length",
        load="prbench.reward_models.fake:load",
        light=True,
        is_free_text=True,
    ),
    replace(
        _python,
        summary="an object of your own: what Factory(key=value) returns, with score(inputs) or prefer(pairs)",
        load="prbench.reward_models.custom:load",
    ),
    shared="prbench.reward_models.view:View",
)


POLICIES = Table(
    "prbench.policies",
    "policy",
    Kind(
        name="lab",
        example="lab",
        summary="answers questions of the lab with points of their subject, whoever asks",
        load="prbench.lab.policy:load",
        takes_target=False,
    ),
    Kind(
        name="hf",
        example="hf:FOLDER_OR_ID",
        summary="a causal language model in this process, sampled in batches",
        load="prbench.downstream.policies:load_hf",
        options="prbench.downstream.policies:HfPolicyOptions",
        extra="hf",
    ),
    replace(
        _python,
        summary="an object of your own: what Factory(key=value) returns, with sample(prompts, n=, seed=)",
        load="prbench.downstream.policies:load_own",
    ),
    borrowed=LLMS,
    changes={
        "load": "prbench.downstream.policies:load_chat",
        "options": "prbench.downstream.policies:ChatPolicyOptions",
    },
)


def _method(name: str, module: str, config: str, summary: str, *makes: str) -> Kind:
    return Kind(
        name=name,
        example=name,
        summary=summary,
        load=f"prbench.training.{module}:train_{name.replace('-', '_')}",
        options=f"prbench.training.{module}:{config}",
        extra="train",
        takes_target=False,
        makes=makes,
    )


METHODS = Table(
    "prbench.methods",
    "training method",
    _method("bt", "bt", "BtConfig", "a fine-tuned backbone that knows no users: the bar for all others"),
    _method(
        "bt-profile",
        "bt",
        "BtProfileConfig",
        "a fine-tuned backbone that reads the user's posts before the question",
    ),
    _method(
        "planner",
        "planner",
        "PlannerConfig",
        "predicts from the posts which aspects a user looks for, then scores responses against them",
        "planner.npz",
        "bank.json",
        "criteria.npz",
    ),
    _method(
        "summary",
        "summary",
        "SummaryConfig",
        "sums a user up in a few statements, which may be edited, and scores responses by them",
        "summary.npz",
        "bank.json",
        "summaries.jsonl",
    ),
    _method(
        "lm-planner",
        "lm_planner",
        "LmPlannerConfig",
        "a language model that learns to write such aspects down (LoRA), with the same scorer",
        "scorer.json",
        "criteria.npz",
    ),
    _method(
        "rubric-chain",
        "rubric_chain",
        "RubricChainConfig",
        "samples rubrics from the posts, scores responses against each, and averages",
        "planner.npz",
        "bank.json",
        "criteria.npz",
    ),
    _method(
        "head",
        "head",
        "HeadConfig",
        "a small head on frozen embeddings: question, posts and sentences of the response",
        "head.npz",
    ),
    _method(
        "encoder",
        "encoder",
        "EncoderConfig",
        "the same head and the encoder under it, trained together (on a GPU)",
        "head.npz",
    ),
    _method(
        "match",
        "match",
        "MatchConfig",
        "what a response touches of the things that a user's posts speak for and against",
        "match.npz",
    ),
    _method(
        "blend",
        "blend",
        "BlendConfig",
        "weighs several trained models against each other on held-out users",
        "blend.json",
    ),
    _method(
        "fewshot",
        "fewshot",
        "FewshotConfig",
        "adapts to a user from 5 to 30 labeled pairs, starting from the population",
        "fewshot.npz",
    ),
    _method(
        "sft",
        "sft",
        "SftConfig",
        "no reward model: a policy that writes answers like those of the data, to sample from",
    ),
    required=("seed",),
)

# A name that is no kind is a file, a folder or a hub id.
DATASETS = Table(
    "prbench.datasets",
    "dataset",
    Kind(
        name="lab",
        example="lab",
        summary="the embedded benchmark of a simulated population, whose preferences are known",
        load="prbench.lab:load",
        takes_target=False,
        makes_records=True,
        judge="lab",
        splits="prbench.lab:LAB_SPLITS",
        label_splits="prbench.lab:LABEL_SPLITS",
        questions="prbench.lab:questions",
    ),
    replace(
        _python,
        summary="rows of your own: what Factory(key=value) returns, examples or plain rows of our columns",
        load="prbench.data.source:load_own",
    ),
)

EXPORTERS = Table(
    "prbench.exporters",
    "export",
    Kind(
        name="jsonl",
        example="jsonl:FILE",
        summary="one row per line, zipped where the name ends in .gz",
        load="prbench.data.export:export_jsonl",
    ),
    Kind(
        name="parquet",
        example="parquet:FILE",
        summary="one Parquet file",
        load="prbench.data.export:export_parquet",
    ),
    Kind(
        name="folder",
        example="folder:DIR",
        summary="a folder that datasets.load_dataset reads: one config per category, and a card",
        load="prbench.data.export:export_folder",
        options="prbench.data.export:FolderOptions",
    ),
    Kind(
        name="trl",
        example="trl:FILE",
        summary="preference rows for TRL, with an explicit prompt",
        load="prbench.data.export:export_trl",
    ),
)

# What finished runs are exported to; a dataset in another form is for `EXPORTERS`.
RUN_EXPORTERS = Table(
    "prbench.run_exporters",
    "run export",
    Kind(
        name="every-eval-ever",
        example="every-eval-ever",
        summary="one JSON file a run as Every Eval Ever collects them, with intervals and a line a pair",
        load="prbench.pages.exports.every_eval_ever:export",
        options="prbench.pages.exports.every_eval_ever:EveryEvalOptions",
        takes_target=False,
    ),
    Kind(
        name="hf-eval-results",
        example="hf-eval-results?dataset=org/name",
        summary="the YAML file that a model's repository on the hub shows its results by",
        load="prbench.pages.exports.hf_eval_results:export",
        options="prbench.pages.exports.hf_eval_results:EvalResultsOptions",
        takes_target=False,
    ),
    Kind(
        name="rewardbench",
        example="rewardbench",
        summary="what the command `rewardbench` writes: accuracy by subset, and the two scores of each pair",
        load="prbench.pages.exports.rewardbench:export",
        takes_target=False,
    ),
    Kind(
        name="csv",
        example="csv",
        summary="rows and figures as CSV",
        load="prbench.pages.exports.tables:export_csv",
        takes_target=False,
    ),
    Kind(
        name="parquet",
        example="parquet",
        summary="rows as Parquet",
        load="prbench.pages.exports.tables:export_parquet",
        takes_target=False,
    ),
    Kind(
        name="hub",
        example="hub:org/name",
        summary="a repository on the hub: of runs, of one trained model, or of one dataset; sent with --yes alone",
        load="prbench.pages.exports.hub:export",
        options="prbench.pages.exports.hub:HubOptions",
        extra="hf",
    ),
)

# Where `--log-to` logs the figures of runs and trainings; by themselves, all of them log to this machine.
TRACKERS = Table(
    "prbench.trackers",
    "experiment tracker",
    Kind(
        name="tensorboard",
        example="tensorboard:FOLDER",
        summary="event files in a folder",
        load="prbench.backends.trackers.tensorboard:load",
        extra="log",
    ),
    Kind(
        name="wandb",
        example="wandb:PROJECT",
        summary="Weights & Biases, offline unless ?mode=online",
        load="prbench.backends.trackers.wandb:load",
        options="prbench.backends.trackers.wandb:WandbOptions",
        extra="log",
    ),
    Kind(
        name="trackio",
        example="trackio:PROJECT",
        summary="Trackio, on this machine unless ?space=org/name",
        load="prbench.backends.trackers.trackio:load",
        options="prbench.backends.trackers.trackio:TrackioOptions",
        extra="log",
    ),
)

TRAINERS = Table(
    "prbench.trainers",
    "trainer",
    Kind(
        name="verl",
        example="verl:DIR",
        summary="prompts, a reward that asks `prbench serve`, a configuration and a launcher for verl",
        load="prbench.downstream.ppo.verl:export_verl",
        extra="hf",
    ),
    Kind(
        name="openrlhf",
        example="openrlhf:DIR",
        summary="prompts, a reward function that asks `prbench serve`, and a launcher for OpenRLHF",
        load="prbench.downstream.ppo.openrlhf:export_openrlhf",
        extra="hf",
    ),
)


# What knows the rubric, or the truth, and grades by it; reward models are none of these.
JUDGES = Table(
    "prbench.judges",
    "judge",
    Kind(
        name="lab",
        example="lab",
        summary="the lab's own truth, for rows that the lab made",
        load="prbench.judging:load_lab_judge",
        takes_target=False,
        knows_truth=True,
    ),
    replace(
        _python,
        summary="a judge of your own: what Factory(key=value) returns, with grade(example, responses)",
        load="prbench.judging:load_own",
    ),
    borrowed=LLMS,
    changes={"load": "prbench.judging:load_rubric_judge"},
)


def _reply(name: str, summary: str, module: str = "", options: str = "") -> Kind:
    """Return the row of a reply format; a prompt template names it in its header (`reply: arena`)."""
    module = f"prbench.prompts.formats.{module or name}"
    where = f"{module}:{options}" if options else ""
    return Kind(name=name, example=name, summary=summary, load=f"{module}:load", options=where, takes_target=False)


REPLIES = Table(
    "prbench.replies",
    "reply format",
    _reply("result", "our own: `Result: A`, `Score: 8`"),
    _reply("arena", "MT-Bench, Arena-Hard: `[[A]]`, `[[C]]` for a tie, `[[B>>A]]`, `[[A=B]]`"),
    _reply("prometheus2", "Prometheus 2: `[RESULT] A` of two, `[RESULT] 4` of one"),
    _reply("llmbar", "LLMBar: `Output (a)`, `Therefore, Output (a) is better.`"),
    _reply("rmr1", "RM-R1: `<answer>[[A]]</answer>` behind its reasons in tags"),
    _reply("judgelrm", "JudgeLRM: a score for each, `<answer>3</answer><answer>8</answer>`"),
    _reply("autoj", "Auto-J: `So, the final decision is Response 1.`"),
    _reply("boxed", "reasoning models: `\\boxed{A}`, `\\boxed{Assistant 1}`, `\\boxed{7}`"),
    replace(
        _reply("json", 'a field of a JSON object: `{"winner": "A"}`', "json_field", "JsonOptions"),
        example="json?field=winner",
    ),
    _reply("therefore", "prose that concludes: `Therefore, Response A is better.`"),
    replace(
        _reply("pattern", "a pattern of your own, with the named groups first and second (and tie), or score"),
        example="pattern:Choice: (?:(?P<first>1)|(?P<second>2))",
        takes_target=True,
        is_free_text=True,
    ),
)

TABLES: Mapping[str, Table] = {
    "models": MODELS,
    "policies": POLICIES,
    "llms": LLMS,
    "datasets": DATASETS,
    "methods": METHODS,
    "exporters": EXPORTERS,
    "run-exporters": RUN_EXPORTERS,
    "trackers": TRACKERS,
    "trainers": TRAINERS,
    "judges": JUDGES,
    "replies": REPLIES,
}
