"""What names a run: declared keys, so that no name in the code does, and every setting that matters is among them."""

import copy
from dataclasses import dataclass, fields, make_dataclass, replace
from typing import Any, ClassVar

import pytest

from prbench.construction.build.settings import BuildSettings
from prbench.data import DataSettings, content_hash, open_examples
from prbench.downstream.best_of_n.run import BonSettings
from prbench.downstream.ppo.evaluate import HeldOutSettings
from prbench.downstream.ppo.settings import PpoSettings
from prbench.evaluation.settings import EvalSettings
from prbench.insight.planner_evaluation import PlannerSettings
from prbench.lab import default_dataset
from prbench.registry import METHODS
from prbench.runs import Keys, differences, run_id
from prbench.schema import Probe
from prbench.training.data import make_training_data
from prbench.training.methods import load_method

RECORDS: tuple[Any, ...] = (
    EvalSettings(),
    DataSettings(),
    BonSettings(n=4),
    PpoSettings(policy="smollm2", reward="oracle"),
    HeldOutSettings(),
    PlannerSettings(planner="local:smollm2"),
    BuildSettings(data="lab", generator="fake", judge="fake", quality_judge="fake"),
    *(load_method(name).config(**({"models": "a,b"} if name == "blend" else {})) for name in METHODS.names),
)
# Fields that do not change the identity, each for a reason.
NOT_IN_THE_ID = {
    ("BuildSettings", "data"): "the rows may move; their hash names them",
}

# What is left out of an identity, as a hash. Where a default changes, this must not.
LEFT_OUT = {
    "EvalSettings": "95a4ad065673",
    "DataSettings": "c65fc8c10003",
    "BonSettings": "0bbe5a909870",
    "PpoSettings": "93a5cea47b33",
    "HeldOutSettings": "f726c148acc6",
    "PlannerSettings": "0d10d545cd5f",
    "BuildSettings": "a5b37876e8be",
    "BtConfig": "330390d1d002",
    "BtProfileConfig": "d843ee393558",
    "PlannerConfig": "09dfeff34177",
    "SummaryConfig": "5b73ffc7cc95",
    "LmPlannerConfig": "4db242a874ff",
    "RubricChainConfig": "ee4fd4559143",
    "HeadConfig": "8dc2373c06b4",
    "EncoderConfig": "1d662ffcd192",
    "MatchConfig": "8587c8325a67",
    "BlendConfig": "1917857fde67",
    "FewshotConfig": "f3ca2268bd43",
    "SftConfig": "3d5afd59901e",
}


def another(value: Any) -> Any:
    """Return a value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}x"
        case tuple():
            return (Probe.OWN,)
        case EvalSettings():
            return EvalSettings(posts=3)
        case _:
            return 7  # where there was nothing


def with_field(record: Any, name: str) -> Any:
    changed = copy.copy(record)
    object.__setattr__(changed, name, another(getattr(record, name)))  # past the checks of values
    return changed


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_every_field_changes_the_identity_or_is_listed(record: Any) -> None:
    before = run_id(record.to_config())
    same = [each.name for each in fields(record) if run_id(with_field(record, each.name).to_config()) == before]
    assert same == [name for kind, name in NOT_IN_THE_ID if kind == type(record).__name__]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_default_that_changes_gives_no_old_run_the_identity_of_a_new_one(record: Any) -> None:
    assert run_id(dict(record.KEYS.left_out)) == LEFT_OUT[type(record).__name__]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_defaults_are_left_out_and_a_new_field_with_one_renames_no_run(record: Any) -> None:
    assert set(record.to_config()) - {"models"} == set(record.KEYS.needed)
    grown = make_dataclass("Grown", [("brand_new", str, "")], bases=(type(record),), frozen=True, kw_only=True)
    own = {each.name: getattr(record, each.name) for each in fields(record)}
    assert grown(**own).to_config() == record.to_config()


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_what_is_written_reads_back(record: Any) -> None:
    for each in fields(record):
        changed = with_field(record, each.name)
        read = record.KEYS.read(changed.to_config())
        written = {name: value for name, value in record.KEYS.values(changed).items() if name in read}
        assert read == written


def test_renamed_fields_and_classes_and_moved_defaults_rename_no_run() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Before:
        posts: int = 10
        seed: int = 0
        KEYS: ClassVar[Keys] = Keys(posts=10, seed=0)

    @dataclass(frozen=True, kw_only=True)
    class After:
        n_posts: int = 30  # the default has moved, and the key's has not
        rank: str = "recent"
        seed: int = 0
        KEYS: ClassVar[Keys] = Keys(posts=10, seed=0, rank="recent").named(posts="n_posts")

    assert After.KEYS.write(After(n_posts=10)) == Before.KEYS.write(Before()) == {}
    assert After.KEYS.write(After()) == Before.KEYS.write(Before(posts=30)) == {"posts": 30}
    assert After(**After.KEYS.read({"posts": 4})) == After(n_posts=4)


def test_settings_read_back_as_they_were() -> None:
    asked = EvalSettings(context="plan", planner="fake", probes=(Probe.OWN, Probe.SWAP), seed=3)
    assert EvalSettings.from_config(asked.to_config()) == asked
    ppo = PpoSettings(policy="p", reward="r", kl_budget=2.0, context="none")
    assert PpoSettings.from_config(ppo.to_config()) == ppo
    which = DataSettings(source="lab", limit=3)
    assert DataSettings.from_config(which.to_config()) == which


def test_the_run_id_depends_on_content_and_not_on_key_order() -> None:
    assert run_id({"a": 1, "b": 2}) == run_id({"b": 2, "a": 1})
    assert run_id({"a": 1}) != run_id({"a": 2})
    # The paper's code names runs without the reward model, so a second one would resume the first one's results.
    assert run_id({"model": "classifier:one"}) != run_id({"model": "classifier:two"})


def test_a_difference_is_named_with_what_was_there() -> None:
    old, new = {"model": "a", "settings": {"seed": 3, "posts": 5}}, {"model": "b", "settings": {"posts": 5}}
    assert list(differences(old, new)) == ["model (a)", "settings.seed (3)"]
    assert list(differences(new, old)) == ["model (b)", "settings.seed (its default)"]


def test_rows_have_one_hash_wherever_they_are_used() -> None:
    rows = default_dataset("test")[:5]
    with open_examples(rows) as store:
        assert content_hash(rows) == store.content_hash
    moved = [replace(rows[0], split="other"), *rows[1:]]
    assert content_hash(moved) != content_hash(rows)
    assert make_training_data(rows, rows[:1]).digest != make_training_data(moved, rows[:1]).digest
