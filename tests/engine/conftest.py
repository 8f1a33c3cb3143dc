"""A Ray cluster of two nodes on this machine, started once for all tests that need it, and rows for it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """The address of the cluster; two CPUs per node, or workers and Ray's own tasks wait for each other."""
    pytest.importorskip("ray", reason="needs pip install 'prbench[ray]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        from ray.cluster_utils import Cluster

        nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        nodes.add_node(num_cpus=2)
    try:
        yield nodes.address
    finally:
        nodes.shutdown()


@pytest.fixture
def shared_texts(rows: Callable[[int], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """A step of a control (256 items) and three more that share their texts, few texts of many lengths in all."""
    data = rows(259)
    for number, row in enumerate(data):
        kind = number % 13
        row["question"] = f"What should I plant on balcony {kind}?"
        row["chosen"] = f"Sow cheap seeds {kind}" + " and water them" * kind
        row["rejected"] = f"Buy the finest pots, number {kind}" + " and a tree" * (13 - kind)
        row["profile"] = [post | {"text": post["text"] + " I mean it." * i} for i, post in enumerate(row["profile"])]
    return data
