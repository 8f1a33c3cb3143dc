"""Tables of time and memory. One function each, named as the page names it."""

from collections.abc import Mapping
from typing import Any

from table_cells import grid, percent, read


def speed_sweep() -> str:
    """Return shared against padded, neither compiled, by the number of candidates."""
    lines = []
    for each in read("speed/sweep_h200.json")["points"]:
        lines.append([str(each["settings"]["candidates"]), *timed(each), f"{each['token_ratio']:.1f}"])
    return grid(["candidates", "padded, s", "shared, s", "ratio", "token ratio"], lines)


def speed_compiled() -> str:
    """Return compiled packs against the eager forward pass."""
    found = read("speed/shared_prefix_h200.json")
    lines = []
    for name, label in (
        ("64 candidates", "64 candidates of one prompt"),
        ("16 candidates", "16 candidates of one prompt"),
        ("pairs", "32 pairs"),
        ("8 prompts in flight", "8 prompts of different lengths, 16 candidates each"),
    ):
        each = found[name]
        lines.append([label, *timed(each), f"{each['token_ratio']:.1f}", f"{each['share_of_matmul_rate']:.2f}"])
    return grid(
        ["load", "padded, eager, s", "shared, compiled, s", "ratio", "token ratio", "share of the matmul rate"], lines
    )


def speed_cpu() -> str:
    """Return shared against padded on two cores."""
    found = read("speed/shared_prefix_cpu.json")
    lines = []
    for name, label in (("16 candidates", "16 candidates of one prompt"), ("8 pairs", "8 pairs")):
        each = found[name]
        lines.append([label, *timed(each, 2), f"{each['token_ratio']:.1f}", f"{each['parity_max_abs']:.0e}"])
    return grid(["load", "padded, s", "shared, s", "ratio", "token ratio", "largest difference of scores"], lines)


def timed(each: Mapping[str, Any], digits: int = 3) -> list[str]:
    """Return both times and their ratio."""
    return [f"{each['naive_seconds']:.{digits}f}", f"{each['seconds']:.{digits}f}", f"{each['ratio']:.1f}"]


def speed_bfloat16() -> str:
    """Return how scores in bfloat16 depend on the batch and on the kernel."""
    found = read("speed/half_precision_h200.json")
    pairs = ("padded 1 - padded 16", "padded 16 - packed", "padded 1 - packed")
    lines = []
    for name, label in (
        ("flash kernel", "the one that packs use (flash)"),
        ("kernel of transformers' choice", "PyTorch's choice (cuDNN on this card)"),
    ):
        cells = []
        for pair in pairs:
            each = found[name]["differences"][pair]
            mean = f"{each['mean']:.4f}" if each["mean"] >= 1e-4 else f"{each['mean']:.6f}"
            cells.append(f"{mean} ({each['max']:.3f}), {percent(each['pairs decided otherwise'])} %")
        lines.append([label, *cells])
    return grid(["kernel of the padded passes", "padded 1, padded 16", "padded 16, packed", "padded 1, packed"], lines)


def serve_load() -> str:
    """Return what batching on a server gains."""
    lines = []
    for name, label in (("serve_cpu", "2 cores"), ("serve_h200", "one H200")):
        found = read(f"speed/{name}.json")
        rates = [f"{found[side]['requests_per_second']:.1f}" for side in ("unbatched", "batched")]
        model = f"{found['model']['shape']}, {found['model']['dtype']}"
        lines.append([label, model, f"{found['load']['requests']:,}", *rates, f"{found['ratio']:.1f}"])
    return grid(["machine", "model", "requests", "one by one, per second", "batched, per second", "ratio"], lines)


def serve_soak() -> str:
    """Return what the soaks of the server came to, those with a model whose every score can be checked."""
    soaks = [each for each in read("speed/soak.json") if each["model"] == "checkable"]
    medians = [each["full_ms"]["median"] for each in soaks]
    slowest = max(each["full_ms"]["max"] for each in soaks)
    full = sum(each["full_ms"]["n"] for each in soaks)
    lines = [
        ["soaks, requests", f"{len(soaks)}, {sum(each['requests'] for each in soaks):,}"],
        ["scores checked", f"{sum(each['checked_scores'] for each in soaks):,}"],
        ["wrong scores", str(sum(len(each["wrong"]) for each in soaks))],
        ["servers that crashed", str(sum(bool(each["server"]["exit_code"]) for each in soaks))],
        ["growth of memory", f"at most {max(each['memory_growth_mb'] for each in soaks):+.1f} MB"],
        ["replies 429 (the queue is full)", f"{full:,}"],
        ["time to such a reply", f"{min(medians):.1f} to {max(medians):.1f} ms (median), at most {slowest:.0f} ms"],
    ]
    return grid(["checked", "result"], lines)


def llama_cpp() -> str:
    """Return how slots and the prompt cache of llama.cpp change replies."""
    found = read("recorded.json")["llama_cpp"]["figures"]
    lines = []
    for slots, cached in (("1", "off"), ("1", "on"), ("4", "off"), ("4", "on")):
        name = f"slots_{slots}_{cached}"
        changed = [str(found[f"{name}_{what}"]) for what in ("replies", "log_probabilities")]
        largest = f"{found[f'{name}_largest']:.2f}" if f"{name}_largest" in found else "0"
        lines.append([slots, cached, *changed, largest, f"{found[f'{name}_seconds']:.1f}"])
    head = [
        "slots",
        "prompt cache",
        "replies that changed (of 21)",
        "first-token log-probabilities that changed (of 21)",
    ]
    return grid([*head, "largest change", "seconds"], lines)


def servers_compared() -> str:
    """Return what evaluations through real servers have to do with those in this process."""
    lines = []
    for engine in ("vllm", "infinity"):
        for way, each in read(f"servers/{engine}.json")["compared"].items():
            largest = each["largest_difference"]
            counts = [str(each[name]) for name in ("rows", "shortened", "other_posts", "verdicts_that_differ")]
            lines.append([way, *counts, "" if largest is None else f"{largest:.1e}", str(each["other_replies"])])
    heads = ["server", "rows", "shortened", "other posts", "other verdicts", "largest difference", "other replies"]
    return grid(heads, lines)
