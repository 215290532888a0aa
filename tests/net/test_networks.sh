#!/bin/bash
# Machines that only a network joins: namespaces and virtual cables (scripts/machines).
# Every collective on several shapes of them, with results checked; then what goes wrong.
set -u
echo "# timeout 600"
. "$(dirname "$0")/tap.inc"
net=rcclx$$
machines=$(dirname "$0")/../../scripts/machines
trap '"$machines" down "$net" 2>/dev/null; rm -rf "$folder"' EXIT
"$machines" up "$net" 4 10gbit 2>"$folder/why" || skip_all "$(cat "$folder/why")"
export RCCLX_INIT_TIMEOUT=40
port=21000

# start MACHINES COMMAND...: a rank a machine named in the list "0 0 1 1"; out.R and code.R are kept.
start() {
    local where=($1) r
    shift
    port=$((port + 7))
    rm -f "$folder"/out.* "$folder"/code.*
    for r in "${!where[@]}"; do
        (
            RANK=$r WORLD_SIZE=${#where[@]} LOCAL_RANK=$r MASTER_ADDR=10.77.0.1 MASTER_PORT=$port \
                "$machines" on "$net" "${where[r]}" env ${settings[$r]:-} "$@" >"$folder/out.$r" 2>&1
            echo $? >"$folder/code.$r"
        ) &
    done
}

# all CODE: every rank ends with it, within a minute.
all() {
    wait
    cat "$folder"/out.*
    [ "$(cat "$folder"/code.* | sort -u | tr '\n' ' ')" = "$1 " ] || { echo "exit codes: $(cat "$folder"/code.* | tr '\n' ' ')"; return 1; }
}

right() { # MACHINES COLLECTIVE
    settings=()
    start "$1" timeout 60 "$build/bin/rcclx" perf "$2" --device host -b 64 -e 256K -f 16 --iters 2 -w 1
    all 0 && grep -q "Out of bounds values : 0 OK" "$folder/out.0"
}

for shape in "0 0 0 0 1 1 1 1" "0 0 1 1 2 2 3 3" "0 0 0 1 1 1 1 1" "0 1 2 3" "0 1 0 1 1"; do
    for collective in all_reduce all_gather reduce_scatter alltoall alltoallv broadcast reduce gather scatter sendrecv; do
        [ -n "${RCCLX_TEST_LONG:-}" ] || [ "$shape" = "0 0 0 1 1 1 1 1" ] || [ $collective = all_reduce ] || [ $collective = sendrecv ] || continue
        is "$collective, machines $shape" right "$shape" $collective
    done
done

# told PATTERN RANKS...: they end with an error that says so.
told() {
    local pattern=$1 r
    shift
    wait
    for r in "$@"; do
        cat "$folder/out.$r"
        [ "$(cat "$folder/code.$r")" != 0 ] && grep -qE "$pattern" "$folder/out.$r" || { echo "rank $r does not say: $pattern"; return 1; }
    done
}

sweep() {
    start "$1" timeout 60 "$build/bin/rcclx" perf all_reduce --device host -b 1M -e 1M --iters 100000 -w 1 -c 0
}

running() { # until the first row's header is there, and a moment more
    for _ in $(seq 100); do
        grep -q "busbw" "$folder/out.0" && break
        sleep 0.1
    done
    sleep 0.5
}

killed() {
    settings=()
    sweep "0 0 1 1"
    running
    kill_rank 3
    told "rank 3 .*(has ended|out of reach)|rank 3 failed" 0 1 2
}

# The rcclx process of a rank, wherever wrappers stand between.
kill_rank() {
    local p
    for p in $(pgrep -f "rcclx perf"); do
        tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | grep -qx "RANK=$1" &&
            tr '\0' '\n' <"/proc/$p/environ" | grep -qx "MASTER_PORT=$port" && kill -KILL "$p" 2>/dev/null
    done
}

cut_off() {
    settings=([0]="RCCLX_TIMEOUT=4" [1]="RCCLX_TIMEOUT=4" [2]="RCCLX_TIMEOUT=4" [3]="RCCLX_TIMEOUT=4")
    sweep "0 0 1 1"
    running
    ip -n "$net-1" link set eth0 down
    told "rank [0-3]" 0 1 2 3
    local ok=$?
    ip -n "$net-1" link set eth0 up
    return $ok
}

wrong_interface() {
    settings=([2]="NCCL_SOCKET_IFNAME=eth7")
    start "0 0 1 1" timeout 60 "$build/bin/rcclx" perf all_reduce --device host -b 8 -e 8
    told "NCCL_SOCKET_IFNAME is 'eth7'.*eth0" 0 1 2 3
}

unknown_network() {
    settings=([0]="NCCL_NET=carrier" [1]="NCCL_NET=carrier")
    start "0 1" timeout 60 "$build/bin/rcclx" perf all_reduce --device host -b 8 -e 8
    told "NCCL_NET is 'carrier'.*UCX, Socket, IB" 0 1
}

by_ucx() {
    settings=([0]="NCCL_NET=UCX" [1]="NCCL_NET=UCX" [2]="NCCL_NET=UCX" [3]="NCCL_NET=UCX")
    start "0 0 1 1" timeout 60 "$build/bin/rcclx" perf all_reduce --device host -b 64 -e 1M -f 16 --iters 2 -w 1
    all 0 && grep -q "Out of bounds values : 0 OK" "$folder/out.0"
}

unlike_networks() {
    settings=([0]="NCCL_NET=UCX")
    start "0 1" timeout 60 "$build/bin/rcclx" perf all_reduce --device host -b 8 -e 8
    told "rank 0 uses network UCX and rank 1 .*; set NCCL_NET" 0 1
}

late() {
    settings=([0]="RCCLX_INIT_TIMEOUT=2" [1]="RCCLX_INIT_TIMEOUT=2")
    port=$((port + 7))
    RANK=0 WORLD_SIZE=3 LOCAL_RANK=0 MASTER_ADDR=10.77.0.1 MASTER_PORT=$port "$machines" on "$net" 0 \
        env RCCLX_INIT_TIMEOUT=2 timeout 30 "$build/bin/rcclx" perf all_reduce --device host -b 8 -e 8 >"$folder/out.0" 2>&1 &
    RANK=1 WORLD_SIZE=3 LOCAL_RANK=0 MASTER_ADDR=10.77.0.1 MASTER_PORT=$port "$machines" on "$net" 1 \
        env RCCLX_INIT_TIMEOUT=2 timeout 30 "$build/bin/rcclx" perf all_reduce --device host -b 8 -e 8 >"$folder/out.1" 2>&1 &
    wait
    cat "$folder/out.0" "$folder/out.1"
    grep -q "missing: rank 2" "$folder/out.0" && grep -q "missing: rank 2" "$folder/out.1"
}

# by_mpi COMMAND...: four ranks on two machines, started by a launcher that reaches the second through bench/agent.
by_mpi() {
    BENCH_SPACE=$net timeout 60 "$machines" on "$net" 0 "$@" "$build/bin/rcclx" perf all_reduce --device host -b 8 -e 64K -f 32 \
        --iters 2 -w 1 >"$folder/out" 2>&1
    cat "$folder/out"
    grep -q "Out of bounds values : 0 OK" "$folder/out" && [ "$(grep -c "on *$net-1 " "$folder/out")" = 2 ]
}

agent=$(cd "$(dirname "$0")/../../bench" && pwd)/agent
port=$((port + 7))
if command -v mpirun.openmpi >/dev/null; then
    is "started by Open MPI" by_mpi mpirun.openmpi --allow-run-as-root --oversubscribe --host 10.77.0.1:2,10.77.0.2:2 --mca plm_rsh_agent \
        "$agent" --mca orte_keep_fqdn_hostnames 1 -n 4 -x MASTER_ADDR=10.77.0.1 -x MASTER_PORT=$port
fi
if command -v mpirun.mpich >/dev/null; then
    is "started by MPICH" by_mpi mpirun.mpich -hosts 10.77.0.1:2,10.77.0.2:2 -launcher ssh -launcher-exec "$agent" -iface eth0 -n 4 \
        -genv MASTER_ADDR 10.77.0.1 -genv MASTER_PORT $((port + 20))
fi

is "a killed rank is named on all machines" killed
is "a machine that is cut off: every rank gets an error within its deadline" cut_off
is "a wrong interface on one rank is told to all" wrong_interface
is "an unknown network is told, with those there are" unknown_network
if have_ucx; then
    is "all_reduce by UCX" by_ucx
    is "unlike networks are told" unlike_networks
fi
is "a rank that does not come is named" late
end
