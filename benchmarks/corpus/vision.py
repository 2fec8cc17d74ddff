"""Images in networks: norms, attention in windows, heads of detectors, augmentation, losses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.corpus.drawing import Draw
from benchmarks.corpus.table import template


@template
def batch_norm_residual_gradient(draw: Draw):
    layout, dtype = draw.layout(), draw.dtype("float32", "bfloat16")
    n, c = draw.size(8, 64), draw.size(24, 256)
    h, w = draw.odd_size(13, 57), draw.size(14, 56)
    axes = tuple(a for a in range(4) if a != layout.channels % 4)

    def loss(x, skip, gamma, beta, g):
        wide = x.astype(jnp.float32)
        mean, var = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
        y = (wide - mean) * lax.rsqrt(var + 1e-5)
        y = y * layout.per_channel(gamma) + layout.per_channel(beta)
        return (jax.nn.relu(y.astype(dtype) + skip) * g).astype(jnp.float32).sum()

    x, skip, g = (draw.normal(*layout.shape(n, c, h, w), dtype=dtype) for _ in range(3))
    args = (x, skip, draw.normal(c, mean=1, scale=0.1), draw.normal(c), g)
    return jax.grad(loss, argnums=(0, 1, 2, 3)), args


@template
def shifted_windows(draw: Draw):
    """Attention in shifted windows with a bias by relative position, as Swin has it."""
    size, heads = draw.choice(7, 8), draw.choice(3, 4, 6)
    n, tall, wide, depth = draw.size(2, 16), draw.size(3, 8), draw.size(3, 8), draw.choice(16, 32)
    n, tall, wide = (2, 2, 3) if draw.small else (n, tall, wide)
    dtype, shift = draw.dtype("float32", "bfloat16"), size // 2
    area, c = size * size, heads * depth

    def windows(x):
        x = x.reshape(n, tall, size, wide, size, -1).transpose(0, 1, 3, 2, 4, 5)
        return x.reshape(n, tall * wide, area, -1)

    def fun(qkv, table, index):
        rolled = jnp.roll(qkv, (-shift, -shift), (1, 2))
        q, k, v = jnp.split(windows(rolled), 3, -1)
        q, k, v = (t.reshape(*t.shape[:3], heads, depth) for t in (q, k, v))
        rows = jnp.arange(tall * size) // (tall * size - shift)
        columns = jnp.arange(wide * size) // (wide * size - shift)
        region = jnp.broadcast_to(rows[:, None] * 2 + columns, (n, tall * size, wide * size))
        part = windows(region[..., None])[0, :, :, 0]
        apart = part[:, :, None] != part[:, None]
        bias = table[index].transpose(2, 0, 1).astype(jnp.float32)
        s = jnp.einsum("nwqhd,nwkhd->nwhqk", q, k).astype(jnp.float32) * depth**-0.5 + bias
        p = jax.nn.softmax(jnp.where(apart[None, :, None], -100.0, 0.0) + s, -1).astype(dtype)
        y = jnp.einsum("nwhqk,nwkhd->nwqhd", p, v).reshape(n, tall, wide, size, size, c)
        y = y.transpose(0, 1, 3, 2, 4, 5).reshape(n, tall * size, wide * size, c)
        return jnp.roll(y, (shift, shift), (1, 2))

    qkv = draw.normal(n, tall * size, wide * size, 3 * c, dtype=dtype)
    places = (2 * size - 1) ** 2
    args = (qkv, draw.normal(places, heads, scale=0.02), draw.integers(area, area, high=places))
    return fun, args


@template
def depthwise_block(draw: Draw):
    """A depthwise convolution, layer norm, two dense layers, a scale per channel, as ConvNeXt."""
    n, h, w = draw.size(4, 32), draw.odd_size(9, 56), draw.odd_size(9, 56)
    c, window = draw.size(48, 192, 8), draw.choice(5, 7)

    def fun(x, kernel, scale, up, down, gamma):
        y = lax.conv_general_dilated(
            *(x, kernel, (1, 1), "SAME"),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=c,
        )
        y = (y - y.mean(-1, keepdims=True)) * lax.rsqrt(y.var(-1, keepdims=True) + 1e-6) * scale
        y = jax.nn.gelu(y @ up["w"] + up["b"], approximate=False) @ down["w"] + down["b"]
        return x + gamma * y

    up, down = draw.layers(c, 4 * c, c)
    kernel = draw.normal(window, window, 1, c, scale=1 / window)
    return fun, (draw.normal(n, h, w, c), kernel, draw.normal(c), up, down, draw.normal(c))


@template
def squeeze_and_excite(draw: Draw):
    layout, dtype = draw.layout(), draw.dtype()
    n, c, h, w = draw.size(16, 64), draw.size(32, 320), draw.odd_size(7, 65), draw.size(7, 64)
    low = max(4, c // draw.choice(4, 16))

    def fun(x, squeeze, excite):
        mean = x.mean(layout.height_and_width)
        y = jax.nn.silu(mean @ squeeze["w"] + squeeze["b"])
        gate = jax.nn.sigmoid(y @ excite["w"] + excite["b"])
        return x * jnp.expand_dims(gate, layout.height_and_width)

    layers = draw.layers(c, low, c, dtype=dtype)
    return fun, (draw.normal(*layout.shape(n, c, h, w), dtype=dtype), *layers)


@template
def bytes_to_patches(draw: Draw):
    """Bytes are normalised, cut into patches, embedded, and get a class token and positions."""
    patch, tall, wide = draw.choice(8, 14, 16), draw.size(6, 16), draw.size(6, 16)
    n, c = draw.size(16, 256), draw.size(96, 512, 8)
    dtype = draw.dtype("float32", "bfloat16")

    def fun(image, w, token, places):
        x = (image.astype(jnp.float32) / 255 - 0.45) / jnp.array([0.229, 0.224, 0.225])
        x = x.reshape(n, tall, patch, wide, patch, 3).transpose(0, 1, 3, 2, 4, 5)
        y = x.reshape(n, tall * wide, -1).astype(dtype) @ w
        y = jnp.concatenate([jnp.broadcast_to(token, (n, 1, c)), y], 1) + places
        wide_y = y.astype(jnp.float32)
        deviation = jnp.sqrt(wide_y.var(-1, keepdims=True) + 1e-6)
        return ((wide_y - wide_y.mean(-1, keepdims=True)) / deviation).astype(dtype)

    image = draw.integers(n, tall * patch, wide * patch, 3, high=256, dtype="uint8")
    w, token = draw.weight(patch * patch * 3, c, dtype=dtype), draw.normal(c, dtype=dtype)
    return fun, (image, w, token, draw.normal(tall * wide + 1, c, dtype=dtype))


@template
def decoded_boxes(draw: Draw):
    """Offsets to anchors become clipped boxes; the best of each image are picked."""
    n, anchors, classes = draw.size(4, 32), draw.odd_size(3000, 60000), draw.size(3, 91)
    best, side = min(100, anchors), draw.number(300, 1000)
    least = draw.number(0.01, 0.2)

    def fun(anchor, offset, logits):
        size = anchor[:, 2:] - anchor[:, :2]
        middle = (anchor[:, 2:] + anchor[:, :2]) / 2 + offset[..., :2] * 0.1 * size
        half = size * jnp.exp(jnp.minimum(offset[..., 2:] * 0.2, 4.135)) / 2
        boxes = jnp.clip(jnp.concatenate([middle - half, middle + half], -1), 0, side)
        score, label = jax.nn.sigmoid(logits).max(-1), logits.argmax(-1)
        large = (boxes[..., 2:] - boxes[..., :2]).min(-1) > 1
        kept, place = lax.top_k(jnp.where(large & (score > least), score, 0), best)
        picked = jnp.take_along_axis(boxes, place[..., None], 1)
        return picked, kept, jnp.take_along_axis(label, place, 1)

    args = (draw.uniform(anchors, 4, high=side), draw.normal(n, anchors, 4))
    return fun, (*args, draw.normal(n, anchors, classes, mean=-3))


@template
def generalized_iou_gradient(draw: Draw):
    n, boxes, power = draw.size(4, 64), draw.size(2000, 40000), draw.choice(1.0, 2.0)

    def loss(predicted, target, weight):
        def area(box):
            return jnp.maximum(box[..., 2:] - box[..., :2], 0).prod(-1)

        low, high = predicted[..., :2], predicted[..., :2] + jnp.exp(predicted[..., 2:])
        p = jnp.concatenate([low, high], -1)
        t = jnp.concatenate([target[..., :2], target[..., :2] + target[..., 2:]], -1)
        both = jnp.concatenate([jnp.maximum(p, t)[..., :2], jnp.minimum(p, t)[..., 2:]], -1)
        hull = jnp.concatenate([jnp.minimum(p, t)[..., :2], jnp.maximum(p, t)[..., 2:]], -1)
        inter = area(both)
        union = area(p) + area(t) - inter
        giou = inter / (union + 1e-7) - (area(hull) - union) / (area(hull) + 1e-7)
        return (weight * (1 - giou) ** power).sum() / jnp.maximum(weight.sum(), 1)

    boxes_ = draw.uniform(n, boxes, 4, low=0.1, high=2)
    args = (draw.normal(n, boxes, 4), boxes_, draw.mask(n, boxes, share=0.3))
    return jax.value_and_grad(loss), args


@template
def key_points(draw: Draw):
    """Expected places under heat maps, and their distances to the seen points."""
    layout, dtype = draw.layout(), draw.dtype("float32", "bfloat16")
    n, k, h, w = draw.size(32, 256), draw.size(5, 34), draw.odd_size(31, 97), draw.size(32, 96)
    rows, columns = layout.height_and_width

    def loss(heat, points, seen):
        heat = heat.astype(jnp.float32) * 10
        p = jax.nn.softmax(heat, axis=layout.height_and_width)
        y = (p.sum(columns) * _along(jnp.arange(h), layout)).sum(rows)
        x = (p.sum(rows) * _along(jnp.arange(w), layout)).sum(rows)
        apart = jnp.abs(jnp.stack([x / w, y / h], -1) - points).sum(-1)
        return (apart * seen).sum() / seen.sum()

    heat = draw.normal(*layout.shape(n, k, h, w), dtype=dtype)
    return jax.value_and_grad(loss), (heat, draw.uniform(n, k, 2), draw.mask(n, k))


def _along(values, layout):
    """One value a row of arrays from which one of the image's axes is summed away."""
    return values if layout.first else values[:, None]


@template
def mixed_images(draw: Draw):
    """Rectangles of one image in another, at random, of bytes, with mixed labels."""
    layout, n, classes = draw.layout(), draw.size(16, 128), draw.size(10, 1000)
    h, w, smooth = draw.size(32, 224), draw.odd_size(32, 224), draw.number(0, 0.2)

    def fun(image, label, key):
        share, row, column = jax.random.uniform(key, (3, n, 1, 1))
        half_h, half_w = jnp.sqrt(1 - share) * h / 2, jnp.sqrt(1 - share) * w / 2
        inside = (jnp.abs(jnp.arange(h)[:, None] - row * h) < half_h) & (
            jnp.abs(jnp.arange(w) - column * w) < half_w
        )
        kept = 1 - inside.mean((1, 2))
        x = image.astype(jnp.float32) / 255
        x = jnp.where(jnp.expand_dims(inside, layout.channels), x[::-1], x)
        hot = jax.nn.one_hot(label, classes) * (1 - smooth) + smooth / classes
        return x.astype(jnp.bfloat16), kept[:, None] * hot + (1 - kept[:, None]) * hot[::-1]

    image = draw.integers(*layout.shape(n, 3, h, w), high=256, dtype="uint8")
    return fun, (image, draw.integers(n, high=classes), draw.key())


@template
def style_transfer(draw: Draw):
    """Features get the means and deviations of others, and a loss between their Gram matrices."""
    layout, dtype = draw.layout(), draw.dtype("float32", "bfloat16")
    n, c, h, w = draw.size(4, 32), draw.size(32, 256), draw.odd_size(15, 65), draw.size(16, 64)
    mix, axes = draw.number(0.2, 1), layout.height_and_width

    def gram(x):
        flat = x.reshape(n, c, -1) if layout.first else x.reshape(n, -1, c).transpose(0, 2, 1)
        return jnp.einsum("nci,ndi->ncd", flat, flat) / (h * w)

    def fun(content, style):
        content, style = content.astype(jnp.float32), style.astype(jnp.float32)
        mean = content.mean(axes, keepdims=True)
        deviation = jnp.sqrt(content.var(axes, keepdims=True) + 1e-5)
        wanted = jnp.sqrt(style.var(axes, keepdims=True) + 1e-5)
        y = (content - mean) / deviation * wanted + style.mean(axes, keepdims=True)
        y = mix * y + (1 - mix) * content
        return y.astype(dtype), ((gram(y) - gram(style)) ** 2).mean((1, 2))

    return fun, tuple(draw.normal(*layout.shape(n, c, h, w), dtype=dtype) for _ in range(2))


@template
def upsampled_segmentation(draw: Draw):
    """Coarse logits are resized; cross-entropy per pixel with class weights and unlabelled ones."""
    n, classes, times = draw.size(8, 32), draw.size(5, 40), draw.choice(2, 4)
    h, w, unlabelled = draw.size(16, 64), draw.odd_size(16, 64), 255

    def loss(logits, label, weight):
        full = jax.image.resize(logits, (n, h * times, w * times, classes), "bilinear")
        valid = label != unlabelled
        known = jnp.where(valid, label, 0).astype(jnp.int32)
        picked = jnp.take_along_axis(jax.nn.log_softmax(full), known[..., None], -1)[..., 0]
        factor = weight[known] * valid
        return -(factor * picked).sum() / factor.sum()

    label = draw.leaf(
        (n, h * times, w * times),
        "uint8",
        lambda r, s: (lambda v: v + (v == classes) * (unlabelled - classes))(
            r.integers(0, classes + 1, s)
        ),
    )
    args = (draw.normal(n, h, w, classes), label, draw.uniform(classes, low=0.5, high=2))
    return jax.value_and_grad(loss), args
