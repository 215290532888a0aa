"""Ratios, bars, tables and files of bench/run. Reads nothing but the result:

    { machine: {...}, versions: {back-end: text},
      cells: [ {ranks, coll, nbytes, mode, name, wrong,
                us: [one a pass, null where left out], crossing: [nanoseconds between cores, just before]} ] }

    report.py RESULTS.json      prints the tables again
"""
import csv
import json
import os
import platform
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OURS = ("rcclx", "rcclx-plain")

# The most that ours may take over the best peer, 2 ranks: by size up to ...
STEPS = (512, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 16 << 20, 64 << 20)
BARS = {
    ("rcclx", "all_reduce"):       (0.75, 0.38, 0.35, 0.28, 0.37, 0.42, 0.33),
    ("rcclx", "reduce_scatter"):   (0.60, 0.70, 0.50, 0.42, 0.45, 0.50, 0.45),
    ("rcclx", "all_gather"):       (0.80, 0.88, 0.75, 0.70, 0.75, 0.85, 0.55),
    ("rcclx", "alltoall"):         (0.80, 0.88, 0.75, 0.70, 0.75, 0.85, 0.55),
    ("rcclx", "broadcast"):        (1.05, 0.62, 0.58, 0.50, 0.38, 0.42, 0.30),
    ("rcclx-plain", "all_reduce"): (0.78, 0.60, 0.55, 0.78, 1.00, 1.05, 0.72),
}
# ... and with 4 and 8: these sizes of all_reduce, small broadcasts, all else.
CROWDED = {8: 0.55, 256 << 10: 0.27, 16 << 20: 0.27}
SMALL_BROADCAST, ELSE = 1.20, 1.05
# Over machines, all_reduce: small ones with a rank a machine, with more; and from 64 MiB on.
FAR_SMALL, FAR_ALONE, FAR_CROWDED, FAR_LARGE = 4 << 10, 0.75, 1.00, 0.95


def far_bar(coll, nranks, nbytes, machines):
    if coll != "all_reduce" or FAR_SMALL < nbytes < 64 << 20:
        return None
    return FAR_LARGE if nbytes > FAR_SMALL else FAR_ALONE if nranks == machines else FAR_CROWDED


def bar(name, coll, nranks, nbytes, mode, machines=0):
    """None where nothing was promised: loops on unchanged buffers with 2 ranks."""
    if machines:
        return far_bar(coll, nranks, nbytes, machines)
    if nranks == 2:
        if mode != "dirty":
            return None
        return next((b for step, b in zip(STEPS, BARS[name, coll]) if nbytes <= step), None)
    if name == "rcclx" and coll == "all_reduce":
        return CROWDED.get(8 if nbytes <= 4 * nranks else nbytes, ELSE)
    if coll == "broadcast" and nbytes <= 4 << 10:
        return SMALL_BROADCAST
    return ELSE


def times(us):
    return [t for t in us if t is not None]


def median(us):
    """Of the passes that were made; None if none was."""
    values = sorted(times(us))
    if not values:
        return None
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def size_text(nbytes):
    for shift, unit in ((20, "M"), (10, "K")):
        if nbytes >= 1 << shift and nbytes % (1 << shift) == 0:
            return f"{nbytes >> shift}{unit}"
    return str(nbytes)


def bus_gbs(cell):
    """nccl-tests' bus bandwidth."""
    n = cell["ranks"]
    factor = {"all_reduce": 2 * (n - 1) / n, "broadcast": 1}.get(cell["coll"], (n - 1) / n)
    return factor * cell["nbytes"] / median(cell["us"]) / 1e3


def crossings(result):
    return sorted(t for cell in result["cells"] for t in times(cell["crossing"]))


def like(a, b, passes):
    """Those passes in which both back-ends met the same cores: as near to each
    other, within a third. All of them if those are fewer than three."""
    pairs = {p: sorted((a["crossing"][p], b["crossing"][p])) for p in passes}
    same = [p for p, (low, high) in pairs.items() if high < 4 / 3 * low]
    return same if len(same) >= 3 else passes


def ratio(ours, peer):
    both = [p for p, pair in enumerate(zip(ours["us"], peer["us"])) if None not in pair]
    return median([ours["us"][p] / peer["us"][p] for p in like(ours, peer, both)])


def ratios(result):
    """One record a cell of ours that has a peer. The best peer is the one with
    the smallest median; the ratio is the median of the passes' ratios, since
    the two were measured next to each other in each pass."""
    groups = {}
    for cell in result["cells"]:
        key = cell["ranks"], cell["mode"], cell["coll"], cell["nbytes"]
        groups.setdefault(key, []).append(cell)
    for (nranks, mode, coll, nbytes), cells in groups.items():
        peers = [cell for cell in cells if cell["name"] not in OURS]
        if not peers:
            continue
        best = min(peers, key=lambda cell: median(cell["us"]))
        for cell in cells:
            if cell["name"] in OURS:
                yield dict(ranks=nranks, mode=mode, coll=coll, nbytes=nbytes, name=cell["name"],
                           us=median(cell["us"]), peer=best["name"], peer_us=median(best["us"]),
                           ratio=ratio(cell, best),
                           bar=bar(cell["name"], coll, nranks, nbytes, mode, result.get("machines", 0)))


def time_text(us):
    return f"{us:.2f}" if us < 10 else f"{us:.1f}" if us < 100 else f"{us:.0f}"


def table(records, nranks, mode):
    """Ratio, below it "ours / best peer" in microseconds."""
    sizes = sorted({r["nbytes"] for r in records})
    lines = [f"{nranks} ranks, {mode}: ours over the best peer (microseconds of both); * above the bar", "",
             "| | " + " | ".join(map(size_text, sizes)) + " |", "|---" * (len(sizes) + 1) + "|"]
    for name, coll in dict.fromkeys((r["name"], r["coll"]) for r in records):
        row = {r["nbytes"]: r for r in records if (r["name"], r["coll"]) == (name, coll)}
        words = []
        for nbytes in sizes:
            r = row.get(nbytes)
            late = r and r["bar"] is not None and r["ratio"] > r["bar"]
            words.append(f"{r['ratio']:.2f}{'*' if late else ''} ({time_text(r['us'])} / {time_text(r['peer_us'])})"
                         if r else "")
        lines.append(f"| {coll}{', plain' if name == 'rcclx-plain' else ''} | " + " | ".join(words) + " |")
    return align(lines)


def align(lines):
    rows = [[word.strip() for word in line.strip("|").split("|")] for line in lines[2:]]
    wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    rows[1] = ["-" * w for w in wide]
    return "\n".join(lines[:2] + ["| " + " | ".join(w.ljust(n) for w, n in zip(row, wide)) + " |" for row in rows])


def peer_table(result, nranks, mode):
    """When ours was not measured: microseconds of every peer."""
    cells = [c for c in result["cells"] if c["ranks"] == nranks and c["mode"] == mode]
    sizes = sorted({c["nbytes"] for c in cells})
    lines = [f"{nranks} ranks, {mode}: microseconds", "",
             "| | " + " | ".join(map(size_text, sizes)) + " |", "|---" * (len(sizes) + 1) + "|"]
    for coll, name in dict.fromkeys((c["coll"], c["name"]) for c in cells):
        row = {c["nbytes"]: time_text(median(c["us"])) for c in cells if (c["coll"], c["name"]) == (coll, name)}
        lines.append(f"| {coll}, {name} | " + " | ".join(row.get(s, "") for s in sizes) + " |")
    return align(lines)


def tables(result):
    records = list(ratios(result))
    parts = []
    for nranks, mode in dict.fromkeys((c["ranks"], c["mode"]) for c in result["cells"]):
        here = [r for r in records if r["ranks"] == nranks and r["mode"] == mode]
        parts.append(table(here, nranks, mode) if here else peer_table(result, nranks, mode))
    flags = crossings(result)
    low, middle, high = (flags[len(flags) * tenth // 10] for tenth in (1, 5, 9))
    parts.append(f"A flag between two cores took {middle:.0f} ns (a tenth of the time below {low:.0f}, a tenth above "
                 f"{high:.0f})" + (": the cores moved about during the run" if high > 1.5 * low else ""))
    barred = [r for r in records if r["bar"] is not None]
    if barred:
        late = sorted((r for r in barred if r["ratio"] > r["bar"]), key=lambda r: r["bar"] / r["ratio"])
        parts.append("\n".join([f"{len(barred) - len(late)} of {len(barred)} ratios within their bars"] + [
            f"- {r['ranks']} ranks, {r['mode']}, {r['coll']}{', plain' if r['name'] == 'rcclx-plain' else ''}, "
            f"{size_text(r['nbytes'])}: {r['ratio']:.2f}, bar {r['bar']:.2f} ({r['peer']})" for r in late]))
    return "\n\n".join(parts)


# ---- the machine, and files -------------------------------------------------

def machine():
    facts = dict(arch=platform.machine(), kernel=platform.release(), cores=len(os.sched_getaffinity(0)))
    with open("/proc/cpuinfo") as f:
        for line in f:
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "cpu family", "model", "CPU implementer", "CPU part", "flags"):
                facts.setdefault(key.strip(), value.strip())
    flags = facts.pop("flags", "").split()
    facts["vector"] = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else ""
    return facts


def machine_name():
    m = machine()
    words = [m.get("model name") or m["arch"], m.get("cpu family") or m.get("CPU implementer", ""),
             m.get("model") or m.get("CPU part", ""), f"{m['cores']} cores"]
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")


def write(result, folder):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "results.json")
    with open(path, "w") as f:
        cells = ",\n  ".join(json.dumps(dict(cell, us=[us and round(us, 4) for us in cell["us"]]))
                             for cell in result["cells"])
        f.write('{"machine": %s,\n "versions": %s,\n "cells": [\n  %s\n]}\n'
                % (json.dumps(result["machine"]), json.dumps(result["versions"]), cells))
    with open(os.path.join(folder, "results.csv"), "w", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(("ranks", "mode", "collective", "bytes", "backend", "median_us", "min_us", "max_us", "passes",
                      "busbw_gbs", "wrong"))
        for c in result["cells"]:
            us = times(c["us"])
            out.writerow((c["ranks"], c["mode"], c["coll"], c["nbytes"], c["name"], f"{median(us):.3f}",
                          f"{min(us):.3f}", f"{max(us):.3f}", len(us), f"{bus_gbs(c):.3f}", c["wrong"]))
    with open(os.path.join(folder, "table.md"), "w") as f:
        m = result["machine"]
        f.write(f"{m.get('model name', m['arch'])}, {m['cores']} cores, {m['vector'] or m['arch']}, "
                f"Linux {m['kernel']}\n\n")
        f.writelines(f"- {name}: {text}\n" for name, text in result["versions"].items())
        f.write("\n" + tables(result) + "\n")
    plot(path)


def plot(path):
    """With the first python that has matplotlib; without one there is no plot."""
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            if subprocess.run([python, "-c", "import matplotlib"], capture_output=True).returncode == 0:
                subprocess.run([python, os.path.join(HERE, "plot.py"), path])
                return
        except OSError:
            continue
    print("bench: no plot, since matplotlib is not installed", file=sys.stderr)


if __name__ == "__main__":
    with open(sys.argv[1]) as results:
        print(tables(json.load(results)))
