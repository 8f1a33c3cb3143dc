"""Command lines and Python blocks of README and docs, and what is known of each command line.

Tutorials are run without any change, by `tutorials.py`; here are the other pages.
`NOT_RUN` names the lines that no test runs, with the reason. `SMALLER` says what is put in the place of names that a
reader fills in, and of sizes that would take long. A line of a page is either run or in `NOT_RUN`, and an entry that
no page needs any more is an error.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
KINDS_OF_PAGES = ("how-to", "reference", "research")
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    *sorted(
        (page for kind in KINDS_OF_PAGES for page in (ROOT / "docs" / kind).glob("*.md")),
        key=lambda page: page.name,
    ),
)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NO_COMMANDS = ("json", "py", "text", "toml")  # `py`: signatures and examples of docstrings

SETS_UP = "sets up an environment from a package registry"
A_SERVER = "runs until it is ended; the test has such a server running"
RESEARCH = "a research script: hours on two cores, or a GPU"
A_HUB_MODEL = "names a hub model whose code this adapter is for"
ON_RAY = "starts Ray, which takes half a minute; tests/engine runs it"
HOSTED = "asks a vendor; tests/reward_models and tests/llm have stand-ins"
LOOP = "part of a shell loop over trainings, which take a GPU"
OTHER_HARNESS = "needs that harness; make test-harness runs such a line"
FULL_SIZE = "trains SmolLM2 or on 52,000 pairs: hours on two cores"

NOT_RUN: Mapping[str, str] = {  # a line that begins so
    "make demo": SETS_UP,
    "make test": SETS_UP,
    "pip install": SETS_UP,
    "python experiments/": RESEARCH,
    "make servers-env": SETS_UP,
    "python -m tests.servers.engines": "runs vLLM and infinity; make test-servers",
    "export PRBENCH_SERVER_TOKEN": HOSTED,
    "prbench eval --model 'server:https://api.jina.ai": HOSTED,
    "prbench eval --model judge:openai:NAME@https://api.openai.com": HOSTED,
    "prbench eval --model 'judge:openai:NAME@https://api.openai.com": HOSTED,
    "prbench serve ": A_SERVER,
    "prbench annotate serve ": A_SERVER,
    "prbench eval --model classifier:org/name --data pairs.jsonl --engine ray": ON_RAY,
    "prbench eval --model classifier:RLHFlow/": A_HUB_MODEL,
    'prbench eval --model "classifier:./my-copy?adapter=grm"': "needs a copy of a hub model",
    'prbench eval --model "classifier:internlm/': A_HUB_MODEL,
    "prbench eval --model fewshot:DIR": "no line of the pages trains one; test_trained_models.py has this very line",
    "prbench bon --policy openai:NAME@URL --judge openai:JUDGE@URL": "needs a judge that grades; tests/bon has one",
    "prbench bon --policy lab --n 64 --users 200 --posts 30 --group-by majority": "the page leaves the models out",
    "prbench bon --policy lab --n 64 --users 200 --posts 30 --labels lab": "the page leaves the models out",
    "prbench eval --model 'judge:openai:MODEL@URL?template=": "needs such a judge; test_preset_judges.py has one",
    "prbench eval-planner --planner local:smollm2": "fifty replies of SmolLM2; the line before asks another planner",
    "prbench train --method lm-planner": "meant for a GPU",
    "prbench train --method bt-profile --backbone smollm2": FULL_SIZE,
    "for seed in 0 1 2; do": LOOP,
    "prbench train --method encoder --seed $seed": LOOP,
    "prbench train --method fewshot --seed $seed": LOOP,
    "prbench train --method bt --backbone models/minilm": LOOP,
    "done": LOOP,
    "prbench train --method sft --data models/": FULL_SIZE,
    "prbench ppo --policy models/": FULL_SIZE,
    "prbench data lab --users 13200 ": "52,000 pairs, for the trainings below it",
    "prbench export submissions --to hub:org/results --yes": "sends to the hub; tests/sharing has a stand-in",
    "prbench eval --model control:overlap --data pairs.jsonl --log-to": "needs a tracker; make test-sharing",
    "PYTHON=/path/to/verls/python run/launch.sh": "needs verl; make test-verl",
    "inspect ": OTHER_HARNESS,
    "lm-eval run ": OTHER_HARNESS,
    "python -m venv ls ": SETS_UP,
    "ls/bin/label-studio start ": A_SERVER,
    "python -m tests.harness.label_studio ": "needs a Label Studio; a test reads what it recorded",
    "PYTHON=/path/to/openrlhfs/python run-openrlhf/launch.sh": "needs OpenRLHF and GPUs; make test-trainers",
    "python examples/trl_": "trains a language model; tests/trainers does so with a tiny one",
    "vf-eval personal_answers": "needs verifiers and a chat model; make test-trainers",
}

PPO = "--posts 3 --limit 8 --steps 1 --rollout-batch 4 --max-new-tokens 4 --set minibatches=1 --set microbatch=4"
FEW_STEPS = "one step instead of fifty, and a tiny model in the place of SmolLM2"


@dataclass(frozen=True)
class Smaller:
    """What is put in the place of a part of a command line, and why."""

    pattern: str
    put: str
    why: str


SMALLER: tuple[Smaller, ...] = (  # in this order
    Smaller(r"classifier:(org/name|PATH)", "classifier:tiny", "a tiny classifier stands for the reader's"),
    Smaller(r"openai:NAME@http://127\.0\.0\.1:8000/v1", "{chat}", "a stand-in server"),
    Smaller(r"openai:(NAME@URL|(big|other)-model@\S+)", "{chat}", "a stand-in server"),
    Smaller(r"server:http://127\.0\.0\.1:8000\?expect=\w+", "server:{server}", "the server of the line before"),
    Smaller(r"server:http://127\.0\.0\.1:8000", "server:{server}", "the server of the line before"),
    Smaller(r"\bUSER\b", "user-03", "somebody of the reader's data"),
    Smaller(r"import study\.db back\.json", "import study.db tasks.json", "what went out stands for what comes back"),
    Smaller(r"--in my_(set|build)\b", "--in study.db", "the build before it was a dry run"),
    Smaller(r"--policy hf:DIR\b", "--policy hf:tiny_lm --users 4 --posts 3", "a tiny language model, and few users"),
    Smaller(r"head:DIR2\b", "head:my-head", "the head that README trains"),
    Smaller(r"\borg/policy\b", "tiny_lm", "a tiny language model stands for the reader's"),
    Smaller(r"--policy smollm2\b", "--policy tiny_lm", FEW_STEPS),
    Smaller(r"(train --method sft .*)$", r"\1 --backbone tiny_lm --limit 8 --set epochs=1", FEW_STEPS),
    Smaller(r"runs/(fac41fee54e1|1a2b3c4d5e6f|ID)\b", "{run}", "the run that the lines before left"),
    Smaller(r"\bruns/a runs/b runs/c\b", "{runs3}", "three runs"),
    Smaller(r"\bruns/a runs/b\b", "{runs2}", "two runs"),
    Smaller(r"--benchmark (ours=)?runs\b", r"--benchmark \1runs_of_four", "four models on the same rows"),
    Smaller(r"runs/bon/1a2b3c\b", "{bon}", "the run that the lines before left"),
    Smaller(r"--users (5000|25000) --pairs (20000|100000)", "--users 96 --pairs 96", "a lab of any size"),
    Smaller(
        r"(prbench data lab) --out my_lab$", r"\1 --users 96 --pairs 96 --out my_lab2", "README wrote another my_lab"
    ),
    Smaller(r"^prbench data check --data lab\b", "prbench data check --data pairs.jsonl", "the lab has 1,600 pairs"),
    Smaller(r"--data lab\b", "--data small_lab", "a lab of a hundred users"),
    Smaller(r"--export hard\b", "--export hard --slice level=plain", "few pairs show no weak slice"),
    Smaller(r"--posts 30\b", "--posts 3", "few posts, which are sooner embedded"),
    Smaller(r"^(prbench data check .*)$", r"\1 --audit-encoder none", "checks by meaning take a minute"),
    Smaller(r"^(prbench eval (?!.*(--limit|--split validation)).*)$", r"\1 --limit 4", "the first rows only"),
    Smaller(
        r"--method (head|planner) (?!.*--hold-out)",
        r"--method \1 --limit 12 --set epochs=2 --set posts=3 ",
        "few pairs",
    ),
    Smaller(r"--n 64", "--n 4", "few candidates"),
    Smaller(r"--users 200", "--users 4", "few users"),
    Smaller(r"--max-new-tokens 200", "--max-new-tokens 4", "few tokens"),
    Smaller(r"--steps 50", PPO, FEW_STEPS),
    Smaller(r"(--policy my-policy .*)$", rf"\1 {PPO}", FEW_STEPS),
    Smaller(r"--eval-split test", "--eval-split test --eval-limit 2 --eval-samples 1", FEW_STEPS),
    Smaller(
        r"--data pairs/$",
        "--data pairs/ --split train --rollout-batch 4 --set minibatches=1",
        "the page leaves out which split to train on; and few pairs",
    ),
    Smaller(r"--at-kl 4", "--at-kl 0", "one step does not lead that far"),
    Smaller(r"--prefix 1000 --response 100 --candidates 16", "--prefix 40 --response 8 --candidates 2", "seconds"),
)


@dataclass(frozen=True)
class Block:
    """A command line or a Python block, with its place."""

    page: str
    line: int
    text: str
    is_python: bool = False

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}: {self.text.splitlines()[0]}"


def blocks(page: Path) -> Iterator[Block]:
    """Yield the Python blocks and the command lines of a page, in order."""
    text = page.read_text(encoding="utf-8")
    for found in FENCED.finditer(text):
        language, content = found[1], found[2]
        first = text.count("\n", 0, found.start()) + 2
        if language == "python":
            yield Block(page.name, first, content, is_python=True)
        elif language not in NO_COMMANDS:
            yield from (Block(page.name, first + number, line) for number, line in command_lines(language, content))


def command_lines(language: str, content: str) -> Iterator[tuple[int, str]]:
    """Yield whole command lines with where they begin; of a console, what stands after the prompt."""
    whole, began = "", 0
    for number, raw in enumerate(content.splitlines()):
        line = raw.removeprefix("$ ") if language == "console" and not whole else raw
        if language == "console" and not whole and not raw.startswith("$ "):
            continue  # what the command printed
        began = began if whole else number
        plain = re.sub(r"(^|\s+)#.*$", "", line).rstrip()
        whole = f"{whole} {plain.removesuffix(chr(92)).strip()}".strip()
        if not plain.endswith("\\"):
            if whole:
                yield began, whole
            whole = ""


def reason_not_to_run(line: str) -> str:
    """Return the entry of `NOT_RUN` that holds for a line, or nothing."""
    return next((start for start in NOT_RUN if line.startswith(start)), "")


def made_smaller(line: str, used: set[str], put: Callable[[str], str]) -> str:
    """Return a line with its placeholders filled in and its sizes cut; note which entries were of use."""
    for each in SMALLER:
        line, count = re.subn(each.pattern, each.put, line)
        if count:
            used.add(each.pattern)
    return re.sub(r"\{(\w+)\}", lambda name: put(name[1]), line)
