"""What `eval` hands to workers, without a cluster."""

import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prbench.backends.encoders import _load_once
from prbench.errors import UsageError
from prbench.evaluation import EvalSettings, as_loaded, evaluate
from prbench.evaluation.batches import ScoreInWorker
from prbench.evaluation.engines import LocalEngine, Payload, Result, Stage, WorkItem
from prbench.reward_models import ModelSettings
from prbench.reward_models.base import PairJudge, RemoteModelRef

Rows = Callable[[int], list[dict[str, Any]]]


class Backwards:
    """Delivers the last item first, with a worker that knows nothing of this process's model."""

    loads_in_workers = True

    def run(self, stage: Stage[Payload, Result], items: Iterable[WorkItem[Payload]]) -> Iterator[tuple[str, Result]]:
        return reversed(list(LocalEngine().run(stage, items)))


def test_results_in_any_order_leave_the_same_bytes(rows: Rows, tmp_path: Path) -> None:
    here = evaluate(rows(70), "fake:length", out=tmp_path / "here")
    there = evaluate(rows(70), "fake:length", out=tmp_path / "there", engine=Backwards())
    assert here.folder is not None
    assert there.folder is not None
    for name in ("items.jsonl", "summary.json"):
        assert (here.folder / name).read_bytes() == (there.folder / name).read_bytes()


@pytest.mark.parametrize("model", ["control:embed", "head:lab-user"])
def test_models_on_embeddings_give_the_same_bytes_when_texts_are_met_in_another_order(
    model: str, shared_texts: list[dict[str, Any]], tmp_path: Path
) -> None:
    """The last step comes first, so texts that it shares with the other are embedded in another batch."""

    class LastFirst(Backwards):
        def run(
            self, stage: Stage[Payload, Result], items: Iterable[WorkItem[Payload]]
        ) -> Iterator[tuple[str, Result]]:
            return LocalEngine().run(stage, reversed(list(items)))

    found = []
    for name, engine in (("here", LocalEngine()), ("there", LastFirst())):
        _load_once.cache_clear()
        run = evaluate(shared_texts, model, out=tmp_path / name, engine=engine)
        assert run.folder is not None
        found.append((run.folder / "items.jsonl").read_bytes())
    assert found[0] == found[1]


def test_progress_ends_with_everything_also_where_nothing_was_left_to_do(rows: Rows, tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    evaluate(rows(70), "fake:length", out=tmp_path, engine=Backwards(), progress=lambda *seen: heard.append(seen))
    assert heard == [(6, 70), (38, 70), (70, 70), (70, 70)]  # steps of 32, 32 and 6 items, the last one first
    heard.clear()
    evaluate(rows(70), "fake:length", out=tmp_path, progress=lambda *seen: heard.append(seen))
    assert heard == [(70, 70)]


def test_an_object_in_python_is_refused_because_workers_load_by_spec(rows: Rows) -> None:
    class Mine:
        def score(self, inputs: Any) -> list[float]:
            return [0.0 for _ in inputs]

    with pytest.raises(UsageError, match="Workers load a model by its spec"):
        evaluate(rows(3), Mine(), engine=Backwards())


@pytest.mark.parametrize("spec,is_judge", [("fake:length", False), ("judge:fake:Result: A", True)])
def test_the_model_itself_stays_with_the_workers(spec: str, is_judge: bool) -> None:
    loaded = as_loaded(spec, ModelSettings(), Backwards())
    assert isinstance(loaded.model, RemoteModelRef)
    assert isinstance(loaded.model, PairJudge) == is_judge
    assert loaded.identity == as_loaded(spec, ModelSettings()).identity


def answer_in_worker(spec: str, **changes: Any) -> ScoreInWorker:
    described = as_loaded(spec, ModelSettings(), Backwards())
    assert isinstance(described.model, RemoteModelRef)
    plain = {"settings": EvalSettings(), "out": None, "host": platform.node()}
    return ScoreInWorker(**{"described": described, "remote": described.model} | plain | changes)


def test_a_worker_with_another_model_than_the_run_began_with_is_refused() -> None:
    other = replace(as_loaded("fake:length", ModelSettings(), Backwards()), identity={"fake": "changed weights"})
    with pytest.raises(UsageError, match=r"fake:length is another model on .*changed weights"):
        answer_in_worker("fake:length", described=other)()


def test_a_worker_on_another_machine_keeps_its_replies_in_a_file_of_its_own(tmp_path: Path) -> None:
    settings = EvalSettings(context="plan", planner="fake:Aspect: thrift")
    answer_in_worker("fake:length", settings=settings, out=tmp_path)()
    answer_in_worker("fake:length", settings=settings, out=tmp_path, host="elsewhere.example")()
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.sqlite")}
    assert found == {"cache/llm.sqlite", f"cache/{platform.node()}/cache/llm.sqlite"}
