"""A server that breaks, stalls and refuses, and a generator that breaks the rubric: none of it reaches the set."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.build.lab_script import Rates, _aspect_of, reply
from tests.build.test_build import assert_counts_add_up, lines
from tests.support.scripted_server import Faults, scripted_server

from prbench.construction.build import BuildSettings, ClientOptions, PublishSettings, build
from prbench.construction.build.sources import read_items
from prbench.data.texts import sentences_of

ITEMS = 24


def rows_without_rubrics(path: Path, settings: BuildSettings) -> Path:
    """Rows of the lab's users with two wanted aspects or more, whose rubrics have to be found."""
    items = [item for item in read_items(settings, None).items if len(item.rubric) >= 2][:ITEMS]
    rows = [
        {
            "id": item.id,
            "user_id": item.user.id,
            "question": item.question,
            "narrative": item.narrative,
            "category": item.category,
            "profile": [{"id": post.id, "text": post.text} for post in item.user.profile],
        }
        for item in items
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.slow
def test_no_violated_pair_is_published_and_every_loss_is_explained(
    tmp_path: Path, lab_settings: Callable[..., BuildSettings]
) -> None:
    rates = Rates(violations=0.10, unquoted=0.05, unequal=0.05)
    faults = Faults(broken=0.10, slow=0.05, hold_seconds=1.6, burst_every=10, errors=0.02)
    data = rows_without_rubrics(tmp_path / "rows.jsonl", lab_settings(users=40))

    def answer(body: dict[str, Any]) -> str:
        return reply(body, rates)

    with scripted_server(answer, faults) as server:
        settings = lab_settings(
            data=str(data), users=None, aspects=2, generator=server.spec, judge=server.spec, quality_judge=server.spec
        )
        built = build(
            settings,
            tmp_path / "set",
            publishing=PublishSettings(private=True),
            options=ClientOptions(concurrency=8, timeout_seconds=1.5, retries=4),
            audit_encoder="none",
        )
        attempts, answered = sum(server.attempts.values()), sum(server.answered.values())
        assert max(server.answered.values()) == 1  # nothing that was answered is asked again
        assert server.most_at_once <= 8
    assert attempts > answered  # time-outs, bursts and errors did happen
    assert_counts_add_up(built, ITEMS)
    assert built.manifest["pairs"] > ITEMS / 2
    assert sum(stage["requests"] for stage in built.manifest["stages"].values()) == answered

    published = [row for path in sorted((tmp_path / "set/dataset").glob("*/test.jsonl")) for row in lines(path)]
    assert len(published) == built.manifest["pairs"]
    for row in published:
        rubric = {aspect["aspect"] for aspect in row["rubric_aspects"]}
        told = [{_aspect_of().get(text) for text in sentences_of(row[side])} for side in ("chosen", "rejected")]
        assert rubric <= told[0]
        assert not rubric & told[1]
        assert max(len(row["chosen"]), len(row["rejected"])) <= 1.1 * min(len(row["chosen"]), len(row["rejected"]))
    # Broken replies were asked for again, and what is wrong with them stands in the file.
    tries = [row for row in lines(tmp_path / "set/2_rubric.jsonl") if not row["ok"]]
    assert tries
    assert all(row["reason"] in ("unreadable", "cut_off") and row["detail"] for row in tries)
