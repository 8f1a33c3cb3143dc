"""Train the two heads that ship with the lab, on its own `train` split.

    python benchmarks/train_lab_heads.py --out src/prbench/lab/heads

`lab-user` knows users, from their posts, and learns from pairs and from rubrics; `lab-average` is the same model
without users, and so without their rubrics, which is the bar that matters. About a minute on 2 cores, most of it for
embedding the texts.
"""

import argparse
from pathlib import Path

from prbench.encoders import load_encoder
from prbench.lab import default_dataset
from prbench.train.head import HeadConfig, train_head

HEADS = {"lab-user": HeadConfig(), "lab-average": HeadConfig(knows_users=False)}


def main() -> None:
    """Train and write both heads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    train, validation = default_dataset("train"), default_dataset("validation")
    for name, config in HEADS.items():
        weights, card = train_head(train, validation, load_encoder(), config)
        weights.save(arguments.out / name, card)
        print(f"{name}: {card['validation_accuracy']:.3f} on held-out users")


if __name__ == "__main__":
    main()
