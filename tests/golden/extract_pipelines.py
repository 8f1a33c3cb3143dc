"""How the golden suite asks commands and reads what they leave: the only code here that knows options and files.

Each function runs one command in a folder and returns plain values: texts, scores, figures, words. Run ids, hashes,
paths, versions and seconds are left out. When an option, a key or a file changes its name, it is changed here alone.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import Ended

Values = dict[str, Any]

PSEUDONYM_KEY = "a key for the golden suite alone"
AS_RECORDED = {"center": "centre", "standardized": "standardised"}  # words that were spelled otherwise
CHANGING = frozenset(
    {
        "commit",
        "data_hash",
        "digest",
        "hash",
        "out",
        "page",
        "path",
        "peak_memory_mib",
        "prompts",
        "rollout_tokens_per_second",
        "run_id",
        "seconds",
        "tokens_per_second",
        "training_seconds",
        "versions",
    }
)
_FOLDERS = re.compile(r"(?<![\w/.])/[^\s,;:]*/")  # of absolute paths


def call(place: Path, *args: str, code: int = 0) -> Ended:
    """Run `prbench ARGS` in a folder, as a shell would; it must end with that code."""
    from prbench.cli import main

    out, err = StringIO(), StringIO()
    with chdir(place), redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["prbench", *args])
        patch.setenv("PRBENCH_PSEUDONYM_KEY", PSEUDONYM_KEY)
        with pytest.raises(SystemExit) as ended:
            main()
    done = Ended(code=int(ended.value.code or 0), out=out.getvalue(), err=err.getvalue())
    assert done.code == code, f"prbench {' '.join(args)} ended with {done.code}: {done.err}"
    return done


def lines_of(path: Path) -> list[Values]:
    """The rows of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write rows as JSONL, and return the path."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def steady(value: Any, *, without: Iterable[str] = ()) -> Any:
    """A value without the keys that change from place to place, and without folders in its texts."""
    left_out = CHANGING | frozenset(without)
    if isinstance(value, Mapping):
        return {named(key): steady(each, without=without) for key, each in value.items() if key not in left_out}
    if isinstance(value, list | tuple):
        return [steady(each, without=without) for each in value]
    return named(value) if isinstance(value, str) else value


def named(text: str) -> str:
    """A text without the folders in it: `head:/tmp/models/head` is `head:head`."""
    return _FOLDERS.sub("", text)


def digest(text: str) -> str:
    """Sixteen digits that stand for a text."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def brief(texts: Sequence[str]) -> Values:
    """The first text, and what stands for all of them in their order."""
    return {"first": texts[0] if texts else None, "all": [digest(text) for text in texts]}


def estimate(found: Mapping[str, Any] | None) -> list[Any] | None:
    """A figure with its interval, and how many it is over."""
    return None if found is None else [found["value"], found["low"], found["high"], found.get("n")]


def estimates(found: Any) -> Any:
    """The same, wherever figures with intervals stand in a value."""
    if isinstance(found, Mapping):
        if {"value", "low", "high"} <= found.keys() <= {"value", "low", "high", "n"}:
            return estimate(found)
        return {key: estimates(each) for key, each in found.items()}
    return [estimates(each) for each in found] if isinstance(found, list | tuple) else found


def settings(changes: Mapping[str, object]) -> list[str]:
    """Settings of a method, as options."""
    return [part for name, value in changes.items() for part in ("--set", f"{name}={value}")]


def repeated(option: str, values: Iterable[object]) -> list[str]:
    """One option, given once per value."""
    return [part for value in values for part in (option, str(value))]


def given(**options: object) -> list[str]:
    """Options of those names, with dashes; what is `None` is left out, `True` is a flag."""
    flat: list[str] = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            flat.append(option)
        elif value is not None:
            flat += [option, str(value)]
    return flat


# --- the lab


def make_lab(place: Path, name: str, *, users: int, pairs: int, seed: int | None = None, labels: int = 0) -> Values:
    """Write a population, and return how many rows each split has."""
    options = given(users=users, pairs=pairs, seed=seed, labels_per_user=labels, out=name)
    return dict(call(place, "data", "lab", *options, "--json").json["splits"])


def lab_rows(folder: Path, split: str) -> list[Values]:
    """The rows of one split of a population, by id."""
    return [row | {"meta": json.loads(row["meta"])} for row in lab_rows_as_written(folder, split)]


def lab_rows_as_written(folder: Path, split: str) -> list[Values]:
    """The same rows, as they stand in the files."""
    rows = [row for path in folder.glob(f"*/{split}.jsonl") for row in lines_of(path)]
    return sorted(rows, key=lambda row: str(row["id"]))


def row_texts(row: Mapping[str, Any]) -> list[str]:
    """All texts of a row that a model could read."""
    return [row["question"], *(post["text"] for post in row["profile"]), row["chosen"], row["rejected"]]


def sentences_of_answers(row: Mapping[str, Any]) -> list[str]:
    """The sentences of both answers of a row."""
    from prbench.data.texts import sentences_of

    return [sentence for side in ("chosen", "rejected") for sentence in sentences_of(row[side])]


def lab_population(folder: Path, split: str) -> Values:
    """What stands for every text and every truth of a split."""
    rows = lab_rows(folder, split)
    truths = [json.dumps(steady(row["meta"]), sort_keys=True) for row in rows]
    return {
        "ids": [row["id"] for row in rows],
        "users": [row["user_id"] for row in rows],
        "categories": [row["category"] for row in rows],
        "texts": [digest("\n".join(row_texts(row))) for row in rows],
        "rubrics": [digest(json.dumps(row["rubric_aspects"], sort_keys=True) + row["narrative"]) for row in rows],
        "truths": [digest(text) for text in truths],
        "first": rows[0],
    }


def gold_of(texts: Sequence[str], subject: str, wanted: Sequence[str]) -> list[float]:
    """What the lab's instrument says that texts are worth to somebody who wants these traits."""
    from prbench.lab.gold import GoldInstrument

    instrument = GoldInstrument()
    return [instrument.value(text, subject, frozenset(wanted)) for text in texts]


# --- rows in and out


def plain_example(item: Any) -> Values:
    """An example as plain values."""
    from dataclasses import asdict

    return dict(json.loads(json.dumps(asdict(item), default=dict)))


def read_examples(path: Path) -> list[Values]:
    """All rows of a file or folder, as the rest of prbench sees them."""
    from prbench.data import open_examples

    with open_examples(path) as store:
        return [plain_example(item) for item in store]


def write_everywhere(source: Path, place: Path) -> dict[str, Path]:
    """Write the rows of a file in every format that is read back."""
    from prbench.data import open_examples, write_dataset
    from prbench.data.export import write_jsonl, write_parquet

    with open_examples(source) as store:
        items = list(store)
    return {
        "jsonl": write_jsonl(items, place / "all.jsonl"),
        "jsonl.gz": write_jsonl(items, place / "all.jsonl.gz"),
        "parquet": write_parquet(items, place / "all.parquet"),
        "folder of jsonl": write_dataset(items, place / "folder", "jsonl"),
        "folder of parquet": write_dataset(items, place / "folder_of_parquet", "parquet"),
    }


def trl_rows(source: Path, context: str | None) -> list[Values]:
    """The rows of a file as TRL takes them."""
    from prbench.data import open_examples
    from prbench.data.export import to_trl_row

    with open_examples(source) as store:
        return [to_trl_row(item, context) for item in store]  # type: ignore[arg-type]


def swap_donors(source: Path, *, seed: int) -> Values:
    """Whose posts stand in for whose: by item, the user that is shown under the swap probe."""
    from prbench.data import open_examples

    with open_examples(source) as store:
        donors = {store[place].id: store.donor(place, seed) for place in range(len(store))}
    return {name: None if donor is None else donor.id for name, donor in donors.items()}


# --- single runs that others build on


def evaluate(place: Path, model: str, data: str, *, out: str = "runs", **options: object) -> Path:
    """Evaluate a model, and return the folder of the run."""
    done = call(place, "eval", *given(model=model, data=data, out=out, **options), "--json").json
    return place / out / str(done["run_id"])


def scores_of_run(folder: Path) -> list[list[Any]]:
    """Item, probe and both scores of every row of a run."""
    rows = lines_of(folder / "items.jsonl")
    return [[row["id"], row["probe"], row.get("score_chosen"), row.get("score_rejected")] for row in rows]


# --- Best-of-N


def bon(place: Path, *, models: Sequence[str], policy: str = "lab", **options: object) -> Values:
    """Sample a pool, grade it, score it with every model; return all of it with the figures."""
    ended = call(place, "bon", *given(policy=policy, out="bon", **options), *repeated("--model", models), "--json")
    return pool_values(place / "bon", ended.json)


def pool_values(folder: Path, summary: Mapping[str, Any]) -> Values:
    """What Best-of-N leaves behind: samples, grades and scores by question, figures by model."""
    pool = folder / "pools" / str(summary["pool"])
    samples = {row["id"]: row["samples"] for row in lines_of(pool / "samples.jsonl")}
    texts = {name: [each.get("text", "") for each in some] for name, some in samples.items()}
    (grades,) = (lines_of(path) for path in pool.glob("grades/*/grades.jsonl"))
    return {
        "samples": {name: [digest(text) for text in some] for name, some in texts.items()},
        "first sample": next(iter(texts.values()))[0],
        "ends": {name: [each.get("finish") for each in some] for name, some in samples.items()},
        "grades": {row["id"]: row["values"] for row in grades},
        "quality": {row["id"]: row["quality"] for row in grades},
        "scores": dict(sorted(map(_scores, pool.glob("scores/*")))),
        "figures": {named(name): bon_figures(figures) for name, figures in summary["models"].items()},
        "differences": [
            [named(each["first"]), named(each["second"]), estimate(each["difference"]), each["holm_p"]]
            for each in summary["differences"]
        ],
        "groups": estimates(steady(summary["groups"])),
        **{name: summary[name] for name in ("questions", "users", "left_out", "value_span")},
        "cut_off": summary["truncated"],
    }


def _scores(folder: Path) -> tuple[str, dict[str, list[float]]]:
    config = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["config"]
    rows = lines_of(folder / "scores.jsonl")
    name = f"{named(config['model'])} told {config['context']['kind']}"
    return name, {f"{row['id']} {row['probe']}": row["scores"] for row in rows}


def bon_figures(figures: Mapping[str, Any]) -> Values:
    """The figures of one model that picks."""
    with_intervals = (
        "value_at",
        "captured_headroom_at",
        "regret_at",
        "win_rate_at",
        "quality_at",
        "swap",
        "proxy_gold_gap",
        "captured_headroom",
    )
    plain = ("context", "questions", "left_out", "curve", "best_n", "area", "kl_bound_at")
    ties, fit = figures["ties"], figures["overoptimization"]
    return {
        **{name: estimates(figures[name]) for name in with_intervals},
        **{name: figures[name] for name in plain},
        "ties": ties and {"matter" if name == "consequential" else name: value for name, value in ties.items()},
        "overoptimisation": fit and {"misfit" if name == "rmse" else name: value for name, value in fit.items()},
    }


# --- PPO


def ppo(place: Path, policy: Path, *, model: str, out: str = "ppo", **options: object) -> Values:
    """Train a policy; return the row of every step, the summary, and the held-out figures if they were asked for."""
    changes = dict(options.pop("settings", {}))  # type: ignore[call-overload]
    asked = given(policy=policy, model=model, out=out, **options)
    done = call(place, "ppo", *asked, *settings(changes), "--json").json
    summary = ("ended", "updates", "context", "reward_context", "labels", "first", "last")
    counts = ("rewards_asked", "rewards_failed", "posts_dropped")
    measured = done["evaluation"]
    return {
        "rows": steady(lines_of(place / out / "steps.jsonl")),
        "summary": {name: done["summary"][name] for name in (*summary, *counts)},
        "held out": None if measured is None else estimates(steady(measured["policies"])),
        "held-out rows": None if measured is None else steady(lines_of(place / out / "evaluation.jsonl")),
    }


def trained_policy(place: Path, out: str = "ppo") -> Path:
    """The policy that a PPO run ended with."""
    return place / out / "policy"


def compared_policies(place: Path, runs: Sequence[str], kl: float) -> Values:
    """PPO runs compared at equal distance from the reference."""
    found = call(place, "ppo", "compare", *runs, *given(at_kl=kl), "--json").json
    return dict(estimates(steady(found)))


def shown(user: dict[str, Any]) -> str:
    """The text that a language model is shown of a user, whom the files for verl hold as a record."""
    from prbench.schema import ContextKind, LabeledPair, UserContext

    labels = tuple(LabeledPair(**pair) for pair in user["labels"])
    return UserContext(kind=ContextKind(user["kind"]), segments=tuple(user["posts"]), labels=labels).text


def verl_export(place: Path, policy: Path, *, model: str, **options: object) -> Values:
    """Write files for verl, and return the rows of both splits and what the configuration says."""
    import pyarrow.parquet as pq
    import yaml

    changes = dict(options.pop("settings", {}))  # type: ignore[call-overload]
    call(place, "ppo", "export", "verl", "verl", *given(policy=policy, model=model, **options), *settings(changes))
    folder = place / "verl"
    config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    rows = {name: pq.read_table(folder / f"{name}.parquet").to_pylist() for name in ("train", "validation")}
    for row in rows["train"] + rows["validation"]:
        row["extra_info"]["context"] = shown(json.loads(row["extra_info"].pop("user")))
    return {
        **{name: steady(some) for name, some in rows.items()},
        "config": steady(_renamed(config, AS_RECORDED), without=("prbench",)),  # names of this machine
    }


# --- training


def train(place: Path, method: str, data: str, out: str, changes: Mapping[str, object], **options: object) -> Values:
    """Train a model; return what it reports of the training and of held-out users."""
    asked = given(method=method, data=data, out=out, **options)
    card = call(place, "train", *asked, *settings(changes), "--json").json
    facts = {name: each for name, each in card.items() if name not in _NOT_OF_TRAINING}
    if method in _WEIGHTS_SHOWN:
        facts["weights shown"] = card["weights"]
    return {"facts": steady(facts), "held out": estimates(card.get("validation"))}


_NOT_OF_TRAINING = (
    "backbone",
    "blend",
    "config",
    "data",
    "device",
    "encoder",
    "kind",
    "members",
    "method",
    "models",
    "spec",
    "summarizer",
    "validation",
    "weights",  # hashes, but for these methods
)
_WEIGHTS_SHOWN = ("match", "blend")


def spec_of(place: Path, out: str, kind: str) -> str:
    """What `--model` takes of a trained folder."""
    return f"{kind}:{place / out}"


def kind_of(method: str) -> str:
    """What `--model` calls the models of a method."""
    return {"bt": "classifier", "bt-profile": "classifier", "encoder": "head", "lm-planner": "planner"}.get(
        method, method
    )


def scores_of_model(place: Path, spec: str, data: str, *, split: str, limit: int, **options: object) -> list[Any]:
    """Scores of a model for the first items of a split."""
    out = "scores_of_" + digest(f"{spec} {sorted(options.items())}")
    return scores_of_run(evaluate(place, spec, data, out=out, split=split, limit=limit, probes="own,swap", **options))


# --- building


def build(place: Path, *, spec: str, **options: object) -> Values:
    """Make pairs with one model in all roles; return rows, rejects, and what was spent."""
    done = call(place, "build", *_build_options(spec, "set", options), "--json", code=int(options.pop("code", 0)))
    found, folder = done.json, place / "set"
    return {
        "published": sorted(
            (_published(row) for path in folder.glob("dataset/*/*.jsonl") for row in lines_of(path)),
            key=lambda row: str(row["id"]),
        ),
        "rejects": [[row["id"], row["stage"], row["reason"]] for row in lines_of(folder / "rejects.jsonl")],
        "counts": steady({name: found[name] for name in ("pairs", "users", "stages")}, without=("model",)),
        "audit": [findings(each) for each in found["audit"]["findings"]],
    }


def _published(row: Mapping[str, Any]) -> Values:
    return {**row, "meta": json.loads(row["meta"]), "profile": [post["id"] for post in row["profile"]]}


def _build_options(spec: str, out: str, options: Mapping[str, object]) -> list[str]:
    wanted = {name: each for name, each in options.items() if name != "code"}
    return given(generator=spec, judge=spec, quality_judge=spec, out=out, **wanted)


def build_forecast(place: Path, *, spec: str, **options: object) -> Any:
    """What a build would take, stage by stage."""
    return steady(call(place, "build", *_build_options(spec, "set", options), "--dry-run", "--json").json)


def prompts_asked(bodies: Iterable[Mapping[str, Any]]) -> list[str]:
    """The prompts that a server was sent, in their order, each with who says what."""
    return ["\n".join(f"[{turn['role']}] {turn['content']}" for turn in body["messages"]) for body in bodies]


# --- planners, and whether a benchmark predicts


def measure_planner(place: Path, planner: str, data: str, **options: object) -> Values:
    """Compare plans with rubrics; return the figures and the rows behind them."""
    out = "plans_" + digest(f"{planner} {sorted(options.items())}")
    found = call(place, "eval-planner", *given(planner=planner, data=data, out=out, **options), "--json").json
    rows = [
        [row["id"], row["planned"], row["wanted"], _pairs(row.get("judged")), _pairs(row.get("truth")), row["read"]]
        for row in lines_of(place / out / "planner" / "items.jsonl")
    ]
    return {"figures": estimates(steady(found, without=("settings", "data"))), "rows": rows}


def _pairs(matching: Mapping[str, Any] | None) -> Any:
    return None if matching is None else [matching["pairs"], matching["problem"]]


def runs_of(place: Path, models: Sequence[str]) -> list[str]:
    """The folders of evaluations of these models, in their order; the order of models moves intervals by chance."""
    found = {}
    for path in (place / "runs").glob("*/summary.json"):
        summary = json.loads(path.read_text(encoding="utf-8"))
        told = "" if summary["context"] == "profile" else f"?context={summary['context']}"
        found[f"{summary['model']}{told}"] = str(path.parent)
    return [found[model] for model in models]


def meta(place: Path, *, benchmark: Sequence[str], downstream: Sequence[str] = (), **options: object) -> Values:
    """Whether one board predicts another: all figures, and the verdict in words."""
    boards = [*repeated("--benchmark", benchmark), *repeated("--downstream", downstream)]
    found = call(place, "meta", *boards, *given(**options), "--json").json
    return dict(estimates(steady(_renamed(found, AS_RECORDED))))


# --- looking at runs, rows and people


def diagnose(place: Path, runs: Sequence[Path], *, by: Sequence[str] = (), **options: object) -> Values:
    """Where models fail, and what to label next."""
    found = call(place, "diagnose", *map(str, runs), *repeated("--by", by), *given(**options), "--json").json
    names = {run.name: f"run {number}" for number, run in enumerate(runs, 1)}
    plain = {name: each for name, each in found.items() if name not in ("data", "export")}
    return dict(estimates(steady(_renamed(plain, names))))


def agreement(place: Path, answers: Sequence[str], *, names: Mapping[str, str] = {}, **options: object) -> Values:
    """What a panel's answers say; `names` are other words for what is called after a run."""
    found = call(place, "annotate", "agreement", *answers, *given(**options), "--json").json
    return dict(estimates(steady(_renamed(found, names), without=("files",))))


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {_renamed(key, names): _renamed(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    if isinstance(value, str):
        for old, new in names.items():
            value = value.replace(old, new)
    return value


def check(place: Path, data: str, *, code: int = 0, **options: object) -> Any:
    """Every finding about a dataset: its verdict, its words and its numbers."""
    found = call(place, "data", "check", *given(data=data, **options), "--json", code=code).json
    return [findings(each) for each in found]


def findings(found: Mapping[str, Any]) -> Values:
    """One finding about a dataset, without the words that explain the check."""
    kept = ("check", "verdict", "figure", "values", "samples")
    return dict(estimates(steady({name: found[name] for name in kept if name in found})))


def parity(place: Path, models: Sequence[str], data: str, **options: object) -> Values:
    """How far two models are apart."""
    return dict(
        steady(
            call(place, "bench", "parity", *repeated("--model", models), *given(data=data, **options), "--json").json
        )
    )


def forget(place: Path, user: str, where: Sequence[str], **options: object) -> Values:
    """Take a person out, and return how much of them went, and what is left."""
    found = call(place, "data", "forget", user, *repeated("--in", where), *given(**options), "--json").json
    search = found["search"]
    return {
        "ids": found["ids"],
        "removed": sum(found["removed"].values()),
        "rows of others that named them": sum(found["mentions"].values()),
        "items of others that showed their posts": sorted(map(sorted, found["swapped"].values())),
        "looked for": found["looked_for"],
        "gone": found["gone"],
        "traces": search and len(search["found"]),
    }


# --- annotation


def annotate(
    place: Path, data: str, *, annotators: str, answers: Path, forms: Sequence[str], **options: object
) -> Any:
    """Make a project, take answers in, and return what every form of export holds, and the progress."""
    asked = given(data=data, annotators=annotators, **options)
    made = call(place, "annotate", "create", "study.db", *asked, "--json").json
    call(place, "annotate", "import", "study.db", str(answers), "--json")
    exported = {}
    for form in forms:
        call(place, "annotate", "export", "study.db", "--as", form, *given(to=f"out/{form}.out"))
        text = (place / "out" / f"{form}.out").read_text(encoding="utf-8")
        exported[form] = _json_or_lines(text)
    return {
        "people": [each["name"] for each in made["annotators"]],
        "progress": estimates(steady(call(place, "annotate", "progress", "study.db", "--json").json)),
        "exported": exported,
    }


def _json_or_lines(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines()]


@contextmanager
def served(place: Path, model: str) -> Iterator[str]:
    """Serve a reward model from a process of its own, and give what `--model` takes of it."""
    options = given(port=0, model=model)
    command = [sys.executable, "-m", "prbench", "serve", *options, "--json"]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"server:{json.loads(process.stdout.readline())['url']}"
        finally:
            process.terminate()


def folder_of_bon(place: Path) -> str:
    """Where the figures of the one Best-of-N run of a folder are."""
    (summary,) = place.glob("bon/*/summary.json")
    return str(summary.parent.relative_to(place))


def pairs_of_build(place: Path) -> Path:
    """Where the pairs of the one build of a folder are."""
    return place / "set" / "pairs.jsonl"
