#!/bin/sh
# `rcclx plan`, `rcclx info`, `rcclx version`, `rcclx help`.
set -u
rcclx=${RCCLX_BUILD:-build}/bin/rcclx
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failed=0 number=0
unset NCCL_ALGO RCCLX_ALGO RCCL_ALGO

# is NAME COMMAND...: one test, passed if the command succeeds.
is() {
    name=$1
    shift
    number=$((number + 1))
    if "$@" >"$folder/said" 2>&1; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        sed 's/^/# /' "$folder/said"
        failed=1
    fi
}

# ends CODE ARGUMENTS...: rcclx ends with that code; out and err are kept.
ends() {
    want=$1
    shift
    "$rcclx" "$@" >"$folder/out" 2>"$folder/err"
    got=$?
    echo "exit code $got, expected $want"
    cat "$folder/out" "$folder/err"
    [ $got = "$want" ]
}

says() { # FILE PATTERN
    cat "$folder/$1"
    grep -qE "$2" "$folder/$1"
}

json() { # PYTHON-CONDITION over d
    cat "$folder/out"
    python3 -c "import json, sys; d = json.load(open('$folder/out')); sys.exit(not ($1))"
}

# --- plan

is "plan" ends 0 plan all_reduce -n 8 --size 64K
is "tells the decision" says out '^AllReduce of 8 ranks, 65536 bytes: [a-z]+ \('
is "marks the chosen one" says out '^\* [a-z]+ +[0-9.]+ us '
is "says why not the others" says out '^  slot +-  the message does not fit a slot$'
is "shows the steps" says out '^ +0 (wait|copy|signal|reduce) '
is "a small message fits the slot" ends 0 plan all_reduce -n 2 --size 64
is "and takes it" says out '2 ranks, 64 bytes: slot '
for kind in all_reduce reduce broadcast all_gather reduce_scatter alltoall alltoallv gather scatter; do
    is "$kind, all ranks, JSON" ends 0 plan $kind -n 3 --size 1M --rank all --json
    is "$kind: a plan a rank" json "len(d['plans']) == 3 and d['decision']['chosen'] and
        any(a['name'] == d['decision']['chosen'] for a in d['decision']['algorithms'])"
done
is "NCCL's spelling of a collective" ends 0 plan AllGather
is "--algo" ends 0 plan all_reduce -n 4 --algo ring
is "forces" says out ': ring \(forced\)'
is "the environment forces, too" env RCCLX_ALGO=tree sh -c "'$rcclx' plan all_reduce -n 4 --size 1M | grep ': tree (forced)'"
is "plain buffers rule out direct access" ends 0 plan all_reduce -n 4 --facts plain
is "and it says so" says out '^  direct +-  peers. input cannot be read in place$'
is "what is for GPUs can be shown" ends 0 plan all_reduce -n 3 --size 4K --algo ll
is "if named" says out '^ +0 copy +in@0.0.. -> ll@1.0. ll@2.0. +4.0 KiB$'
is "and is left alone else" ends 0 plan all_reduce -n 3 --size 4K --algo ll,ring
is "the host's goes before" says out ': ring \(forced\)'
is "it can be drawn" ends 0 plan all_reduce -n 3 --algo ll128_two --svg
is "and said in JSON" ends 0 plan gather -n 3 --algo ll128 --rank all --json
is "with slots and credit" json "all(p['pushes'] and p['credit'] and p['slots'] == 3 for p in d['plans'])"
is "--svg" ends 0 plan broadcast -n 4 --root 2 --svg
is "is XML" python3 -c "import xml.dom.minidom as m; assert m.parse('$folder/out').documentElement.tagName == 'svg'"

bad() {
    what=$1
    shift
    is "refused: plan $*" ends 2 plan "$@"
    is "says: $what" says err "^rcclx plan: .*$what"
}
bad 'which collective' -n 4
bad 'the nearest is all_reduce' allreduce2
bad 'goes to one peer' send
bad 'from 1 to 512' all_reduce -n 513
bad 'the nearest sizes are 0 and 4' all_reduce --size 3
bad 'the nearest is double' all_reduce --type doulbe
bad 'the ranks are 0 to 3' broadcast -n 4 --root 4
bad 'has no root' all_reduce --root 1
bad 'the ranks are 0 to 3' all_reduce -n 4 --rank 4
bad "'rnig' is no algorithm; the nearest is ring" all_reduce --algo rnig
bad 'there are mapped, cma and plain' all_reduce --facts none
bad 'the nearest is --size' all_reduce --szie 8
bad 'one of them' all_reduce --json --svg
is "plan --help" ends 0 plan --help

# --- info

is "info" ends 0 info
is "version" says out '^rcclx [0-9]+\.[0-9]+\.[0-9]+, API of NCCL 2\.28\.9$'
is "host device" says out '^  host +[0-9]+ cores .* instructions (avx512|avx2|neon|baseline)$'
is "GPU drivers, found or not" says out '^  cuda +(no|driver found)'
is "algorithms" says out '^  ring +.*NCCL_ALGO=Ring'
is "transports" says out '^  arena '
is "codecs" says out '^  int8 '
is "the machine model" says out '^  signal +[0-9]+ ns'
is "a setting in force" env NCCL_SOCKET_FAMILY=AF_INET sh -c "'$rcclx' info | grep '  NCCL_SOCKET_FAMILY=AF_INET  (environment)'"
is "info --json" ends 0 info --json
is "is valid" json "d['info']['devices']['host']['cores'] > 0 and len(d['info']['algorithms']) >= 6 and
    any(o['name'] == 'NCCL_DEBUG' for o in d['settings']['options'])"
is "info --options" ends 0 info --options
is "lists them with source and meaning" says out '^RCCLX_TIMEOUT=0 +\(default\)  '
is "info --options --json" ends 0 info --options --json
is "is valid, too" json "len(d['options']) > 10"
is "info --options --markdown" ends 0 info --options --markdown
is "is a page with every setting" [ "$(grep -c "^. .[A-Z]*_" "$folder/out")" -gt 30 ]
is "info with a word too many" ends 2 info all
is "--markdown alone" ends 2 info --markdown

# --- the rest

is "version" ends 0 version
is "names both versions" says out '^rcclx [0-9.]+ \(API of NCCL 2\.28\.9\)$'
is "help" ends 0 help
is "names the exit codes" says out 'Exit codes: 0 success'
is "help of a command" ends 0 help run
is "is that of the command" says out '^rcclx run \[-n N\]'
is "nothing at all" ends 2
is "an unknown command" ends 2 pref
is "gets the nearest" says err "^rcclx: unknown command 'pref'; the nearest is 'perf'"

echo "1..$number"
exit $failed
