"""Tables of reward models: lab, training, labels, text of others. One function each, named as the page names it."""

from collections.abc import Sequence

from table_cells import LEVELS, POSTS, decimals, grid, percent, percents, read

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
    best = read("lab/ceiling.json")["test"]
    sides = [percent(best["majority"][side]["accuracy"]) for side in ("True", "False")]
    lines.insert(-1, ["the ceiling for readers of posts (computed)", percent(best["all"]["accuracy"]), *sides, "–"])
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
    groups, best = runs["head:lab-user test"]["groups"], read("lab/ceiling.json")["test"]
    lines = []
    for group, parts, label in (
        ("level", LEVELS, "posts are {}"),
        ("informative_posts", POSTS, "informative posts: {}"),
    ):
        for part in parts:
            ceiling = percent(best[group][part]["accuracy"])
            lines.append([label.format(part), percents(groups[group][part]), ceiling])
    for many in POSTS:
        label = f"people with 16, of which {many} {'is' if many == '1' else 'are'} left"
        lines.append([label, percents(runs[f"head:lab-user test ({many} informative posts)"]["accuracy"]), ""])
    return grid(["people whose", "accuracy of `head:lab-user`", "ceiling for readers of posts"], lines)


def lab_populations() -> str:
    """Return intervals for new users, and for new users with new questions or subjects."""
    names = {
        "control:embed test": "`control:embed`",
        "head:lab-user test": "`head:lab-user`",
        "fewshot_reads_posts=true": "`fewshot`, posts and 10 labels",
        "fewshot": "`fewshot`, 10 labels, no posts",
    }
    found = read("lab/populations.json")["models"]
    drawn = ("users", "users and questions", "users and subjects")
    lines = []
    for name, each in sorted(found.items(), key=lambda pair: float(pair[1]["accuracy"]["users"]["value"])):
        known = each["accuracy"]
        ends = [f"[{percent(known[over]['low'])}, {percent(known[over]['high'])}]" for over in drawn]
        lines.append([names.get(name, f"`{name}`"), percent(known["users"]), *ends])
    return grid(["model", "accuracy", *(f"new {over}" for over in drawn)], lines)


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


def arm_name(arm: str, *, short: bool = False) -> str:
    """Return what a page calls an arm of training."""
    if short and arm == "fewshot":
        return "`fewshot`"
    if short and arm.startswith("fewshot"):
        return "`fewshot` with posts" + ", tuned encoder" * (arm == FEWSHOT_ENCODER)
    return ARMS.get(arm, f"`{arm}`")


def planner_quality() -> str:
    """Return how good the planner's parts are, over three seeds."""
    seeds = [read(f"train/planner-{seed}.json") for seed in (0, 1, 2)]
    runs = {split: [seed["runs"][split] for seed in seeds] for split in ("validation", "test")}
    gold = [seed["facts"]["criteria_accuracy_with_gold_rubrics"] for seed in seeds]
    lines = [["scorer with the gold rubric, on `validation`: the ceiling of any plan", spread(gold)]]
    for split, label in (
        ("validation", "`validation`, which also chose the epoch"),
        ("test", "`test`, mirrored pairs"),
    ):
        lines.append([f"`planner:DIR` on {label}", spread([run["accuracy"]["value"] for run in runs[split]])])
        for name, parts in (("level", LEVELS), ("informative_posts", POSTS)):
            groups = [run["groups"][name]["groups"] for run in runs[split]]
            means = [percent(sum(group[part]["value"] for group in groups) / len(groups)) for part in parts]
            what = "openness of the posts" if name == "level" else "informative posts"
            lines.append([f"by {what} there: {', '.join(parts)}", ", ".join(means)])
    return grid(["", "mean (lowest to highest seed)"], lines)


def spread(values: Sequence[float]) -> str:
    """Return a mean with the ends, in percent."""
    return f"{percent(sum(values) / len(values))} ({percent(min(values))} to {percent(max(values))})"


ROUNDS = {
    "first round": "first round",
    "diagnosed": "second round, items that the diagnosis chose",
    "random": "second round, items at random",
    "random, one per user": "second round, at random, one per user",
    "doubt of one run": "second round, items by the doubt of one run",
}


def diagnose_accuracy() -> str:
    """Return the accuracy after each way to choose labels."""
    found = read("diagnose/second_round.json")
    parts = ("seed 0", "seed 1", "seed 2", "over seeds")
    lines = [[label, *(percent(found[part]["accuracy"][arm]) for part in parts)] for arm, label in ROUNDS.items()]
    return grid(["accuracy, %", "seed 0", "seed 1", "seed 2", "mean over seeds"], lines)


def diagnose_differences() -> str:
    """Return the paired differences of the ways to choose labels."""
    found = read("diagnose/second_round.json")
    parts = ("seed 0", "seed 1", "seed 2", "over seeds")
    names = found["over seeds"]["differences"]
    lines = [[name, *(percents(found[part]["differences"][name], "+") for part in parts)] for name in names]
    return grid(["paired difference, points", "seed 0", "seed 1", "seed 2", "mean over seeds"], lines)


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
