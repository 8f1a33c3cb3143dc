"""`bt-profile`: whose posts a pair is shown with, and what the loss is then told."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs pip install 'prbench[train]'")

from tests.support.tiny_llama import save_tiny_llama

from prbench.errors import DataError, UsageError
from prbench.evaluation import EvalSettings, evaluate
from prbench.lab import default_dataset
from prbench.schema import Aspect, Example, Post, User
from prbench.training.bt import BtProfileConfig, augment, swapped_rows, train_bt_profile, unknown_rows
from prbench.training.data import make_training_data
from prbench.training.folder import no_progress

PLAIN = BtProfileConfig(hide_profile=0.0)


def make_example(name: str, wants: str, *, question: str = "What to cook ?", user: str = "") -> Example:
    """A row whose rubric has one aspect per letter, by a user named like the row."""
    return Example(
        id=name,
        user=User(id=user or name, profile=(Post(id=f"{name}-post", text=f"post of {name}"),)),
        question=question,
        chosen=f"good for {name}",
        rejected=f"bad for {name}",
        rubric=tuple(Aspect(aspect=letter) for letter in wants),
    )


def seen(examples: list[Example]) -> set[tuple[str, str]]:
    """Whose posts go with which chosen response."""
    return {(example.user.profile[0].text, example.chosen) for example in examples}


def test_swap_keeps_the_pair_for_an_equal_rubric_and_turns_it_for_the_opposite_one() -> None:
    # The question has aspects a to d. Ann and Amy agree; Bob wants what they do not; Cid and Dan tell nothing.
    rows = [make_example(*each) for each in (("Ann", "ab"), ("Amy", "ba"), ("Bob", "cd"), ("Cid", "ac"), ("Dan", "c"))]
    found = {pair for seed in range(20) for pair in seen(list(swapped_rows(rows, 1.0, seed)))}
    assert found == {
        ("post of Amy", "good for Ann"),
        ("post of Bob", "bad for Ann"),
        ("post of Ann", "good for Amy"),
        ("post of Bob", "bad for Amy"),
        ("post of Ann", "bad for Bob"),
        ("post of Amy", "bad for Bob"),
    }
    assert all(row.rubric == () for row in swapped_rows(rows, 1.0, 0))


def test_swap_needs_the_same_question_another_user_and_rubrics() -> None:
    other = make_example("Bob", "ab", question="What to plant ?")
    own = make_example("Ann-2", "ab", user="Ann")
    rows = [make_example("Ann", "ab"), own, other, make_example("Cid", ""), make_example("Dan", "")]
    assert list(swapped_rows(rows, 1.0, 0)) == []
    with pytest.raises(DataError, match="swap=0"):
        augment(rows, replace(PLAIN, swap=1.0))


def test_swapped_labels_agree_with_the_truth_of_the_lab() -> None:
    rows = default_dataset("train")
    wanted = {row.user.id: set(row.meta["wanted"]) for row in rows}
    swapped = list(swapped_rows(rows, 0.2, seed=0))
    turned = [row for row in swapped if row.id.endswith("turned")]
    assert len(swapped) > 500
    assert len(turned) > 200
    for row in swapped:
        gold = row.meta["gold"]
        worth = {side: sum(trait in wanted[row.user.id] for trait in gold[side]) for side in ("chosen", "rejected")}
        sign = -1 if row.id.endswith("turned") else 1
        assert sign * (worth["chosen"] - worth["rejected"]) > 0


def test_unknown_rows_come_in_both_orders_with_somebody_elses_posts() -> None:
    rows = [make_example(name, "") for name in ("Ann", "Bob", "Cid")]
    found = list(unknown_rows(rows, 1.0, seed=0))
    assert len(found) == 6
    for first, second in zip(found[::2], found[1::2], strict=True):
        assert first.user == second.user
        assert (first.chosen, first.rejected) == (second.rejected, second.chosen)
        assert first.user.id not in first.chosen


def test_posts_are_dropped_added_and_hidden_at_the_asked_rate() -> None:
    posts = tuple(Post(id=str(number), text=f"post {number}") for number in range(10))
    rows = [
        replace(make_example(f"row-{number}", ""), user=User(id=f"u{number}", profile=posts)) for number in range(300)
    ]
    dropped, _ = augment(rows, replace(PLAIN, drop_posts=0.3))
    added, _ = augment(rows, replace(PLAIN, add_posts=0.2))
    hidden, facts = augment(rows, replace(PLAIN, hide_profile=0.25))
    # 3,000 posts: three standard deviations are 0.025; 300 rows: 0.075.
    assert sum(len(row.user.profile) for row in dropped) / 3000 == pytest.approx(0.7, abs=0.025)
    assert sum(len(row.user.profile) for row in added) / 3000 == pytest.approx(1.2, abs=0.025)
    assert facts["rows_without_posts"] / 300 == pytest.approx(0.25, abs=0.075)
    assert sum(not row.user.profile for row in hidden) == facts["rows_without_posts"]
    assert all(post in posts for row in dropped for post in row.user.profile)


def test_each_row_has_its_own_coin() -> None:
    rows = [make_example(f"row-{number}", "") for number in range(40)]
    config = replace(PLAIN, hide_profile=0.5)
    all_of_them, _ = augment(rows, config)
    some, _ = augment(rows[10:], config)
    assert all_of_them[10:] == some
    assert augment(rows, replace(config, seed=1))[0] != all_of_them


def test_without_augmentation_rows_are_left_alone() -> None:
    rows = [make_example(f"row-{number}", "ab") for number in range(5)]
    assert augment(rows, PLAIN)[0] == rows


def test_share_over_one_is_refused(tmp_path: Path) -> None:
    rows = [make_example(name, "ab") for name in ("Ann", "Bob")]
    data = make_training_data(
        rows, [replace(row, user=replace(row.user, id=f"{row.id}-v", profile=())) for row in rows]
    )
    with pytest.raises(UsageError, match=r"drop_posts=3.*from 0 to 1"):
        train_bt_profile(data, replace(PLAIN, drop_posts=3), tmp_path, no_progress)


@pytest.mark.slow
def test_posts_decide_what_is_learnt(tmp_path: Path) -> None:
    """Half of the users want it cheap and half want it fine: without their posts nothing can be told."""

    def row(number: int, split: str) -> Example:
        thrifty = number % 2 == 0
        texts = (f"cheap {number}", f"fine {number}")
        return Example(
            id=f"{split}-{number}",
            user=User(
                id=f"{split}-{number}",
                profile=(Post(id="1", text=f"{'coins' if thrifty else 'silk'} {split} {number}"),),
            ),
            question="Which one ?",
            chosen=texts[0] if thrifty else texts[1],
            rejected=texts[1] if thrifty else texts[0],
        )

    data = make_training_data([row(n, "train") for n in range(64)], [row(n, "held") for n in range(16)])
    backbone = save_tiny_llama(tmp_path / "tiny", ["coins silk cheap fine Which one ? Posts that this person wrote"])
    config = BtProfileConfig(
        backbone=str(backbone), max_length=64, lora_rank=0, learning_rate=1e-2, epochs=30, batch_size=16, patience=60,
        evaluations=1, hide_profile=0.0, accumulate=1,
    )  # fmt: skip
    trained = train_bt_profile(data, config, tmp_path / "model", no_progress)
    run = evaluate(data.validation, f"{trained.spec}?device=cpu", trained.context, settings=EvalSettings(posts=30))
    assert trained.context == "profile"
    assert run.summary["accuracy"]["value"] == 1.0
    assert run.summary["accuracy"]["value"] == trained.facts["validation_accuracy"]
