"""Methods `bt` and `bt-profile`: a Bradley-Terry reward model, a backbone with a score head, trained on pairs by TRL.

`bt` knows no users, and is the baseline for all others: in the literature, a plain fine-tuned model without user
information beats most methods that have it. `bt-profile` reads the user's posts before the question.

Texts are laid out by the code that lays them out for `classifier:`, so that a trained model reads what it was trained
on. The loss is Bradley and Terry's, -log sigmoid(score(chosen) - score(rejected) - margin).

Augmentation of `bt-profile`, all of it off unless asked for, except that some rows are shown without posts:

- `swap`: rows shown again with another user's posts, where the rubrics tell how that user would choose. A user with
  the same rubric for this question keeps the pair. A user with the opposite one (no aspect in common, and together all
  aspects that the question has in the training rows) turns it round: `chosen` differs from `rejected` in aspects of
  the first user's rubric, `rejected` in others, and those are the second user's. In the lab's training rows both rules
  are right in every case, and 60 of 100 rows have an opposite, 70 an equal; users that merely share no aspect are
  indifferent in 19 of 100 cases, so they are not used.
- `swap_unknown`: rows shown again with the posts of anybody, in both orders, which pulls the two scores together: the
  sum of -log sigmoid(d) and -log sigmoid(-d) is least at d = 0. That is only true of an average over users who split
  evenly. It says nothing about whom the posts belong to, and shrinks what is learnt from users who are alike, so it is
  for data without rubrics, where a model would otherwise learn to ignore posts.
- `drop_posts`, `add_posts`: each post is left out, or followed by one of somebody else: no single post must decide.
- `hide_profile`: rows without posts, so that a user of whom nothing is known gets what `bt` would say.
"""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal

from prbench.backends.hf import pad_token
from prbench.backends.shared_prefix.batching import Tokens
from prbench.context import Ask, ContextMaker, fit_for, make_context
from prbench.errors import DataError
from prbench.reward_models.base import ModelSettings
from prbench.reward_models.chat import Chat
from prbench.runs import Keys
from prbench.schema import Example, Json, Post, User
from prbench.specs import Count, NotNegative, Part, Positive, Share, Whole
from prbench.training.backbones import (
    CLASSIFIER,
    Backbone,
    BackboneConfig,
    EarlyStopping,
    check_packages,
    count_weights,
    device_facts,
    keep_checkpoint,
    load_backbone,
    lora_config,
    run_trainer,
    start_trainer_folder,
    trainer_arguments,
)
from prbench.training.data import PROFILES, RUBRICS, TrainingData, check_training_data, inputs_of
from prbench.training.folder import ProgressCallback, Trained

if TYPE_CHECKING:
    from prbench.training.trainers import PairTrainer, TokenPair

_HEADS = ("score", "classifier")  # where classifiers keep their last layers


@dataclass(frozen=True, kw_only=True)
class BtConfig(BackboneConfig):
    """How to train a backbone on pairs. The defaults suit LoRA on a model of 100 million to 8 billion weights."""

    backbone: str = "smollm2"  # or a folder, a GGUF file, a hub id
    max_length: Count = 1280  # tokens of posts, question and response; posts beyond it are dropped, as in scoring
    lora_rank: Whole = 16  # 0: all weights are trained
    lora_alpha: int = 32
    lora_dropout: Share = 0.05
    learning_rate: Positive = 2e-4  # with lora_rank=0, a tenth of it or less
    weight_decay: NotNegative = 0.01
    warmup: Share = 0.05  # share of the steps; cosine decay follows
    epochs: Count = 3
    batch_size: Count = 32  # pairs in one step of the optimizer
    accumulate: Count = 4  # passes that one step is cut into, to save memory; 1 is faster where there is enough
    evaluations: Count = 2  # in each epoch, on held-out users; a checkpoint is written at each
    patience: Count = 3  # evaluations without a better one after which it stops
    margin: NotNegative = 0.0  # by how much chosen must win
    gradient_checkpointing: bool = False
    # Of the backbone's weights; on a GPU, passes run in bfloat16 in any case.
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    seed: int = 0

    KEYS: ClassVar[Keys] = Keys(
        backbone="smollm2",
        max_length=1280,
        lora_rank=16,
        lora_alpha=32,
        lora_dropout=0.05,
        learning_rate=2e-4,
        weight_decay=0.01,
        warmup=0.05,
        epochs=3,
        batch_size=32,
        accumulate=4,
        evaluations=2,
        patience=3,
        margin=0.0,
        gradient_checkpointing=False,
        dtype="float32",
        seed=0,
    )

    @property
    def stopping(self) -> EarlyStopping:
        """When training ends, by the accuracy on held-out users."""
        return EarlyStopping("eval_accuracy", max, self.patience, lambda share: f"validation {100 * share:.1f} %")


def train_bt(data: TrainingData, config: BtConfig, folder: Path, progress: ProgressCallback) -> Trained:
    """Train on the question and the responses alone."""
    check_training_data(data)
    return train_classifier(data, config, folder, progress, train=data.train, maker=make_context("none"), facts={})


def train_classifier(
    data: TrainingData,
    config: BtConfig,
    folder: Path,
    progress: ProgressCallback,
    *,
    train: Sequence[Example],
    maker: ContextMaker,
    facts: dict[str, Json],
) -> Trained:
    """Train on `train` (the rows of `data`, augmented or not) and leave a folder that `classifier:` takes."""
    check_packages("peft", "trl")
    backbone = load_backbone(config.backbone, CLASSIFIER, seed=config.seed, dtype=config.dtype)
    chat = chat_for(backbone, config)
    rows = render_pairs(train, chat, maker, data.name, margin=config.margin)
    held_out = render_pairs(data.validation, chat, maker, data.name)
    checkpoints = start_trainer_folder(folder, config, data)
    started = time.monotonic()
    trainer = make_trainer(backbone, config, rows, held_out, checkpoints, progress)
    state = run_trainer(trainer, checkpoints, config.epochs, config.stopping)
    seconds = time.monotonic() - started
    # The tokenizer carries the length, so that scoring drops the posts that training dropped.
    backbone.tokenizer.model_max_length = config.max_length
    keep_checkpoint(folder, state["best_global_step"], backbone)
    weights, weights_trained = count_weights(trainer.model)
    facts = {
        **facts,
        "backbone": config.backbone,
        "weights": weights,
        "weights_trained": weights_trained,
        "rows": len(rows.pairs),
        "tokens_per_epoch": sum(pair.tokens for pair in rows.pairs),
        "posts_dropped": rows.posts_dropped,
        "steps": state["global_step"],
        "steps_planned": state["max_steps"],
        "best_step": state["best_global_step"],
        "validation_accuracy": round(state["best_metric"], 4),
        "validation_history": [round(each, 4) for each in config.stopping.history(state)],
        "training_seconds": round(seconds, 2),
        **device_facts(trainer),
    }
    return Trained(spec=f"classifier:{folder}", context=maker.kind, facts=facts)


def chat_for(backbone: Backbone, config: BtConfig) -> Chat:
    """Return what lays out texts, as `ClassifierReward` makes it."""
    settings = ModelSettings(max_length=config.max_length)
    return Chat(backbone.tokenizer, backbone.model.config, settings, may_pair=True)


@dataclass(frozen=True, kw_only=True)
class TokenizedPairs:
    """Pairs as token ids, and how many posts the window did not hold."""

    pairs: "list[TokenPair]"
    posts_dropped: int


def render_pairs(
    examples: Sequence[Example], chat: Chat, maker: ContextMaker, name: str, *, margin: float = 0.0
) -> TokenizedPairs:
    """Lay out every pair as an evaluation does; posts that do not fit are dropped from the end.

    A pair that does not fit even without posts, or cannot be encoded, is refused: TRL would drop it without a word.
    """
    from prbench.training.trainers import TokenPair

    contexts = maker.contexts([Ask(user=example.user, question=example.question) for example in examples])
    pairs, refused, dropped = [], [], 0
    for example, context in zip(examples, contexts, strict=True):
        user = fit_for(chat, context, question=example.question, responses=(example.chosen, example.rejected))
        encoded = [] if user.problem else chat.try_encode_all(inputs_of(example, user))
        tokens = [each for each in encoded if isinstance(each, Tokens)]
        if len(tokens) < 2:
            refused.append(example.id)
            continue
        chosen, rejected = tokens
        dropped += user.dropped
        pairs.append(TokenPair(chosen=chosen, rejected=rejected, margin=margin))
    if refused:
        raise DataError(
            f"{name}: {len(refused)} of {len(examples)} pairs, {refused[0]} first, do not fit {chat.limit} tokens "
            "even without posts, or hold no valid text. Raise max_length with --set, or leave those rows out."
        )
    return TokenizedPairs(pairs=pairs, posts_dropped=dropped)


def make_trainer(
    backbone: Backbone,
    config: BtConfig,
    rows: TokenizedPairs,
    held_out: TokenizedPairs,
    folder: Path,
    progress: ProgressCallback,
) -> "PairTrainer":
    """Return TRL's trainer, ready to run. It changes the backbone: adapters are put in, its pad token is set."""
    from datasets import Dataset, disable_progress_bars
    from transformers.trainer_callback import PrinterCallback
    from trl import RewardConfig

    from prbench.training.trainers import PairCollator, PairTrainer, as_columns, needs_mask

    steps = config.epochs * math.ceil(len(rows.pairs) / config.batch_size)
    evaluations = config.epochs * config.evaluations
    evaluate_at = {max(1, round(steps * number / evaluations)) for number in range(1, evaluations + 1)}
    arguments = RewardConfig(
        **trainer_arguments(config, folder, steps),
        max_length=config.max_length,
        center_rewards_coefficient=None,
        disable_dropout=False,
        gradient_checkpointing=config.gradient_checkpointing,
        eval_strategy="steps",
        eval_steps=steps,
        save_strategy="steps",
        save_steps=steps,
        metric_for_best_model="accuracy",
        greater_is_better=True,
    )
    _set_pad(backbone, rows)
    disable_progress_bars()
    heads = [name for name in _HEADS if hasattr(backbone.model, name)]
    trainer = PairTrainer(
        held_out=held_out.pairs,
        lengths=[pair.tokens for pair in rows.pairs],
        model=backbone.model,
        args=arguments,
        processing_class=backbone.tokenizer,
        train_dataset=Dataset.from_dict(as_columns(rows.pairs)),
        eval_dataset=Dataset.from_dict(as_columns(held_out.pairs[:1])),  # `evaluate` has all of them
        data_collator=PairCollator(backbone.tokenizer.pad_token_id),
        peft_config=lora_config(config, "SEQ_CLS", modules_to_save=heads) if config.lora_rank else None,
        callbacks=[config.stopping.callback(progress, sorted(evaluate_at))],
    )
    pad_id = backbone.tokenizer.pad_token_id
    trainer.data_collator = PairCollator(pad_id, masked=needs_mask(trainer.model, pad_id))
    trainer.remove_callback(PrinterCallback)
    if len(trainer.train_dataset) != len(rows.pairs):
        raise AssertionError("TRL dropped rows that were found to fit")
    return trainer


def _set_pad(backbone: Backbone, rows: TokenizedPairs) -> None:
    """Pad with the backbone's own pad token, by which scoring will find the end of a text, or with one that ends none.

    An adapter is scored over its base's config. Where that names no pad token, scoring reads the very last token; so
    must training, and a pad token that ends a text would hide it.
    """
    config, tokenizer = backbone.model.config.get_text_config(), backbone.tokenizer
    own = config.pad_token_id
    if own is not None and 0 <= own < config.vocab_size:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(own)
        return
    last = {tokens.ids[-1] for pair in rows.pairs for tokens in (pair.chosen, pair.rejected)}
    tokenizer.pad_token = pad_token(config, tokenizer, last)


@dataclass(frozen=True, kw_only=True)
class BtProfileConfig(BtConfig):
    """How to train on posts. Show as many of them, ranked alike, when the model is evaluated."""

    posts: int = 30
    rank: str = "recent"  # recent, bm25 or dense
    swap: Part = 0.0  # share of the rows that are shown again with another user's posts
    swap_unknown: Part = 0.0
    drop_posts: Part = 0.0  # chance of each post
    add_posts: Part = 0.0
    hide_profile: Part = 0.1  # share of the rows

    KEYS: ClassVar[Keys] = BtConfig.KEYS.plus(
        posts=30, rank="recent", swap=0.0, swap_unknown=0.0, drop_posts=0.0, add_posts=0.0, hide_profile=0.1
    )


def train_bt_profile(data: TrainingData, config: BtProfileConfig, folder: Path, progress: ProgressCallback) -> Trained:
    """Train on question, posts and responses."""
    check_training_data(data, needs=[PROFILES, *([RUBRICS] if config.swap else [])])
    rows, facts = augment(data.train, config)
    maker = make_context("profile", posts=config.posts, rank=config.rank)
    facts |= {"posts": config.posts, "rank": config.rank}
    return train_classifier(data, config, folder, progress, train=rows, maker=maker, facts=facts)


def augment(train: Sequence[Example], config: BtProfileConfig) -> tuple[list[Example], dict[str, Json]]:
    """Return the rows to train on, and how many of them were made up; each row draws from its own seed."""
    swapped = list(swapped_rows(train, config.swap, config.seed)) if config.swap else []
    if config.swap and not swapped:
        raise DataError("No two users with equal or opposite rubrics share a question. Train with --set swap=0.")
    unknown = list(unknown_rows(train, config.swap_unknown, config.seed)) if config.swap_unknown else []
    posts = [post for example in train for post in example.user.profile]
    # Only of real rows is it known what somebody without posts would be told.
    seen = replace(config, hide_profile=0.0)
    rows = [_perturbed(example, posts, config) for example in train]
    rows += [_perturbed(example, posts, seen) for example in [*swapped, *unknown]]
    hidden = sum(not example.user.profile for example in rows)
    return rows, {"rows_swapped": len(swapped), "rows_unknown": len(unknown), "rows_without_posts": hidden}


def swapped_rows(train: Sequence[Example], share: float, seed: int) -> Iterable[Example]:
    """Yield rows with the posts of somebody whose choice the rubrics tell, turned round where it is the opposite one.

    Where a row has both, a draw decides; where it has neither, there is no swapped row.
    """
    by_question: dict[str, list[Example]] = {}
    for example in train:
        by_question.setdefault(example.question, []).append(example)
    named = {question: frozenset().union(*map(_aspects, rows)) for question, rows in by_question.items()}
    for example in train:
        rng = Random(f"{seed}:swap:{example.id}")
        if rng.random() >= share:
            continue
        own, every = _aspects(example), named[example.question]
        others: dict[str, list[User]] = {"equal": [], "opposite": []}
        for row in by_question[example.question]:
            theirs = _aspects(row)
            if row.user.id == example.user.id or not own or not theirs:
                continue
            if theirs == own:
                others["equal"].append(row.user)
            elif not theirs & own and theirs | own == every:
                others["opposite"].append(row.user)
        kinds = [kind for kind in ("equal", "opposite") if others[kind]]
        if kinds:
            kind = rng.choice(kinds)
            yield _row_of_user(example, rng.choice(others[kind]), turned=kind == "opposite")


def unknown_rows(train: Sequence[Example], share: float, seed: int) -> Iterable[Example]:
    """Yield rows with the posts of anybody else, in both orders, so that the two scores are pulled together."""
    for example in train:
        rng = Random(f"{seed}:unknown:{example.id}")
        if rng.random() >= share:
            continue
        other = rng.choice(train).user
        while other.id == example.user.id:
            other = rng.choice(train).user
        for turned in (False, True):
            yield _row_of_user(example, other, turned=turned)


def _aspects(example: Example) -> frozenset[str]:
    return frozenset(aspect.aspect for aspect in example.rubric)


def _row_of_user(example: Example, user: User, *, turned: bool) -> Example:
    """Return the pair as seen by another user; the rubric goes, since it was the first user's."""
    chosen, rejected = (example.rejected, example.chosen) if turned else (example.chosen, example.rejected)
    mark = "turned" if turned else "kept"
    return replace(
        example, id=f"{example.id}:{user.id}:{mark}", user=user, chosen=chosen, rejected=rejected, rubric=()
    )


def _perturbed(example: Example, posts: Sequence[Post], config: BtProfileConfig) -> Example:
    """Leave posts out and put others' in, as drawn for this row."""
    rng = Random(f"{config.seed}:posts:{example.id}")
    if rng.random() < config.hide_profile:
        return replace(example, user=replace(example.user, profile=()))
    if not config.drop_posts and not config.add_posts:
        return example
    profile: list[Post] = []
    for post in example.user.profile:
        if rng.random() >= config.drop_posts:
            profile.append(post)
        if rng.random() < config.add_posts:
            profile.append(rng.choice(posts))
    return replace(example, user=replace(example.user, profile=tuple(profile)))
