#!/bin/sh
# The documents say what is so: links lead somewhere, files and commands named
# are there, quotations are equal to what they quote, and the edits that the
# howtos show fit the sources and compile.
exec python3 - "${RCCLX_BUILD:-build}" <<'END'
import os, re, shutil, subprocess, sys, tempfile

build = sys.argv[1]
pages = sorted(os.path.join(where, name)[2:]
               for where, folders, names in os.walk(".")
               if not folders.__setitem__(slice(None), [f for f in folders if not re.match(r"build|\.|shared$", f)])
               for name in names if name.endswith(".md"))
text = {page: open(page, encoding="utf-8").read() for page in pages}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
number = failed = 0


def report(name, faults):
    global number, failed
    number += 1
    for fault in faults:
        print("#", fault)
    print(f"{'not ok' if faults else 'ok'} {number} - {name}")
    failed |= bool(faults)


def prose(page):
    return FENCE.sub("", text[page])


def anchors(page):
    heads = re.findall(r"^#+ (.*)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def links():
    for page in pages:
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            there = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.exists(there):
                yield f"{page}: {target} leads nowhere"
            elif anchor and anchor not in anchors(there):
                yield f"{page}: {there} has no heading #{anchor}"


# Paths from the root, or from src, in backticks: `src/exec/coll.c`, `exec/coll.c`.
def paths():
    for page in pages:
        for path in re.findall(r"`((?:src|base|device|plan|algo|transport|exec|comm|api|include|tests|docs|tools|bench|check|examples)"
                               r"/[\w./-]+\.(?:c|h|sh|md|py|map))`", prose(page)):
            new = re.search(r"^\+\+\+ b/" + re.escape(path) + "$", text[page], re.M)
            if not new and not any(os.path.exists(os.path.join(root, path)) for root in (".", "src", "include", os.path.dirname(page) or ".")):
                yield f"{page}: there is no {path}"


def quotations():
    found = 0
    for page in pages:
        for source, block in re.findall(r"<!-- from (\S+) -->\n```\w*\n(.*?)^```$", text[page], re.M | re.S):
            found += 1
            if not os.path.exists(source):
                yield f"{page}: quotes {source}, which is not there"
            elif "\n" + block not in "\n" + open(source, encoding="utf-8").read():
                yield f"{page}: this is not in {source} (any more):\n# " + block.replace("\n", "\n# ")
    if not found:
        yield "nothing is quoted"


def targets():
    makefile = open("Makefile", encoding="utf-8").read()
    return set(re.search(r"^\.PHONY:(.*)$", makefile, re.M).group(1).split())


def subcommand(word, option):
    """`rcclx word` is known, and, if an option is given, its help tells of it."""
    said = subprocess.run([f"{build}/bin/rcclx", word, "--help"], capture_output=True, text=True)
    return said.returncode == 0 and (not option or re.search(r"(?<![\w-])" + re.escape(option) + r"(?![\w-])", said.stdout))


def commands():
    made, known, found = targets(), {}, 0
    for page in pages:
        lines = [line for lang, block in FENCE.findall(text[page]) if lang in ("", "sh") for line in block.splitlines()]
        lines += re.findall(r"^    (\S.*)$", text[page], re.M) + re.findall(r"`([^`\n]+)`", prose(page))
        for line in lines:
            line = re.sub(r"(^|\s)#\s.*", "", line).strip()
            for word in re.findall(r"^make ((?!-)[\w-]+)(?!\S*=)", line):
                found += 1
                if word not in made:
                    yield f"{page}: `{line}`: make has no target {word}"
            for word, rest in re.findall(r"^(?:\w+=\S+ )*(?:build/bin/)?rcclx (\w+)((?: [^|>]*)?)", line):
                for option in [o.partition("=")[0] for o in re.split(r" -- ", rest)[0].split() if re.match(r"--?[a-zA-Z]", o)] + [""]:
                    found += 1
                    if (word, option) not in known:
                        known[word, option] = subcommand(word, option)
                    if not known[word, option]:
                        yield f"{page}: `{line}`: rcclx knows no {word} {option}"
            for path in re.findall(r"\bbuild/((?:bin|lib)/[\w./]+)", line):
                found += 1
                if not os.path.exists(os.path.join(build, path)):
                    yield f"{page}: `{line}`: the build makes no {path}"
    if found < 10:
        yield f"only {found} commands were found"


# A howto's edits: unified diffs without line numbers. What is there must be found
# in the file, once, and is replaced.
def edit(page, tree):
    changed = []
    for lang, block in FENCE.findall(text[page]):
        if lang != "diff":
            continue
        for path, hunks in re.findall(r"^\+\+\+ b/(\S+)\n(.*?)(?=^--- |\Z)", block, re.M | re.S):
            there = os.path.join(tree, path)
            body = open(there, encoding="utf-8").read() if os.path.exists(there) else ""
            for hunk in filter(None, re.split(r"^@@.*\n", hunks, flags=re.M)):
                lines = hunk.splitlines(keepends=True)
                old = "".join(line[1:] or "\n" for line in lines if line[0] != "+")
                new = "".join(line[1:] or "\n" for line in lines if line[0] != "-")
                if old and body.count(old) != 1:
                    yield f"{page}: its edit of {path} does not fit (found {body.count(old)} times):\n# " + old.replace("\n", "\n# ")
                body = body.replace(old, new) if old else body + new
            with open(there, "w", encoding="utf-8") as out:
                out.write(body)
            changed.append(path)
    if not changed:
        yield f"{page}: shows no edit"
    compiled = {re.sub(r"_body\.h$", "_baseline.c", path) for path in changed} # a body by who compiles it
    for path in sorted(compiled):
        if path.endswith(".c") and os.path.exists(os.path.join(tree, path)):
            said = subprocess.run(["cc", "-std=c17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror",
                                   "-fsyntax-only", "-Isrc", "-Iinclude", path], cwd=tree, capture_output=True, text=True)
            if said.returncode:
                yield f"{page}: {path}, edited, does not compile:\n# " + said.stderr.replace("\n", "\n# ")


def edited(page):
    with tempfile.TemporaryDirectory() as tree:
        for folder in ("src", "include"):
            shutil.copytree(folder, os.path.join(tree, folder))
        for file in ("CMakeLists.txt", "docs/environment.md"):
            os.makedirs(os.path.dirname(os.path.join(tree, file)), exist_ok=True)
            shutil.copy(file, os.path.join(tree, file))
        return list(edit(page, tree))


# Each stop of the tour ends by naming the next one.
def tour():
    page = "docs/tour.md"
    stops = re.findall(r"^## \d+\. `(\S+)`$", text[page], re.M)
    says = re.findall(r"^Next: `(\S+)`", text[page], re.M)
    if len(stops) < 8:
        yield f"{page}: only {len(stops)} stops"
    if says != stops[1:]:
        yield f"{page}: the stops are {stops}, but the next ones named are {says}"
    for stop in stops:
        if not os.path.exists(stop):
            yield f"{page}: there is no {stop}"


report("links lead somewhere", list(links()))
report("files that are named exist", list(paths()))
report("quotations are equal to their source", list(quotations()))
report("commands exist, with their options", list(commands()))
report("each stop of the tour names the next", list(tour()))
for name in ("transport", "device", "option", "codec"):
    report(f"the edits of howto/{name} fit and compile", edited(f"docs/howto/{name}.md"))
print(f"1..{number}")
sys.exit(failed)
END
