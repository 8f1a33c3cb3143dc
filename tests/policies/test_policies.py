"""Policies by name, and chat models as policies: what is wrong is said in one line."""

import pytest

from prbench.backends.llm import ChatRequest, FakeLLM, Finish, Reply
from prbench.backends.policy import FailedSample, Policy, Prompt, Sample
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
        ("lab", {"max_tokens": 0}, "--max-new-tokens 0"),
        ("hf:org/name", {"top_p": 0.0}, "--top-p 0.0"),
        ("hf:org/name", {"top_p": float("nan")}, "--top-p nan"),
        ("fake:yes", {"top_p": 0.9}, "only hf: policies"),
    ],
)
def test_what_cannot_be_loaded_is_refused(spec: str, options: dict[str, float], line: str) -> None:
    with pytest.raises(UsageError, match=line):
        load_policy(spec, **options)  # type: ignore[arg-type]


PROMPTS = [Prompt(id=name, question=f"What about {name}?", context="") for name in ("a", "b")]


def policy_of(llm: FakeLLM, *, max_tokens: int = 20) -> ChatPolicy:
    return ChatPolicy(llm, temperature=0.8, max_tokens=max_tokens)


def by_seed(request: ChatRequest) -> str:
    return f"{request.messages[-1].content} {request.seed}"


def test_every_sample_is_asked_for_with_its_own_seed_and_the_temperature() -> None:
    llm = FakeLLM(by_seed)
    policy = policy_of(llm)
    assert isinstance(policy, Policy)
    samples = policy.sample(PROMPTS, n=3, seed=1)
    assert [len(some) for some in samples] == [3, 3]
    assert len({request.seed for request in llm.requests}) == 6
    assert {(request.temperature, request.max_tokens) for request in llm.requests} == {(0.8, 20)}
    assert all("What about b?" in sample.text for sample in samples[1])


def test_a_sample_does_not_depend_on_what_else_is_asked() -> None:
    both = policy_of(FakeLLM(by_seed)).sample(PROMPTS, n=3, seed=1)
    assert policy_of(FakeLLM(by_seed)).sample(PROMPTS[1:], n=3, seed=1)[0] == both[1]
    assert policy_of(FakeLLM(by_seed)).sample(PROMPTS[1:], n=3, seed=2)[0] != both[1]


def test_a_failed_request_is_no_text() -> None:
    replies = [Reply(text="Good."), Reply(finish=Finish.ERROR, error="HTTP 500"), Reply(text="Fine.")]
    first, second, third = policy_of(FakeLLM(replies)).sample(PROMPTS[:1], n=3, seed=0)[0]
    assert (first.text, third.text) == ("Good.", "Fine.")
    assert isinstance(second, FailedSample)
    assert (second.finish, second.error) == ("error", "HTTP 500")


def test_an_answer_that_was_cut_off_says_so() -> None:
    llm = FakeLLM(Reply(text="It depends on", finish=Finish.LENGTH, completion_tokens=3))
    assert policy_of(llm).sample(PROMPTS[:1], n=1, seed=0) == [
        [Sample(text="It depends on", finish="length", tokens=3)]
    ]


def test_the_identity_tells_ways_of_sampling_apart() -> None:
    llm = FakeLLM("yes")
    identities = [
        ChatPolicy(llm, temperature=temperature, max_tokens=tokens).identity
        for temperature, tokens in ((0.8, 20), (1.0, 20), (0.8, 30))
    ]
    assert len({str(identity) for identity in identities}) == 3


def test_it_tells_whether_a_prompt_leaves_room() -> None:
    narrow = FakeLLM("yes", window=60)
    assert policy_of(narrow).fits(PROMPTS[0])
    assert not policy_of(narrow).fits(Prompt(id="a", question="What?", context="word " * 60))
    assert policy_of(FakeLLM("yes")).fits(Prompt(id="a", question="What?", context="word " * 60))
