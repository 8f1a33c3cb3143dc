"""Measure shared prefixes on one device, and record: the figures of docs/research/speed.md.

    python benchmarks/shared_prefix.py --shape 3b --prefix 3000 --response 130 --dtype bfloat16 --compile --out FILE

Four loads: 64 and 16 candidates of one prompt, 32 prompts with a pair each, and 8 prompts of different lengths with 16
candidates each in flight. For a plot over the number of candidates: `prbench bench --sweep --out DIR`.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from prbench.evaluation.bench import BenchSettings, run_sweep

LOADS: dict[str, dict[str, Any]] = {
    "64 candidates": {"candidates": 64, "prompts": 1},
    "pairs": {"candidates": 2, "prompts": 32},
    "16 candidates": {"candidates": 16, "prompts": 1},
    "8 prompts in flight": {"candidates": 16, "prompts": 8, "vary": 0.3},
}


def main() -> None:
    """Measure every load and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="30m")
    parser.add_argument("--prefix", type=int, default=1000)
    parser.add_argument("--response", type=int, default=100)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--load", action="append", choices=list(LOADS))
    parser.add_argument("--out", type=Path, required=True)
    arguments = vars(parser.parse_args())
    out, loads = arguments.pop("out"), arguments.pop("load") or list(LOADS)
    results = {}
    for name in loads:
        settings = replace(BenchSettings(**arguments), **LOADS[name])
        results[name] = run_sweep(settings, [settings.candidates], note=print)["points"][0]
        print(name, json.dumps(results[name]), flush=True)
        out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
