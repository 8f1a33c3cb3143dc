"""Tables of what users get, and of what predicts it. One function each, named as the page names it."""

from collections.abc import Sequence
from typing import Any

from ppo_table import SIDE_NAMES
from table_cells import LEVELS, decimals, grid, percent, percents, read
from tables_of_models import ARMS

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
    """Return how each benchmark ranks with what users get, with intervals over families."""
    found = {(each["benchmark"], each["downstream"]): each for each in read("meta/figures.json")["predictions"]}
    lines = []
    for board, label in BOARDS.items():
        cells = [decimals(found[board, name]["statistics"]["spearman"]) for name in LAST]
        lines.append([label, *cells])
        if board == "personalised":
            lines.append(["what the design yields by itself", *(band(found[board, name]) for name in LAST)])
    gaps = {
        each["downstream"]: each["difference"]
        for each in read("meta/figures.json")["differences"]
        if (each["first"], each["second"]) == ("personalised", "general")
    }
    lines.append(["personalized minus general", *(decimals(gaps[name], "+") for name in LAST)])
    models = [str(found["personalised", name]["n_models"]) for name in LAST]
    families = [str(found["personalised", name]["population"]["families"]) for name in LAST]
    return grid(["benchmark", *LAST.values()], [*lines, ["models", *models], ["families", *families]])


def band(each: Any) -> str:
    """Return where boards of the same spread lie that read no text; of a prediction, or of a statistic."""
    found = each["statistics"]["spearman"]["structural"] if "statistics" in each else each["structural"]
    return "–" if found is None else f"{found['low']:.2f} … {found['high']:.2f}"


def over_families(each: Any) -> str:
    """Return a figure with its interval, if there is one."""
    return f"{each['value']:.2f} (too few families)" if each["low"] is None else decimals(each)


def meta_families() -> str:
    """Return personalized accuracy by what is taken as drawn, and inside and between families."""
    found = {
        each["downstream"]: each
        for each in read("meta/figures.json")["predictions"]
        if each["benchmark"] == "personalised"
    }
    parts = {name: found[name]["by_family"] for name in LAST}
    lines = [
        ["families drawn (the interval)", *(decimals(found[name]["statistics"]["spearman"]) for name in LAST)],
        ["as if models were drawn one by one", *(decimals(found[name]["spearman over models"]) for name in LAST)],
        ["bootstrap of families, variants and seeds", *(ends(found[name]["bootstrap_families"]) for name in LAST)],
        ["between families: of their means", *(decimals(parts[name]["between"]) for name in LAST)],
        ["its p, families permuted", *(chance(parts[name]["between"]["p"]) for name in LAST)],
        ["within families: of ranks inside each", *(f"{parts[name]['within']['value']:.2f}" for name in LAST)],
        ["its p, variants permuted inside families", *(chance(parts[name]["within"]["p"]) for name in LAST)],
        ["families of equal size that tell as much", *(effective(found[name]["population"]) for name in LAST)],
    ]
    return grid(["personalized accuracy", *LAST.values()], lines)


def ends(limits: Sequence[float]) -> str:
    """Return the ends of an interval."""
    return f"[{limits[0]:.2f}, {limits[1]:.2f}]"


def chance(p: float) -> str:
    """Return a p."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.01 else f"{p:.2f}"


def effective(population: Any) -> str:
    """Return the effective number of families."""
    return f"{population['effective_families']:.1f}"


def meta_parts() -> str:
    """Return the correlation of personalized accuracy within parts of the models, and given their family."""
    figures = read("meta/figures.json")
    found = {each["downstream"]: each for each in figures["predictions"] if each["benchmark"] == "personalised"}
    parts = {name: {each["downstream"]: each for each in figures[name]} for name in ("near_chance", "beyond_chance")}
    lines = [
        ["all models", *(decimals(found[name]["statistics"]["spearman"]) for name in LAST)],
        ["given the family of the models", *(over_families(found[name]["given"]["family"]) for name in LAST)],
    ]
    for part, label in (("beyond_chance", "models above 60 %"), ("near_chance", "models at 60 % or less")):
        lines.append([label, *(over_families(parts[part][name]) for name in LAST)])
        lines.append([f"{label}, by design", *(band(parts[part][name]) for name in LAST)])
        many = [f"{len(parts[part][name]['models'])}, of {parts[part][name]['families']}" for name in LAST]
        lines.append([f"{label}, how many, and of how many families", *many])
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


def meta_external() -> str:
    """Return how methods rank on the lab and on text of others."""
    found = read("meta/external_ranks.json")
    lines = []
    for method, each in sorted(found["methods"]["accuracy"].items(), key=lambda pair: -float(pair[1]["lab"])):
        gaps = found["methods"]["swap_gap"][method]
        cells = [f"{percent(each[name])} ({100 * gaps[name]:+.1f})" for name in ("lab", "personamem", "prefeval")]
        lines.append([short(method), *cells])
    return grid(["method: accuracy (swap gap)", "lab", "PersonaMem", "PrefEval"], lines)


def meta_external_spearman() -> str:
    """Return the rank correlation of the three sets."""
    found = read("meta/external_ranks.json")["spearman"]
    lines = []
    for one, two, label in (
        ("lab", "personamem", "lab and PersonaMem"),
        ("lab", "prefeval", "lab and PrefEval"),
        ("personamem", "prefeval", "PersonaMem and PrefEval"),
    ):
        for figure, name in (("accuracy", "accuracy"), ("swap_gap", "swap gap")):
            each = found[f"{figure}: {one}, {two}"]
            alone = each["over methods"]
            cells = [decimals(each), chance(each["p"]), ends((alone["low"], alone["high"]))]
            lines.append([f"{label}, {name}", *cells, chance(alone["p"]), f"{each['as printed']:.2f}"])
    head = ["Spearman over methods", "over families", "p", "as if methods were drawn one by one", "p", "as printed"]
    return grid(head, lines)


def meta_families_coverage() -> str:
    """Return the coverage of intervals over families."""
    lines = []
    for cell in read("meta/families.json")["cells"]:
        setting = [f"{cell[name]:g}" for name in ("share", "between", "within")]
        kinds = ("over families", "over models", "bootstrap, percentile", "bootstrap of z with t")
        held = [f"{cell['coverage'][name]:.1f}" if name in cell["coverage"] else "" for name in kinds]
        lines.append([cell["models"], *setting, f"{cell['truth']:.2f}", *held])
    head = [
        "models",
        "families' share of the variance",
        "rho between",
        "rho within",
        "Spearman",
        "over families",
        "over models",
        "bootstrap of families, percentiles",
        "the same, z with t",
    ]
    return grid(head, lines)


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


def short(method: str) -> str:
    """Return the name of a method without its settings, but with what sets it apart."""
    return ARMS[method] if method.startswith("head?") else f"`{method.partition('?')[0]}`"


def readme_meta() -> str:
    """Return the correlations that README shows."""
    found = {(each["benchmark"], each["downstream"]): each for each in read("meta/figures.json")["predictions"]}
    lines = []
    for downstream, label in (
        ("lab: best of 64", "the best of 64 answers made of the lab's sentences"),
        ("smollm2: best of 64", "the best of 64 answers of a language model that recites the lab's sentences"),
        ("sentences: PPO", "a small policy of the lab's sentences, trained by PPO"),
    ):
        pair = [found[board, downstream] for board in ("personalised", "general")]
        personal, general = (decimals(each["statistics"]["spearman"]) for each in pair)
        models = f"{pair[0]['n_models']}, of {pair[0]['population']['families']} families"
        lines.append([label, models, personal, band(pair[0]), general])
    heads = ["Spearman correlation with the true value of", "models", "personal pairs", "by design", "general pairs"]
    return grid(heads, lines)
