"""What a step computes: the mean over the global batch, the norm, the clipping, the update."""

from dataclasses import replace

import pytest
import torch

from parity.train.loop import Trainer
from parity.train.options import TrainOptions

OPTIONS = TrainOptions(layers=1, hidden=32, dtype="fp64")


def trainer(options: TrainOptions) -> Trainer:
    return Trainer(options, seed=0, device=torch.device("cpu"))


def flat(model: torch.nn.Module, gradient: bool = False) -> torch.Tensor:
    parts = [p.grad if gradient else p.detach() for p in model.parameters()]
    return torch.cat([part.flatten() for part in parts])


def test_micro_batches_change_nothing_though_their_token_counts_differ() -> None:
    one, two = (trainer(replace(OPTIONS, micro_batch=size, accumulate=count)) for size, count in ((2, 1), (1, 2)))
    for step in range(3):
        losses = [each.backward(step) for each in (one, two)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-14)
        torch.testing.assert_close(flat(one.model, True), flat(two.model, True), rtol=1e-9, atol=1e-15)
        for each in (one, two):
            each.update(each.grad_norm())


def test_gradients_of_the_last_step_do_not_leak_into_the_next() -> None:
    twice = trainer(OPTIONS)
    twice.backward(0)
    first = flat(twice.model, True)
    twice.backward(0)
    assert torch.equal(flat(twice.model, True), first)


def test_the_gradient_is_the_losss_slope() -> None:
    each = trainer(OPTIONS)
    each.backward(0)
    slopes = {}
    size = 1e-6
    direction = {name: torch.randn_like(p) for name, p in each.model.named_parameters()}
    expected = {name: (p.grad * direction[name]).sum().item() for name, p in each.model.named_parameters()}
    for name, parameter in each.model.named_parameters():
        start = parameter.data.clone()
        losses = []
        for sign in (1, -1):
            parameter.data = start + sign * size * direction[name]
            losses.append(each.backward(0))
        parameter.data = start
        slopes[name] = (losses[0] - losses[1]) / (2 * size)
    assert slopes == pytest.approx(expected, rel=1e-5, abs=1e-8)


def test_the_norm_is_of_all_gradients_before_clipping() -> None:
    each = trainer(replace(OPTIONS, clip=0.01))
    each.backward(0)
    norm = each.grad_norm()
    assert norm == pytest.approx(flat(each.model, True).norm().item(), rel=1e-14)
    each.update(norm)
    assert flat(each.model, True).norm().item() == pytest.approx(0.01, rel=1e-12)


@pytest.mark.parametrize("clip", [0.0, 1e6])
def test_a_norm_within_the_limit_is_left_alone(clip: float) -> None:
    each = trainer(replace(OPTIONS, clip=clip))
    each.backward(0)
    norm = each.grad_norm()
    each.update(norm)
    assert each.grad_norm() == norm


def test_sgd_goes_down_the_gradient_and_decays_matrices_alone() -> None:
    options = replace(OPTIONS, optimizer="sgd", clip=0.0, lr=0.1, weight_decay=0.5)
    each = trainer(options)
    before = {name: p.detach().clone() for name, p in each.model.named_parameters()}
    each.backward(0)
    each.update(each.grad_norm())
    for name, parameter in each.model.named_parameters():
        decay = 0.5 if parameter.ndim == 2 else 0.0
        torch.testing.assert_close(parameter.detach(), before[name] - 0.1 * (parameter.grad + decay * before[name]))


def test_training_moves_the_loss() -> None:
    each = trainer(TrainOptions())
    losses = []
    for step in range(40):
        losses.append(each.backward(step))
        each.update(each.grad_norm())
    assert losses[-1] < 0.5 * losses[0]
