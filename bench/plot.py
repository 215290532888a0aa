"""plot.py RESULTS.json: writes ratio.svg and time.svg beside it."""
import json
import os
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "bench"
matplotlib.rcParams["svg.fonttype"] = "none"
from matplotlib import pyplot

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import report

COLOURS = {"rcclx": "#c0392b", "rcclx-plain": "#e59866", "ompi": "#1f618d", "ompi-sm": "#5499c7",
           "ompi-ucx": "#7fb3d5", "mpich": "#1e8449", "mpich-rg": "#7dcea0"}


def grid(result, draw, ylabel, path):
    """A row a number of ranks, a column a collective."""
    ranks = list(dict.fromkeys(c["ranks"] for c in result["cells"]))
    colls = list(dict.fromkeys(c["coll"] for c in result["cells"]))
    figure, axes = pyplot.subplots(len(ranks), len(colls), figsize=(3.4 * len(colls), 2.8 * len(ranks)),
                                   sharex=True, squeeze=False)
    for i, n in enumerate(ranks):
        for j, coll in enumerate(colls):
            axis = axes[i][j]
            draw(axis, n, coll)
            axis.set_xscale("log", base=2)
            axis.set_title(f"{coll}, {n} ranks", fontsize=9)
            axis.grid(True, alpha=0.3)
            axis.set_xticks([8, 512, 32 << 10, 1 << 20, 64 << 20])
            axis.xaxis.set_major_formatter(lambda x, _: report.size_text(int(x)))
            axis.tick_params(labelsize=8)
            if j == 0:
                axis.set_ylabel(ylabel, fontsize=8)
    handles = {text: line for row in axes for axis in row for line, text in zip(*axis.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncol=max(1, len(handles)), fontsize=8)
    figure.tight_layout(rect=(0, 0.06 if len(ranks) > 1 else 0.12, 1, 1))
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def draw_times(result):
    def draw(axis, n, coll):
        axis.set_yscale("log")
        cells = [c for c in result["cells"] if (c["ranks"], c["coll"], c["mode"]) == (n, coll, "dirty")]
        for name in dict.fromkeys(c["name"] for c in cells):
            line = [(c["nbytes"], report.median(c["us"])) for c in cells if c["name"] == name]
            axis.plot(*zip(*sorted(line)), color=COLOURS.get(name), label=name, marker=".", markersize=4,
                      linewidth=2 if name in report.OURS else 1)
    return draw


def draw_ratios(result):
    records = list(report.ratios(result))

    def draw(axis, n, coll):
        axis.axhline(1, color="black", linewidth=0.8)
        for name in report.OURS:
            for mode, style in (("dirty", "-"), ("hot", ":")):
                line = sorted((r["nbytes"], r["ratio"], r["bar"]) for r in records if
                              (r["ranks"], r["coll"], r["name"], r["mode"]) == (n, coll, name, mode))
                if line:
                    axis.plot([x[0] for x in line], [x[1] for x in line], style, color=COLOURS[name], marker=".",
                              label=f"{name}, {mode}")
                if line and mode == "dirty" and name == "rcclx":
                    axis.plot([x[0] for x in line], [x[2] for x in line], color="grey", linewidth=0.8,
                              linestyle="--", label="bar")
        axis.set_ylim(bottom=0)
    return draw


def main():
    with open(sys.argv[1]) as f:
        result = json.load(f)
    folder = os.path.dirname(os.path.abspath(sys.argv[1]))
    grid(result, draw_times(result), "microseconds, dirty", os.path.join(folder, "time.svg"))
    if any(True for _ in report.ratios(result)):
        grid(result, draw_ratios(result), "ours / best peer", os.path.join(folder, "ratio.svg"))


if __name__ == "__main__":
    main()
