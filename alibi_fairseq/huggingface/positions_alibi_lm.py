"""Position methods of the models in ``modeling_alibi_lm.py``.

Shapes: B batch, T new tokens, S keys (cached + new), C model width, H heads, D head size.
"""

import math

import torch
from torch import nn

# Types of rotation that rotary_parameters can have here. Other types depend on the length of the
# text or change the scores.
SUPPORTED_ROPE_TYPES = ("default", "linear", "proportional")
ROTARY_KEYS = ("rope_type", "rope_theta", "partial_rotary_factor", "factor")


class NoPositionsModule(nn.Module):
    """Base of the position methods, without an effect."""

    def __init__(self, config):
        super().__init__()
        self.config = config

    def check(self, position_ids, dtype):
        """Raise ValueError if keys of a dtype would overflow at a position, (B or 1, T)."""

    def embed(self, position_ids):
        """Return position embeddings, (B, T, C), or None."""
        return None

    def rotate(self, q, k, position_ids):
        """Return rotated queries and keys, (B, H, T, D), before they are cached."""
        return q, k

    def bias(self, distance, length):
        """Return the score bias of all layers, (H, T, S), or None.

        Args:
            distance: query position minus key position, at least 0, (T, S).
            length: number of cached and new tokens.
        """
        return None

    def layer_bias(self, layer, q, k, distance):
        """Return the score bias of one layer, (B, H, T, S), or None."""
        return None


class SinusoidalPositions(NoPositionsModule):
    """Vaswani et al. 2017, in fairseq's layout: all sines, then all cosines; counts from 2."""

    def embed(self, position_ids):
        half = self.config.hidden_size // 2
        steps = torch.arange(half, device=position_ids.device, dtype=torch.float32)
        frequencies = torch.exp(steps * -math.log(10000) / (half - 1))
        angles = (position_ids + 2).unsqueeze(-1) * frequencies
        features = torch.cat([angles.sin(), angles.cos()], dim=-1)
        return nn.functional.pad(features, (0, self.config.hidden_size % 2))


class LearnedPositions(NoPositionsModule):
    """Table with a row for each position of the training length, from row 2 on as in fairseq."""

    def __init__(self, config):
        super().__init__(config)
        self.weight = nn.Parameter(torch.empty(config.train_length + 2, config.hidden_size))

    def embed(self, position_ids):
        if self.config.clamp_learned_positions:
            position_ids = position_ids.clamp(max=self.config.train_length - 1)
        return nn.functional.embedding(position_ids + 2, self.weight.to(position_ids.device))


class RotaryPositions(NoPositionsModule):
    """Su et al. 2021, pairs (i, i + D/2) as in GPT-NeoX."""

    def __init__(self, config):
        super().__init__(config)
        check_rotary_parameters(config.rotary_parameters or {})

    def rotate(self, q, k, position_ids):
        frequencies = self.frequencies(q.device)  # (R/2,)
        angles = position_ids[:, None, :, None] * frequencies  # (B, 1, T, R/2)
        fade = self.fade(frequencies, position_ids)  # broadcasts to the angles
        return turn(q, angles, fade), turn(k, angles, 1 / fade)

    def frequencies(self, device):
        """Return the frequencies of the pairs among the first R features, (R/2,).

        ``rotary_parameters`` are ``rope_parameters`` of transformers with one of
        ``SUPPORTED_ROPE_TYPES``.
        """
        parameters = self.config.rotary_parameters or {}
        fraction = parameters.get("partial_rotary_factor", 1.0)
        features = self.config.head_dim
        proportional = parameters.get("rope_type") == "proportional"
        if not proportional:
            features = int(features * fraction)
        pairs = torch.arange(0, features, 2, device=device, dtype=torch.float32)
        frequencies = parameters.get("rope_theta", 10000.0) ** (-pairs / features)
        if proportional:
            frequencies[int(fraction * features // 2) :] = 0
        return frequencies / parameters.get("factor", 1.0)

    def fade(self, frequencies, position_ids):
        """Return the factor of each pair of a query; keys are divided by it. Here, it is 1."""
        return torch.ones_like(frequencies)


class XPosPositions(RotaryPositions):
    """Sun et al. 2022: the slow pairs fade with distance, in units of 512 positions."""

    def check(self, position_ids, dtype):
        # Keys grow with their position until they overflow. Compiled code cannot depend on values.
        if torch.compiler.is_compiling():
            return
        limit = self.last_position(dtype)
        if position_ids.max() > limit:
            raise ValueError(
                f"xPos is limited to position {limit} in {dtype}, but a token is at position "
                f"{position_ids.max()}. Use fewer tokens, or bf16 in place of fp16."
            )

    def last_position(self, dtype):
        """Return the last position at which keys of magnitude up to 64 stay finite in a dtype."""
        largest = min(torch.finfo(dtype).max, torch.finfo(torch.float32).max)  # factors are fp32
        largest = largest / (2 * 64)  # a rotation scales a feature by up to √2
        return int(512 * math.log(largest) / -math.log(0.4 / 1.4))

    def fade(self, frequencies, position_ids):
        pairs = 2 * torch.arange(len(frequencies), device=frequencies.device)
        rates = (pairs / self.config.head_dim + 0.4) / 1.4
        return rates ** (position_ids[:, None, :, None] / 512)


def check_rotary_parameters(parameters):
    """Raise ValueError if RotaryPositions would compute another rotation than parameters name."""
    rope_type = parameters.get("rope_type", "default")
    if rope_type not in SUPPORTED_ROPE_TYPES:
        raise ValueError(
            f"rope_type of rotary_parameters must be {', '.join(SUPPORTED_ROPE_TYPES[:-1])}, or "
            f"{SUPPORTED_ROPE_TYPES[-1]}, not {rope_type!r}."
        )
    for key in parameters:
        if key not in ROTARY_KEYS:
            raise ValueError(
                f"{key!r} has no effect in rotary_parameters. Use only {', '.join(ROTARY_KEYS)}."
            )
    if "factor" in parameters and rope_type == "default":
        raise ValueError(
            "'factor' has no effect in rotary_parameters of the default rope_type. Add "
            '"rope_type": "linear".'
        )


def turn(x, angles, scale):
    """Rotate the first features of each head by angles, (B, 1, T, R/2), and scale them."""
    rotated, rest = x.tensor_split([2 * angles.shape[-1]], dim=-1)
    first, second = rotated.to(torch.promote_types(x.dtype, torch.float32)).chunk(2, dim=-1)
    cos = angles.cos() * scale
    sin = angles.sin() * scale
    rotated = torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)
    return torch.cat([rotated, rest], dim=-1)


def alibi_slopes(heads, bias_max):
    """Return the slopes of Press et al. (2022), where bias_max is 8.

    For n heads, n a power of two, they are the powers of 2^(-bias_max/n). For other numbers of
    heads, every other slope of the next power of two is added until there are enough.
    """
    lower = 2 ** int(math.log2(heads))
    slopes = [2.0 ** (-bias_max * (head + 1) / lower) for head in range(lower)]
    if lower == heads:
        return slopes
    next_slopes = alibi_slopes(2 * lower, bias_max)
    return slopes + next_slopes[0::2][: heads - lower]


def per_head(values, distance):
    """Return a value per head as (H, 1, 1) in fp32, on the device of the distances."""
    return torch.as_tensor(values, device=distance.device, dtype=torch.float32).view(-1, 1, 1)


class AlibiPositions(NoPositionsModule):
    """Press et al. 2022. ``alibi_scale`` is the interpolation of Al-Khateeb et al. 2023."""

    def bias(self, distance, length):
        divisor = self.config.alibi_scale
        if divisor is None:
            divisor = max(1.0, length / self.config.train_length)
        slopes = alibi_slopes(self.config.num_attention_heads, self.config.alibi_bias_max)
        return -per_head(slopes, distance) / divisor * distance


class T5Positions(NoPositionsModule):
    """Raffel et al. 2020: 32 buckets, half of them exact, the others logarithmic up to 128."""

    def __init__(self, config):
        super().__init__(config)
        self.relative_attention_bias = nn.Embedding(32, config.num_attention_heads)

    def bias(self, distance, length):
        octaves = torch.log(distance.clamp(min=1).float() / 16) / math.log(128 / 16)
        far = (16 + (octaves * 16).long()).clamp(max=31)
        buckets = torch.where(distance < 16, distance, far)
        return self.relative_attention_bias(buckets).movedim(-1, 0).float()


class KerplePositions(NoPositionsModule):
    """Chi et al. 2022, the logarithmic kernel."""

    def __init__(self, config):
        super().__init__(config)
        heads = config.num_attention_heads
        self.log_p = nn.Parameter(torch.empty(heads))
        self.log_a = nn.Parameter(torch.empty(heads))

    def bias(self, distance, length):
        p = per_head(self.log_p.float().exp(), distance)
        a = per_head(self.log_a.float().exp(), distance)
        return -p * torch.log1p(a * distance)


class SandwichPositions(NoPositionsModule):
    """Chi et al. 2023: the inner product of two sinusoidal embeddings of 128 features.

    The bias is relative to distance 0, because half precision would round large numbers.
    """

    def bias(self, distance, length):
        steps = torch.arange(0, 128, 2, device=distance.device) / 128
        angles = distance.unsqueeze(-1) * 10000.0**-steps
        product = (angles.cos() - 1).sum(-1)
        heads = self.config.num_attention_heads
        slopes = [heads / (8 * (head + 1)) for head in range(heads)]
        return per_head(slopes, distance) * product


class TransformerXLPositions(NoPositionsModule):
    """Dai et al. 2019, section 3.3: terms (b), (c), and (d), which are added to the score (a)."""

    def __init__(self, config):
        super().__init__(config)
        shape = (config.num_attention_heads, config.head_dim)
        self.u = nn.Parameter(torch.empty(shape))
        self.v = nn.Parameter(torch.empty(shape))
        self.layers = nn.ModuleList(
            nn.Linear(config.hidden_size, config.hidden_size, bias=False)
            for _ in range(config.num_hidden_layers)
        )

    def layer_bias(self, layer, q, k, distance):
        # The layers of the model can be on other devices than the parameters of positions.
        projection = self.layers[layer]
        device = projection.weight.device
        width = self.config.hidden_size
        features = torch.arange(0, width, 2, device=device, dtype=torch.float32)
        frequencies = 10000.0 ** (-features / width)
        all_distances = torch.arange(distance.shape[1], device=device)  # (S,)
        angles = all_distances[:, None] * frequencies
        sinusoids = torch.cat([angles.sin(), angles.cos()], dim=-1)[:, :width]  # (S, C)
        r = projection(sinusoids.to(q.dtype)).to(q.device)
        r = r.unflatten(-1, self.u.shape)  # (S, H, D)
        u = self.u.to(q.device)
        v = self.v.to(q.device)
        by_distance = (q + v[:, None]) @ r.permute(1, 2, 0)  # (B, H, T, S)
        terms = by_distance.gather(-1, distance.expand(by_distance.shape))
        terms = terms + (u[:, None] @ k.transpose(2, 3))
        return terms * self.config.head_dim**-0.5


POSITIONS = {
    "none": NoPositionsModule,
    "sinusoidal": SinusoidalPositions,
    "learned": LearnedPositions,
    "rotary": RotaryPositions,
    "xpos": XPosPositions,
    "alibi": AlibiPositions,
    "t5": T5Positions,
    "kerple": KerplePositions,
    "sandwich": SandwichPositions,
    "transformer_xl": TransformerXLPositions,
}
