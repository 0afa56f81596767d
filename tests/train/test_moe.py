"""Routing and experts on one rank, against the plainest way to write them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from parity.train.collectives import Comm
from parity.train.moe import (
    Experts,
    Moe,
    Router,
    Routing,
    SharedExpert,
    hash_table,
    set_auxiliary_loss,
    take_auxiliary_loss,
    update_biases,
)

HIDDEN, FFN = 6, 5


def randomised(module: nn.Module, seed: int = 0) -> nn.Module:
    """In fp64."""
    rng = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.data = torch.randn(parameter.shape, dtype=torch.float64, generator=rng)
    return module


def dense(experts: Experts, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """Every expert on every token, weighed by the sum of the weights of the choices that name it."""
    total = torch.zeros_like(x)
    for index in range(len(experts.gate)):
        weight = (weights * (chosen == index)).sum(-1, keepdim=True)
        gate = F.silu((x @ experts.gate[index].T).clamp(max=experts.limit))
        up = (x @ experts.up[index].T).clamp(-experts.limit, experts.limit)
        total = total + weight * ((gate * up) @ experts.down[index].T)
    return total


def block(experts: int = 4, limit: float = 10.0) -> Moe:
    moe = Moe(Router(HIDDEN, experts, 2), Experts(experts, HIDDEN, FFN, limit), SharedExpert(HIDDEN, FFN))
    return randomised(moe)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_routing_is_the_dense_sum_with_all_its_gradients(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 5), "experts")
    tokens = data.draw(st.integers(1, 6), "tokens")
    expert = st.integers(0, count - 1)  # twice the same, none at all, and all to one are among these
    chosen = torch.tensor(
        data.draw(st.lists(st.lists(expert, min_size=2, max_size=2), min_size=tokens, max_size=tokens))
    )
    limit = data.draw(st.sampled_from([0.5, 10.0]), "limit")
    rng = torch.Generator().manual_seed(data.draw(st.integers(0, 99), "seed"))
    x, upstream = torch.randn(2, tokens, HIDDEN, dtype=torch.float64, generator=rng)
    weights = torch.rand(tokens, 2, dtype=torch.float64, generator=rng)

    def gradients(function: object) -> list[Tensor]:
        moe = block(count, limit)
        inputs = x.clone().requires_grad_(), weights.clone().requires_grad_()
        y = function(moe, *inputs)
        y.backward(upstream)
        return [y.detach(), *(each.grad for each in inputs), *(p.grad for p in moe.experts.parameters())]

    found = gradients(lambda moe, x, weights: moe.routed(x, Routing(chosen, weights, count)))
    expected = gradients(lambda moe, x, weights: dense(moe.experts, x, chosen, weights))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_a_token_that_chose_an_expert_twice_is_one_route_and_counts_once() -> None:
    weights = torch.tensor([[0.25, 0.5], [0.1, 0.2]])
    routing = Routing(torch.tensor([[2, 2], [0, 2]]), weights, 4)
    assert (routing.expert.tolist(), routing.token.tolist()) == ([0, 2, 2], [1, 0, 1])
    torch.testing.assert_close(routing.weight, torch.tensor([0.1, 0.75, 0.2]))
    assert routing.counts == routing.load.tolist() == [1, 0, 2, 0]


def test_scores_are_the_root_of_the_softplus_and_weights_sum_to_one_and_a_half() -> None:
    router = randomised(Router(HIDDEN, 5, 2))
    x = torch.randn(7, HIDDEN, dtype=torch.float64)
    chosen, weights, scores = router(x, None)
    torch.testing.assert_close(scores, (1 + (x @ router.weight.T).exp()).log().sqrt())
    assert torch.equal(chosen, scores.topk(2).indices)
    torch.testing.assert_close(weights.sum(-1), torch.full((7,), 1.5, dtype=torch.float64))
    first, second = scores.topk(2).values.T
    torch.testing.assert_close(weights[:, 0] / weights[:, 1], first / second)


def test_the_bias_changes_who_is_chosen_and_nobodys_weight() -> None:
    router = randomised(Router(HIDDEN, 5, 2))
    router.e_score_correction_bias[3] = 100.0
    x = torch.randn(7, HIDDEN, dtype=torch.float64)
    chosen, weights, scores = router(x, None)
    assert (chosen[:, 0] == 3).all()
    picked = scores.gather(-1, chosen)
    torch.testing.assert_close(weights, 1.5 * picked / picked.sum(-1, keepdim=True))


def test_of_equal_scores_the_lower_expert_goes_first() -> None:
    router = Router(HIDDEN, 6, 3)
    nn.init.zeros_(router.weight)
    chosen, _, _ = router(torch.randn(50, HIDDEN), None)
    assert (chosen == torch.arange(3)).all()


def test_a_table_chooses_and_scores_weigh() -> None:
    table = hash_table(1, 11, 5, 2)
    router = randomised(Router(HIDDEN, 5, 2, table=table))
    tokens = torch.tensor([3, 10, 3])
    x = torch.randn(3, HIDDEN, dtype=torch.float64)
    chosen, weights, scores = router(x, tokens)
    assert torch.equal(chosen, table[tokens])
    picked = scores.gather(-1, chosen)
    torch.testing.assert_close(weights, 1.5 * picked / picked.sum(-1, keepdim=True))


def test_a_table_without_token_ids_raises() -> None:
    table, x = hash_table(0, 11, 5, 2), torch.randn(3, HIDDEN, dtype=torch.float64)
    with pytest.raises(ValueError, match="routed by token ids got none"):
        randomised(Router(HIDDEN, 5, 2, table=table))(x, None)


def test_tables_differ_between_layers_and_name_an_expert_twice_now_and_then() -> None:
    tables = [hash_table(layer, 509, 8, 2) for layer in range(3)]
    for table in tables:
        assert 0.08 < (table[:, 0] == table[:, 1]).double().mean() < 0.17  # one in eight
        assert (table.flatten().bincount(minlength=8) > 80).all()
    assert not torch.equal(tables[0], tables[1])
    assert torch.equal(tables[0], hash_table(0, 509, 8, 2))


def test_the_auxiliary_loss_moves_the_router_alone_and_by_its_own_gradient() -> None:
    x = torch.randn(1, 9, HIDDEN, dtype=torch.float64)
    plain, balanced = block(), block()
    set_auxiliary_loss(balanced, 0.5)
    gradients = []
    for moe in (plain, balanced):
        moe(x.clone().requires_grad_(), None).sum().backward()
        gradients.append({name: p.grad for name, p in moe.named_parameters()})
    _, _, scores = plain.router(x[0], None)
    share = plain.load / plain.load.sum()
    loss = 0.5 * 4 * (share * (scores / scores.sum(-1, keepdim=True)).mean(0)).sum()
    assert take_auxiliary_loss(balanced) == pytest.approx(loss.item())
    assert take_auxiliary_loss(balanced) == take_auxiliary_loss(plain) == 0
    (expected,) = torch.autograd.grad(loss, plain.router.weight)
    for name, gradient in gradients[0].items():
        difference = gradients[1][name] - gradient
        torch.testing.assert_close(difference, expected if name == "router.weight" else torch.zeros_like(difference))


def test_biases_go_up_for_the_idle_and_down_for_the_busy_by_one_rate() -> None:
    moe = block()
    moe.load = torch.tensor([9, 1, 5, 5])
    update_biases(moe, 0.01, Comm())
    torch.testing.assert_close(moe.router.e_score_correction_bias, torch.tensor([-0.01, 0.01, 0.0, 0.0]))
    update_biases(moe, 0.01, Comm())  # nothing counted since
    torch.testing.assert_close(moe.router.e_score_correction_bias, torch.tensor([-0.01, 0.01, 0.0, 0.0]))


def test_load_adds_up_over_micro_batches() -> None:
    moe = block()
    x = torch.randn(2, 3, HIDDEN, dtype=torch.float64)
    for part in x.split(1):
        moe(part, None)
    parts = moe.load
    moe.load = None
    moe(x, None)
    assert torch.equal(moe.load, parts)
