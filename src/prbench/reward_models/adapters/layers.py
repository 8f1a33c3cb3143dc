"""Small networks built from saved weights: what was saved says which layers there are."""

from torch import Tensor, nn

from prbench.reward_models.adapters.weights import HeadWeights


class LastTokenHead(nn.Module):
    """One number from the hidden state at the last token."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self._network = network

    def forward(self, hidden: Tensor) -> Tensor:
        """Score hidden states (inputs, 1, width)."""
        scores: Tensor = self._network(hidden.float()[:, 0])  # (inputs, 1)
        return scores[:, 0]


def build_linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """Return a linear layer with these weights."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return layer


def build_stack(
    weights: HeadWeights, prefix: str, width: int, activation: type[nn.Module], *, outputs: int
) -> nn.Sequential:
    """Return the layers saved as `<prefix><index>.*`, from `width` inputs to `outputs`.

    A matrix is a linear layer; all but the last are followed by the activation. A vector with running statistics is a
    batch norm, which stands after the activation. Gaps in the numbering are layers without weights.
    """
    indices = weights.indices(prefix) or [0]
    layers: list[nn.Module] = []
    for index in indices:
        name = f"{prefix}{index}"
        if weights.find(f"{name}.running_mean") is not None:
            layers.append(_batch_norm(weights, name, width))
            continue
        is_last = index == indices[-1]
        weight = weights.take(f"{name}.weight", outputs if is_last else -1, width)
        layers.append(build_linear(weight, weights.find(f"{name}.bias")))
        if not is_last:
            layers.append(activation())
        width = weight.shape[0]
    return nn.Sequential(*layers)


def _batch_norm(weights: HeadWeights, name: str, width: int) -> nn.BatchNorm1d:
    norm = nn.BatchNorm1d(width)
    norm.weight = nn.Parameter(weights.take(f"{name}.weight", width), requires_grad=False)
    norm.bias = nn.Parameter(weights.take(f"{name}.bias", width), requires_grad=False)
    norm.running_mean = weights.take(f"{name}.running_mean", width)
    norm.running_var = weights.take(f"{name}.running_var", width)
    return norm
