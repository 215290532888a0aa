#!/bin/bash
# Network plug-ins of every version carry collectives and messages between machines (which are
# this one under several names), and what goes wrong with them is told.
set -u
echo "# timeout 600"
. "$(dirname "$0")/tap.inc"
trap 'rm -rf "$folder"' EXIT
plugins=$(cd "$build/tests/plugin" && pwd) || skip_all "the plug-ins are not built (ninja plugins)"
export LD_LIBRARY_PATH=$plugins RCCLX_INIT_TIMEOUT=30 NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=NET RCCLX_TEST_PLUGIN_LOOPBACK=1
unset NCCL_NET NCCL_NET_PLUGIN NCCL_SOCKET_IFNAME
port=$((20000 + $$ % 8000))
declare -A settings # of a rank, more than those of all

# start MACHINES COMMAND...: a rank a machine named in the list "a a b"; out.R and code.R are kept.
start() {
    local where=($1) r
    shift
    port=$((port + 7))
    rm -f "$folder"/out.* "$folder"/code.* "$folder"/pid.*
    for r in "${!where[@]}"; do
        (
            NCCL_HOSTID=${where[r]} RANK=$r WORLD_SIZE=${#where[@]} LOCAL_RANK=$r MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
                env ${settings[$r]:-} sh -c 'echo $$ >"$0"; exec "$@"' "$folder/pid.$r" "$@" >"$folder/out.$r" 2>&1
            echo $? >"$folder/code.$r"
        ) &
    done
}

# perf MACHINES COLLECTIVE FROM TO [MORE]
perf() {
    start "$1" timeout 60 "$build/bin/rcclx" perf "$2" --device host -b "$3" -e "$4" -f 16 --iters 3 -w 1 "${@:5}"
}

# right PATTERN: all ranks end well, the results are right, and every rank's log has it.
right() {
    local out
    wait
    grep -h . "$folder"/out.*
    [ "$(cat "$folder"/code.* | sort -u)" = 0 ] && grep -q "Out of bounds values : 0 OK" "$folder/out.0" || return 1
    for out in "$folder"/out.*; do
        grep -qE "$1" "$out" || { echo "$out does not say: $1"; return 1; }
    done
}

# told PATTERN RANKS...: they end with an error that says so.
told() {
    local pattern=$1 r
    shift
    wait
    for r in "$@"; do
        cat "$folder/out.$r"
        [ "$(cat "$folder/code.$r")" != 0 ] && grep -vE "NCCL INFO|net_sample.c" "$folder/out.$r" | grep -qE "$pattern" ||
            { echo "rank $r does not say: $pattern"; return 1; }
    done
}

# carries VERSION MACHINES COLLECTIVE [NAME=VALUE...]
carries() {
    local version=$1
    perf "$2" "$3" 8 8M $([ "$3" = all_reduce ] || echo -c 1)
    right "NET/Plugin: Using [a-z0-9]+ of Sample \(v$version\)"
}

for version in 6 7 8 9 10 11 12; do
    export NCCL_NET_PLUGIN=sample$version
    is "version $version carries an all-reduce" carries $version "a b c" all_reduce
    is "version $version carries messages" carries $version "a b a" sendrecv
    export RCCLX_TEST_PLUGIN_RECVS=4
    is "version $version, four receives of a call, carries an all-to-all" carries $version "a a b b" alltoall
    unset RCCLX_TEST_PLUGIN_RECVS
done

with() { # NAME=VALUE... -- COMMAND...: with these settings
    local set=()
    while [ "$1" != -- ]; do
        set+=("$1")
        shift
    done
    shift
    ( export "${set[@]}" && "$@" )
}

# used PATTERN: a short run is right, and its log says so
used() {
    perf "a b" all_reduce 8 8
    right "$1"
}

# refused PATTERN RANKS...: a short run of as many ranks ends with this error on them
refused() {
    perf "a b" all_reduce 8 8
    told "$1" 0 1
}

is "a plug-in by its path" with NCCL_NET_PLUGIN="$plugins/libnccl-net-sample9.so" -- used "Sample \(v9\)"
is "a plug-in by its library's name" with NCCL_NET_PLUGIN=libnccl-net-sample8.so -- used "Sample \(v8\)"
is "the second of a list" with NCCL_NET_PLUGIN=nosuch,sample10,sample11 -- used "Sample \(v10\)"
is "a plug-in by its own name, any case" with NCCL_NET_PLUGIN=sample12 NCCL_NET=sAMPLE -- used "Sample \(v12\)"
is "a device by its name" with NCCL_NET_PLUGIN=sample12 RCCLX_NET_DEVICE=lo -- used "Using lo of Sample"
is "a device that is not there" with NCCL_NET_PLUGIN=sample12 RCCLX_NET_DEVICE=eth77 -- refused "no device can be used, RCCLX_NET_DEVICE is eth77; there are: .*lo"
is "a device by the interface's name" with NCCL_NET_PLUGIN=sample12 NCCL_SOCKET_IFNAME=lo -- used "Using lo of Sample"

is "a plug-in that is missing, and is asked for by name" with NCCL_NET_PLUGIN=nosuch NCCL_NET=Sample -- \
    refused "NCCL_NET is 'Sample'.*there are: UCX, Socket, IB; plug-ins: nosuch: .*libnccl-net-nosuch.so"
is "one that is too old" with NCCL_NET_PLUGIN=old NCCL_NET=Sample -- refused "old: it exports none of ncclNetPlugin_v6 to"
is "one whose init fails" with NCCL_NET_PLUGIN=sample12 NCCL_NET=Sample RCCLX_TEST_PLUGIN_FAIL=init -- \
    refused "its init failed: system error: sample: there is no luck today"
is "one that cannot count its devices" with NCCL_NET_PLUGIN=sample6 NCCL_NET=Sample RCCLX_TEST_PLUGIN_FAIL=devices -- \
    refused "asking for its devices failed: system error: sample: the devices cannot be counted"
is "one without devices" with NCCL_NET_PLUGIN=sample7 NCCL_NET=Sample RCCLX_TEST_PLUGIN_FAIL=none -- refused "it has no devices"
is "one that lacks a function" with NCCL_NET_PLUGIN=sample11 NCCL_NET=Sample RCCLX_TEST_PLUGIN_FAIL=lacks -- \
    refused "its table ncclNetPlugin_v11 lacks functions"
is "one whose devices are for kernels only" with NCCL_NET_PLUGIN=sample9 RCCLX_TEST_PLUGIN_FAIL=offload -- \
    refused "no device can be used; there are: .*not for host memory"
is "another name than its own" with NCCL_NET_PLUGIN=sample12 NCCL_NET=Simple -- refused "NCCL_NET is 'Simple'.*sample12: is called Sample"

if have_ucx; then
    is "none: no plug-in" with NCCL_NET_PLUGIN=none -- used "NET/Socket"
    is "a network of ours by its name" with NCCL_NET_PLUGIN=sample12 NCCL_NET=UCX -- used "NET/UCX"
    is "without one that is missing it goes on" with NCCL_NET_PLUGIN=nosuch -- used "NET/Plugin: nosuch is not used: .*No such file"
    is "without one that is too old it goes on" with NCCL_NET_PLUGIN=old -- used "NET/Plugin: old is not used: it exports none"
    is "without one whose init fails it goes on" with NCCL_NET_PLUGIN=sample12 RCCLX_TEST_PLUGIN_FAIL=init -- \
        used "NET/Plugin: sample12 is not used: its init failed"
fi

unlike() {
    settings=([0]="NCCL_NET_PLUGIN=none" [1]="NCCL_NET_PLUGIN=sample12")
    perf "a b" all_reduce 8 8
    told "rank 0 uses network Socket and rank 1 Sample; set NCCL_NET and NCCL_NET_PLUGIN alike" 0 1
}

one_listens_in_vain() {
    export NCCL_NET_PLUGIN=sample10
    settings=([1]="RCCLX_TEST_PLUGIN_FAIL=listen")
    perf "a b b" all_reduce 8 8
    told "rank 1: plug-in Sample: listening on [a-z0-9]+ failed: system error: sample: device [0-9] cannot be listened on" 0 1 2
}

no_connection() {
    export NCCL_NET_PLUGIN=sample12 RCCLX_INIT_TIMEOUT=3
    settings=([1]="RCCLX_TEST_PLUGIN_FAIL=deaf")
    perf "a b" all_reduce 8 8
    told "rank [01] .*plug-in Sample: no connection after 2.7 s" 0 1
    export RCCLX_INIT_TIMEOUT=30
}

sweep() {
    start "$1" timeout 60 "$build/bin/rcclx" perf all_reduce --device host -b 1M -e 1M --iters 100000 -w 1 -c 0
}

killed() {
    export NCCL_NET_PLUGIN=sample$1
    settings=()
    sweep "a a b b"
    for _ in $(seq 100); do
        grep -q "busbw" "$folder/out.0" && break
        sleep 0.1
    done
    sleep 0.5
    kill -KILL "$(cat "$folder/pid.3")" $(cat "/proc/$(cat "$folder/pid.3")/task/$(cat "$folder/pid.3")/children")
    told "rank 3 .*(has ended|out of reach|failed)" 0 1 2
}

breaks() { # SIDE VERSION
    export NCCL_NET_PLUGIN=sample$2
    settings=([2]="RCCLX_TEST_PLUGIN_FAIL=$1")
    sweep "a b c"
    told "rank [01] .*plug-in Sample: ${1/recv/receiv}.*ing failed: system error: sample: the 40th call" 2 &&
        told "rank [12] .*(has ended|out of reach|failed)" 0 && # 1 has ended, too, if its end is seen first
        told "rank [02] .*(has ended|out of reach|failed)" 1 && grep -q "rank 2 .*\(has ended\|out of reach\|failed\)" "$folder/out.0" "$folder/out.1"
}

is "a network on one rank, another on the other" unlike
is "a listen that fails on one rank is told to all" one_listens_in_vain
is "no connection: every rank is told at the deadline" no_connection
is "a killed rank is named on all machines, version 6" killed 6
is "a killed rank is named on all machines, version 12" killed 12
is "a send that fails: its rank tells the plug-in's words, all others which rank" breaks send 12
is "a receive that fails: its rank tells the plug-in's words, all others which rank" breaks recv 8
end
