"""The case that this command was made for: six reward models in two orders, and what they can show.

Read off the published figures (NDCG 0.9180 and 0.9265, Spearman 0.2571 and 0.3714): of all 720 orders of six models,
one each fits. In the benchmark's order, these are the places that the models take downstream.
"""

from prbench.insight.meta.board import board_of_scores

MODELS = ("A", "B", "C", "D", "E", "F")
PLACES = {"Best-of-N": (1, 5, 3, 4, 6, 2), "PPO": (1, 4, 3, 5, 6, 2)}
BENCHMARK = board_of_scores("benchmark", {model: float(6 - place) for place, model in enumerate(MODELS)})
DOWNSTREAM = tuple(
    board_of_scores(name, {model: 7.0 - place for model, place in zip(MODELS, places, strict=True)})
    for name, places in PLACES.items()
)
