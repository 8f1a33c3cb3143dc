"""What the build calls verified, the lab's own truth calls true."""

from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from tests.build.lab_script import ERRING
from tests.build.test_build import lines

from prbench.backends.llm import FakeLLM
from prbench.construction.build import BuildSettings, BuildStage, build
from prbench.data.texts import sentences_of
from prbench.lab.gold import GoldInstrument, aspect_traits


def follows(gold: GoldInstrument, row: dict[str, object], chosen: str, rejected: str) -> bool:
    """True if the gold instrument finds every aspect of the rubric in the chosen response, and none in the other."""
    subject = row["meta"]["lab"]["subject"]  # type: ignore[index]
    wanted = {aspect_traits()[aspect["aspect"]][1] for aspect in row["rubric_aspects"]}  # type: ignore[attr-defined]
    told = [
        {point.trait for points in gold.read(sentences_of(text), subject) for point in points}
        for text in (chosen, rejected)
    ]
    return wanted <= told[0] and not wanted & told[1]


def test_verified_pairs_agree_with_gold(
    tmp_path: Path, scripted: Callable[..., dict[str, FakeLLM]], lab_settings: Callable[..., BuildSettings]
) -> None:
    built = build(lab_settings(users=200), tmp_path, last=BuildStage.PARITY, models=scripted(ERRING))
    gold = GoldInstrument()
    rows = {row["id"]: row for row in lines(tmp_path / "pairs.jsonl")}
    assert len(rows) >= 190
    verified = [follows(gold, row, row["chosen"], row["rejected"]) for row in rows.values()]
    assert fmean(verified) >= 0.98

    # The judge did that, and not the generator: of what it wrote first, about a fifth breaks the rubric.
    first = [row for row in lines(tmp_path / "3_generate.jsonl") if row["round"] == 0 and row["id"] in rows]
    raw = fmean(follows(gold, rows[row["id"]], row["chosen"], row["rejected"]) for row in first)
    assert 0.70 < raw < 0.90
    assert built.manifest["stages"]["verify"]["rounds"][0]["out"] < 180

    wanted = {row["id"]: set(row["meta"]["lab"]["wanted"]) for row in rows.values()}
    for row in rows.values():
        subject = row["meta"]["lab"]["subject"]
        values = [gold.value(row[side], subject, wanted[row["id"]]) for side in ("chosen", "rejected")]
        assert values[0] > values[1]
