"""One word for one thing: names use the field's terms, and English is spelled as in the United States.

`tests` and `experiments` are free to say what they like; names of the package, and all that a user reads, are not.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "prbench"

# Parts of a name, as `_` and capitals separate them: what was said, and what to say.
OLD_PARTS = {
    "bags": "ragged index",
    "choosy": "validates questions",
    "contender": "reward model entry",
    "deal": "assignment",
    "dealt": "assignment",
    "dequantised": "gguf",
    "elsewhere": "remote",
    "foreign": "external",
    "foresee": "predict",
    "foreseen": "predicted aspect",
    "foretell": "predict",
    "heard": "topics",
    "holding": "releasable",
    "lesson": "sft example",
    "lexical": "bm25",
    "misfit": "rmse",
    "paced": "has batch size",
    "pays": "reward",
    "refuse": "check",
    "refuses": "check",
    "remembering": "cached",
    "shelf": "cache",
    "strangers": "overlap",
    "torn": "partial",
    "teach": "finetune",
    "unread_posts": "truncated posts",
    "voice": "ensemble member",
    "walk": "evaluate rows, run batches",
}
# Whole names, without the underscore before them; as parts of longer ones, these words have other, standard meanings.
OLD_NAMES = {
    "Answered": "StepResult",
    "Asked": "PreparedItem",
    "Bags": "RaggedIndex",
    "BrokenError": "MalformedJson",
    "Built": "BuildResult",
    "Claim": "InFlightRequest",
    "CutError": "TruncatedJson",
    "Draft": "PairDraft",
    "Earned": "ShapedRewards",
    "Loaded": "part of the protocol of models",
    "Loss": "DroppedItem",  # the loss of a training is a function or a number
    "Material": "UserContext",
    "Means": "ClientOptions",
    "Moments": "RunningMoments",
    "Seen": "RolloutBatch",
    "Step": "Batch",
    "Tables": "EmbeddingTables",
    "Turn": "PpoStep",
    "Wanted": "PendingItem",
    "Writer": "LmTrainer",
    "claimed": "lock_folder",
    "coins": "uniforms",
    "cool": "scale_by_temperature",
    "is_ours": "is_prbench_result",
    "leave_behind": "detach",
    "matter": "consequential",
    "names_of": "leak_keys",
    "pieces": "segments",
    "place_rows": "index_rows",
    "put_in_order": "sort_rows",
    "say": "progress callback",
    "shown": "quoted, context_label",
    "shown_to": "policy_context",
    "take_in": "import_answers",
    "take_lock": "lock_folder",
    "tell_nobody": "no_progress",
    "told": "environment, context_label",
    "told_to": "policy_context",
    "under_test": "excluded_keys",
    "watch": "progress callback",
}
# Files and folders; `counts`, `weights`, `arrays` and a gate in a network are fine names for what is inside.
OLD_MODULES = {
    "arrays": "npz_weights",
    "counts": "metrics",
    "deal": "assignment",
    "door": "auth",
    "foreign": "external_formats",
    "gate": "middleware",
    "json_text": "llm_json",
    "listening": "sockets",
    "ours": "run_results",
    "waiting": "queue",
    "weights": "packaged_weights",
    "wire": "protocol",
}

# `cancelled` and `towards` are left alone: Python's own names have the one, and both shores write the other.
BRITISH = {
    r"(?:personal|normal|minim|maxim|(?:over)?optim|recogn|summar|general|special|random|categor|token|organ|initial|real|standard)"
    r"is(?:e|es|ed|er|ers|ing|ation|ations)": "-ize",
    r"(?:anonym|pseudonym|parallel|serial|synchron|visual|util|emphas|critic|apolog|penal|prior|quant|dequant|vector)"
    r"is(?:e|es|ed|er|ers|ing|ation)": "-ize",
    r"analys(?:e|ed|es|ing)": "analyze",
    r"artefacts?": "artifact",
    r"behaviours?": "behavior",
    r"catalogues?": "catalog",
    r"centr(?:e|es|ed)": "center",
    r"colour\w*": "color",
    r"defence": "defense",
    r"favour\w*": "favor",
    r"grey": "gray",
    r"honour\w*": "honor",
    r"judgements?": "judgment",
    r"(?:un)?labell(?:ed|ing|er|ers)": "labeled",
    r"licences?": "license",
    r"metres?": "meter",
    r"modell(?:ed|ing)": "modeled",
    r"neighbour\w*": "neighbor",
    r"programmes?": "program",
    r"travell(?:ed|ing|er|ers)": "traveled",
    r"whilst": "while",
}
_BRITISH = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(BRITISH)})(?![a-z])", re.IGNORECASE)
# What a hash names, as it was written: the texts of the lab.
NOT_OURS = ("lab/texts/", "privacy/names.yaml")  # the second knows words of both spellings


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def names_in(path: Path) -> Iterator[tuple[int, str]]:
    """Yield classes, functions, arguments and attributes with their lines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
        if isinstance(node, ast.ClassDef):
            for field in node.body:
                targets = field.targets if isinstance(field, ast.Assign) else [getattr(field, "target", None)]
                yield from ((field.lineno, target.id) for target in targets if isinstance(target, ast.Name))


def parts(name: str) -> list[str]:
    """`_check_RewardModels` -> check, reward, models."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


@pytest.mark.parametrize(
    "name,expected", [("_RewardModelEntry", ["reward", "model", "entry"]), ("as_JSON", ["as", "json"])]
)
def test_names_come_apart(name: str, expected: list[str]) -> None:
    assert parts(name) == expected


def test_names_use_the_words_of_the_field() -> None:
    found = []
    for path in modules():
        where = path.relative_to(PACKAGE)
        for line, name in names_in(path):
            say = OLD_NAMES.get(name.lstrip("_")) or next((OLD_PARTS[p] for p in parts(name) if p in OLD_PARTS), "")
            if say:
                found.append(f"{where}:{line}: {name}; say {say}")
    assert not found, "\n".join(found)


def test_files_use_the_words_of_the_field() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}: say {OLD_MODULES.get(name) or OLD_PARTS[name]}"
        for path in modules()
        for name in path.relative_to(PACKAGE).with_suffix("").parts
        if name in OLD_MODULES or name in OLD_PARTS
    ]
    assert not found, "\n".join(found)


def british(paths: list[Path]) -> list[str]:
    found = []
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            found += [f"{path.relative_to(ROOT)}:{number}: {word}" for word in _BRITISH.findall(line)]
    return found


def test_the_package_is_spelled_as_in_the_united_states() -> None:
    kinds = {".py", ".html", ".css", ".js", ".yaml", ".txt", ".md", ".j2"}
    paths = [path for path in sorted(PACKAGE.rglob("*")) if path.is_file() and path.suffix in kinds]
    assert not (found := british([p for p in paths if not any(part in p.as_posix() for part in NOT_OURS)])), "\n".join(
        found
    )


def test_readme_and_docs_are_spelled_as_in_the_united_states() -> None:
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    assert not (found := british(paths)), "\n".join(found)
