"""Code of a user's own, `python:package.module:Factory?key=value`: what names it, what it is asked, and its errors."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import make_row
from tests.support.command_line import prbench

from prbench.construction.build import BuildSettings
from prbench.construction.build.sources import read_items
from prbench.data import open_examples
from prbench.downstream.policies import load_policy
from prbench.errors import UsageError
from prbench.judging import judge_for
from prbench.reward_models import ModelSettings, load_reward_model

__all__ = ["prbench"]  # a fixture

MINE = """
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from prbench.judging import Grade
from prbench.backends.policy import FailedSample, Sample
from prbench.reward_models import LoadedModel

if TYPE_CHECKING:
    from nowhere import Thing


class J:
    span = (0, 9)
    identity = {"kept": "by me"}

    def __init__(self, bias=0, gives: str = "grades", other: Thing = None):
        self.bias, self.gives = bias, gives
        if gives == "no span":
            self.span = None

    def check(self, examples):
        if self.gives == "check":
            raise LookupError("no such user")

    def grade(self, example, responses):
        if self.gives == "nothing":
            return []
        if self.gives == "numbers":
            return [0.5 for _ in responses]
        if self.gives == "texts":
            return [Grade(value="good") for _ in responses]
        if self.gives == "raises":
            return {}["x"]
        if self.gives == "nan":
            return [Grade(value=float("nan")) for _ in responses]
        return [Grade(value=self.bias) for _ in responses]


class Other(J):
    pass


class P:
    at_once = 4

    def __init__(self, gives: str = "texts"):
        self.gives = gives
        if gives == "paths":
            self.identity = {"folder": Path("x")}

    def sample(self, prompts, *, n, seed):
        if self.gives == "few":
            return [["one"] for _ in prompts]
        if self.gives == "one list":
            return [["one"] * n]
        if self.gives == "numbers":
            return [[1] * n for _ in prompts]
        if self.gives == "a number":
            return 7
        if self.gives == "raises":
            raise RuntimeError("out\\nof luck")
        return [[f"Answer {number}." for number in range(n)] for _ in prompts]


class M:
    def __init__(self, how: str = "scores"):
        self.how = how
        if how in ("TypeError", "ValueError"):
            raise {"TypeError": TypeError, "ValueError": ValueError}[how]("in the factory")
        if how == "paths":
            self.identity = {"folder": Path("x")}

    def score(self, inputs):
        if self.how == "raises":
            raise ZeroDivisionError
        return [float(len(each.response)) for each in inputs]


class Other2(M):
    pass


def loaded(how: str = "scores"):
    return LoadedModel(spec="x", kind="x", model=M(how))


def pos(word, /):
    return M()


def rows(users=2, fail=False):
    for number in range(users):
        split = ("train", "test")[number % 2]
        yield {"id": f"r{number}", "user_id": f"u{number}", "question": f"Why, {number}?", "profile": [],
               "chosen": "Since.", "rejected": "So.", "split": split}
    if fail:
        raise ValueError("the file ended")


def listed(sizes: list[int] = ()):
    return M()
"""


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules of somebody's own; broken ones among them."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "mine.py").write_text(MINE)
    (folder / "no_syntax.py").write_text("def x(:\n")
    (folder / "no_import.py").write_text("import no_such_package\n")
    (folder / "leaves.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(str(folder))
    yield
    for name in ("mine", "no_syntax", "no_import", "leaves"):
        sys.modules.pop(name, None)


def bon(prbench: Callable[..., Any], *more: str) -> Any:
    return prbench("bon", "--model", "control:longest", "--users", "2", "--limit", "4", "--n", "2", "--json", *more)


def refused(ended: Any, part: str) -> None:
    assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
    assert part in ended.err


def kept(folder: Path) -> list[str]:
    """All rows of pools and grades."""
    return [line for path in folder.rglob("*.jsonl") for line in path.read_text().splitlines()]


def test_judges_that_differ_in_options_or_factory_share_no_grades(prbench: Callable[..., Any]) -> None:
    ended = [bon(prbench, "--judge", f"python:mine:{judge}") for judge in ("J?bias=0", "J?bias=9", "Other?bias=9")]
    assert len({each.json["run_id"] for each in ended}) == 3
    assert [each.json["models"]["oracle"]["value_at"]["2"]["value"] for each in ended] == [0, 9, 9]
    assert ended[1].json["judge"] == {
        "judge": "python:mine:J",
        "kept": "by me",
        "made_by": {"factory": "mine:J", "options": {"bias": "9"}},
    }


def test_policies_and_models_are_named_by_their_options_and_factory() -> None:
    policies = [load_policy(f"python:mine:P{tail}").identity for tail in ("", "?gives=few")]
    assert policies[0] != policies[1]
    models = [load_reward_model(f"python:mine:{name}", ModelSettings()) for name in ("M", "Other2", "M?how=raises")]
    assert models[0].identity["made_by"] == {"factory": "mine:M"}
    assert len({json.dumps(dict(each.identity)) for each in models}) == 3
    through = load_reward_model("python:mine:loaded?how=x", ModelSettings())
    assert through.identity["made_by"] == {"factory": "mine:loaded", "options": {"how": "x"}}


def test_a_policy_keeps_what_it_promises_beside_sampling() -> None:
    from prbench.downstream.best_of_n.pool import HasBatchSize, Windowed

    policy = load_policy("python:mine:P")
    assert isinstance(policy, HasBatchSize)
    assert policy.at_once == 4
    assert not isinstance(policy, Windowed)


@pytest.mark.parametrize(
    "gives,part",
    [
        ("nothing", "grade returned 0 grades for 2 responses. Return one each, in order."),
        ("numbers", "grade returned a float where a prbench.judging.Grade belongs."),
        ("texts", "the value of a grade is a str. Make it a number, or None."),
        ("raises", "python:mine:J?gives=raises: grade raised KeyError: 'x' (mine.py:"),
        ("check", "python:mine:J?gives=check: check raised LookupError: no such user (mine.py:"),
        ("no%20span", "its span is None. Make it the least and the greatest grade."),
    ],
)
def test_what_a_judge_gets_wrong_is_one_line_and_never_kept(
    prbench: Callable[..., Any], tmp_path: Path, gives: str, part: str
) -> None:
    refused(bon(prbench, "--judge", f"python:mine:J?gives={gives}"), part)
    assert not [line for line in kept(tmp_path / "runs") if '"values"' in line]


def test_a_grade_that_is_no_number_is_none(prbench: Callable[..., Any], tmp_path: Path) -> None:
    ended = bon(prbench, "--judge", "python:mine:J?gives=nan")
    assert ended.code == 2
    assert "0 of 4 questions have all answers and grades" in ended.err
    assert [line for line in kept(tmp_path / "runs") if "not a finite number" in line]


@pytest.mark.parametrize(
    "gives,part",
    [
        ("few", "sample returned 1 samples for a prompt, and 2 were asked for."),
        ("one%20list", "sample returned 1 lists for 2 prompts. Return one each, in order."),
        ("numbers", "sample returned a int where a text or a Sample belongs."),
        ("a%20number", "sample returned a int where a list of lists of samples belongs."),
        ("raises", "python:mine:P?gives=raises: sample raised RuntimeError: out of luck (mine.py:"),
        ("paths", "its identity cannot be written as JSON"),
    ],
)
def test_what_a_policy_gets_wrong_is_one_line_and_never_kept(
    prbench: Callable[..., Any], tmp_path: Path, gives: str, part: str
) -> None:
    refused(bon(prbench, "--policy", f"python:mine:P?gives={gives}"), part)
    assert not kept(tmp_path / "runs")


@pytest.mark.parametrize(
    "spec,part",
    [
        ("mine:M?how=TypeError", "M raised TypeError: in the factory (mine.py:"),
        ("mine:M?how=ValueError", "M raised ValueError: in the factory (mine.py:"),
        ("mine:M?how=raises", "score raised ZeroDivisionError (mine.py:"),
        ("mine:loaded?how=raises", "score raised ZeroDivisionError (mine.py:"),
        ("mine:M?how=paths", "its identity cannot be written as JSON"),
        ("no_syntax:M", "importing no_syntax raised SyntaxError: invalid syntax (no_syntax.py, line 1)"),
        ("no_import:M", "importing no_import raised ModuleNotFoundError: No module named 'no_such_package'"),
        ("leaves:M", "importing leaves raised SystemExit: 3"),
        (".mine:M", ".mine begins with a dot. Write the module's whole name."),
        ("mine:pos", "word cannot be given by name. Take the / out of its parameters."),
        ("mine:listed?sizes=1,2", "sizes: a value of type list[int] cannot be read from text"),
        ("builtins:dict?a=1", "it does not say which options it takes, so 'a' cannot be given"),
    ],
)
def test_what_a_model_gets_wrong_is_one_line(prbench: Callable[..., Any], spec: str, part: str) -> None:
    refused(prbench("eval", "--limit", "2", "--model", f"python:{spec}"), f"python:{spec}: ")
    refused(prbench("eval", "--limit", "2", "--model", f"python:{spec}"), part)


def test_the_error_itself_stays_the_cause() -> None:
    with pytest.raises(UsageError) as caught:
        load_reward_model("python:mine:M?how=TypeError", ModelSettings())
    assert isinstance(caught.value.__cause__, TypeError)


def test_annotations_of_other_parameters_are_not_resolved() -> None:
    assert judge_for("python:mine:J?bias=3").span == (0.0, 9.0)
    with pytest.raises(UsageError, match="the type of other, 'Thing', cannot be found"):
        judge_for("python:mine:J?other=3")
    with pytest.raises(UsageError, match=r"bias=0\.5 cannot be used\. Give a whole number"):
        judge_for("python:mine:J?bias=0.5")


def test_rows_of_ones_own_are_filtered_by_their_own_split(prbench: Callable[..., Any]) -> None:
    command = ("eval", "--model", "control:longest", "--data", "python:mine:rows?users=6", "--json")
    assert prbench(*command).json["n_items"] == 6
    assert prbench(*command, "--split", "test").json["n_items"] == 3
    ended = prbench(*command, "--split", "validation")
    refused(ended, "no row has the wanted split. It has: train (3 rows), test (3 rows).")


def test_a_build_reads_rows_of_ones_own(prbench: Callable[..., Any]) -> None:
    who = {"generator": "fake:x", "judge": "fake:x", "quality_judge": "fake:x"}
    found = read_items(BuildSettings(data="python:mine:rows?users=4", split="test", **who), None)
    assert (found.kind, [item.id for item in found.items]) == ("rows", ["r1", "r3"])
    roles = [part for role, spec in who.items() for part in (f"--{role.replace('_', '-')}", spec)]
    ended = prbench(
        "build", "--data", "python:mine:rows?users=4", *roles, "--private", "--dry-run", "--out", "b", "--json"
    )
    assert ended.code == 0, ended.err


def test_rows_that_fail_on_the_way_are_one_line(prbench: Callable[..., Any]) -> None:
    ended = prbench("eval", "--model", "control:longest", "--data", "python:mine:rows?fail=true")
    refused(ended, "python:mine:rows?fail=true: the iteration raised ValueError: the file ended (mine.py:")


@pytest.mark.parametrize(
    "said", ["python:mine:J?bias=1", "openai:m@http://127.0.0.1:9/v1", "fake:x", "openai", "nobody", "lab?x=1"]
)
def test_a_card_may_not_name_a_judge_that_could_run_code_or_send_rows_away(
    prbench: Callable[..., Any], tmp_path: Path, said: str
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "README.md").write_text(f"---\nprbench: {{judge: {json.dumps(said)}}}\n---\n")
    (folder / "test.jsonl").write_text("".join(json.dumps(make_row(number)) + "\n" for number in range(8)))
    command = ("--policy", "fake:Sow.", "--data", str(folder))
    refused(bon(prbench, *command), f"{folder}: its card names judge {said!r}. Give it with --judge if you trust it.")
    assert not kept(tmp_path / "runs")
    assert bon(prbench, *command, "--judge", "python:mine:J").code == 0  # the card's is not used
    with open_examples(folder) as store:
        assert (store.judge, store.judge_of_card) == ("", said)
    assert prbench("eval", "--model", "control:longest", "--data", str(folder)).code == 0
