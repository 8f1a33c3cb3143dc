"""Train the two heads that ship with the lab, on its own `train` split.

    python experiments/train_lab_heads.py --out src/prbench/lab/heads

`lab-user` knows users, from their posts, and learns from pairs and from rubrics; `lab-average` is the same model
without users, and so without their rubrics, which is the bar that matters. About a minute on 2 cores, most of it for
embedding the texts. `prbench train --method head` does the same for any rows.
"""

import argparse
from dataclasses import asdict, replace
from pathlib import Path

from prbench.backends.encoders import load_encoder
from prbench.lab import LAB
from prbench.runs.files import write_json
from prbench.training.data import load_training_data
from prbench.training.head import HeadConfig, learn_head

SHIPPED = HeadConfig(patience=30, learning_rate=1e-2, dropout=0.2)
HEADS = {"lab-user": SHIPPED, "lab-average": replace(SHIPPED, knows_users=False)}


def main() -> None:
    """Train and write both heads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data, encoder = load_training_data(LAB), load_encoder()
    for name, config in HEADS.items():
        head = learn_head(data, config, encoder)
        head.weights.save(arguments.out / name)
        rows = {"train_pairs": len(data.train), "validation_pairs": len(data.validation)}
        card = {"config": asdict(config), "encoder": dict(encoder.identity), **rows, **head.facts}
        write_json(arguments.out / name / "card.json", card)
        print(f"{name}: {head.facts['validation_accuracy']:.3f} on held-out users")


if __name__ == "__main__":
    main()
