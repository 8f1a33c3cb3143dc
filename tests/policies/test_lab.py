"""The sentence sampler: only the question's own share, distinct points, and nothing but its id decides a sample."""

import pytest

from prbench.backends.policy import Policy, Prompt
from prbench.data.texts import sentences_of
from prbench.downstream.policies import load_policy
from prbench.errors import UsageError
from prbench.lab import default_dataset
from prbench.lab.gold import GoldInstrument
from prbench.lab.policy import LabPolicy
from prbench.schema import Example


def prompt_of(example: Example, context: str = "") -> Prompt:
    return Prompt(id=example.id, question=example.question, context=context)


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return default_dataset("test")[:40]


def test_it_is_a_policy() -> None:
    policy = load_policy("lab")
    assert isinstance(policy, Policy)
    assert policy.name == "lab"


def test_answers_are_distinct_points_of_the_subject_over_all_traits(examples: list[Example]) -> None:
    instrument = GoldInstrument()
    example = examples[0]
    traits = set()
    for sample in LabPolicy().sample([prompt_of(example)], n=200, seed=0)[0]:
        read = instrument.read(sentences_of(sample.text), str(example.meta["subject"]))
        told = [point for points in read for point in points]
        assert len(set(told)) == 3
        traits |= {point.trait for point in told}
    assert len(traits) == 6


def test_no_sentence_of_training_answers_a_question_of_the_test(examples: list[Example]) -> None:
    trained = {
        sentence
        for example in default_dataset("train")[:600]
        for response in (example.chosen, example.rejected)
        for sentence in sentences_of(response)
    }
    answers = LabPolicy().sample([prompt_of(example) for example in examples], n=20, seed=0)
    sampled = {sentence for some in answers for sample in some for sentence in sentences_of(sample.text)}
    assert sampled
    assert not sampled & trained


def test_a_sample_hangs_on_seed_id_and_number_alone(examples: list[Example]) -> None:
    policy = LabPolicy()
    together = policy.sample([prompt_of(example) for example in examples], n=8, seed=3)
    alone = policy.sample([prompt_of(examples[7], context="told something")], n=8, seed=3)[0]
    assert together[7] == alone
    assert policy.sample([prompt_of(examples[7])], n=4, seed=3)[0] == alone[:4]
    assert policy.sample([prompt_of(examples[7])], n=8, seed=4)[0] != alone
    assert len({sample.text for sample in alone}) > 1


def test_a_question_that_is_not_the_labs_gets_a_clear_line() -> None:
    with pytest.raises(UsageError, match="q1: the policy `lab` only answers questions of the lab"):
        LabPolicy().sample([Prompt(id="q1", question="Why is the sky blue?", context="")], n=1, seed=0)
