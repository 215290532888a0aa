#!/bin/bash
# Tuner plug-ins of every version choose algorithms: rank 0's for all ranks. What makes no sense is told once and left out.
set -u
echo "# timeout 300"
. "$(dirname "$0")/tap.inc"
trap 'rm -rf "$folder"' EXIT
plugins=$(cd "$build/tests/plugin" && pwd) || skip_all "the plug-ins are not built (ninja plugins)"
export LD_LIBRARY_PATH=$plugins RCCLX_INIT_TIMEOUT=30 NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING
unset NCCL_TUNER_PLUGIN NCCL_NET_PLUGIN NCCL_ALGO RCCLX_ALGO RCCLX_TUNE_FILE
port=$((28000 + $$ % 4000))
declare -A settings # of a rank

# run MACHINES BYTES: an all-reduce of so many bytes, checked, by a rank a machine named
run() {
    local where=($1) r
    port=$((port + 7))
    rm -f "$folder"/out.* "$folder"/code.*
    for r in "${!where[@]}"; do
        (
            NCCL_HOSTID=${where[r]} RANK=$r WORLD_SIZE=${#where[@]} LOCAL_RANK=$r MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
                env ${settings[$r]:-} timeout 60 "$build/bin/rcclx" perf all_reduce --device host -b "$2" -e "$2" --iters 3 -w 1 \
                >"$folder/out.$r" 2>&1
            echo $? >"$folder/code.$r"
        ) &
    done
    wait
    grep -h . "$folder"/out.*
    [ "$(cat "$folder"/code.* | sort -u)" = 0 ] && grep -q "Out of bounds values : 0 OK" "$folder/out.0"
}

# says PATTERN: every rank's log has it
says() {
    local out
    for out in "$folder"/out.*; do
        grep -qE "$1" "$out" || { echo "$out does not say: $1"; return 1; }
    done
}

times() { # PATTERN NUMBER: so often in all logs together
    local n
    n=$(cat "$folder"/out.* | grep -cE "$1")
    [ "$n" = "$2" ] || { echo "$n times, not $2: $1"; return 1; }
}

# chooses NAME ALGO,PROTO MACHINES
chooses() {
    export RCCLX_TEST_TUNER=$2
    run "$3" 1M && says "AllReduce up to 1048576 bytes: algorithm $1 .*by the tuner"
}

for version in 2 3 4 5 6; do
    export NCCL_TUNER_PLUGIN=sample$version
    is "version $version: a ring, on one machine" chooses ring 1,2 "a a a"
    is "version $version: a tree, on three" chooses tree 0,2 "a b c"
done
is "NVLS is direct" chooses direct 4,2 "a a"
is "NVLSTree is levels" chooses levels 5,2 "a a b b"
is "CollNetDirect is staged" chooses staged 2,2 "a b b"
is "PAT is doubling" chooses doubling 6,2 "a a b b"

small() { # below what it speaks of
    export RCCLX_TEST_TUNER=1,2
    run "a a a" 16K && times "by the tuner" 0
}
is "where it does not say anything, all is as without it" small

rank_0_alone() {
    settings=([1]="NCCL_TUNER_PLUGIN=none" [2]="NCCL_TUNER_PLUGIN=none")
    chooses ring 1,2 "a a b"
    local ok=$?
    settings=()
    return $ok
}
is "rank 0's choice is that of ranks without a tuner" rank_0_alone

others_alone() {
    settings=([0]="NCCL_TUNER_PLUGIN=none")
    run "a a b" 1M && times "by the tuner" 0
    local ok=$?
    settings=()
    return $ok
}
is "a tuner on other ranks than 0 is not asked" others_alone

over() {
    export RCCLX_TEST_TUNER=1,2
    NCCL_ALGO=tree run "a b c" 1M && says "algorithm tree" && times "by the tuner" 0
}
is "NCCL_ALGO wins over it" over

ordered() {
    export RCCLX_TEST_TUNER=1,2
    RCCLX_ORDERED=1 run "a a a" 1M && times "algorithm (ring|tree) " 0
}
is "RCCLX_ORDERED wins over it" ordered

# broken VERSION FAIL PATTERN: told once, by rank 0; nothing else changes
broken() {
    export NCCL_TUNER_PLUGIN=sample$1 RCCLX_TEST_TUNER_FAIL=$2 RCCLX_TEST_TUNER=1,2
    run "a a a" 1M && times "WARN TUNER/Plugin: Sample \(sample$1\): $3" "$comms" && times "by the tuner" 0
    local ok=$?
    unset RCCLX_TEST_TUNER_FAIL
    return $ok
}
comms=2 # of a run of rcclx perf: its own, and the one it measures
is "an algorithm that there is not" broken 2 nonsense "some of its answers are left out: a cost that is no number"
is "a cost that is no number" broken 4 nonsense "some of its answers are left out: a cost that is no number"
is "an error" broken 3 ask "some of its answers are left out: internal error"
is "an init that fails" broken 5 init "its init failed: system error: sample: not in the mood"

absent() {
    NCCL_TUNER_PLUGIN=nosuch run "a a" 1M && grep -q "WARN TUNER/Plugin: nosuch is not used: .*libnccl-tuner-nosuch.so" "$folder/out.0"
}
is "a tuner that is missing is told" absent

inside_network() { # a library that has both is not at hand; one that is named as a network's and has a tuner will do
    cp "$plugins/libnccl-tuner-sample3.so" "$folder/libnccl-net-both.so"
    export RCCLX_TEST_TUNER=1,2
    unset NCCL_TUNER_PLUGIN
    LD_LIBRARY_PATH=$folder NCCL_NET_PLUGIN=both run "a a" 1M && says "algorithm ring .*by the tuner"
}
is "a tuner in the network's plug-in" inside_network
end
