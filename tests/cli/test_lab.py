"""`prbench data lab`: a folder that the rest of prbench reads back."""

from pathlib import Path


def test_it_writes_a_folder_that_eval_reads_split_by_split(prbench) -> None:
    made = prbench("data", "lab", "--users", "330", "--pairs", "650", "--out", "lab", "--json")
    assert made.code == 0
    # The default lab has 3,300 users and 13,000 pairs; this one has a tenth and a twentieth of each split.
    assert made.json["splits"]["train"] == {"users": 150, "pairs": 300}
    for split, pairs in (("test", 80), ("train", 300), ("test_population", 60), ("test_general", 60)):
        # A folder named like the embedded lab is still the embedded lab: name it as a path.
        ended = prbench("eval", "--model", "control:longest", "--data", "./lab", "--split", split, "--json")
        assert (ended.code, ended.json["n_items"]) == (0, pairs)
        if split == "test":  # mirrored: what looks at lengths alone is right half the time
            assert ended.json["accuracy"]["value"] == 0.5


def test_it_needs_both_sizes_and_an_empty_place(prbench) -> None:
    assert "together" in prbench("data", "lab", "--users", "40", "--out", "a").err
    Path("b").mkdir()
    Path("b/x").write_text("")
    ended = prbench("data", "lab", "--users", "330", "--pairs", "650", "--out", "b")
    assert ended.code == 2
    assert "exists already" in ended.err


def test_too_few_users_get_one_line(prbench) -> None:
    ended = prbench("data", "lab", "--users", "20", "--pairs", "600", "--out", "lab")
    assert ended.code == 2
    assert "Take at least 96 users and 12 pairs." in ended.err
    assert not Path("lab").exists()
