"""`prbench bench`: figures that belong together."""


def test_the_figures_fit_each_other(prbench) -> None:
    load = ("--prefix", "60", "--response", "5", "--candidates", "4", "--repeats", "1")
    ended = prbench("bench", "--shape", "tiny", *load, "--device", "cpu", "--json")
    assert ended.code == 0
    found = ended.json
    assert found["tokens"] == 4 * 65
    assert found["unique_tokens"] == 60 + 4 * 5
    assert found["parity_max_abs"] < 1e-4
    assert abs(found["ratio"] - found["naive_seconds"] / found["seconds"]) < 0.01 * found["ratio"] + 0.01
    assert found["peak_memory_bytes"] > 0
    assert found["tokens_per_second"] > 0
    assert found["naive_tokens_per_second"] > 0


def test_bad_input_is_one_line(prbench) -> None:
    assert "Use one of: tiny, 30m, 3b" in prbench("bench", "--shape", "huge").err
    assert "--dtype" in prbench("bench", "--dtype", "int8").err
