from pathlib import Path

import pytest

from prbench.errors import UsageError
from prbench.reward_models import ModelSettings
from prbench.reward_models.spec import override, parse_spec


@pytest.mark.parametrize(
    "text,target,options",
    [
        ("control:random", "random", {}),
        ("classifier:org/name?dtype=float32&max_length=64", "org/name", {"dtype": "float32", "max_length": "64"}),
        ("classifier:org/name?max-length=64", "org/name", {"max_length": "64"}),
        ("classifier:org/name?template=my%20turn%26.md", "org/name", {"template": "my turn&.md"}),
        ("judge:openai:m@http://h:1/v1?mode=logits", "openai:m@http://h:1/v1", {"mode": "logits"}),
        ("judge:openai:m@http://h:1/v1?key=9&zone=b", "openai:m@http://h:1/v1?key=9&zone=b", {}),
        ("judge:openai:m@http://h/v1?key=9?mode=parse", "openai:m@http://h/v1?key=9", {"mode": "parse"}),
        ("judge:fake:Which one? Result: A", "fake:Which one? Result: A", {}),
        ("judge:fake:Really?", "fake:Really?", {}),
        ("fake:keyword=tea", "keyword=tea", {}),
        ("server:http://h:1?api=classify&model=a/b", "http://h:1", {"api": "classify", "model": "a/b"}),
    ],
)
def test_spec_is_taken_apart(text: str, target: str, options: dict[str, str]) -> None:
    spec = parse_spec(text)
    assert (spec.target, spec.options) == (target, options)
    assert spec.text == text


@pytest.mark.parametrize(
    "text,part",
    [
        ("clasifier:org/name", "Did you mean 'classifier'?"),
        ("heads:folder", "Did you mean 'head'?"),
        ("random", "Unknown kind 'random'"),
        ("classifier", "names no model"),
        ("classifier:", "names no model"),
        ("classifier:?dtype=float32", "names no model"),
        ("classifier:org/name?dtpye=float32", "Did you mean 'dtype'?"),
        ("classifier:org/name?mode=logits", "unknown option 'mode'"),
        ("judge:openai:m@http://h/v1?mdoe=logits", "Did you mean 'mode'?"),
        ("judge:openai:m@http://h/v1?mode=parse&colour=red", "unknown option 'colour'"),
        ("classifier:org/name?dtype=float32&dtype=float16", "given twice"),
        ("classifier:org/name?dtype=", "has no value"),
        ("classifier:org/name?float32", "not a list of options"),
        ("fake:length?seed=1", "take no options"),
    ],
)
def test_wrong_spec_is_refused_in_one_line_with_the_next_step(text: str, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_spec(text)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_question_mark_in_the_name_of_a_folder_that_exists_belongs_to_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "what?dtype=float32"
    folder.mkdir()
    assert parse_spec(f"classifier:{folder}").target == str(folder)


def test_options_override_the_settings_and_leave_the_others() -> None:
    spec = parse_spec("classifier:a/b?batch_size=3&trust_remote_code=yes&chat_template=t.jinja&revision=v2")
    settings = override(ModelSettings(batch_size=9, max_length=77), spec)
    assert settings == ModelSettings(
        batch_size=3, max_length=77, trust_remote_code=True, chat_template=Path("t.jinja"), revision="v2"
    )


@pytest.mark.parametrize("option", ["batch_size=0", "batch_size=many", "max_length=-1", "trust_remote_code=maybe"])
def test_option_of_the_wrong_type_is_refused(option: str) -> None:
    with pytest.raises(UsageError, match=option.split("=")[0]):
        override(ModelSettings(), parse_spec(f"classifier:a/b?{option}"))


def test_numbers_and_choices_are_checked() -> None:
    spec = parse_spec("implicit:a/b,c/d?beta=0&per_token=si")
    with pytest.raises(UsageError, match="beta=0"):
        spec.number("beta", 1.0)
    with pytest.raises(UsageError, match="neither true nor false"):
        spec.truth("per_token", False)
    with pytest.raises(UsageError, match="Use one of: a, b"):
        spec.choice("per_token", ("a", "b"), "a")
