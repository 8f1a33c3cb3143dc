"""Options of reward models: those of their kind, and those that every kind takes."""

from pathlib import Path

import pytest

from prbench.errors import UsageError
from prbench.registry import MODELS
from prbench.reward_models import ModelSettings, View, load_reward_model, read_ref
from prbench.reward_models.base import override
from prbench.reward_models.view import board_name
from prbench.schema import RewardInput, UserContext
from prbench.specs import parse_spec


def options_of(text: str) -> object:
    spec = parse_spec(text, MODELS)
    return MODELS.find(spec.kind).read_options(spec)


def test_options_override_the_settings_and_leave_the_others() -> None:
    options = options_of("classifier:a/b?batch_size=3&trust_remote_code=yes&chat_template=t.jinja&revision=v2")
    settings = override(ModelSettings(batch_size=9, max_length=77), options)
    assert settings == ModelSettings(
        batch_size=3, max_length=77, trust_remote_code=True, chat_template=Path("t.jinja"), revision="v2"
    )
    assert override(ModelSettings(batch_size=9), options_of("classifier:a/b?batch_size=auto")) == ModelSettings()
    cached = ModelSettings(cache=Path("replies"))
    assert override(cached, options_of("summary:DIR?cache=summaries.jsonl")) == cached


@pytest.mark.parametrize("option", ["batch_size=0", "batch_size=many", "max_length=-1", "trust_remote_code=maybe"])
def test_option_of_the_wrong_type_is_refused(option: str) -> None:
    with pytest.raises(UsageError, match=option):
        options_of(f"classifier:a/b?{option}")


def test_what_a_model_is_shown_and_what_disturbs_it_are_no_options_of_its_kind() -> None:
    ref = read_ref("head:DIR?context=none&encoder=minilm&noise=0.5&labels=lab&shots=3&fail=0.1")
    assert ref.view == View(context="none", labels="lab", shots=3, noise=0.5, fail=0.1)
    assert ref.spec.options == {"encoder": "minilm"}
    assert ref.spec.text == "head:DIR?encoder=minilm"
    assert ref.text == "head:DIR?encoder=minilm&noise=0.5&fail=0.1"
    assert ref.context("profile") == "none"
    assert read_ref("head:DIR").context("profile") == "profile"


def test_the_truth_sees_the_rubric_by_itself() -> None:
    assert read_ref("control:gold?noise=1").context("profile") == "oracle"
    assert read_ref("control:gold?context=profile").context("none") == "profile"


@pytest.mark.parametrize(
    "option", ["noise=-1", "noise=1e999", "noise=x", "fail=1.5", "fail=-0.5", "context=all", "shots=0"]
)
def test_amounts_and_contexts_are_checked(option: str) -> None:
    with pytest.raises(UsageError, match=f"{option} cannot be used"):
        read_ref(f"fake:length?{option}")


def test_what_is_shown_is_refused_where_the_inputs_say_it() -> None:
    with pytest.raises(UsageError, match="context=none means nothing here"):
        load_reward_model("fake:length?context=none", ModelSettings())


def test_models_have_one_name_across_commands() -> None:
    assert board_name("head:a?context=none", "none", "profile") == "head:a?context=none"
    assert board_name("head:a?noise=1&context=profile", "profile", "profile") == "head:a?noise=1"
    assert board_name("head:a", "oracle", "profile") == "head:a?context=oracle"


def test_noise_and_failures_depend_on_the_texts_and_the_seed_alone() -> None:
    user = UserContext.from_text("C")
    inputs = [RewardInput(question="Q", user=user, response=f"answer {number}") for number in range(2000)]

    def values(spec: str, seed: int = 3) -> list[float | None]:
        model = load_reward_model(spec, ModelSettings(seed=seed)).model
        return [score.value for score in model.score(inputs)]  # type: ignore[union-attr]

    noisy = values("fake:constant?noise=0.5")
    assert abs(sum(noisy) / 2000) < 0.05  # type: ignore[arg-type]
    assert (sum(value**2 for value in noisy) / 2000) ** 0.5 == pytest.approx(0.5, rel=0.05)  # type: ignore[operator]
    inputs.reverse()
    assert values("fake:constant?noise=0.5") == noisy[::-1]
    assert values("fake:constant?noise=0.5", seed=4) != noisy[::-1]
    failures = [value for value in values("fake:constant?fail=0.05") if value is None]
    assert 60 < len(failures) < 140


def test_what_disturbs_a_model_is_in_its_identity() -> None:
    plain, noisy = (
        load_reward_model(f"fake:length{tail}", ModelSettings(seed=2)) for tail in ("", "?noise=0.5&fail=0.1")
    )
    assert noisy.identity == {**plain.identity, "disturbed": {"noise": 0.5, "fail": 0.1, "seed": 2}}
    assert noisy.spec == "fake:length?noise=0.5&fail=0.1"
