import pytest

torch = pytest.importorskip("torch")

from torch.func import vmap  # noqa: E402

from worker.policies.tape import Tape, Unrecorded  # noqa: E402


def lanes(*shape: int):
    return torch.randn(5, *shape, generator=torch.Generator().manual_seed(sum(shape)))


def test_what_is_played_follows_the_values_that_tensors_have_by_then():
    weights, inputs, state = lanes(3, 4), lanes(4), lanes(3)

    def one(weights, inputs, state):
        first, second = torch.split(torch.cat([weights @ inputs, state.flip(0)]), [2, 4])
        return torch.nn.functional.layer_norm(second, (4,)), (first, inputs.view(2, 2))

    def step():
        return vmap(one)(weights, inputs, state)

    with torch.inference_mode():
        tape = Tape(step, [weights, inputs, state])
        before = tape()[0].clone()
        for number, tensor in enumerate((weights, inputs, state)):
            tensor.mul_(number - 1.5)
        found, expected = tape(), step()
        assert not torch.equal(found[0], before)
        for one_, other in zip((found[0], *found[1]), (expected[0], *expected[1]), strict=True):
            assert torch.equal(one_, other)


def test_views_are_made_once():
    weights = lanes(3, 4)
    with torch.inference_mode():
        tape = Tape(lambda: 2 * weights.transpose(1, 2).unsqueeze(1), [weights])
        weights.add_(1)
        assert torch.equal(tape(), 2 * weights.transpose(1, 2).unsqueeze(1))
    assert [str(call.operation) for call in tape._calls] == ["aten.mul.Tensor"]


@pytest.mark.parametrize(
    ("words", "spoil"),
    [
        ("is random", lambda x: x + torch.rand(5, 3)),
        ("writes over", lambda x: (2 * x).relu_()),
        ("something else than tensors", lambda x: x * float(x.sum().item())),
    ],
)
def test_what_can_not_be_played_again_is_refused(words, spoil):
    inputs = lanes(3)
    with torch.inference_mode(), pytest.raises(Unrecorded, match=words):
        Tape(lambda: spoil(inputs), [inputs])
