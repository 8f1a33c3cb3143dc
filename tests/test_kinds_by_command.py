"""Every kind of reward model by every command that takes one: it works, or is refused with the same line.

The models are as small as can be, and real: fakes, controls, a shipped head, networks with random weights, folders
that were trained on a few rows, a running server.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.golden.extract import serving, train_cli
from tests.golden.people import population, write
from tests.golden.tiny_models import classifier, language_model, one_thread

from prbench.backends.hf import fingerprint
from prbench.context import contexts_of, make_context
from prbench.data import open_examples
from prbench.downstream.best_of_n.pool import WHO as BEST_OF_N
from prbench.downstream.best_of_n.run import BonSettings, best_of_n
from prbench.downstream.ppo.rollout import RewardCandidate, load_reward
from prbench.errors import PrbenchError, UsageError
from prbench.evaluation import EvalSettings, evaluate
from prbench.evaluation.parity import compare
from prbench.insight.diagnose import diagnose
from prbench.lab import LabSize, make_split
from prbench.registry import MODELS
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.base import require_scores
from prbench.reward_models.blend import BLEND, load_members
from prbench.runs.files import write_json
from prbench.schema import Example, Probe

# Of every kind one model; `None`: one that has to be made first.
MODEL_OF: dict[str, str | None] = {
    "control": "control:overlap",
    "classifier": None,
    "judge": "judge:fake:Result: A",
    "rating": "rating:fake:Score: 7",
    "implicit": None,
    "pmi": None,
    "planner": None,
    "head": "head:lab-user",
    "match": None,
    "blend": None,
    "fewshot": None,
    "server": None,
    "scores": None,
    "replies": None,
    "summary": None,
    "rubric-chain": 'rubric-chain:fake:{"criteria": [{"criterion": "a", "importance": "essential", "score": 3}]}',
    "fake": "fake:length",
    "python": "python:tests.test_kinds_by_command:Own",
}
SETTINGS: dict[str, dict[str, Any]] = {  # of methods that train in a second
    "match": {},
    "planner": {"topics": 6, "members": 2, "epochs": 1, "criteria_rank": 4, "criteria_epochs": 1},
    "summary": {"rounds": 1, "samples": 4, "epochs": 1},
    "fewshot": {"topics": 6, "directions": 3, "epochs": 1, "reads_posts": "true"},
}
MISSING = {
    "implicit": "implicit:./nowhere,./nowhere",
    "server": "server:http://127.0.0.1:9?patience=0.1&timeout=0.1",
}


class Own:
    """Somebody's model."""

    def score(self, inputs: Iterable[Any]) -> list[float]:
        return [float(len(each.response)) for each in inputs]


def few_rows() -> list[Example]:
    return list(make_split("test", LabSize(users=16, pairs=16)))[:6]


@pytest.fixture(scope="module")
def spec_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """The spec of a model of a kind, made when it is first needed."""
    home = tmp_path_factory.mktemp("models")

    @cache
    def made(kind: str) -> str:
        if (spec := MODEL_OF[kind]) is not None:
            return spec
        if kind == "server":
            return f"server:{open_until_the_end.enter_context(serving('control:overlap'))}"
        if kind in ("scores", "replies"):
            asked = evaluate(
                few_rows(), {"scores": "control:longest", "replies": "judge:fake:Result: A"}[kind], out=home
            )
            return f"{kind}:{asked.folder}/items.jsonl"
        if kind == "classifier":
            return f"classifier:{classifier(home / kind)}"
        if kind == "implicit":
            return f"implicit:{language_model(home / 'policy', seed=1)},{language_model(home / 'reference', seed=2)}"
        if kind == "pmi":
            return f"pmi:{language_model(home / kind, seed=3)}"
        rows = home / "rows.jsonl"
        if not rows.exists():
            write(rows, population(36, start=100))
        if kind == "blend":
            members = ",".join(str(home / made(member).partition(":")[0]) for member in ("match", "planner"))
            return train_cli(kind, rows, home / kind, models=members)
        return train_cli(kind, rows, home / kind, **SETTINGS[kind])

    with one_thread(), ExitStack() as open_until_the_end:
        yield made


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return few_rows()


def run_eval(spec: str, examples: list[Example], folder: Path) -> None:
    run = evaluate(examples, spec, out=folder, settings=EvalSettings(probes=(Probe.OWN,)))
    assert run.summary["n_items"] == len(examples)


def run_bon(spec: str, examples: list[Example], folder: Path) -> None:
    run = best_of_n(examples, "lab", [spec], BonSettings(n=2), out=folder, judge="lab")
    assert spec in run.summary["models"]


def run_ppo(spec: str, examples: list[Example], folder: Path) -> None:
    reward = load_reward(spec, ModelSettings())
    told = contexts_of(make_context("profile"), examples)
    pairs = zip(examples, told, strict=True)
    asked = [RewardCandidate(example=one, user=its, response=one.chosen) for one, its in pairs]
    assert len(reward.score(asked)) == len(examples)


def run_serve(spec: str, examples: list[Example], folder: Path) -> None:
    pytest.importorskip("fastapi")
    from prbench.serve.server import RewardServer
    from prbench.serve.settings import ServeSettings

    server = RewardServer(lambda: load_reward_model(spec, ModelSettings()), ServeSettings(port=0))
    assert server.run(lambda sender: server.stop())


def run_blend(spec: str, examples: list[Example], folder: Path) -> None:
    member = folder / "member"
    member.mkdir(parents=True)
    (member / "weights").write_text("w")
    facts = {"folder": "member", "kind": "fake", "options": {}, "inside": {}, "reads_user": True, "weight": 1.0}
    facts |= {"weight_without_posts": 1.0, "fingerprint": fingerprint(member)}
    write_json(folder / BLEND, {"members": [facts]})
    (member,) = load_members(folder, lambda _: load_reward_model(spec, ModelSettings()))
    require_scores(member.loaded, "a blend")


def run_parity(spec: str, examples: list[Example], folder: Path) -> None:
    loaded = load_reward_model(spec, ModelSettings())
    with open_examples(examples) as store:
        assert compare(store, loaded, loaded, EvalSettings()).max_abs in (0.0, None)


def run_diagnose(spec: str, examples: list[Example], folder: Path) -> None:
    from prbench.data import write_dataset

    data = folder / "data"
    write_dataset(examples, data)
    run = evaluate(data, spec, out=folder / "runs", settings=EvalSettings(probes=(Probe.OWN,)))
    assert run.folder is not None
    assert diagnose([run.folder]).items == len(examples)


# Where scores that were recorded cannot be looked up: it asks for new ones.
ASKS_ANEW = ("ppo", "serve", "blend")
# What needs a score for each response, as the one line that refuses it names it; `None`: any kind will do.
COMMANDS: dict[str, tuple[Callable[[str, list[Example], Path], None], str | None]] = {
    "eval": (run_eval, None),
    "diagnose": (run_diagnose, None),
    "bon": (run_bon, BEST_OF_N),
    "ppo": (run_ppo, "PPO"),
    "serve": (run_serve, "a reward server"),
    "blend": (run_blend, "a blend"),
    "parity": (run_parity, "parity"),
}


def test_the_table_knows_every_kind() -> None:
    assert set(MODEL_OF) == {row.name for row in MODELS.rows}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", MODEL_OF)
def test_it_works_or_is_refused_with_the_same_line(
    kind: str, command: str, spec_of: Callable[[str], str], examples: list[Example], tmp_path: Path
) -> None:
    run, needs_scores = COMMANDS[command]
    spec = spec_of(kind)
    if MODELS.find(kind).compares and needs_scores:
        with pytest.raises(UsageError) as caught:
            run(spec, examples, tmp_path)
        line = f"{spec} only compares, and {needs_scores} needs a score for each response. Use rating:… instead."
        assert str(caught.value) == line
    elif MODELS.find(kind).is_recorded and command in ASKS_ANEW:
        with pytest.raises(UsageError) as caught:
            run(spec, examples, tmp_path)
        fact = f"holds recorded scores of known items, and {needs_scores} asks for new ones"
        assert str(caught.value) == f"{spec} {fact}. Name a model that can be asked."
    else:
        run(spec, examples, tmp_path)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", [kind for kind, spec in MODEL_OF.items() if not (spec or MODELS.find(kind).compares)])
def test_what_is_missing_is_named_in_the_same_line(
    kind: str, command: str, examples: list[Example], tmp_path: Path
) -> None:
    run, _ = COMMANDS[command]
    spec = MISSING.get(kind, f"{kind}:./nowhere")
    with pytest.raises(PrbenchError) as caught:
        run(spec, examples, tmp_path)
    assert "nowhere" in str(caught.value) or "is not ready" in str(caught.value)
    assert "only compares" not in str(caught.value)
