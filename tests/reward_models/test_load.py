from pathlib import Path

import pytest

from prbench.errors import UsageError
from prbench.registry import LLMS, MODELS, POLICIES, TABLES
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.base import PairJudge, RewardModel
from prbench.schema import PairInput, Pick, RewardInput
from prbench.specs import parse_spec

PAIR = PairInput(question="Q?", first="one", second="two")
INPUT = RewardInput(question="Q?", response="one")


def test_judge_is_loaded_with_its_options() -> None:
    loaded = load_reward_model("judge:fake:Result: B?max_tokens=64&window=4000", ModelSettings(seed=7))
    assert isinstance(loaded.model, PairJudge)
    assert loaded.model.prefer([PAIR])[0].pick is Pick.SECOND
    assert loaded.kind == "judge"
    assert loaded.identity["max_tokens"] == 64
    assert loaded.identity["window"] == 4000
    assert loaded.identity["seed"] == 7
    assert len(loaded.template_hash) == 12
    assert loaded.fits is not None
    assert loaded.fits(PAIR)


def test_logits_mode_has_its_own_template() -> None:
    parsed = load_reward_model("judge:fake:A", ModelSettings())
    by_logits = load_reward_model("judge:fake:A?mode=logits", ModelSettings())
    assert parsed.template_hash != by_logits.template_hash
    assert by_logits.identity["mode"] == "logits"


def test_rating_reads_the_scale_that_its_template_declares(tmp_path: Path) -> None:
    rating = load_reward_model("rating:fake:Score: 7", ModelSettings())
    assert isinstance(rating.model, RewardModel)
    assert rating.model.score([INPUT])[0].value == 7.0
    template = tmp_path / "percent.md"
    template.write_text(
        "---\nslots: question, context, response\nanswer: score 0-100\n---\n## user\n{question}{context}{response}\n"
    )
    percent = load_reward_model("rating:fake:Score: 70", ModelSettings(template=template))
    assert isinstance(percent.model, RewardModel)
    assert percent.model.score([INPUT])[0].value == 70.0


def test_replies_are_cached_where_a_cache_is_given(tmp_path: Path) -> None:
    cache = tmp_path / "replies.sqlite"
    loaded = load_reward_model("rating:fake:Score: 7", ModelSettings(cache=cache))
    assert isinstance(loaded.model, RewardModel)
    loaded.model.score([INPUT])
    assert cache.exists()
    assert loaded.identity == load_reward_model("rating:fake:Score: 7", ModelSettings()).identity


@pytest.mark.parametrize(
    "spec,fact",
    [
        ("judge:fake:A?mode=guess", "Give one of: parse, logits"),
        ("judge:fake:A?max_tokens=0", "max_tokens=0"),
        ("judge:fake:A?timeout=soon", "timeout=soon"),
        ("judge:fake:A?template=rate", "has the slots"),
        ("rating:fake:A?template=judge_pair", "has the slots"),
        ("rating:fake:A?mode=logits", "unknown option 'mode'"),
        ("head:folder", "there is no such folder"),
    ],
)
def test_wrong_options_are_refused(spec: str, fact: str) -> None:
    with pytest.raises(UsageError, match=fact):
        load_reward_model(spec, ModelSettings())


@pytest.mark.parametrize("name", TABLES)
def test_every_row_names_code_that_is_there_and_examples_that_parse(name: str) -> None:
    table = TABLES[name]
    for row in table.rows:
        assert row.summary
        if row.name != "python":
            assert callable(row.loader())
        table.option_names(row.name)
        for usage in row.usages:
            assert parse_spec(usage.example, table).kind == row.name


def test_every_chat_model_is_a_policy_and_hf_has_its_own() -> None:
    assert set(POLICIES.names) == {"lab", "python", *LLMS.names}
    assert POLICIES.find("openai").load == "prbench.downstream.policies:load_chat"
    assert POLICIES.find("hf").load == "prbench.downstream.policies:load_hf"


def test_models_say_before_they_are_loaded_that_they_only_compare() -> None:
    assert [row.name for row in MODELS.rows if row.compares] == ["judge", "replies"]
