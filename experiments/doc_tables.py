"""The tables of README and docs, made of the files under `results/`: one function each, named as the page names it.

`figures.py` writes them between `<!-- table: NAME -->` and `<!-- end -->`, and checks that nobody else did.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ppo_table import SIDE_NAMES

RESULTS = Path(__file__).resolve().parents[1] / "results"
LEVELS = ("plain", "implied", "oblique")
POSTS = ("1", "3", "8", "16")
Estimate = Mapping[str, float]

FEWSHOT_ENCODER = "fewshot?reads_posts=true&encoder=@encoder"
BT_PROFILE = "bt-profile?accumulate=2&lora_dropout=0&epochs=1"
# How the pages call the arms of `results/train`.
ARMS = {
    FEWSHOT_ENCODER: "`fewshot` on `encoder`'s encoder, posts and 10 labels (one seed)",
    "fewshot?reads_posts=true": "`fewshot`, posts and 10 labels",
    "fewshot": "`fewshot`, 10 labels, no posts",
    "blend": "`blend` of the next five",
    "head?kind=lowrank": "`head` (low rank; removed)",
    "head?kind=attention": "`head` (attention; removed)",
    BT_PROFILE: "`bt-profile`, SmolLM2 with LoRA, one epoch",
    "bt?accumulate=1": "`bt`, SmolLM2 with LoRA",
    "head?knows_users=false": "`head` without users",
}


# The lab.


def lab_floors() -> str:
    """Return controls, heads and the ceiling."""
    runs = read("lab/figures.json")["runs"]
    rows = [
        ("longest, shortest, overlap with the question", "control:longest test"),
        ("word overlap with the profile (`control:overlap`)", "control:overlap test"),
        ("MiniLM similarity to the posts (`control:embed`)", "control:embed test"),
        ("`head:lab-average`, trained without users", "head:lab-average test"),
        ("`head:lab-average` on `test_population`", "head:lab-average test_population"),
        ("`head:lab-user`, reads the posts", "head:lab-user test"),
        ("`head:lab-user` on `test_population`", "head:lab-user test_population"),
        ("the same head, trained on pairs alone, without rubrics", "head without rubrics test"),
        ("gold instrument with the gold rubric (`control:gold`)", "control:gold (oracle) test"),
    ]
    lines = []
    for label, name in rows:
        run = runs[name]
        sides = [percent(run["groups"]["majority"][side]) for side in ("True", "False")]
        lines.append([label, percents(run["accuracy"]), *sides, percents(run["swap_gap"]) if run["swap_gap"] else "–"])
    return grid(["model", "accuracy", "majority", "minority", "swap gap"], lines)


def lab_repetitions() -> str:
    """Return the repetitions with other texts, people and training seeds."""
    runs = read("lab/figures.json")["runs"]
    lines = []
    for label, suffix, kind in (
        ("default, shipped heads", "", "head:"),
        *((f"repetition {deal}", f" (deal {deal})", "") for deal in (1, 2, 3)),
    ):
        user, average = (
            [runs[f"{kind}{name} {split}{suffix}"] for split in ("test", "test_population")]
            for name in ("lab-user", "lab-average")
        )
        shown = [user[0]["accuracy"], user[0]["swap_gap"], average[0]["accuracy"], average[1]["accuracy"]]
        lines.append([label, *(percents(each) for each in shown)])
    head = [
        "texts",
        "reads posts: `test`",
        "its swap gap",
        "without users: `test`",
        "without users: `test_population`",
    ]
    return grid(head, lines)


def lab_posts() -> str:
    """Return the accuracy of the shipped head by what posts tell."""
    runs = read("lab/figures.json")["runs"]
    groups = runs["head:lab-user test"]["groups"]
    lines = [[f"posts are {level}", percents(groups["level"][level])] for level in LEVELS]
    lines += [[f"informative posts: {many}", percents(groups["informative_posts"][many])] for many in POSTS]
    for many in POSTS:
        label = f"people with 16, of which {many} {'is' if many == '1' else 'are'} left"
        lines.append([label, percents(runs[f"head:lab-user test ({many} informative posts)"]["accuracy"])])
    return grid(["people whose", "accuracy of `head:lab-user`"], lines)


GOLD_KINDS = {
    "lab": "the lab's own",
    "edited": "edited: reworded by a third to a half",
    "shortened": "shortened to 7 to 12 words",
    "merged": "merged: two points in one sentence, both found",
    "novel": "novel: good advice on an aspect that no known point gives",
    "salad": "salad: the words of a point in disorder",
    "reversed": "reversed: a point turned into its opposite",
    "on_topic": "on the subject, serving no aspect",
    "neutral": "neutral posts, as if in an answer on each subject",
    "foreign": "foreign: answers on other subjects",
}


def lab_gold() -> str:
    """Return how the gold instrument reads sentences."""
    found = read("lab/gold.json")["measured on"]
    lines = []
    for kind, label in GOLD_KINDS.items():
        each = found[kind]
        nothing = kind in ("salad", "reversed", "on_topic", "neutral", "foreign")  # to abstain is to be right
        shares = [percent(each[name]) for name in ("right", "wrong")] + [
            "–" if nothing else percent(each["abstained"])
        ]
        lines.append([label, f"{each['n']:,}", *shares])
    return grid(["sentences", "n", "right, %", "wrong, %", "abstained, %"], lines)


# Training.


def train_quality() -> str:
    """Return how good every method is on `test`."""
    figures = read("train/figures.json")
    lines = []
    for arm, each in sorted(figures.items(), key=lambda pair: -pair[1]["accuracy"]["test"]["value"]):
        numbers = [percent(each["worst_decile_accuracy"]), percent(each["minority_accuracy"])]
        levels = [percent(each["levels"][level]) for level in LEVELS]
        seeds = ", ".join(percent(value) for value in each["by_seed"])
        whole = [percents(each["accuracy"]["test"]), seeds, *numbers, percents(each["swap_gap"])]
        lines.append([arm_name(arm), *whole, f"{each['ece']:.3f}", *levels])
    planner = read("lm_planner/full.json")
    seeds = ", ".join(percent(one["shared"]["accuracy"]) for one in planner["seeds"].values())
    shown = percents(planner["all_seeds_shared"]["accuracy"])
    place = next(place for place, line in enumerate(lines) if line[0] == arm_name(BT_PROFILE))
    name = f"`lm-planner`, SmolLM2, all weights ([{planner['shared']} pairs](#what-lm-planner-was-asked))"
    lines.insert(place, [name, shown, seeds, *["–"] * 7])
    head = ["method", "accuracy", "by seed", "worst tenth", "minority", "swap gap", "ECE", *LEVELS]
    return grid(head, lines)


def train_population() -> str:
    """Return accuracy where pairs follow the population, with and without posts, and what that is over `bt`."""
    figures, over = read("train/figures.json"), read("train/differences.json")["test_population, no posts"]
    lines = []
    for arm in ("blend", "encoder", "rubric-chain", "head", "planner", "summary", "bt?accumulate=1"):
        each = figures[arm]
        shown = [each["accuracy"]["test_population"], each["without_posts"]["test_population"]]
        gap = over.get(f"{arm} - bt")
        lines.append([f"`{arm.split('?')[0]}`", *map(percents, shown), percents(gap, "+") if gap else ""])
    return grid(["method", "with posts", "without posts", "without posts, over `bt`"], lines)


def train_cold_start() -> str:
    """Return accuracy by how many informative posts are left."""
    figures = read("train/figures.json")
    lines = []
    for arm in ("blend", "encoder", "rubric-chain", "head", "planner", "summary"):
        accuracy = figures[arm]["accuracy"]
        left = [percents(accuracy[f"test, {many} informative posts"]) for many in (1, 3, 10)]
        lines.append([f"`{arm}`", *left, percent(figures[arm]["without_posts"]["test"])])
    return grid(["method", "1 post", "3 posts", "10 posts", "no posts"], lines)


def train_by_posts() -> str:
    """Return accuracy by how many informative posts people have by nature."""
    lines = []
    for arm in ("blend", "encoder"):
        seeds = [read(f"train/{arm}-{seed}.json")["runs"]["test"]["groups"] for seed in (0, 1, 2)]
        means = [sum(seed["informative_posts"]["groups"][many]["value"] for seed in seeds) / 3 for many in POSTS]
        lines.append([f"`{arm}`", *map(percent, means)])
    return grid(["method", *(f"{many} post{'s' * (many != '1')}" for many in POSTS)], lines)


def train_labels() -> str:
    """Return accuracy by the number of labels."""
    figures = read("train/figures.json")
    counts = (0, 1, 3, 5, 10, 30)
    lines = []
    for arm, label in (
        ("fewshot", "`fewshot`, no posts"),
        ("fewshot?reads_posts=true", "`fewshot`, posts too (`--set reads_posts=true`)"),
        (FEWSHOT_ENCODER, "the same on a tuned encoder (one seed)"),
    ):
        lines.append([label, *(percents(figures[arm]["accuracy"][f"test, {count} labels"]) for count in counts)])
    return grid(["labels", *map(str, counts)], lines)


def train_cost() -> str:
    """Return what training and scoring cost."""
    figures = read("train/figures.json")
    lines = []
    for arm, each in sorted(figures.items(), key=lambda pair: float(pair[1]["train_seconds"])):
        if arm == "blend":
            continue  # its members are trained beside it
        gpu = "GPU" if any("NVIDIA" in device for device in each["device"]) else "CPU"
        costs = [f"{each['train_seconds']:.0f}", f"{each['peak_memory_mib'] / 1024:.1f}"]
        lines.append([arm_name(arm, short=True), gpu, *costs, f"{each['responses_per_second']:,.0f}"])
    return grid(["method", "on", "training, seconds", "memory, GiB", "responses per second"], lines)


def train_second_round() -> str:
    """Return what labels that the diagnosis chose add, by seed."""
    found = read("diagnose/second_round.json")
    lines = []
    for label, part in (*((f"seed {seed}", f"seed {seed}") for seed in (0, 1, 2)), ("mean over seeds", "over seeds")):
        shown = [found[part]["differences"][name] for name in ("diagnosed - first round", "diagnosed - random")]
        lines.append([label, *(percents(each, "+") for each in shown)])
    return grid(["", "chosen labels, over the first round", "chosen labels, over random ones"], lines)


FOLDS = {
    "blend of bt and match": "`blend` of `bt` and `match`",
    "match": "`match`",
    "bt": "`bt`",
    "bt-profile": "`bt-profile` (one seed)",
    "head, topics": "`head`",
    "head, attention": "`head` (attention; removed)",
    "head, lowrank": "`head` (low rank; removed)",
    "head, no users": "`head`, no users",
    "match, no users": "`match`, no users",
    "fewshot": "`fewshot`",
    "summary": "`summary`",
    "planner": "`planner`",
    "rubric-chain": "`rubric-chain`",
    "embed": "`control:embed`",
    "overlap": "`control:overlap`",
}


def folds_personamem() -> str:
    """Return the folds of PersonaMem."""
    return folds("personamem")


def folds_prefeval() -> str:
    """Return the folds of PrefEval."""
    return folds("prefeval")


def folds(name: str) -> str:
    """Return the folds of one set."""
    found = read("folds/figures.json")[name]
    lines = []
    for arm in sorted((arm for arm in FOLDS if arm in found), key=lambda arm: -float(found[arm]["accuracy"]["value"])):
        each = found[arm]
        over = [percents(each["over"][other], "+") if each["over"].get(other) else "" for other in ("bt", "overlap")]
        shown = [percents(each["accuracy"]), percents(each["without_posts"]), percents(each["swap_gap"], "+")]
        lines.append([FOLDS[arm], *shown, *over])
    return grid(["model", "accuracy", "without posts", "swap gap", "over `bt`", "over word overlap"], lines)


# What users get.

ENCODER = "head:models/encoder-0?encoder=models/encoder-0/encoder"
LABELS = "fewshot:models/fewshot-encoder-0?encoder=models/encoder-0/encoder"
NO_USERS = "head:models/head_knows_users=false-0?context=none"
PICKERS = {
    "oracle": "gold (the ceiling)",
    LABELS: "`fewshot` on a tuned encoder: posts and 30 labels",
    "fewshot:models/fewshot-0": "`fewshot`: 30 labels",
    "blend:models/blend-0": "`blend` of `encoder`, `planner`, `rubric-chain`, `head` and `summary`",
    ENCODER: "`encoder`",
    "planner:models/planner-0": "`planner`",
    "rubric-chain:models/rubric-chain-0": "`rubric-chain`",
    "head:models/head-0": "`head`",
    "head:lab-user": "`head:lab-user`, shipped",
    "summary:models/summary-0": "`summary`",
    "head:models/head_kind=attention-0": "`head` (attention; removed)",
    "head:models/head_kind=lowrank-0": "`head` (low rank; removed)",
    "control:overlap": "`control:overlap`",
    "head:lab-average?context=none": "`head:lab-average`, shipped: no users",
    NO_USERS: "`head` without users",
    "control:longest": "`control:longest`",
    "control:shortest": "`control:shortest`",
    "control:question": "`control:question`",
    "control:random": "`control:random`",
}


def bon_lab() -> str:
    """Return what every reward model picks from the lab's sampler."""
    found, labeled = (read(f"bon/{name}.json")["models"] for name in ("lab", "lab_labels"))
    lines = []
    for model, label in PICKERS.items():
        each = found.get(model) or labeled[model]
        swapped = (each.get("swap") or {}).get("captured_headroom")
        lines.append(
            [
                label,
                decimals(each["value_at"]["64"], "", 3),
                "100" if model == "oracle" else percents(each["captured_headroom"]),
                percents(swapped) if swapped and model not in ("oracle", NO_USERS) else "",
            ]
        )
    return grid(["picks", "gold", "captured headroom, %", "with another user's profile, %"], lines)


def bon_lab_groups() -> str:
    """Return the captured headroom by group of people."""
    found = read("bon/lab.json")["groups"]
    columns = [("majority", "True", "majority"), ("majority", "False", "minority")]
    columns += [("level", level, f"{level} posts") for level in LEVELS]
    lines = []
    for model in (ENCODER, "head:models/head-0", NO_USERS):
        cells = []
        for name, group, _ in columns:
            entry = next(each for each in found[name] if each["group"] == group)
            cells.append(percents(entry["captured_headroom"][model]))
        lines.append([PICKERS[model], *cells])
    return grid(["captured headroom, %", *(label for _, _, label in columns)], lines)


REWARDS = {
    "oracle": "gold (the ceiling)",
    "noisy": "gold with noise (sd 0.5)",
    "fewshot": "`fewshot` on `encoder`'s encoder: posts and up to 30 labels",
    "rubric-chain": "`rubric-chain`",
    "planner": "`planner`",
    "head": "`head`",
    "summary": "`summary`",
    "lowrank": "`head` (low rank; removed)",
    "attention": "`head` (attention; removed)",
    "head-1000": "`head`, 1,000 of 6,000 rows",
    "control-random": "`control:random`",
    "control-overlap": "`control:overlap`",
    "no-users": "`head` without users",
    "general": "general quality",
    "encoder": "`encoder`: posts",
    "bt": "`bt`, no users",
    "overlap": "`control:overlap`",
}


def ppo_sentences() -> str:
    """Return what PPO gave with the policy of sentences."""
    return ppo("meta/ppo_sentences_figures.json")


def ppo_smollm2() -> str:
    """Return what PPO gave with SmolLM2."""
    return ppo("ppo/second/figures.json")


def ppo(name: str) -> str:
    """Return what PPO gave, by reward model."""
    found = read(name)
    steps = list(next(iter(found["models"].values()))["steps"])
    last = steps[-1]
    most = found["models"]["oracle"]["steps"][last]["gain"]
    lines = []
    for model in sorted(
        (model for model in found["models"] if model in REWARDS),
        key=lambda model: -float(found["models"][model]["steps"][last]["gold"]["value"]),
    ):
        each = found["models"][model]
        at = each["steps"][last]
        gains = [decimals(at["gain"][side], "+") for side in SIDE_NAMES.values()]
        share = f"{100 * at['gain']['all']['value'] / most['all']['value']:.0f}"
        seeds = ", ".join(f"{gold:.2f}" for gold in each["by_seed"])
        lines.append([REWARDS[model], decimals(at["gold"]), seeds, gains[0], share, *gains[1:], f"{at['kl']:.1f}"])
    head = [
        "rewarded by",
        "gold",
        "by seed",
        "gain",
        "% of gold's gain",
        "gain, majority",
        "gain, minority",
        "KL, nats",
    ]
    start = decimals(found["start"])
    return (
        grid(head, lines)
        + f"\n\nAll start at a gold of {start}, on {found['questions']} questions, after {last} updates."
    )


def ppo_headroom() -> str:
    """Return how much of the best of 64 PPO with gold as reward reaches."""
    lines = []
    for label, name in (
        ("second sitting, settings fixed before", "second/headroom"),
        ("first sitting, as planned", "first/headroom"),
        ("first sitting, longer", "first/headroom_long"),
        ("the same on the second sitting's questions", "first/headroom_long_112"),
    ):
        each = read(f"ppo/{name}.json")
        shown = [decimals(each[part]) for part in ("before", "after", "best of the pool")]
        share = percents(each["share of the headroom"])
        lines.append([label, str(each["updates"]), str(each["questions"]), *shown, share])
    return grid(["", "updates", "questions", "before", "after", "best of 64", "share of the headroom, %"], lines)


# Does a benchmark predict.

LAST = {
    "lab: best of 64": "sampler, best of 64",
    "smollm2: best of 64": "`smollm2`, best of 64",
    "sentences: best of 64": "`sentences`, best of 64",
    "sentences: PPO": "its PPO",
}
BOARDS = {
    "personalised": "personalized pairs",
    "easy: plain posts": "only people with plain posts",
    "hard: oblique posts": "only people with oblique posts",
    "general": "general pairs",
    "swapped profiles": "with another user's profile",
}
PREDICTORS = {
    "accuracy on policy samples": "accuracy on pairs of the policy's own answers",
    "personalised": "personalized accuracy",
    "swap gap": "swap gap",
    "least category": "accuracy in the worst category",
    "minority accuracy": "accuracy where the user is with the minority",
    "variance of rewards": "variance of the scores within a pool",
    "little to do with length": "little correlation with length",
}


def meta_spearman() -> str:
    """Return how each benchmark ranks with what users get."""
    found = {(each["benchmark"], each["downstream"]): each for each in read("meta/figures.json")["predictions"]}
    lines = []
    for board, label in BOARDS.items():
        cells = [decimals(found[board, name]["statistics"]["spearman"]) for name in LAST]
        lines.append([label, *cells])
    gaps = {
        each["downstream"]: each["difference"]
        for each in read("meta/figures.json")["differences"]
        if (each["first"], each["second"]) == ("personalised", "general")
    }
    lines.append(["personalized minus general", *(decimals(gaps[name], "+") for name in LAST)])
    models = [str(found["personalised", name]["n_models"]) for name in LAST]
    return grid(["benchmark", *LAST.values()], [*lines, ["models", *models]])


def meta_parts() -> str:
    """Return the correlation of personalized accuracy within parts of the models, and given their family."""
    figures = read("meta/figures.json")
    found = {each["downstream"]: each for each in figures["predictions"] if each["benchmark"] == "personalised"}
    parts = {name: {each["downstream"]: each for each in figures[name]} for name in ("near_chance", "beyond_chance")}
    lines = [
        ["all models", *(decimals(found[name]["statistics"]["spearman"]) for name in LAST)],
        ["given the family of the models", *(decimals(found[name]["given"]["family"]) for name in LAST)],
    ]
    for part, label in (("beyond_chance", "models above 60 %"), ("near_chance", "models at 60 % or less")):
        lines.append([label, *(decimals(parts[part][name]) for name in LAST)])
        lines.append([f"{label}, how many", *(str(len(parts[part][name]["models"])) for name in LAST)])
    return grid(["personalized accuracy among", *LAST.values()], lines)


def meta_predictors() -> str:
    """Return what else predicts what users get."""
    figures = read("meta/figures.json")
    found = {(each["benchmark"], each["downstream"]): each for each in figures["predictors"]}
    lines = [
        [label, *(decimals(found[name, downstream]["statistics"]["spearman"]) for downstream in LAST)]
        for name, label in PREDICTORS.items()
    ]
    skills = {
        each["downstream"]: {way["name"]: way["skill"] for way in each["ways"]} for each in figures["recommendations"]
    }
    for way, label in (
        ("best single predictor", "skill on models left out: the best alone"),
        ("weighted (ridge)", "skill on models left out: a mix of all seven"),
    ):
        lines.append([label, *(f"{skills[downstream][way]:.2f}" for downstream in LAST)])
    return grid(["predictor", *LAST.values()], lines)


def meta_statistics() -> str:
    """Return other statistics of personalized accuracy."""
    found = {
        each["downstream"]: each
        for each in read("meta/figures.json")["predictions"]
        if each["benchmark"] == "personalised"
    }
    names = {"kendall": "Kendall's tau-b", "weighted_tau": "weighted tau", "rbo": "RBO", "ndcg": "NDCG"}
    lines = [
        [label, *(f"{found[downstream]['statistics'][name]['value']:.2f}" for downstream in LAST)]
        for name, label in names.items()
    ]
    return grid(["statistic", *LAST.values()], lines)


def meta_mixtures() -> str:
    """Return what mixtures of a head and a model of general quality get."""
    scores = read("meta/figures.json")["models"]
    lines = []
    for model, label in (
        ("head", "`head` alone"),
        *((f"mixture-{share}", f"{share} % of the head's weight") for share in (75, 50, 25)),
        ("general", "general quality alone"),
    ):
        shares = [percent(scores[board][model]) for board in ("personalised", "general")]
        lines.append([label, *shares, f"{scores['lab: best of 64'][model]:.2f}"])
    return grid(["model", "personalized pairs, %", "general pairs, %", "gold of the sampler's best of 64"], lines)


def meta_models() -> str:
    """Return every model's scores."""
    scores = read("meta/figures.json")["models"]
    boards = ("personalised", "general", "swapped profiles")
    lines = []
    for model in sorted(scores["personalised"], key=lambda model: -float(scores["personalised"][model])):
        shares = [percent(scores[board][model]) for board in boards]
        golds = [f"{scores[name][model]:.3f}" if model in scores[name] else "–" for name in LAST]
        lines.append([f"`{model}`", *shares, *golds])
    return grid(["model", "personalized", "general", "another user's profile", *LAST.values()], lines)


def meta_resolution() -> str:
    """Return how large such a benchmark must be."""
    lines = []
    for each in read("meta/figures.json")["resolution"]["sizes"]:
        if each["users"] not in (17, 68, 272, 545, 1090):
            continue
        agreement = {
            part: each[f"agreement{end}"] for part, end in (("value", ""), ("low", "_low"), ("high", "_high"))
        }
        both = (
            [decimals(agreement), percent(each["same_best"], 0) + " %"] if each["agreement"] is not None else ["", ""]
        )
        smallest = f"{100 * each['smallest_difference']:.1f} points"
        lines.append([f"{each['users']:,}", f"{each['items']:,}", *both, f"{each['reliability']:.2f}", smallest])
    head = [
        "people",
        "pairs",
        "Spearman of two such benchmarks",
        "same best model",
        "reliability",
        "smallest difference shown",
    ]
    return grid(head, lines)


def meta_transfer() -> str:
    """Return how methods rank on the lab and on text of others."""
    found = read("meta/transfer.json")
    lines = []
    for method, each in sorted(found["methods"]["accuracy"].items(), key=lambda pair: -float(pair[1]["lab"])):
        gaps = found["methods"]["swap_gap"][method]
        cells = [f"{percent(each[name])} ({100 * gaps[name]:+.1f})" for name in ("lab", "personamem", "prefeval")]
        lines.append([short(method), *cells])
    return grid(["method: accuracy (swap gap)", "lab", "PersonaMem", "PrefEval"], lines)


def meta_transfer_spearman() -> str:
    """Return the rank correlation of the three sets."""
    found = read("meta/transfer.json")["spearman"]
    lines = []
    for one, two, label in (
        ("lab", "personamem", "lab and PersonaMem"),
        ("lab", "prefeval", "lab and PrefEval"),
        ("personamem", "prefeval", "PersonaMem and PrefEval"),
    ):
        cells = []
        for figure in ("accuracy", "swap_gap"):
            each = found[f"{figure}: {one}, {two}"]
            cells.append(
                f"{each['value']:.2f} (p {each['p']:.2f})" if each["p"] >= 0.005 else f"{each['value']:.2f} (p < 0.01)"
            )
        lines.append([label, *cells])
    return grid(["Spearman over the methods", "accuracy", "swap gap"], lines)


def meta_coverage() -> str:
    """Return the coverage of the intervals of `prbench meta`."""
    lines = []
    for cell in read("meta/coverage.json")["cells"]:
        plain, items, others = cell["without items"], cell["with items"], cell["other methods"]
        figures = [plain[name] for name in ("spearman", "kendall", "pearson")]
        figures += [items["spearman"], items["corrected spearman"]]
        figures += [others["bootstrap, BCa"], others["Fisher z (Bonett and Wright)"]]
        lines.append([str(cell["n"]), f"{cell['rho']:g}", *(f"{figure:.1f}" for figure in figures)])
    head = [
        "n",
        "rho",
        "Spearman",
        "Kendall",
        "Pearson",
        "Spearman, items",
        "corrected, items",
        "BCa bootstrap",
        "Fisher's z",
    ]
    return grid(head, lines)


def meta_coverage_ranges() -> str:
    """Return the smallest and the largest coverage of each interval."""
    found = read("meta/coverage.json")
    cells = found["cells"]
    lines = []
    for name in ("spearman", "pearson", "kendall"):
        values = [cell[kind][name] for cell in cells for kind in ("without items", "with items")]
        lines.append([f"{name.capitalize()}, with and without items", *span(values)])
    lines.append(
        [
            "Spearman where extremes come together (t copula, 3 degrees of freedom)",
            *span([c["heavy tails"] for c in cells]),
        ]
    )
    gaps = found["differences"]
    lines.append(
        [
            "difference of two benchmarks, 12 to 48 models",
            *span([v for k, v in gaps.items() if not k.startswith("n 6,")]),
        ]
    )
    lines.append(
        ["difference of two benchmarks, 6 models", *span([v for k, v in gaps.items() if k.startswith("n 6,")])]
    )
    return grid(["interval", "cells", "lowest coverage, %", "highest, %"], lines)


def span(values: Sequence[float]) -> list[str]:
    """Return how many values there are, and the ends."""
    return [str(len(values)), f"{min(values):.1f}", f"{max(values):.1f}"]


def meta_six() -> str:
    """Return the case of six models."""
    found = read("meta/six_models.json")
    lines = []
    for name in ("Best-of-N", "PPO"):
        each = found[name]
        shown = [f"{each['ndcg']['value']:.4f}", f"{each['ndcg']['p']:.2f}", f"{each['spearman']['value']:.4f}"]
        rest = [f"[{each['spearman']['low']:.2f}, {each['spearman']['high']:.2f}]", f"{each['spearman']['p']:.2f}"]
        lines.append([name, ", ".join(map(str, each["places"])), *shown, *rest, str(each["models_needed"])])
    head = ["downstream", "the only order", "NDCG", "its p", "Spearman", "95 % interval", "its p", "models needed"]
    return grid(head, lines)


# Text of others.


def third_party_personamem() -> str:
    """Return the controls on PersonaMem."""
    return third_party("PersonaMem")


def third_party_prefeval() -> str:
    """Return the controls on PrefEval."""
    return third_party("PrefEval")


def third_party_llmbar() -> str:
    """Return the controls on LLMBar."""
    return third_party("LLMBar")


def third_party(name: str) -> str:
    """Return the controls on one set."""
    lines = []
    for each in read("third_party/results.json")[name]:
        if each["context"] == "profile" and each["model"] not in ("control:overlap", "control:embed"):
            continue  # what reads no profile scores the same with one
        gap, gain = (each["swap"] or {}).get("gap"), each["personalization_gain"]
        shown = [percents(each["accuracy"]), *(percents(one, "+") if one else "–" for one in (gain, gap))]
        lines.append([f"`{each['model']}`", each["context"], *shown, percent(each["tie_rate"])])
    return grid(["model", "context", "accuracy", "gain", "swap gap", "ties"], lines)


def third_party_agreement() -> str:
    """Return the agreement of three annotators."""
    found = read("third_party/results.json")["PandaLM"]
    rows = [
        ("raw agreement", found["raw"]),
        ("Krippendorff's alpha, nominal", found["krippendorff_alpha_nominal"]),
        ("Fleiss' kappa", found["fleiss_kappa"]),
        *((f"Cohen's kappa, {pair}", each) for pair, each in found["cohen_kappa"].items()),
    ]
    return grid(["figure", "value"], [[label, decimals(each, "", 3)] for label, each in rows])


# Speed.


def speed_sweep() -> str:
    """Return shared against padded, neither compiled, by the number of candidates."""
    lines = []
    for each in read("speed/sweep_h200.json")["points"]:
        lines.append([str(each["settings"]["candidates"]), *timed(each), f"{each['token_ratio']:.1f}"])
    return grid(["candidates", "padded, s", "shared, s", "ratio", "token ratio"], lines)


def speed_compiled() -> str:
    """Return compiled packs against the eager forward pass."""
    found = read("speed/shared_prefix_h200.json")
    lines = []
    for name, label in (
        ("64 candidates", "64 candidates of one prompt"),
        ("16 candidates", "16 candidates of one prompt"),
        ("pairs", "32 pairs"),
        ("8 prompts in flight", "8 prompts of different lengths, 16 candidates each"),
    ):
        each = found[name]
        lines.append([label, *timed(each), f"{each['token_ratio']:.1f}", f"{each['share_of_matmul_rate']:.2f}"])
    return grid(
        ["load", "padded, eager, s", "shared, compiled, s", "ratio", "token ratio", "share of the matmul rate"], lines
    )


def speed_cpu() -> str:
    """Return shared against padded on two cores."""
    found = read("speed/shared_prefix_cpu.json")
    lines = []
    for name, label in (("16 candidates", "16 candidates of one prompt"), ("8 pairs", "8 pairs")):
        each = found[name]
        lines.append([label, *timed(each, 2), f"{each['token_ratio']:.1f}", f"{each['parity_max_abs']:.0e}"])
    return grid(["load", "padded, s", "shared, s", "ratio", "token ratio", "largest difference of scores"], lines)


def timed(each: Mapping[str, Any], digits: int = 3) -> list[str]:
    """Return both times and their ratio."""
    return [f"{each['naive_seconds']:.{digits}f}", f"{each['seconds']:.{digits}f}", f"{each['ratio']:.1f}"]


def speed_bfloat16() -> str:
    """Return how scores in bfloat16 depend on the batch and on the kernel."""
    found = read("speed/half_precision_h200.json")
    pairs = ("padded 1 - padded 16", "padded 16 - packed", "padded 1 - packed")
    lines = []
    for name, label in (
        ("flash kernel", "the one that packs use (flash)"),
        ("kernel of transformers' choice", "PyTorch's choice (cuDNN on this card)"),
    ):
        cells = []
        for pair in pairs:
            each = found[name]["differences"][pair]
            mean = f"{each['mean']:.4f}" if each["mean"] >= 1e-4 else f"{each['mean']:.6f}"
            cells.append(f"{mean} ({each['max']:.3f}), {percent(each['pairs decided otherwise'])} %")
        lines.append([label, *cells])
    return grid(["kernel of the padded passes", "padded 1, padded 16", "padded 16, packed", "padded 1, packed"], lines)


# How cells are written.


@cache
def read(name: str) -> Any:
    """Return a file of results."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def arm_name(arm: str, *, short: bool = False) -> str:
    """Return what a page calls an arm of training."""
    if short and arm == "fewshot":
        return "`fewshot`"
    if short and arm.startswith("fewshot"):
        return "`fewshot` with posts" + ", tuned encoder" * (arm == FEWSHOT_ENCODER)
    return ARMS.get(arm, f"`{arm}`")


def short(method: str) -> str:
    """Return the name of a method without its settings, but with what sets it apart."""
    return ARMS[method] if method.startswith("head?") else f"`{method.partition('?')[0]}`"


def percent(found: float | Estimate, digits: int = 1, sign: str = "") -> str:
    """Return a share in percent, without its interval."""
    value = found["value"] if isinstance(found, Mapping) else found
    return f"{100 * value:{sign}.{digits}f}"


def percents(found: Estimate, sign: str = "") -> str:
    """Return a share in percent with its interval."""
    return f"{percent(found, 1, sign)} [{percent(found['low'], 1, sign)}, {percent(found['high'], 1, sign)}]"


def decimals(found: Estimate, sign: str = "", digits: int = 2) -> str:
    """Return a figure with its interval."""
    value, low, high = (f"{found[part]:{sign}.{digits}f}" for part in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def grid(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    assert all(len(line) == len(head) for line in lines), head
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines))
