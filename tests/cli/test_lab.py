"""`prbench lab`: a folder that the rest of prbench reads back."""

from pathlib import Path


def test_it_writes_a_folder_that_eval_reads_split_by_split(prbench) -> None:
    made = prbench("lab", "--users", "40", "--pairs", "60", "--out", "lab", "--json")
    assert made.code == 0
    assert made.json["splits"]["train"] == {"users": 160, "pairs": 240}
    for split, pairs in (("test", 60), ("train", 240), ("test_population", 60)):
        # A folder named like the embedded lab is still the embedded lab: name it as a path.
        ended = prbench("eval", "--model", "control:longest", "--data", "./lab", "--split", split, "--json")
        assert (ended.code, ended.json["n_items"]) == (0, pairs)
        if split == "test":
            assert (
                ended.json["accuracy"]["value"] == 0.5
            )  # mirrored: what looks at lengths alone is right half the time


def test_it_needs_both_sizes_and_an_empty_place(prbench) -> None:
    assert "together" in prbench("lab", "--users", "40", "--out", "a").err
    Path("b").mkdir()
    Path("b/x").write_text("")
    ended = prbench("lab", "--users", "40", "--pairs", "60", "--out", "b")
    assert ended.code == 2
    assert "exists already" in ended.err
