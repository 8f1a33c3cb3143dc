"""`blend:FOLDER`: the weighted sum of what several models say, each shown what it was trained to see.

    score = sum over members of weight * score of the member,      weight >= 0

Where nothing is known of the user, other weights hold: a member that reads posts has little to say then. Weights come
from `prbench train --method blend`. Members stay in their own folders, which are named from where the blend lies, and
one that was changed since the weights were found is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os.path import relpath
from pathlib import Path

from prbench.backends.hf import fingerprint
from prbench.errors import UsageError
from prbench.reward_models import load_reward_model
from prbench.reward_models.base import LoadedModel, ModelSettings, as_loaded, require_scores
from prbench.reward_models.view import SpecParts, take_apart
from prbench.runs.files import read_json, write_json
from prbench.schema import Json, PairInput, Problem, RewardInput, Score, UserContext, gravest
from prbench.specs import Spec

BLEND = "blend.json"


@dataclass(frozen=True, kw_only=True)
class Member:
    """One model of a blend, as `blend.json` keeps it."""

    folder: str  # from the blend's own folder
    kind: str
    options: Mapping[str, str]
    inside: Mapping[str, str]
    reads_user: bool
    weight: float
    weight_without_posts: float
    fingerprint: str  # of its folder, when the weights were found


@dataclass(frozen=True, kw_only=True)
class EnsembleMember:
    """A member that is loaded."""

    loaded: LoadedModel
    reads_user: bool
    weight: float
    weight_without_posts: float

    def sees(self, one: RewardInput) -> RewardInput:
        """Return what this member may see of an input."""
        return one if self.reads_user else replace(one, user=UserContext())


def load(spec: Spec, options: None, settings: ModelSettings) -> LoadedModel:
    """Return `blend:FOLDER`."""
    members = load_members(Path(spec.target), lambda member: load_reward_model(member, settings))
    model = BlendReward(members, name=spec.target)
    step = min(member.loaded.items_per_step for member in members)
    return as_loaded(spec, model, items_per_step=step)


class BlendReward:
    """Scores by all members; where one cannot tell, there is no score."""

    def __init__(self, members: Sequence[EnsembleMember], *, name: str = "blend") -> None:
        self.name = name
        self._members = members
        self.fits = self._fits if any(member.loaded.fits for member in members) else None
        self.identity: Mapping[str, Json] = {
            "members": [
                {
                    "identity": dict(member.loaded.identity),
                    "template": member.loaded.template_hash,
                    "reads_user": member.reads_user,
                    "weights": [member.weight, member.weight_without_posts],
                }
                for member in members
            ]
        }

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        totals = [Score(value=0.0)] * len(inputs)
        for member in self._members:
            model = require_scores(member.loaded, "a blend")
            weights = [member.weight if one.user.used else member.weight_without_posts for one in inputs]
            asked = [place for place, weight in enumerate(weights) if weight]
            scores = model.score([member.sees(inputs[place]) for place in asked]) if asked else []
            for place, score in zip(asked, scores, strict=True):
                total = totals[place].value
                if total is None or score.problem is not Problem.NONE or score.value is None:
                    both = (totals[place], score)
                    bad = gravest(each for each in both if each.value is None or each.problem) or score
                    totals[place] = replace(bad, value=None)
                else:
                    totals[place] = Score(value=total + weights[place] * score.value)
        return totals

    def _fits(self, one: RewardInput | PairInput) -> bool:
        """Tell whether an input fits every member's window."""
        assert isinstance(one, RewardInput), "a blend scores single responses"
        return all(member.loaded.fits is None or member.loaded.fits(member.sees(one)) for member in self._members)


def describe_member(spec: str, place: Path, blend: Path, *, reads_user: bool, weights: tuple[float, float]) -> Member:
    """Return the model of that spec in the folder `place` as it is kept, with its weights with and without posts."""
    return Member(
        folder=relpath(place.resolve(), blend.resolve()),
        **asdict(take_apart(spec, place)),
        reads_user=reads_user,
        weight=weights[0],
        weight_without_posts=weights[1],
        fingerprint=fingerprint(place),
    )


def write_members(folder: Path, members: Sequence[Member]) -> None:
    """Write the file that `--model blend:FOLDER` reads."""
    write_json(folder / BLEND, {"members": [asdict(member) for member in members]})


def load_members(folder: Path, load: Callable[[str], LoadedModel]) -> list[EnsembleMember]:
    """Load every member of the blend in a folder."""
    if not (folder / BLEND).is_file():
        raise UsageError(f"{folder}: no blend was trained there. Use prbench train --method blend.")
    try:
        kept = [Member(**member) for member in read_json(folder / BLEND, "blend")["members"]]
    except (TypeError, KeyError) as error:
        raise UsageError(f"{folder / BLEND}: is damaged. Train the blend again with --fresh.") from error
    members = []
    for member in kept:
        place = (folder / member.folder).resolve()
        if not place.is_dir():
            raise UsageError(f"{folder}: its member {place} is not there. Put it back, or train the blend again.")
        if fingerprint(place) != member.fingerprint:
            raise UsageError(f"{folder}: its member {place} has changed since. Train the blend again with --fresh.")
        loaded = load(SpecParts(kind=member.kind, options=member.options, inside=member.inside).at(place))
        require_scores(loaded, "a blend")
        members.append(
            EnsembleMember(
                loaded=loaded,
                reads_user=member.reads_user,
                weight=member.weight,
                weight_without_posts=member.weight_without_posts,
            )
        )
    return members
