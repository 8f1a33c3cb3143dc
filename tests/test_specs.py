"""One grammar and one binder for everything that comes in as text."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from prbench.errors import UsageError
from prbench.registry import DATASETS, LLMS, MODELS, POLICIES
from prbench.specs import (
    Above,
    AtLeast,
    AtMost,
    Between,
    bind,
    call,
    describe,
    format_spec,
    option,
    parse_settings,
    parse_spec,
)


@pytest.mark.parametrize(
    "text,target,options",
    [
        ("control:random", "random", {}),
        ("classifier:org/name?dtype=float32&max_length=64", "org/name", {"dtype": "float32", "max_length": "64"}),
        ("classifier:org/name?max-length=64", "org/name", {"max_length": "64"}),
        ("classifier:org/name?template=my%20turn%26.md", "org/name", {"template": "my turn&.md"}),
        ("classifier:org/name?context=none&noise=0.5", "org/name", {"context": "none", "noise": "0.5"}),
        ("judge:openai:m@http://h:1/v1?mode=logits", "openai:m@http://h:1/v1", {"mode": "logits"}),
        ("judge:openai:m@http://h:1/v1?key=9&zone=b", "openai:m@http://h:1/v1?key=9&zone=b", {}),
        ("judge:openai:m@http://h/v1?key=9?mode=parse", "openai:m@http://h/v1?key=9", {"mode": "parse"}),
        ("judge:fake:Which one? Result: A", "fake:Which one? Result: A", {}),
        ("judge:fake:Really?", "fake:Really?", {}),
        ("judge:fake:" + 300 * "Really? ", "fake:" + 300 * "Really? ", {}),
        ("fake:keyword=tea", "keyword=tea", {}),
        ("server:http://h:1?api=classify&model=a/b", "http://h:1", {"api": "classify", "model": "a/b"}),
        ("python:package.module:Factory?anything=1", "package.module:Factory", {"anything": "1"}),
    ],
)
def test_spec_is_taken_apart(text: str, target: str, options: dict[str, str]) -> None:
    spec = parse_spec(text, MODELS)
    assert (spec.target, spec.options) == (target, options)
    assert spec.text == text


@pytest.mark.parametrize(
    "text,part",
    [
        ("clasifier:org/name", "Did you mean 'classifier'?"),
        ("heads:folder", "Did you mean 'head'?"),
        ("random", "Unknown kind 'random'"),
        ("classifier", "names no reward model. Write classifier:<target>, e.g. classifier:org/name."),
        ("classifier:", "names no reward model"),
        ("classifier:?dtype=float32", "names no reward model"),
        ("classifier:org/name?dtpye=float32", "Did you mean 'dtype'?"),
        ("classifier:org/name?mode=logits", "unknown option 'mode'"),
        ("judge:openai:m@http://h/v1?mdoe=logits", "Did you mean 'mode'?"),
        ("judge:openai:m@http://h/v1?mode=parse&colour=red", "unknown option 'colour'"),
        ("classifier:org/name?dtype=float32&dtype=float16", "given twice"),
        ("classifier:org/name?dtype=", "has no value"),
        ("classifier:org/name?float32", "not a list of options"),
        ("fake:length?seed=1", "unknown option 'seed'. Known options: context, labels, shots, noise, fail."),
    ],
)
def test_wrong_spec_is_refused_in_one_line_with_the_next_step(text: str, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_spec(text, MODELS)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_kind_without_a_target_stands_alone() -> None:
    assert parse_spec("lab", DATASETS).target == ""
    with pytest.raises(UsageError, match=r"there is one policy 'lab'. Write lab, without 'big'"):
        parse_spec("lab:big", POLICIES)
    with pytest.raises(UsageError, match="there are no options here, so 'seed' means nothing"):
        parse_spec("lab?seed=1", DATASETS)


def test_a_prompt_keeps_its_question_marks_and_an_address_its_query() -> None:
    assert parse_spec("fake:Which? A or B", LLMS).target == "fake:Which? A or B".removeprefix("fake:")
    assert parse_spec("openai:m@http://h/v1?timeout=3", LLMS).options == {"timeout": "3"}
    assert parse_spec("openai:m@http://h/v1?key=3", LLMS).options == {}


def test_question_mark_in_the_name_of_a_folder_that_exists_belongs_to_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "what?dtype=float32"
    folder.mkdir()
    assert parse_spec(f"classifier:{folder}", MODELS).target == str(folder)


@pytest.mark.parametrize(
    "text,without,with_oracle",
    [
        ("head:DIR", "head:DIR", "head:DIR?context=oracle"),
        ("head:DIR?context=none", "head:DIR", "head:DIR?context=oracle"),
        ("head:DIR?context=none&encoder=a%26b", "head:DIR?encoder=a%26b", "head:DIR?context=oracle&encoder=a%26b"),
        ("judge:fake:Which? A", "judge:fake:Which? A", "judge:fake:Which? A?context=oracle"),
        ("server:http://h/x?a=1", "server:http://h/x?a=1", "server:http://h/x?a=1?context=oracle"),
    ],
)
def test_options_are_taken_off_a_spec_and_put_on_again(text: str, without: str, with_oracle: str) -> None:
    spec = parse_spec(text, MODELS)
    assert spec.without(["context"]).text == without
    changed = spec.with_option("context", "oracle")
    assert changed.text == with_oracle
    again = parse_spec(changed.text, MODELS)
    assert (again, again.target) == (changed, spec.target)


def test_a_folder_named_like_options_keeps_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "w?context=none"
    folder.mkdir()
    spec = parse_spec(f"head:{folder}", MODELS)
    assert spec.without(["context"]).text == f"head:{folder}"
    assert parse_spec(spec.with_option("context", "plan").text, MODELS).target == str(folder)


def test_a_spec_is_made_of_parts_as_it_is_taken_apart() -> None:
    text = format_spec("head", "DIR", {"labels": "my turn&.md", "encoder": "a/b"})
    assert parse_spec(text, MODELS).options == {"labels": "my turn&.md", "encoder": "a/b"}


@dataclass(frozen=True, kw_only=True)
class Plain:
    needed: int
    epochs: Annotated[int, AtLeast(1)] = 3
    rate: Annotated[float, Above(0)] = 0.1
    share: Annotated[float, Between(0, 1)] = option(0.5, "how much")
    top: Annotated[float, Above(0), AtMost(1)] = 1.0
    mode: Literal["fast", "slow"] = "fast"
    size: Annotated[int, AtLeast(1)] | Literal["auto"] | None = None
    is_on: bool = False
    place: Path | None = None
    names: tuple[str, ...] = ()


def test_texts_become_a_record_of_the_right_types() -> None:
    texts = {
        "needed": "-1",
        "rate": "1e-3",
        "mode": "slow",
        "size": "7",
        "is_on": "Yes",
        "place": "a/b",
        "names": "a, b,",
    }
    found = bind(Plain, texts, where="--set", given={"epochs": 9})
    assert found == Plain(
        needed=-1, epochs=9, rate=0.001, mode="slow", size=7, is_on=True, place=Path("a/b"), names=("a", "b")
    )
    assert bind(Plain, {"needed": "1", "size": "auto"}, where="x").size == "auto"
    assert bind(Plain, {"needed": "1", "size": ""}, where="x").size is None


@pytest.mark.parametrize(
    "name,value,allowed",
    [
        ("epochs", "0", "Give a whole number of at least 1."),
        ("epochs", "two", "Give a whole number of at least 1."),
        ("epochs", "1_0", "Give a whole number of at least 1."),
        ("epochs", "1.5", "Give a whole number of at least 1."),
        ("rate", "0", "Give a number above 0."),
        ("rate", "nan", "Give a number above 0."),
        ("rate", "1e999", "Give a number above 0."),
        ("share", "1.1", "Give a number from 0 to 1."),
        ("top", "1.1", "Give a number above 0 and of at most 1."),
        ("mode", "quick", "Give one of: fast, slow."),
        ("size", "many", "Give auto or a whole number of at least 1."),
        ("is_on", "maybe", "Give true or false."),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(name: str, value: str, allowed: str) -> None:
    with pytest.raises(UsageError) as caught:
        bind(Plain, {"needed": "1", name: value}, where="--set")
    assert str(caught.value) == f"--set: {name}={value} cannot be used. {allowed}"


def test_a_wrong_name_is_refused_with_the_nearest_and_the_defaults() -> None:
    with pytest.raises(
        UsageError, match=r"unknown option 'epoch'\. Known options: needed, epochs=3, .* mean 'epochs'\?"
    ):
        bind(Plain, {"epoch": "1"}, where="--set")
    with pytest.raises(UsageError, match="needed is missing, and has no default"):
        bind(Plain, {}, where="--set")


def test_settings_are_names_with_values_each_once() -> None:
    assert parse_settings(["a-b=1", " c =x=y"], where="--set") == {"a_b": "1", "c": "x=y"}
    for texts, part in ((["a"], "write name=value"), (["a=1", "a=2"], "given twice")):
        with pytest.raises(UsageError, match=part):
            parse_settings(texts, where="--set")


def test_a_function_is_called_with_what_its_annotations_say() -> None:
    def make(size: int, *, name: str = "x", share: float = 0.5) -> tuple[int, str, float]:
        return size, name, share

    assert call(make, {"size": "3", "share": "0.25"}, where="python:m:make") == (3, "x", 0.25)
    for texts, part in (({"siz": "3"}, "mean 'size'"), ({}, "size is missing"), ({"size": "x"}, "whole number")):
        with pytest.raises(UsageError, match=part):
            call(make, texts, where="python:m:make")


def test_a_parameter_without_annotation_has_the_type_of_its_default() -> None:
    def make(size=1, share=0.5, is_on=False, name="x", other=None, needed="", **rest):  # type: ignore[no-untyped-def]
        return size, share, is_on, name, other, rest

    texts = {"size": "2", "share": "1", "is_on": "no", "name": "3", "other": "4", "more": "5"}
    assert call(make, texts, where="python:m:make") == (2, 1.0, False, "3", "4", {"more": "5"})
    with pytest.raises(UsageError, match=r"size=x cannot be used\. Give a whole number\."):
        call(make, {"size": "x"}, where="python:m:make")


def test_the_members_of_a_tuple_are_of_its_types() -> None:
    def make(
        pair: tuple[int, float] = (1, 1.0), some: tuple[int, ...] = (), plain: tuple = (), either: str | list[str] = ""
    ) -> Any:
        return pair, some, plain, either

    texts = {"pair": "2, 0.5", "some": "1,2,3", "plain": "a,b", "either": "c"}
    assert call(make, texts, where="python:m:make") == ((2, 0.5), (1, 2, 3), ("a", "b"), "c")
    for texts, part in (
        ({"pair": "2"}, "Give 2 values with commas between them."),
        ({"pair": "x,1"}, "Give 2 values with commas between them."),
        ({"some": "1,x"}, "Give whole numbers with commas between them."),
    ):
        with pytest.raises(UsageError, match=part):
            call(make, texts, where="python:m:make")


def test_a_type_that_no_text_can_name_is_refused_by_its_name() -> None:
    class Thing:
        pass

    thing = Thing()

    def make(
        names: list[int] | None = None, where: dict[str, int] | None = None, some: tuple[bytes, ...] = (), made=thing
    ):  # type: ignore[no-untyped-def]
        return names

    for name, kind in (("names", "list[int]"), ("where", "dict"), ("made", "Thing"), ("some", "tuple[bytes, ...]")):
        with pytest.raises(UsageError, match=rf"python:m:make: {name}: a value of type .*{re.escape(kind)}"):
            call(make, {name: "1"}, where="python:m:make")


def test_what_takes_no_names_says_so() -> None:
    def placed(word: str, /) -> str:
        return word

    with pytest.raises(UsageError, match="word cannot be given by name"):
        call(placed, {}, where="python:m:placed")
    with pytest.raises(UsageError, match="does not say which options it takes"):
        call(dict, {"a": "1"}, where="python:builtins:dict")
    assert call(dict, {}, where="python:builtins:dict") == {}


def test_options_are_described_for_help() -> None:
    told = {each.name: (each.values, each.default, each.help) for each in describe(Plain)}
    assert told["share"] == ("a number from 0 to 1", 0.5, "how much")
    assert told["size"] == ("auto or a whole number of at least 1", None, "")


@pytest.mark.parametrize(
    "given,part",
    [
        ({"nedeed": 1}, "Did you mean 'needed'?"),
        ({"needed": "1"}, "needed='1' cannot be used. Give a whole number."),
        ({"needed": 1.5}, "needed=1.5 cannot be used"),
        ({"needed": True}, "needed=True cannot be used"),
        ({"needed": 1, "epochs": 0}, "epochs=0 cannot be used. Give a whole number of at least 1."),
        ({"needed": 1, "rate": float("nan")}, "rate=nan cannot be used"),
        ({"needed": 1, "mode": "quick"}, "mode='quick' cannot be used. Give one of: fast, slow."),
        ({"needed": 1, "is_on": 1}, "is_on=1 cannot be used. Give true or false."),
        ({"needed": 1, "place": "a"}, "place='a' cannot be used. Give a path."),
    ],
)
def test_values_from_python_are_held_to_the_same_types_and_bounds(given: dict[str, object], part: str) -> None:
    with pytest.raises(UsageError) as caught:
        bind(Plain, {}, where="settings", given=given)
    assert part in str(caught.value)


def test_values_from_python_are_kept_as_they_are() -> None:
    given = {"needed": 1, "rate": 2, "size": "auto", "place": Path("a"), "names": ("b",), "mode": "slow"}
    assert bind(Plain, {}, where="settings", given=given) == Plain(
        needed=1, rate=2, size="auto", place=Path("a"), names=("b",), mode="slow"
    )


def test_a_setting_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--set epochs=2: epochs is given as an option too\. Give it once\."):
        bind(Plain, {"needed": "1", "epochs": "2"}, where="--set", given={"epochs": 3})
