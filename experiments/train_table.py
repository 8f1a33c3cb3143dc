"""Train methods on the lab, and measure each on test users: the table of docs/research/train.md.

    python experiments/train_table.py --out results/train                       # every arm that needs no GPU
    python experiments/train_table.py --arm "bt?backbone=smollm2&accumulate=1" --arm encoder --out results/train
    python experiments/train_table.py --arm "fewshot?reads_posts=true&encoder=@encoder" --models models
    python experiments/train_table.py --table --out results/train               # tables from what is there
    python experiments/train_table.py --tiny --arm bt --arm head --out scratch/rehearsal

An arm is a method with settings. Every arm learns from all rows of `train`, stops early on `validation`, and is asked
once about `test` and `test_population` with whole profiles, and about the test users who have 16 informative posts
with only 1, 3 and 10 of them left; one that reads labels also with fewer and more of them. Settings are chosen on
another deal of the lab (`--deal 1`), never on the default's `test`. Written per arm and seed: a JSON file with the
command, settings, costs and summaries, and every verdict as `.csv.gz`; then `tables.md` and `figures.json`. What is
there already is not run again, so that a machine that is lent by the minute can be used. `--tiny` rehearses with few
rows, and backbones with a small random model.
"""

import argparse
import json
import platform
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kept_rows import write_table
from tiny_backbone import tiny_backbone
from train_figures import WHOLE, slug, write_tables

from prbench.evaluation import EvalSettings, Run, as_loaded, evaluate
from prbench.lab import DEFAULT_SIZES, SEED, LabSize, make_labels, make_split
from prbench.lab.population import load_library
from prbench.reward_models import ModelSettings
from prbench.reward_models.base import LoadedModel
from prbench.schema import Example, Probe, Row
from prbench.training.data import TrainingData, make_training_data
from prbench.training.folder import Config, Trained, held_out_figures, write_card
from prbench.training.methods import load_method, make_config, run_method

ARMS = (
    "match",
    "head",
    "head?knows_users=false",
    "planner",
    "summary",
    "rubric-chain",
    "fewshot",
    "fewshot?reads_posts=true",
)
SPLITS = ("train", "validation", "test", "test_population")
TINY = {"train": LabSize(users=24, pairs=64), "validation": LabSize(users=16, pairs=16)}
TINY |= {"test": LabSize(users=16, pairs=32), "test_population": LabSize(users=16, pairs=32)}
TINY_BACKBONE = ("epochs=1", "batch_size=16", "max_length=1280", "lora_rank=4", "evaluations=1")
BACKBONES = ("bt", "bt-profile")
GROUPS = ("level", "informative_posts")
MOST_TELLING = 16  # informative posts of those whose posts are taken away
DOSES = (1, 3, 10)
SHOTS = (0, 1, 3, 5, 10, 30)
POSTS = 30  # whole profiles
COLUMNS = ("asked", "id", "user_id", "probe", "verdict", "score_chosen", "score_rejected", *GROUPS)


@dataclass(frozen=True)
class Question:
    """What a model is asked: rows under some probes, with labels of their users."""

    name: str
    rows: Sequence[Example]
    probes: tuple[Probe, ...] = (Probe.OWN,)
    labels: Sequence[Example] = ()
    shots: int = 0


@dataclass(frozen=True)
class Lab:
    """Rows to train on, and rows to be asked about once."""

    data: TrainingData
    test: list[Example]
    population: list[Example]
    labels: list[Example]


def main() -> None:
    """Train and measure what is not there yet, then write the tables."""
    asked = _arguments()
    asked.out.mkdir(parents=True, exist_ok=True)
    if not asked.table:
        arms = asked.arms or ARMS
        if len(arms) == 1:
            run_seeds(arms[0], asked)
        for arm in arms if len(arms) > 1 else ():
            # A process of its own, so that none profits from what another has embedded, or answers for its memory.
            again = [*_without_arms(sys.argv[1:]), "--arm", arm]
            subprocess.run([sys.executable, __file__, *again], check=True, stdout=None)
    write_tables(asked.out)


def run_seeds(arm: str, asked: argparse.Namespace) -> None:
    """Train and measure the seeds of one arm that are not there yet."""
    lab = make_lab(TINY if asked.tiny else DEFAULT_SIZES, asked.deal)
    left = [seed for seed in asked.seeds if not (asked.out / f"{slug(arm)}-{seed}.json").exists()]
    for number, seed in enumerate(left):
        run_arm(arm, seed, lab, asked, is_first=number == 0)


def _without_arms(words: Sequence[str]) -> list[str]:
    kept, is_arm = [], False
    for word in words:
        if not is_arm and word != "--arm":
            kept.append(word)
        is_arm = word == "--arm"
    return kept


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", action="append", dest="arms", metavar="METHOD?NAME=VALUE&…")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--deal", type=int, default=0, help="another deal of the lab's texts, with other people")
    parser.add_argument("--models", type=Path, help="folder to keep the trained models in")
    parser.add_argument("--out", type=Path, default=Path("results/train"))
    parser.add_argument("--table", action="store_true", help="only the tables")
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_args()


def make_lab(sizes: Mapping[str, LabSize], deal: int) -> Lab:
    """Draw all rows."""
    rows = {split: list(make_split(split, sizes[split], seed=SEED + deal, assignment=deal)) for split in SPLITS}
    return Lab(
        data=make_training_data(rows["train"], rows["validation"], name="lab"),
        test=rows["test"],
        population=rows["test_population"],
        labels=list(make_labels("test_labels", sizes["test"].users, seed=SEED + deal, assignment=deal)),
    )


def run_arm(arm: str, seed: int, lab: Lab, asked: argparse.Namespace, *, is_first: bool) -> None:
    """Train one model, ask it everything, and write both files."""
    name, _, settings = arm.partition("?")
    models = asked.models or asked.out / "models"
    chosen = [inside(each, models, seed) for each in settings.split("&") if each]
    if asked.tiny and name in BACKBONES:
        chosen = [*TINY_BACKBONE, f"backbone={tiny_backbone(asked.out / 'backbone', texts_of(lab))}", *chosen]
    config = make_config(load_method(name), chosen, seed=seed)
    folder = models / f"{slug(arm)}-{seed}"
    trained = run_method(load_method(name), lab.data, config, folder, teller(f"{arm} {seed}"))
    loaded = as_loaded(trained.spec, ModelSettings(seed=seed))
    runs, seconds = {}, {}
    for question in questions(lab, trained):
        started = time.monotonic()
        runs[question.name] = ask(question, loaded, trained, config)
        seconds[question.name] = round(time.monotonic() - started, 2)
    write_card(folder, name, config, lab.data, trained, held_out_figures(runs["validation"].summary))
    record = {
        "arm": arm,
        "seed": seed,
        "is_first": is_first,  # in its process: later ones find texts embedded, so only the first says what it costs
        "command": shlex.join(["python", "experiments/train_table.py", *sys.argv[1:]]),
        "device": device(),
        "versions": {"python": platform.python_version(), "torch": version("torch"), "prbench": version("prbench")},
        "config": asdict(config),
        "facts": dict(trained.facts),
        "seconds": seconds,
        "responses_per_second": speed(lab, loaded, trained, config),
        "runs": {label: {**held_out_figures(run.summary), **more(run)} for label, run in runs.items()},
    }
    (asked.out / f"{slug(arm)}-{seed}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    write_table(asked.out / f"{slug(arm)}-{seed}.csv.gz", COLUMNS, lines_of(runs))
    if asked.models is None:
        shutil.rmtree(folder)
    print(f"{arm} {seed}: test {100 * runs[WHOLE].summary['accuracy']['value']:.1f}", flush=True)


def inside(setting: str, models: Path, seed: int) -> str:
    """Return a setting, with `@ARM` replaced by the encoder that this arm has tuned with the same seed."""
    name, _, value = setting.partition("=")
    return f"{name}={models / f'{slug(value[1:])}-{seed}' / 'encoder'}" if value.startswith("@") else setting


def teller(label: str) -> Any:
    """Return what prints a line now and then."""
    started = time.monotonic()

    def say(done: int, total: int, text: str) -> None:
        if total and (done == total or done % max(1, total // 5) == 0):
            print(f"{label}: {done}/{total} {text} {time.monotonic() - started:.0f} s", flush=True)

    return say


def questions(lab: Lab, trained: Trained) -> Iterator[Question]:
    """Yield all that a model is asked; what is under test is never among the labels."""
    shots, every = trained.shots, (Probe.OWN, Probe.NONE, Probe.SWAP)
    yield Question("validation", lab.data.validation, every, lab.data.validation, shots)
    yield Question(WHOLE, lab.test, every, lab.labels, shots)
    if not shots:
        yield Question("test_population", lab.population, every)
    if trained.context == "profile":
        for dose in DOSES:
            rows = list(cut_profiles(lab.test, dose))
            yield Question(f"test, {dose} informative posts", rows, labels=lab.labels, shots=shots)
    for fewer in SHOTS if shots else ():
        yield Question(f"test, {fewer} labels", lab.test, labels=lab.labels, shots=fewer)


def ask(question: Question, loaded: LoadedModel, trained: Trained, config: Config) -> Run:
    """Evaluate as `prbench eval` does, with whole profiles."""
    posts, rank = getattr(config, "posts", POSTS), getattr(config, "rank", "recent")
    how = EvalSettings(context=trained.context, posts=posts, rank=rank, seed=config.seed, probes=question.probes)
    labels = question.labels if question.shots else None
    return evaluate(question.rows, loaded, settings=how, group_by=GROUPS, labels=labels, shots=question.shots)


def cut_profiles(rows: Sequence[Example], dose: int) -> Iterator[Example]:
    """Yield the pairs of those who have 16 informative posts, with only the first so many of them left."""
    neutral = set(load_library().neutral)
    for row in rows:
        if row.meta["informative_posts"] != MOST_TELLING:
            continue
        telling = [post for post in row.user.profile if post.text not in neutral][:dose]
        kept = tuple(post for post in row.user.profile if post.text in neutral or post in telling)
        yield replace(row, user=replace(row.user, profile=kept))


def speed(lab: Lab, loaded: LoadedModel, trained: Trained, config: Config) -> float:
    """Return responses per second, all of whose texts were seen before; reading and summing up the run included."""
    started = time.monotonic()
    ask(Question(WHOLE, lab.test, labels=lab.labels, shots=trained.shots), loaded, trained, config)
    return round(2 * len(lab.test) / (time.monotonic() - started), 1)


def device() -> str:
    """Return what trained."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def more(run: Run) -> dict[str, Any]:
    """Return what a card does not show."""
    return {"groups": run.summary["groups"], "dose_response": run.summary["dose_response"]}


def lines_of(runs: Mapping[str, Run]) -> Iterator[list[Any]]:
    """Yield one line per verdict."""
    for label, run in runs.items():
        for row in run.items:
            assert isinstance(row, Row), "the lab has pairs only"
            groups = [row.groups.get(group, "") for group in GROUPS]
            scores = ["" if each is None else f"{each:.5g}" for each in (row.score_chosen, row.score_rejected)]
            yield [label, row.id, row.user_id, row.probe.value, row.verdict.value, *scores, *groups]


def texts_of(lab: Lab) -> set[str]:
    """Return every text that a tiny backbone must know the words of."""
    rows = [*lab.data.train, *lab.data.validation, *lab.test, *lab.population]
    texts = {text for row in rows for text in (row.question, row.chosen, row.rejected)}
    return texts | {post.text for row in rows for post in row.user.profile}


if __name__ == "__main__":
    main()
