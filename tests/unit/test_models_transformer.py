import pytest
import torch

from longstride.models.config import TransformerConfig
from longstride.models.kvcache import KVCache
from longstride.models.rope import rotate, rotations
from longstride.models.transformer import Transformer

torch.set_num_threads(1)

SHAPES = [
    {},
    {"taps": 3},
    {"heads": 4, "kv_heads": 2},
    {"tied": False, "taps": 2, "kv_heads": 1},
]


def small(**changes: object) -> Transformer:
    config = {"vocab_size": 37, "width": 32, "layers": 2, "heads": 4, "kv_heads": 4, "hidden": 48, "context": 64}
    model = Transformer(TransformerConfig(**{**config, **changes}), seed=3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)
    return model.eval()


def ids(rows: int, length: int) -> torch.Tensor:
    return torch.randint(0, 37, (rows, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("shape", SHAPES)
def test_decoding_with_a_cache_equals_one_forward_pass(shape):
    model, text = small(**shape), ids(3, 20)
    with torch.no_grad():
        whole = model(text)
        cache = KVCache(model.config, 3, 20)
        pieces = [model(text[:, :7], cache=cache, start=torch.zeros(3, dtype=torch.int64))]
        pieces += [model(text[:, t : t + 1], cache=cache, start=torch.full((3,), t)) for t in range(7, 20)]
    torch.testing.assert_close(torch.cat(pieces, 1), whole, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_different_lengths_decode_as_if_alone(shape):
    model, text = small(**shape), ids(2, 12)
    lengths = torch.tensor([5, 9])
    with torch.no_grad():
        alone = [model(text[row : row + 1, : length + 3])[0, length - 1 :] for row, length in enumerate(lengths)]
        cache = KVCache(model.config, 2, 16)
        padded = text.clone()[:, :9]
        padded[0, 5:] = 36
        first = model(padded, cache=cache, start=torch.zeros(2, dtype=torch.int64))
        together = [first[torch.arange(2), lengths - 1]]
        for step in range(3):
            following = text.gather(1, (lengths + step)[:, None])
            together.append(model(following, cache=cache, start=lengths + step)[:, 0])
    for row in range(2):
        torch.testing.assert_close(torch.stack(together, 1)[row], alone[row], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_position_sees_a_later_one(shape):
    model, text = small(**shape), ids(1, 10)
    changed = text.clone()
    changed[0, 6:] = (changed[0, 6:] + 1) % 37
    with torch.no_grad():
        before, after = model(text), model(changed)
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert not torch.allclose(before[:, 6:], after[:, 6:])


def test_attention_matches_the_formula_in_fp64():
    """Softmax(QKᵀ/√d)V, written out, with rotary angles p·θ^(-2i/d) applied as complex numbers."""
    model = small(kv_heads=2).double()
    attention, x = model.blocks[0].attention, torch.randn(1, 5, 32, dtype=torch.float64)
    positions = torch.arange(5)[None]
    cosine, sine = rotations(positions, 8, 10_000.0)
    got = attention(x, (cosine[:, None], sine[:, None]), None, positions, None)

    def turned(t: torch.Tensor) -> torch.Tensor:
        pairs = torch.complex(t[..., :4], t[..., 4:])
        angles = torch.outer(torch.arange(5.0), 10_000.0 ** -(torch.arange(4) / 4)).double()
        pairs = pairs * torch.polar(torch.ones_like(angles), angles)
        return torch.cat((pairs.real, pairs.imag), -1)

    q = turned((x @ attention.query.weight.T).view(5, 4, 8).transpose(0, 1))
    k = turned((x @ attention.key.weight.T).view(5, 2, 8).transpose(0, 1)).repeat_interleave(2, 0)
    v = (x @ attention.value.weight.T).view(5, 2, 8).transpose(0, 1).repeat_interleave(2, 0)
    scores = (q @ k.transpose(1, 2) / 8**0.5).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    expected = (scores.softmax(-1) @ v).transpose(0, 1).flatten(1) @ attention.out.weight.T
    torch.testing.assert_close(got[0], expected, atol=1e-6, rtol=1e-6)


def test_rotation_keeps_inner_products_of_equal_distance():
    x, y = torch.randn(2, 16)
    cosine, sine = rotations(torch.arange(50), 16, 10_000.0)
    x_at, y_at = rotate(x.expand(50, 16), cosine, sine), rotate(y.expand(50, 16), cosine, sine)
    products = (x_at[:40] * y_at[10:]).sum(-1)
    torch.testing.assert_close(products, products[:1].expand(40), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_saved_weights_load_to_the_same_logits(tmp_path, shape):
    model, text = small(**shape), ids(1, 9)
    model.save(tmp_path / "weights")
    with torch.no_grad():
        torch.testing.assert_close(Transformer.load(tmp_path / "weights")(text), model(text), atol=0, rtol=0)


def test_half_precision_files_load_as_fp32(tmp_path):
    small().save(tmp_path, dtype=torch.float16)
    assert {p.dtype for p in Transformer.load(tmp_path).parameters()} == {torch.float32}


def test_the_seed_decides_the_weights():
    config = TransformerConfig(vocab_size=37)
    first, again, other = (Transformer(config, seed).embeddings[0].weight for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_every_parameter_gets_a_gradient():
    model = small(taps=2, tied=False)
    model(ids(2, 8)).logsumexp(-1).sum().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in model.parameters())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 30}, "heads of an even size"),
        ({"kv_heads": 3}, "multiple of kv_heads 3"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
    ],
)
def test_impossible_shapes_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        small(**change)


def test_positions_beyond_the_context_are_refused():
    with pytest.raises(ValueError, match="beyond the model's context of 64"):
        small()(ids(1, 65))


def test_a_broken_checkpoint_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"config\.json is missing"):
        Transformer.load(tmp_path)
    small().save(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 40)
    with pytest.raises(ValueError, match=r"model\.safetensors does not hold"):
        Transformer.load(tmp_path)
    small(layers=1).save(tmp_path / "other")
    (tmp_path / "other" / "config.json").write_text((tmp_path / "config.json").read_text())
    with pytest.raises(ValueError, match="Missing key"):
        Transformer.load(tmp_path / "other")
    (tmp_path / "config.json").write_text('{"vocab_size": 3, "depth": 1}')
    with pytest.raises(ValueError, match="unknown \\['depth'\\]"):
        Transformer.load(tmp_path)
