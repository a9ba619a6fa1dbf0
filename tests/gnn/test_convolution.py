"""Attention along modes, against loops written with plain torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric.utils import scatter, softmax

from hetsched.gnn.convolution import AttentionSum, Layout, ModeConv

HIDDEN, HEADS = 8, 2


def test_the_attention_sum_equals_a_loop_over_nodes_and_heads() -> None:
    torch.manual_seed(0)
    target = torch.tensor([2, 0, 2, 2, 0, 4])
    messages, logits = torch.randn(6, HEADS, 4), 3 * torch.randn(6, HEADS)
    found = AttentionSum()(messages, logits, target, 5)
    assert found.shape == (5, HEADS, 4)
    for node in range(5):
        edges = (target == node).nonzero().flatten().tolist()
        for head in range(HEADS):
            total = sum(float(logits[edge, head].exp()) for edge in edges)
            expected = torch.zeros(4)
            for edge in edges:
                expected += float(logits[edge, head].exp()) / total * messages[edge, head]
            torch.testing.assert_close(found[node, head], expected)


def test_the_attention_sum_equals_softmax_and_scatter_of_torch_geometric() -> None:
    torch.manual_seed(1)
    target = torch.randint(0, 7, (40,))
    messages, logits = torch.randn(40, HEADS, 4), torch.randn(40, HEADS)
    weights = softmax(logits, target, num_nodes=7)
    expected = scatter(weights[..., None] * messages, target, 0, 7, reduce="sum")
    torch.testing.assert_close(AttentionSum()(messages, logits, target, 7), expected)


def test_the_attention_sum_handles_whole_rows_of_messages_that_travel_together() -> None:
    torch.manual_seed(2)
    target = torch.tensor([0, 0, 1])
    messages, logits = torch.randn(3, 5, HEADS, 4), torch.randn(3, 5, HEADS)
    together = AttentionSum()(messages, logits, target, 2)
    for machine in range(5):
        alone = AttentionSum()(messages[:, machine], logits[:, machine], target, 2)
        torch.testing.assert_close(together[:, machine], alone)


def test_a_node_that_nothing_points_to_hears_nothing() -> None:
    target = torch.tensor([1])
    found = AttentionSum()(torch.ones(1, HEADS, 4), torch.zeros(1, HEADS), target, 3)
    assert found.sum((1, 2)).tolist() == [0.0, HEADS * 4.0, 0.0]


def test_weights_add_up_to_one_however_large_the_logits() -> None:
    target = torch.zeros(3, dtype=torch.int64)
    logits = torch.tensor([[1e4, -1e4], [1e4, 0.0], [-1e4, 1e4]])
    found = AttentionSum()(torch.ones(3, HEADS, 4), logits, target, 1)
    torch.testing.assert_close(found, torch.ones(1, HEADS, 4))


def layout_of(mode_mask: Tensor, batch: Tensor, slots: Tensor, dense: bool) -> Layout:
    """Two instances with 3 machines each where ``batch`` names both."""
    instances = int(batch.max()) + 1
    return Layout(
        mode_mask=mode_mask,
        batch=batch,
        machine=slots + 3 * batch[:, None],
        num_instances=instances,
        num_machines=3,
        dense=dense,
        full=bool(mode_mask.all()),
    )


def by_loops(
    conv: ModeConv, jobs: Tensor, machines: Tensor, modes: Tensor, layout: Layout
) -> tuple[Tensor, Tensor, dict[tuple[int, int], Tensor]]:
    """The docstring of ModeConv, mode by mode."""
    flat = machines.flatten(0, 1)
    there = [tuple(one) for one in layout.mode_mask.nonzero().tolist()]
    message, logits, updated = {}, {}, {}
    for n, k in there:
        m = torch.relu(
            conv.from_modes(modes[n, k])
            + conv.from_jobs(conv.norm_jobs(jobs[n]))
            + conv.from_machines(conv.norm_machines(flat[layout.machine[n, k]]))
        )
        message[n, k], logits[n, k] = m.unflatten(0, (HEADS, -1)), conv.attention(m)
        updated[n, k] = modes[n, k] + conv.to_modes(m)

    def heard(edges: list[tuple[int, ...]], part: slice) -> Tensor:
        if not edges:
            return torch.zeros(HIDDEN)
        weights = torch.stack([logits[edge][part] for edge in edges]).softmax(0)  # (E, H)
        split = torch.stack([message[edge] for edge in edges])  # (E, H, D)
        return (weights[..., None] * split).sum(0).flatten()

    new_jobs, new_machines = [], []
    for n, job in enumerate(jobs):
        at = heard([e for e in there if e[0] == n], slice(0, HEADS))
        parts = [conv.norm_jobs(job), at, torch.zeros(HIDDEN)]
        new_jobs.append(job + conv.to_jobs(torch.cat(parts)))
    for v, machine in enumerate(flat):
        at = heard([e for e in there if layout.machine[e] == v], slice(HEADS, 2 * HEADS))
        parts = [conv.norm_machines(machine), at]
        new_machines.append(machine + conv.to_machines(torch.cat(parts)))
    return torch.stack(new_jobs), torch.stack(new_machines).view_as(machines), updated


ONE = torch.tensor([0, 0, 0, 0])
TWO = torch.tensor([0, 0, 0, 1])
FULL = torch.ones(4, 3, dtype=torch.bool)
HOLES = torch.tensor([[1, 1, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]], dtype=torch.bool)
MACHINES = torch.arange(3).expand(4, 3)
SHARED = torch.tensor([[1, 1, 2], [0, 2, 2], [1, 1, 1], [2, 0, 1]])  # parallel modes


@pytest.mark.parametrize("batch", [ONE, TWO], ids=["one instance", "two instances"])
@pytest.mark.parametrize("mode_mask", [FULL, HOLES], ids=["full", "with empty slots"])
@pytest.mark.parametrize(
    ("slots", "dense"),
    [(MACHINES, True), (MACHINES, False), (SHARED, False)],
    ids=["dense", "sparse", "parallel modes"],
)
def test_every_path_of_a_round_equals_loops_over_its_modes(
    batch: Tensor, mode_mask: Tensor, slots: Tensor, dense: bool
) -> None:
    torch.manual_seed(3)
    conv, layout = ModeConv(HIDDEN, HEADS), layout_of(mode_mask, batch, slots, dense)
    jobs, modes = torch.randn(4, HIDDEN), torch.randn(4, 3, HIDDEN)
    machines = torch.randn(layout.num_instances, 3, HIDDEN)
    new_jobs, new_machines, new_modes = conv(jobs, machines, modes, layout)
    expected_jobs, expected_machines, expected_modes = by_loops(conv, jobs, machines, modes, layout)
    torch.testing.assert_close(new_jobs, expected_jobs)
    torch.testing.assert_close(new_machines, expected_machines)
    for edge, value in expected_modes.items():
        torch.testing.assert_close(new_modes[edge], value)


def test_what_lies_in_empty_slots_reaches_nobody() -> None:
    torch.manual_seed(4)
    conv, layout = ModeConv(HIDDEN, HEADS), layout_of(HOLES, TWO, MACHINES, dense=True)
    jobs, machines = torch.randn(4, HIDDEN), torch.randn(2, 3, HIDDEN)
    modes = torch.randn(4, 3, HIDDEN)
    noisy = modes + 100 * torch.randn_like(modes) * ~HOLES[..., None]
    for one, other in zip(
        conv(jobs, machines, modes, layout)[:2],
        conv(jobs, machines, noisy, layout)[:2],
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_what_the_precedence_relation_tells_reaches_the_job_it_is_told_to() -> None:
    torch.manual_seed(5)
    conv, layout = ModeConv(HIDDEN, HEADS), layout_of(FULL, TWO, MACHINES, dense=True)
    jobs, machines = torch.randn(4, HIDDEN), torch.randn(2, 3, HIDDEN)
    modes, told = torch.randn(4, 3, HIDDEN), torch.zeros(4, HIDDEN)
    told[2] = 1.0
    before = conv(jobs, machines, modes, layout)[0]
    after = conv(jobs, machines, modes, layout, told)[0]
    changed = (before != after).any(1)
    assert changed.tolist() == [False, False, True, False]
