"""The example examples/minilm, and that it would notice."""
import contextlib
import io
import os
import re
import subprocess
import sys

from tap import Skip, main, test

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "minilm")
sys.path.insert(0, FOLDER)
import numpy as np

import minilm
import model
from wordpiece import WordPiece, words

LINE = re.compile(r"^ +(\d+)  (int8|fp8) +([\d.]+) +([\d.]+)% .*[^a-z]$", re.M)


def weights():
    path = model.folder()
    if not path:
        raise Skip(f"the package {model.PACKAGE} cannot be had here")
    return path


def example(*options):
    return subprocess.run([sys.executable, os.path.join(FOLDER, "minilm.py"), *options], capture_output=True, text=True)


@test
def low_precision_keeps_embeddings_on_2_and_4_ranks():
    weights()
    ran = example("--ranks", "2,4")
    print("".join(f"# {line}\n" for line in ran.stdout.splitlines()))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    seen = {(int(n), p): (float(cosine), float(same)) for n, p, cosine, same in LINE.findall(ran.stdout)}
    assert set(seen) == {(n, p) for n in (2, 4) for p in ("int8", "fp8")}, ran.stdout
    for (_, precision), (cosine, same) in seen.items():
        least = {"int8": (0.9995, 99), "fp8": (0.996, 97)}[precision]
        assert cosine >= least[0] and same >= least[1], ran.stdout


# The first numbers of two vectors, by the package's own load_model().encode() with
# sentence-transformers 6.2.0 and PyTorch 2.13.0.
KNOWN = [[0.13023721, -0.01577282, -0.03671667, 0.05798640], [0.05573566, 0.05284229, 0.06447799, 0.10927236]]


@test
def the_model_is_the_model():
    path = weights()
    split, whole = WordPiece(os.path.join(path, "vocab.txt")), model.Model(path, 0, 1)
    numbers = [split(text, 256) for text in ("The cat sat on the mat.", "A feline rested on the rug!")]
    assert numbers[0] == [101, 1996, 4937, 2938, 2006, 1996, 13523, 1012, 102], numbers
    x = whole.encode(numbers, lambda y: y)
    np.testing.assert_allclose(x[:, :4], KNOWN, atol=2e-6)
    assert abs(float(x[0] @ x[1]) - 0.5143326) < 2e-6


@test
def paraphrases_are_near():
    path, texts = weights(), minilm.sentences()
    assert len(texts) == 200 == len(set(texts))
    split, whole = WordPiece(os.path.join(path, "vocab.txt")), model.Model(path, 0, 1)
    x = whole.encode([split(text, 256) for text in texts], lambda y: y)
    assert (minilm.nearest(x) == np.arange(200) ^ 1).mean() >= 0.95


@test
def words_of_many_scripts():
    assert words("Zürich's cafés — “$5.50”\tok") == "zurich ' s cafes — “ $ 5 . 50 ” ok".split()
    assert words("日本 a\u200bb \u00e9") == ["日", "本", "ab", "e"]


def unit(x):
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def pairs():
    """200 vectors, two and two near each other."""
    random = np.random.default_rng(0)
    x = random.standard_normal((200, 384))
    x[1::2] = x[::2] + random.standard_normal((100, 384))
    return unit(x)


@test
def what_is_too_coarse_is_noticed():
    full, random = pairs(), np.random.default_rng(1)
    for precision, fine, coarse in (("int8", 0.0005, 0.004), ("fp8", 0.002, 0.006)):
        for noise, enough in ((fine, True), (coarse, False)):
            cosine, same, _, good = minilm.compare(full, unit(full + noise * random.standard_normal(full.shape)), precision)
            assert good == enough, (precision, noise, cosine, same)
    moved = full.copy()
    moved[[0, 20, 40]] = full[[20, 40, 0]]  # cosine aside: three sentences that are nearest to others' pairs now
    assert not minilm.compare(full, moved, "int8")[3]


def line(vectors, bits, seconds=1.0, calls=12):
    return vectors, bits, seconds, calls


@test
def ranks_that_differ_and_precision_that_is_not_low_are_noticed():
    full = pairs()
    low = unit(full + np.float32(1e-4))
    good = [{"off": line(full, "a"), "int8": line(low, "b")}] * 2

    def report(*args):
        with contextlib.redirect_stdout(io.StringIO()):
            return minilm.report(*args)

    assert report(2, good, range(200), ["int8"])
    assert not report(2, [good[0], {**good[1], "int8": line(None, "c")}], range(200), ["int8"])
    assert not report(2, [{**good[0], "int8": line(full, "b")}] * 2, range(200), ["int8"])


@test
def a_wrong_command_line_is_told():
    for options, words_of_it in ((["--precision", "int4"], "there are int8, fp8"), (["--model", ""], "the weights are not here")):
        ran = example(*options)
        assert ran.returncode == 2 and (words_of_it in ran.stderr or not model.folder()), ran.stderr


if __name__ == "__main__":
    main()
