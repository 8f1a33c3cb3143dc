"""inspect_ai: the task `prbench/pairs` and the scorers `prbench/verdict`, `prbench/prefers` and `prbench/reward`.

inspect finds this module by the entry point of its group `inspect_ai`. A sample is one pair under one probe. Its
metadata holds all that scorers need, so that `inspect score` can score a log again; a model is shown its input alone,
which is our judge's prompt.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

from anyio import to_thread
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessage, ChatMessageSystem, ChatMessageUser, GenerateConfig
from inspect_ai.scorer import (
    Metric,
    SampleScore,
    Scorer,
    Target,
    accuracy,
    grouped,
    mean,
    metric,
    scorer,
    stderr,
)
from inspect_ai.scorer import Score as InspectScore
from inspect_ai.solver import Generate, Solver, TaskState, solver

from prbench.backends.llm.client import ChatRequest, Finish, Reply
from prbench.backends.llm.fake import FakeLLM
from prbench.context import fit_for
from prbench.downstream.harness.pairs import PairOptions, prepared_pairs, read_options
from prbench.downstream.rewards import reward_function
from prbench.errors import UsageError
from prbench.evaluation import EvalSettings, Shown, as_loaded
from prbench.evaluation.score import PreparedItem, ScoredRow, as_row, score_rows
from prbench.metrics import accuracy as acc
from prbench.metrics import personal
from prbench.prompts import Template, load_template
from prbench.reward_models import model_settings, wrap
from prbench.reward_models.generative import JudgeModel, read_verdict
from prbench.runs import from_record, to_record
from prbench.schema import POINTS, ContextKind, Example, Json, Probe, Problem, Row, User, UserContext

log = logging.getLogger("prbench")
CUT_OFF = ("max_tokens", "model_length")
REPLIES = "replies"  # the solver's key in the sample's store
BY_USER = "user_id"


@task
def pairs(
    data: str = "lab",
    subset: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    context: str = "profile",
    posts: int = 10,
    rank: str = "recent",
    planner: str = "",
    probes: str | list[str] = "own",
    orders: str = "both",
    template: str = "",
    reward_model: str = "",
    seed: int = 0,
) -> Task:
    """Ask the model which of two responses this user would prefer, in both orders.

    With `reward_model`, a spec as `prbench eval --model` takes it, that model scores the pairs instead, and the model
    of inspect is not asked. With `probes` none or swap, too, there are gain and swap gap.
    """
    if reward_model and template:
        raise UsageError(
            f"template={template} words what inspect's model is asked, and reward_model replaces it. Drop one."
        )
    if reward_model:
        context = Shown.of(reward_model, context).context
    names = probes.split(",") if isinstance(probes, str) else probes
    which = {"data": data, "subset": subset, "split": split, "limit": limit, "seed": seed}
    told = {"context": context, "posts": posts, "rank": rank, "planner": planner}
    options = read_options({**which, **told, "probes": [str(name).strip() for name in names]}, "prbench/pairs")
    items = prepared_pairs(options)
    settings = replace(options.settings, orders=orders)
    asked = load_template(template or "judge_pair")
    samples = [_to_sample(item, context, [] if reward_model else _prompts(item, asked, settings)) for item in items]
    return Task(
        dataset=MemoryDataset(samples, name=data),
        solver=[] if reward_model else ask_in_both_orders(),
        scorer=prefers(reward_model, orders=orders, seed=seed) if reward_model else verdict(),
        metrics=_metrics(options),
        config=GenerateConfig(temperature=0.0, max_tokens=512),
    )


def _metrics(options: PairOptions) -> list[Metric]:
    if options.probes == ["own"]:
        return [accuracy(), stderr(cluster=BY_USER), figures()]
    return [
        grouped(accuracy(), "probe", all=False, name_template="accuracy_{group_name}"),
        grouped(stderr(cluster=BY_USER), "probe", all=False, name_template="stderr_{group_name}"),
        figures(),
    ]


def _prompts(item: PreparedItem, template: Template, settings: EvalSettings) -> list[dict[str, Json]]:
    """Return what our judge would ask about this pair, once for every order; nothing where it would not be asked."""
    asked: list[ChatRequest] = []

    def keep(request: ChatRequest) -> Reply:
        asked.append(request)
        # Prompts that begin alike are sent together, in any order: the reply tells which one it answers.
        return Reply(text=str(len(asked) - 1))

    (row,) = score_rows([item], wrap(JudgeModel(FakeLLM(keep), template)), settings)
    return [
        {"chosen_first": first, "messages": [[each.role, each.content] for each in asked[int(said.raw)].messages]}
        for first, said in row.comparisons
    ]


def _messages(prompt: Mapping[str, Json]) -> list[ChatMessage]:
    kinds = {"system": ChatMessageSystem, "user": ChatMessageUser}
    return [kinds[role](content=text) for role, text in prompt["messages"]]


@solver
def ask_in_both_orders() -> Solver:
    """Ask about the pair once for every order, each time in a new conversation, and keep the replies."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        replies = []
        for prompt in state.metadata["prompts"]:
            state.messages = _messages(prompt)
            state = await generate(state)
            said = {"text": state.output.completion, "stop_reason": state.output.stop_reason}
            replies.append({"chosen_first": prompt["chosen_first"], **said})
        state.store.set(REPLIES, replies)
        return state

    return solve


@scorer(metrics=[accuracy(), stderr(cluster=BY_USER)])
def verdict() -> Scorer:
    """Read the replies of `ask_in_both_orders`: 1 for the chosen response, 0.5 for a tie, 0 for all else.

    A reply that decides nothing, or that was cut off, is unreadable, which counts as wrong and lowers the coverage.
    """

    async def score(state: TaskState, target: Target) -> InspectScore:
        replies = state.store.get(REPLIES, [])
        read = [
            (each["chosen_first"], read_verdict(Reply(text=each["text"], finish=_finish(each["stop_reason"]))))
            for each in replies
        ]
        item = _to_item(state.metadata)
        if not read and not item.user.problem:
            raise UsageError("prbench/verdict reads what the solver of prbench/pairs asks. Use that task.")
        return _scored(as_row(ScoredRow(item=item, comparisons=tuple(read))))

    return score


@scorer(metrics=[accuracy(), stderr(cluster=BY_USER)])
def prefers(
    model: str,
    orders: str = "both",
    seed: int = 0,
    batch_size: int | None = None,
    max_length: int | None = None,
    dtype: str = "auto",
) -> Scorer:
    """Let a reward model of ours, named by its spec, score both responses of a sample of `prbench/pairs`."""
    shown = Shown.of(model, "profile")
    if shown.labels is not None:
        raise UsageError(f"{model}: a sample holds no labeled pairs. Leave labels and shots out.")
    loaded = as_loaded(model, model_settings(seed, batch_size, max_length, dtype))
    settings, one_at_a_time = EvalSettings(orders=orders, seed=seed), Lock()

    def ask(item: PreparedItem) -> Row:
        with one_at_a_time:
            user = fit_for(loaded, item.user, question=item.example.question, responses=item.responses)
            (scored,) = score_rows([replace(item, user=user)], loaded, settings)
        row = as_row(scored)
        assert isinstance(row, Row)
        return row

    async def score(state: TaskState, target: Target) -> InspectScore:
        item, told = _to_item(state.metadata), state.metadata["told"]
        if Shown.of(model, told).context != told:
            raise UsageError(f"{model}: these samples were made with context {told}. Make others with prbench/pairs.")
        return _scored(await to_thread.run_sync(ask, item))

    return score


@scorer(metrics=[mean(), stderr()])
def reward(
    model: str,
    context: str = "profile",
    posts: int = 10,
    rank: str = "recent",
    planner: str = "",
    seed: int = 0,
) -> Scorer:
    """Score the completion of any sample by a reward model of ours, named by its spec.

    The question is the sample's input, and the user's posts are its metadata `profile`, a list of `{"text": …}`. What
    gets no score is left out of the metrics, as inspect does with `Score.unscored`.
    """
    function = reward_function(model, context, posts=posts, rank=rank, planner=planner, seed=seed)
    one_at_a_time = Lock()

    def ask(question: str, completion: str, profile: Sequence[Mapping[str, Json]]) -> float | None:
        with one_at_a_time:
            return function([question], [completion], profile=[profile])[0]

    async def score(state: TaskState, target: Target) -> InspectScore:
        completion = state.output.completion
        value = await to_thread.run_sync(ask, state.input_text, completion, state.metadata.get("profile", []))
        if value is None:
            return InspectScore.unscored(answer=completion, reason="no_score")
        return InspectScore(value=value, answer=completion)

    return score


@metric
def figures() -> Metric:
    """Return what `prbench eval` reports beside accuracy, with our intervals for new users, by the same functions.

    `coverage`; `accuracy_low` and `accuracy_high`; and where those probes were asked, `gain` and `swap_gap` with
    theirs. They count single verdicts, so samples that were averaged over epochs have none.
    """

    def compute(scores: list[SampleScore]) -> dict[str, float]:
        rows = []
        for each in scores:
            row = from_record(each.score.metadata["row"])
            assert isinstance(row, Row)
            if POINTS[row.verdict] != each.score.as_float():
                log.warning("prbench: coverage, intervals, gain and swap gap are of one epoch; use --epochs 1")
                return {}
            rows.append(row)
        told: dict[str, float] = {}
        if own := [row for row in rows if row.probe is Probe.OWN]:
            whole = acc.accuracy(own)
            told = {"coverage": acc.coverage(own).value, "accuracy_low": whole.low, "accuracy_high": whole.high}
        swap = personal.swap(rows)
        for name, found in (("gain", personal.personalization_gain(rows)), ("swap_gap", swap.gap if swap else None)):
            if found is not None:
                told |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
        return told

    return compute


def _scored(row: Any) -> InspectScore:
    explanation = "\n\n".join(f"[{order['order']}] {order['raw']}" for order in row.orders) or row.detail
    return InspectScore(
        value=POINTS[row.verdict],
        answer=row.verdict.value,
        explanation=explanation,
        metadata={"row": to_record(row)},
    )


def _finish(stop_reason: str) -> Finish:
    return Finish.LENGTH if stop_reason in CUT_OFF else Finish.STOP


def _to_sample(item: PreparedItem, context: str, prompts: Sequence[Mapping[str, Json]]) -> Sample:
    """Return one pair under one probe; rubric and narrative have no place in it, but as the context of an oracle."""
    example, user = item.example, item.user
    if user.labels:
        raise UsageError("A sample holds no labeled pairs. Leave labels out.")
    chosen, rejected = item.responses
    own = {"own": example.id}
    return Sample(
        id=own.get(item.probe, f"{example.id} ({item.probe})"),
        input=_messages(prompts[0]) if prompts else example.question,
        target="chosen",
        metadata={
            "id": example.id,
            "probe": item.probe.value,
            BY_USER: example.user.id,
            "category": example.category,
            "question": example.question,
            "chosen": chosen,
            "rejected": rejected,
            "told": context,
            "context": {"kind": user.kind.value, "segments": list(user.segments), "truncated": user.truncated_posts},
            "problem": [user.problem.value, user.detail],
            "prompts": list(prompts),
        },
    )


def _to_item(facts: Mapping[str, Json]) -> PreparedItem:
    """Return the pair of a sample."""
    if "chosen" not in facts:
        raise UsageError("This scorer needs samples of the task prbench/pairs. For others there is prbench/reward.")
    told, (problem, detail) = facts["context"], facts["problem"]
    user = UserContext(
        kind=ContextKind(told["kind"]),
        segments=tuple(told["segments"]),
        truncated_posts=told["truncated"],
        problem=Problem(problem),
        detail=detail,
    )
    example = Example(
        id=facts["id"],
        user=User(id=facts[BY_USER]),
        question=facts["question"],
        chosen=facts["chosen"],
        rejected=facts["rejected"],
        category=facts["category"],
    )
    return PreparedItem(
        example=example, probe=Probe(facts["probe"]), user=user, responses=(example.chosen, example.rejected)
    )
