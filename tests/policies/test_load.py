"""Policies by name: what is wrong is said in one line."""

import pytest

from prbench.downstream.policies import ChatPolicy, load_policy
from prbench.errors import UsageError


def test_any_chat_model_is_a_policy() -> None:
    policy = load_policy("fake:Plant basil.", temperature=0.5, max_tokens=7)
    assert isinstance(policy, ChatPolicy)
    assert policy.name == "fake:Plant basil."
    assert policy.identity["temperature"] == 0.5


@pytest.mark.parametrize(
    "spec,options,line",
    [
        ("labs", {}, "Unknown kind 'labs' of policy in 'labs'.*Did you mean 'lab'"),
        ("head:lab-user", {}, "Known kinds: lab, hf, python, openai, local, vllm, fake"),
        ("lab:big", {}, "there is one policy 'lab'"),
        ("hf:", {}, "names no policy"),
        ("lab", {"temperature": -1.0}, "--temperature -1.0"),
        ("lab", {"temperature": float("nan")}, "--temperature nan"),
        ("lab", {"max_tokens": 0}, "--max-tokens 0"),
        ("hf:org/name", {"top_p": 0.0}, "--top-p 0.0"),
        ("hf:org/name", {"top_p": float("nan")}, "--top-p nan"),
        ("fake:yes", {"top_p": 0.9}, "only hf: policies"),
    ],
)
def test_what_cannot_be_loaded_is_refused(spec: str, options: dict[str, float], line: str) -> None:
    with pytest.raises(UsageError, match=line):
        load_policy(spec, **options)  # type: ignore[arg-type]
