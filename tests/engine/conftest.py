"""A Ray cluster of two nodes on this machine, started once for all tests that need it."""

from collections.abc import Iterator

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
