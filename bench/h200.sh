#!/bin/bash
# bench/h200.sh [-n RANKS] [--out FOLDER] [--minutes N] [--nccl FILE|none] [--ways WAY,...] [--emulated]
#
#   bench/h200.sh                                  on all GPUs of this machine, in less than 9 minutes
#   bench/h200.sh -n 4 --out /some/folder          on four of them
#   bench/h200.sh --emulated -n 2 --minutes 2      no GPU and no NCCL: shows that it works
#
# Builds; measures beside NCCL what matters most; runs a sample of the conformance tests; measures the
# rest; and, while time is left, all of it again. What there is no time for is left out from the end:
#
#   build | all_reduce | in int8 | all_gather, reduce_scatter, alltoall | tests: 60 s | others | all again
#
# FOLDER (bench/results/h200xN) gets h200.json, h200.md, h200.svg (with matplotlib), build.txt, conform.txt.
# A run that fails is told at the end of the table, the others go on. Exit status: 0 when it measured.
set -u
cd "$(dirname "$0")/.." || exit 1

n= out= minutes=8.5 nccl= ways=default,register,window emulated= conform=
usage() {
    sed -n '2,/^set/s/^# \{0,1\}//p' bench/h200.sh >&2
    exit 2
}
while [ $# -gt 0 ]; do
    case $1 in
    --emulated) emulated=1 && shift && continue ;;
    -n | --out | --minutes | --nccl | --ways | --conform) [ $# -gt 1 ] || usage ;;
    *) usage ;;
    esac
    case $1 in
    -n) n=$2 ;;
    --out) out=$2 ;;
    --minutes) minutes=$2 ;;
    --nccl) nccl=$2 ;;
    --ways) ways=$2 ;;
    --conform) conform=$2 ;; # only the tests, so many seconds; this is how it calls itself
    esac
    shift 2
done

export RCCLX_BUILD=${RCCLX_BUILD:-build}
case $RCCLX_BUILD in /*) build=$RCCLX_BUILD ;; *) build=$PWD/$RCCLX_BUILD ;; esac
gpus() {
    local listed
    listed=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
    [ "$listed" != 0 ] || listed=$(ls -d /dev/nvidia[0-9]* 2>/dev/null | wc -l)
    echo "$listed"
}
if [ -n "$emulated" ]; then
    n=${n:-2} device=emu
    out=${out:-$build/bench/emulatedx$n}
    export RCCLX_EMU_DEVICES=$n
else
    n=${n:-$(gpus)} device=cuda
fi
case $n in '' | 0 | *[!0-9]*) echo "h200: no GPUs here, or -n is no number; --emulated does without" >&2 && exit 1 ;; esac
out=${out:-bench/results/h200x$n}
mkdir -p "$out" || exit 1
left() { awk -v m="$minutes" -v s=$SECONDS -v keep="$1" 'BEGIN { print int(60 * m - s - keep) }'; }

# ---- the tests: each on teams of n ranks, and of 8 ranks that share GPUs

# one PROGRAM RANKS SECONDS: a line of what came of it, after its own output in conform.txt
one() {
    local log=$out/conform.txt from code right wrong note= start=$SECONDS
    printf '\n== %s, %s ranks\n' "$1" "$2" >>"$log"
    from=$(wc -l <"$log")
    RCCLX_TEST_DEVICE=$device RCCLX_TEST_RANKS=$2 RCCLX_TEST_SEED=${RCCLX_TEST_SEED:-0} \
        timeout -k 3 "$3" "$build/tests/gpu/$1" a_sample >>"$log" 2>&1 </dev/null
    code=$?
    right=$(tail -n "+$from" "$log" | grep -c '^ok .* ranks')
    wrong=$(tail -n "+$from" "$log" | grep -c '^not ok .* ranks')
    case $code in
    0 | 1) [ "$right$wrong" != 00 ] || note=": nothing ran, see conform.txt" ;;
    124 | 137) note=", then its time was over, $(($(date +%s) - $(stat -c %Y "$log"))) s after the last line" ;;
    *) note=": ended with $code" ;;
    esac
    echo "$1, $2 ranks: $right right, $wrong wrong in $((SECONDS - start)) s$note" >>"$log"
}

if [ -n "$conform" ]; then
    : >"$out/conform.txt"
    each=$((conform / (n == 8 ? 2 : 4)))
    for ranks in $n $([ "$n" = 8 ] || echo 8); do
        one conform_collectives "$ranks" $each
        one conform_coded "$ranks" $each
    done
    exit 0
fi

# ---- the build

for tool in cmake cc $([ -n "$emulated" ] || echo nvcc); do
    command -v "$tool" >/dev/null || [ -x "/usr/local/cuda/bin/$tool" ] || [ -x "build/cuda/bin/$tool" ] ||
        { timeout -k 5 100 scripts/setup build gpu && break; }
done
make_targets() { timeout -k 5 "$(left 30)" cmake --build "$build" --parallel "$(nproc)" --target "$@"; }
build_all() {
    local new=() gpu=${emulated:+off}
    [ -e "$build/CMakeCache.txt" ] || ! command -v ninja >/dev/null || new=(-G Ninja)
    [ -n "$emulated" ] && [ -e "$build/CMakeCache.txt" ] ||
        cmake -S . -B "$build" "${new[@]}" -DRCCLX_GPU="${gpu:-auto}" || return
    make_targets tool nccl || return
    make_targets test_gpu_conform_collectives test_gpu_conform_coded || echo "h200: no tests, going on without"
}
rm -f "$out"/{h200.json,h200.md,h200.svg,conform.txt}
if ! build_all >"$out/build.txt" 2>&1; then
    tail -n 20 "$out/build.txt"
    echo "h200: the build failed, see $out/build.txt"
    exit 1
fi
echo "h200: built in $SECONDS s"

# ---- measuring, with the tests in between

options=(--rcclx "$build/bin/rcclx" --out "$out" --name h200 --short --device $device --ranks "$n" --limit 75)
if [ -n "$emulated" ]; then
    options+=(--max 256K --iters 2 --launches 1 --repeats 2 --rounds 1)
    nccl=none
else
    options+=(--ways "$ways")
    [ -n "$nccl" ] || python3 -c "import nvidia.nccl" 2>/dev/null ||
        { nccl=none && echo "h200: no NCCL here (pip install nvidia-nccl-cu13), ours is measured alone"; }
fi
check=$(printf '%q ' bench/h200.sh ${emulated:+--emulated} -n "$n" --out "$out" --conform)
timeout -k 10 "$(left 5)" python3 bench/gpu "${options[@]}" ${nccl:+--nccl "$nccl"} --check "$check" \
    --minutes "$(awk -v s="$(left 20)" 'BEGIN { print s / 60 }')"
if [ $? -ge 124 ]; then
    echo "h200: the time was over"
    timeout -k 5 20 python3 bench/gpu --again "$out/h200.json" --short
fi
[ ! -e "$out/conform.txt" ] || grep '^conform_' "$out/conform.txt" || echo "conformance: nothing ended, see conform.txt"
grep -q '"us"' "$out/h200.json" 2>/dev/null
