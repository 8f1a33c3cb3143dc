"""Method `bt`: a Bradley-Terry reward model that knows no users.

It is the bar for all others: in the literature, a plain fine-tuned model without user information beats most methods
that have it.
"""

from dataclasses import dataclass
from pathlib import Path

from prbench.context import make_context
from prbench.training.data import TrainingData, check_training_data
from prbench.training.folder import Progress, Trained
from prbench.training.reward_trainer import BackboneConfig, train_backbone


@dataclass(frozen=True, kw_only=True)
class BtConfig(BackboneConfig):
    """How to train without users; all settings are those of the backbone."""


def train_bt(data: TrainingData, config: BtConfig, folder: Path, say: Progress) -> Trained:
    """Train on the question and the responses alone."""
    check_training_data(data)
    return train_backbone(data, config, folder, say, train=data.train, maker=make_context("none"), facts={})
