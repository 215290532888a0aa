#!/usr/bin/env python3
"""The accuracy of low precision, from what bench/codec_error prints.

    bench/accuracy.py CSV      results/accuracy/table.md and accuracy.csv, docs/img/accuracy.svg, the tables of docs/numerics.md

`make accuracy` measures, then calls this. Without matplotlib all but the plot is made.
"""
import csv
import os
import re
import shutil
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "bench", "results", "accuracy")
PAGE = os.path.join(ROOT, "docs", "numerics.md")
PLOT = os.path.join(ROOT, "docs", "img", "accuracy.svg")
BEGIN, END = "<!-- accuracy tables: make accuracy -->\n", "<!-- end of accuracy tables -->\n"

# data, amplitude: what the table calls it
ROWS = [("normal", 1, "normal"), ("outliers", 1, "outliers"), ("student", 1, "Student-t"), ("channels", 1, "channels"),
        ("gradients", 1, "gradients"), ("normal", 1e-3, "normal, times 0.001"), ("normal", 100, "normal, times 100")]
WIRES = {"int8": "int8", "fp8": "fp8", "e4m3": "e4m3, no scales", "bf16": "bf16", "f32": "f32"}
STYLES = {"int8": ("#c0392b", "-"), "fp8": ("#1f618d", "-"), "e4m3": ("#b9770e", "--"), "bf16": ("#1e8449", "-")}


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return [{**row, **{key: float(row[key]) for key in ("amplitude", "ranks", "rms", "worst", "cosine", "lost")}}
                for row in csv.DictReader(file)]


def pick(rows, data, amplitude, wire):
    return [r for r in rows if (r["data"], r["amplitude"], r["wire"]) == (data, amplitude, wire)]


def cell(row, key):
    if key == "rms":
        return f"{row['rms']:.2g}" if row["rms"] < 1e-3 else f"{row['rms']:.4f}"
    if key == "worst":
        return f"{row['worst']:.1f}"
    return f"{row['cosine']:.6f}"


def table(rows, key, wires, shown):
    """A line for data and wire, a column for ranks; NaN: the share of elements that became it, if that is not 0."""
    ranks = sorted({r["ranks"] for r in rows if r["data"] == "normal"})
    lines = ["| data | wire | " + " | ".join(f"{n:.0f} ranks" for n in ranks) + " |", "|---|---|" + "---:|" * len(ranks)]
    for data, amplitude, name in shown:
        for wire in wires:
            cells = [cell(r, key) + (f" (NaN: {100 * r['lost']:.2g} %)" if r["lost"] else "")
                     for r in pick(rows, data, amplitude, wire)]
            if cells:
                lines.append(f"| {name} | {WIRES[wire]} | " + " | ".join(cells) + " |")
                name = ""
    return "\n".join(lines) + "\n"


def plot(rows):
    try:
        import matplotlib
    except ModuleNotFoundError:
        print("no matplotlib: docs/img/accuracy.svg stays as it was", file=sys.stderr)
        return
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "accuracy"
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10.5, 4.2), width_ratios=(2, 3), sharey=True)
    for wire, (colour, style) in STYLES.items():
        line = pick(rows, "normal", 1, wire)
        left.plot([r["ranks"] for r in line], [r["rms"] for r in line], style, color=colour, marker=".", label=WIRES[wire])
        line = [r for r in rows if r["data"] == "sweep" and r["wire"] == wire]
        right.plot([r["amplitude"] for r in line], [r["rms"] if not r["lost"] else float("nan") for r in line],
                   style, color=colour)
    left.set_xscale("log", base=2)
    left.set_xticks([2, 4, 8, 16, 32, 64], ["2", "4", "8", "16", "32", "64"])
    left.set_xlabel("ranks (normal data of size 1)")
    left.set_ylabel("relative RMS error of a sum")
    right.set_xscale("log")
    right.set_xticks([10.0**e for e in range(-40, 41, 10)])
    right.set_xlim(1e-41, 1e37)
    right.set_xlabel("size of the data (8 ranks, normal); a line ends where NaN begins")
    for axis in (left, right):
        axis.set_yscale("log")
        axis.set_ylim(1e-3, 2)
        axis.grid(True, alpha=0.3)
    figure.legend(loc="lower center", ncol=len(STYLES))
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    figure.savefig(PLOT, metadata={"Date": None})


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    rows = read(sys.argv[1])
    main_rows = table(rows, "rms", ("int8", "fp8", "e4m3", "bf16"), ROWS[:5]) + "\n" + \
        "At other amplitudes:\n\n" + table(rows, "rms", ("int8", "fp8", "e4m3"), ROWS[5:])
    text = open(PAGE, encoding="utf-8").read()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"{PAGE} has no place for the tables")
    text = re.sub(re.escape(BEGIN) + ".*" + re.escape(END), lambda _: BEGIN + main_rows + END, text, flags=re.S)
    with open(PAGE, "w", encoding="utf-8") as out:
        out.write(text)

    os.makedirs(RESULTS, exist_ok=True)
    shutil.copyfile(sys.argv[1], os.path.join(RESULTS, "accuracy.csv"))
    with open(os.path.join(RESULTS, "table.md"), "w", encoding="utf-8") as out:
        out.write("# Accuracy of sums in low precision\n\nMade by `make accuracy`; what is measured and what it means stands in "
                  "[numerics](../../../docs/numerics.md#low-precision).\n")
        for title, key, wires in (("Relative RMS error", "rms", tuple(WIRES)),
                                  ("Greatest error, in units of the largest scale its element met", "worst", ("int8", "fp8")),
                                  ("Cosine", "cosine", tuple(WIRES))):
            out.write(f"\n## {title}\n\n" + table(rows, key, wires, ROWS))
    plot(rows)


if __name__ == "__main__":
    main()
