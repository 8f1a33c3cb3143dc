"""The build as a whole, with scripted models inside the process."""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.build.lab_script import ERRING, HONEST, Rates, body_of, fence, reply

from prbench.backends.llm import ChatRequest, FakeLLM, Finish, Reply
from prbench.backends.llm.spending import Limits, Price
from prbench.construction.build import BuildResult, BuildSettings, BuildStage, ClientOptions, PublishSettings, build
from prbench.construction.build.settings import STAGE_FILES
from prbench.data import open_examples
from prbench.errors import BudgetError, RunError, UsageError
from prbench.runs import RunStore
from prbench.schema import Example

Models = Callable[..., dict[str, FakeLLM]]
Settings = Callable[..., BuildSettings]
VARIES = {"timing.json", "manifest.json", "replies.sqlite", "replies.sqlite-wal", "replies.sqlite-shm", "lock"}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def asked(models: dict[str, FakeLLM]) -> int:
    return sum(len(model.requests) for model in models.values())


def files_of(folder: Path) -> dict[str, bytes]:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in VARIES)
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def assert_counts_add_up(built: BuildResult, items: int) -> None:
    """In = out + rejected + failed at every stage, and every loss has its line."""
    before = items
    for name, stage in built.manifest["stages"].items():
        assert stage["in"] == before, name
        assert stage["in"] == stage["out"] + sum(stage["rejected"].values()) + stage["failed"], name
        before = stage["out"]
    assert built.manifest["pairs"] == before == len(lines(built.folder / "pairs.jsonl"))
    rejects = lines(built.folder / "rejects.jsonl")
    assert len(rejects) == items - before
    assert len({row["id"] for row in rejects} | {row["id"] for row in lines(built.folder / "pairs.jsonl")}) == items
    for name, stage in built.manifest["stages"].items():
        reasons = Counter(row["reason"] for row in rejects if row["stage"] == name)
        assert reasons.pop("failed", 0) == stage["failed"]
        assert reasons == stage["rejected"]


def test_an_honest_generator_loses_nothing(tmp_path: Path, scripted: Models, lab_settings: Settings) -> None:
    models = scripted()
    built = build(lab_settings(), tmp_path, last=BuildStage.PARITY, models=models)
    assert_counts_add_up(built, 6)
    assert built.manifest["pairs"] == built.manifest["users"] == 6
    with open_examples(tmp_path / "pairs.jsonl") as store:
        examples = [example for example in store if isinstance(example, Example)]
    assert len(examples) == 6
    for example in examples:
        assert example.meta["lab"]["id"].startswith("validation-")
        assert set(example.meta["build"]["top_posts"]) <= {post.id for post in example.user.profile}
    # One request per response, one per aspect of a response, two orders per pair that length and style have passed.
    aspects = {row["id"]: len(row["rubric"]) for row in lines(tmp_path / "2_rubric.jsonl")}
    written = [(row["id"], side) for row in lines(tmp_path / "3_generate.jsonl") for side in row["written"]]
    rated = [row for row in lines(tmp_path / "5_parity.jsonl") if row["orders"]]
    requests = {name: stage["requests"] for name, stage in built.manifest["stages"].items()}
    expected = {
        "generate": len(written),
        "verify": sum(aspects[item] for item, _ in written),
        "parity": 2 * len(rated),
    }
    assert requests == {"rank": 0, "rubric": 0, **expected}
    assert [len(models[role].requests) for role in models] == list(expected.values())


def test_batched_verification_asks_once_per_response(tmp_path: Path, scripted: Models, lab_settings: Settings) -> None:
    one, all_ = scripted(), scripted()
    first = build(lab_settings(), tmp_path / "a", last=BuildStage.VERIFY, models=one)
    second = build(lab_settings(batched_verification=True), tmp_path / "b", last=BuildStage.VERIFY, models=all_)
    assert len(all_["judge"].requests) == 2 * 6 < len(one["judge"].requests)
    scores = [
        [[verdict["score"] for side in ("chosen", "rejected") for verdict in row[side]] for row in lines(path)]
        for path in (first.folder / "4_verify.jsonl", second.folder / "4_verify.jsonl")
    ]
    assert scores[0] == scores[1]


def test_mistakes_are_found_mended_or_explained(tmp_path: Path, scripted: Models, lab_settings: Settings) -> None:
    built = build(lab_settings(users=60, retries=1), tmp_path, last=BuildStage.PARITY, models=scripted(ERRING))
    assert_counts_add_up(built, 60)
    stages = built.manifest["stages"]
    assert stages["verify"]["rejected"]
    assert built.manifest["pairs"] > 40
    assert stages["verify"]["rounds"][0]["out"] < stages["verify"]["rounds"][0]["in"] == 60
    for row in lines(tmp_path / "rejects.jsonl"):
        assert row["detail"]
        assert row["chosen"]
        assert row["rejected"]
        assert row["round"] == 1


def test_rows_are_in_order_and_complete(tmp_path: Path, scripted: Models, lab_settings: Settings) -> None:
    build(lab_settings(users=20), tmp_path, last=BuildStage.PARITY, models=scripted(ERRING))
    order = [row["id"] for row in lines(tmp_path / "1_rank.jsonl")]
    for stage in (BuildStage.RANK, BuildStage.RUBRIC, BuildStage.GENERATE, BuildStage.VERIFY, BuildStage.PARITY):
        keys = [(order.index(row["id"]), row["round"]) for row in lines(tmp_path / STAGE_FILES[stage])]
        assert keys == sorted(set(keys))
        assert all(row["user_id"].startswith("u_") for row in lines(tmp_path / STAGE_FILES[stage]))


def test_the_same_command_again_asks_nothing_and_writes_the_same(
    tmp_path: Path, scripted: Models, lab_settings: Settings
) -> None:
    build(lab_settings(users=12), tmp_path, last=BuildStage.PARITY, models=scripted(ERRING))
    before = files_of(tmp_path)
    again = scripted(ERRING)
    build(lab_settings(users=12), tmp_path, last=BuildStage.PARITY, models=again)
    assert asked(again) == 0
    assert files_of(tmp_path) == before


def test_stage_by_stage_is_the_same_as_all_at_once(tmp_path: Path, scripted: Models, lab_settings: Settings) -> None:
    whole, steps = scripted(ERRING), scripted(ERRING)
    build(lab_settings(users=12), tmp_path / "whole", last=BuildStage.PARITY, models=whole)
    for stage in (BuildStage.RANK, BuildStage.RUBRIC, BuildStage.GENERATE, BuildStage.VERIFY, BuildStage.PARITY):
        built = build(lab_settings(users=12), tmp_path / "steps", last=stage, models=steps)
        assert list(built.manifest["stages"])[-1] == stage.value
    assert files_of(tmp_path / "steps") == files_of(tmp_path / "whole")


def test_items_do_not_depend_on_each_other(tmp_path: Path, scripted: Models, lab_settings: Settings) -> None:
    few, many = scripted(ERRING), scripted(ERRING)
    build(lab_settings(users=12), tmp_path, limit=4, last=BuildStage.PARITY, models=few)
    first = lines(tmp_path / "3_generate.jsonl")
    build(lab_settings(users=12), tmp_path, last=BuildStage.PARITY, models=many)  # a larger limit goes on
    all_rows = lines(tmp_path / "3_generate.jsonl")
    assert all_rows[: len(first)] == first
    assert len({row["id"] for row in all_rows}) == 12
    asked_before = {request.seed for model in few.values() for request in model.requests}
    assert asked_before.isdisjoint(request.seed for model in many.values() for request in model.requests)


def test_another_configuration_is_refused_in_one_line(
    tmp_path: Path, scripted: Models, lab_settings: Settings
) -> None:
    build(lab_settings(), tmp_path, last=BuildStage.RANK, models=scripted())
    with pytest.raises(
        RunError, match=r"another settings\.seed \(its default\), settings\.words .*Use another --out, or --fresh"
    ):
        build(lab_settings(seed=1, words=70), tmp_path, last=BuildStage.RANK, models=scripted())
    with pytest.raises(RunError, match=r"another data\.hash .*, settings\.users"):
        build(lab_settings(users=7), tmp_path, last=BuildStage.RANK, models=scripted())
    (tmp_path / "dataset").mkdir()
    (tmp_path / "manifest.json.99.tmp").write_text("{")
    built = build(lab_settings(seed=1), tmp_path, last=BuildStage.RANK, models=scripted(), fresh=True)
    assert built.manifest["seed"] == 1
    assert not (tmp_path / "dataset").exists()
    assert not list(tmp_path.glob("*.tmp"))


def test_data_may_move_but_not_change(
    tmp_path: Path, scripted: Models, lab_settings: Settings, posts_file: Callable[[int], Path]
) -> None:
    first = posts_file(3)
    build(lab_settings(data=str(first), users=None), tmp_path / "set", last=BuildStage.DRAW, models=scripted())
    moved = first.rename(tmp_path / "moved.jsonl")
    again = scripted()
    build(lab_settings(data=str(moved), users=None), tmp_path / "set", last=BuildStage.DRAW, models=again)
    assert asked(again) == 0
    moved.write_text(moved.read_text().replace("person-1", "person-9"))
    with pytest.raises(RunError, match=r"another data\.hash \(\w+\)\. Use"):
        build(lab_settings(data=str(moved), users=None), tmp_path / "set", last=BuildStage.DRAW, models=again)


def test_a_second_process_is_refused(tmp_path: Path, scripted: Models, lab_settings: Settings) -> None:
    from prbench.construction.build.run import LAYOUT

    with RunStore(tmp_path, LAYOUT), pytest.raises(RunError, match="another process is writing this build"):
        build(lab_settings(), tmp_path, last=BuildStage.RANK, models=scripted())


def test_a_limit_stops_the_build_and_a_higher_one_goes_on(
    tmp_path: Path, scripted: Models, lab_settings: Settings
) -> None:
    first, second = scripted(ERRING), scripted(ERRING)
    with pytest.raises(BudgetError, match="max_requests"):
        build(
            lab_settings(),
            tmp_path,
            last=BuildStage.PARITY,
            models=first,
            options=ClientOptions(limits=Limits(max_requests=15)),
        )
    assert asked(first) == 15
    assert json.loads((tmp_path / "timing.json").read_text())["spent"]["total"]["requests"] == 15
    built = build(lab_settings(), tmp_path, last=BuildStage.PARITY, models=second)
    undisturbed = build(lab_settings(), tmp_path / "calm", last=BuildStage.PARITY, models=scripted(ERRING))
    assert built.manifest == undisturbed.manifest
    assert asked(first) + asked(second) == sum(s["requests"] for s in built.manifest["stages"].values())


def test_costs_are_those_of_the_tokens(tmp_path: Path, scripted: Models, lab_settings: Settings) -> None:
    means = ClientOptions(price=Price(2.0, 10.0))
    built = build(lab_settings(), tmp_path, last=BuildStage.PARITY, models=scripted(), options=means)
    stage = built.manifest["stages"]["verify"]
    assert stage["cost"] == pytest.approx((stage["prompt_tokens"] * 2 + stage["completion_tokens"] * 10) / 1e6)
    assert built.manifest["stages"]["rank"]["cost"] is None
    spent = json.loads((tmp_path / "timing.json").read_text())["spent"]["total"]
    assert spent["cost"] == pytest.approx(sum(s["cost"] or 0 for s in built.manifest["stages"].values()))


class Breaking:
    """Fails every request about some items, as long as `broken` is set."""

    def __init__(self) -> None:
        self.broken = True
        self.calls = 0

    def __call__(self, request: ChatRequest) -> str | Reply:
        self.calls += 1
        if self.broken and request.owner < "u_6":
            return Reply(finish=Finish.ERROR, error="HTTP 500: the server is down")
        return reply(body_of(request), HONEST)


def test_a_failed_request_is_its_own_reason_and_tried_again(
    tmp_path: Path, scripted: Models, lab_settings: Settings
) -> None:
    script = Breaking()
    models = scripted() | {"judge": FakeLLM(script, name="fake:judge")}
    built = build(lab_settings(users=20), tmp_path, last=BuildStage.PARITY, models=models)
    assert_counts_add_up(built, 20)
    assert 0 < built.failed == built.manifest["stages"]["verify"]["failed"] < 20
    failed = [row for row in lines(tmp_path / "rejects.jsonl") if row["reason"] == "failed"]
    assert {row["detail"].split(" ")[0] for row in failed} == {"HTTP"}
    script.broken = False
    mended = build(lab_settings(users=20), tmp_path, last=BuildStage.PARITY, models=models)
    assert mended.failed == 0
    calm = build(lab_settings(users=20), tmp_path / "calm", last=BuildStage.PARITY, models=scripted())
    assert files_of(tmp_path / "calm") == {
        name: content for name, content in files_of(tmp_path).items() if not name.startswith("calm/")
    }
    assert calm.manifest["pairs"] == mended.manifest["pairs"]


def violate_first(side: str) -> Callable[[ChatRequest], str]:
    """Write a violation on one side whenever there is no feedback yet."""

    def script(request: ChatRequest) -> str:
        prompt = request.messages[-1].content
        wanted = "What this person expects" if side == "chosen" else "Concerns that must not come up"
        is_first = wanted in prompt and "It was refused" not in prompt
        return reply(body_of(request), Rates(violations=1.0) if is_first else HONEST)

    return script


@pytest.mark.parametrize("side", ["chosen", "rejected"])
def test_only_the_side_that_fails_is_written_and_judged_again(
    tmp_path: Path, scripted: Models, lab_settings: Settings, side: str
) -> None:
    models = scripted() | {"generator": FakeLLM(violate_first(side), name="fake:generator")}
    built = build(lab_settings(), tmp_path, last=BuildStage.VERIFY, models=models)
    assert built.manifest["stages"]["verify"]["rounds"] == [{"in": 6, "out": 0}, {"in": 6, "out": 6}]
    rows = lines(tmp_path / "3_generate.jsonl")
    other = "rejected" if side == "chosen" else "chosen"
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        assert (first["round"], second["round"]) == (0, 1)
        assert second["written"] == [side]
        assert second[other] == first[other]
        assert second[side] != first[side]
        assert second["feedback"][side] in "\n".join(r.messages[-1].content for r in models["generator"].requests)
    aspects = sum(len(row["chosen"]) for row in lines(tmp_path / "4_verify.jsonl") if row["round"] == 0)
    assert len(models["judge"].requests) == 3 * aspects  # both sides, then the new one


def test_what_still_fails_is_rejected_with_its_texts(tmp_path: Path, scripted: Models, lab_settings: Settings) -> None:
    models = scripted() | {"generator": scripted(Rates(violations=1.0))["generator"]}
    built = build(lab_settings(retries=2), tmp_path, last=BuildStage.PARITY, models=models)
    assert_counts_add_up(built, 6)
    assert built.manifest["pairs"] == 0
    assert {row["round"] for row in lines(tmp_path / "rejects.jsonl")} == {2}
    assert built.manifest["stages"]["verify"]["rejected"] == {"chosen_misses": 6}
    assert built.dataset is None


def test_an_unreadable_verdict_is_asked_again_and_told_why(
    tmp_path: Path, scripted: Models, lab_settings: Settings
) -> None:
    def script(request: ChatRequest) -> str:
        told = "An earlier reply could not be used" in request.messages[-1].content
        return reply(body_of(request), HONEST if told else Rates(unquoted=1.0))

    models = scripted() | {"judge": FakeLLM(script, name="fake:judge")}
    built = build(lab_settings(), tmp_path, last=BuildStage.VERIFY, models=models)
    assert built.manifest["stages"]["verify"]["out"] == 6
    again = [request for request in models["judge"].requests if "earlier reply" in request.messages[-1].content]
    assert again
    assert all("does not stand in the response" in request.messages[-1].content for request in again)


def test_a_judge_that_never_quotes_verifies_nothing(tmp_path: Path, scripted: Models, lab_settings: Settings) -> None:
    models = scripted() | {"judge": scripted(Rates(unquoted=1.0))["judge"]}
    built = build(lab_settings(retries=1), tmp_path, last=BuildStage.PARITY, models=models)
    assert_counts_add_up(built, 6)
    assert built.manifest["stages"]["verify"]["rejected"] == {"unreadable_verdict": 6}
    # The writer is not told what the judge did wrong.
    prompts = [request.messages[-1].content for request in models["generator"].requests]
    assert any("It could not be judged" in prompt for prompt in prompts)
    assert not any("evidence" in prompt for prompt in prompts)


def test_the_quality_judge_is_blind_and_the_writer_sees_no_post(
    tmp_path: Path, scripted: Models, lab_settings: Settings
) -> None:
    models = scripted(ERRING)
    build(lab_settings(), tmp_path, last=BuildStage.PARITY, models=models)
    posts = [post["text"] for row in lines(tmp_path / "pairs.jsonl") for post in row["profile"]]
    evidence = [aspect["evidence"] for row in lines(tmp_path / "2_rubric.jsonl") for aspect in row["rubric"]]
    names = [aspect["aspect"] for row in lines(tmp_path / "2_rubric.jsonl") for aspect in row["rubric"]]
    for role in ("generator", "quality_judge"):
        for request in models[role].requests:
            text = "\n".join(message.content for message in request.messages)
            assert not any(each in text for each in posts + evidence)
            if role == "quality_judge":
                assert not any(name in text for name in names)
                assert "chosen" not in text
                assert "rejected" not in text


def test_every_request_knows_whose_texts_it_holds(tmp_path: Path, scripted: Models, lab_settings: Settings) -> None:
    models = scripted()
    build(lab_settings(), tmp_path, last=BuildStage.PARITY, models=models)
    users = {row["user_id"] for row in lines(tmp_path / "1_rank.jsonl")}
    assert {request.owner for model in models.values() for request in model.requests} == users
    database = sqlite3.connect(tmp_path / "replies.sqlite")
    replies = database.execute("SELECT count(*) FROM replies").fetchone()[0]
    owned = database.execute("SELECT count(DISTINCT key) FROM owners").fetchone()[0]
    database.close()
    assert replies == owned == asked(models)


def test_posts_become_questions_rubrics_and_pairs(
    tmp_path: Path, scripted: Models, lab_settings: Settings, posts_file: Callable[[int], Path]
) -> None:
    settings = lab_settings(data=str(posts_file(8)), users=None, aspects=2)
    models = scripted()
    built = build(settings, tmp_path / "set", last=BuildStage.PARITY, models=models)
    assert_counts_add_up(built, 8)
    assert built.manifest["pairs"] == 8
    assert next(iter(built.manifest["stages"])) == "draw"
    for row, pair in zip(lines(tmp_path / "set/0_draw.jsonl"), lines(tmp_path / "set/pairs.jsonl"), strict=True):
        assert row["post"] == pair["narrative"]
        assert row["post_id"] not in {post["id"] for post in pair["profile"]}
        assert len(pair["rubric_aspects"]) == 2
        for aspect in pair["rubric_aspects"]:
            assert aspect["evidence"] in pair["narrative"]
    drawn = fence(models["generator"].requests[0].messages[-1].content, "post")
    assert drawn == lines(tmp_path / "set/0_draw.jsonl")[0]["post"]


def test_evidence_that_is_no_quote_drops_an_aspect_of_a_row(
    tmp_path: Path, scripted: Models, lab_settings: Settings
) -> None:
    build(lab_settings(), tmp_path / "lab", last=BuildStage.RANK, models=scripted())
    from prbench.construction.build.sources import read_items

    items = read_items(lab_settings(), None).items
    rows = [
        {
            "id": item.id,
            "user_id": item.user.id,
            "question": item.question,
            "narrative": item.narrative,
            "profile": [],
            "rubric_aspects": [
                {"aspect": a.aspect, "evidence": a.evidence if n else "I never said this at all", "reason": a.reason}
                for n, a in enumerate(item.rubric)
            ],
        }
        for item in items
    ]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    built = build(
        lab_settings(data=str(data), users=None), tmp_path / "set", last=BuildStage.RUBRIC, models=scripted()
    )
    alone = sum(len(item.rubric) == 1 for item in items)
    assert built.manifest["stages"]["rubric"]["out"] == 6 - alone
    for row, item in zip(lines(tmp_path / "set/2_rubric.jsonl"), items, strict=True):
        assert [aspect["aspect"] for aspect in row["rubric"]] == [a.aspect for a in item.rubric[1:]]
        assert [each["reason"] for each in row["dropped"]] == ["evidence_not_quoted"]


def test_a_build_that_cannot_be_published_asks_nothing(
    tmp_path: Path, scripted: Models, lab_settings: Settings
) -> None:
    models = scripted()
    with pytest.raises(UsageError, match="license"):
        build(lab_settings(), tmp_path, publishing=PublishSettings(), models=models)
    assert asked(models) == 0
    assert not list(tmp_path.iterdir())


def test_the_published_set_loads(tmp_path: Path, scripted: Models, lab_settings: Settings) -> None:
    publishing = PublishSettings(license="cc0-1.0", consent="Nobody is real here.")
    built = build(
        lab_settings(users=12), tmp_path, publishing=publishing, models=scripted(ERRING), audit_encoder="none"
    )
    assert built.audit is not None
    assert built.dataset == tmp_path / "dataset"
    with open_examples(built.dataset) as store:
        assert len(store) == built.manifest["pairs"] > 0
    everything = b"".join(files_of(tmp_path).values())
    assert b"a key for tests alone" not in everything


def test_settings_that_cannot_be(lab_settings: Settings) -> None:
    with pytest.raises(UsageError, match="--aspects 0"):
        lab_settings(aspects=0)
    with pytest.raises(UsageError, match="--retries -1"):
        lab_settings(retries=-1)


def test_a_model_that_cannot_be_loaded_claims_no_folder(tmp_path: Path, lab_settings: Settings) -> None:
    with pytest.raises(UsageError, match="Unknown kind"):
        build(lab_settings(judge="opnai:m"), tmp_path, last=BuildStage.RANK)
    assert not (tmp_path / "manifest.json").exists()


@pytest.mark.parametrize("odd", ["9" * 5000, "٢", 10**39, 1e300, {"deep": 2}])
def test_an_odd_score_is_a_loss_and_no_crash(
    tmp_path: Path, scripted: Models, lab_settings: Settings, odd: object
) -> None:
    verdict = json.dumps({"evidence": "", "reason": "r", "score": odd})
    models = scripted() | {"judge": FakeLLM(verdict, name="fake:judge")}
    built = build(lab_settings(users=2, retries=0), tmp_path, last=BuildStage.PARITY, models=models)
    assert built.manifest["stages"]["verify"]["rejected"] == {"unreadable_verdict": 2}


def test_evidence_that_the_generator_invented_with_the_narrative_is_refused(
    tmp_path: Path, scripted: Models, lab_settings: Settings, posts_file: Callable[[int], Path]
) -> None:
    invented = "I voted for the green party twice"

    def script(request: ChatRequest) -> str:
        text = reply(body_of(request), HONEST)
        prompt = request.messages[-1].content
        if "Write two texts" in prompt:
            drawn = json.loads(text)
            return json.dumps(drawn | {"narrative": f"{invented}. {drawn['narrative']}"})
        if "different aspects" in prompt:
            aspects = json.loads(text)["aspects"]
            return json.dumps({"aspects": [each | {"evidence": invented} for each in aspects]})
        return text

    models = scripted() | {"generator": FakeLLM(script, name="fake:generator")}
    settings = lab_settings(data=str(posts_file(2)), users=None, aspects=2, retries=0)
    built = build(settings, tmp_path / "set", last=BuildStage.RUBRIC, models=models)
    assert built.manifest["stages"]["rubric"]["rejected"] == {"evidence_not_quoted": 2}


def test_a_pair_says_which_post_its_question_was_drawn_from(
    tmp_path: Path, scripted: Models, lab_settings: Settings, posts_file: Callable[[int], Path]
) -> None:
    settings = lab_settings(data=str(posts_file(2)), users=None, aspects=2)
    build(settings, tmp_path / "set", last=BuildStage.PARITY, models=scripted())
    drawn = [row["post_id"] for row in lines(tmp_path / "set/0_draw.jsonl")]
    assert [row["meta"]["build"]["drawn_from"] for row in lines(tmp_path / "set/pairs.jsonl")] == drawn
