#!/bin/bash
# How ranks of several machines find each other, and what is said where they do not:
# interfaces that only look useful, names, IPv6, ports that are taken or filtered.
set -u
echo "# timeout 300"
. "$(dirname "$0")/tap.inc"
net=rcclxm$$
machines=$(cd "$(dirname "$0")/../../scripts" && pwd)/machines
trap '"$machines" down "$net" 2>/dev/null; rm -rf "$folder" /etc/netns/"$net"-[01]; rmdir --ignore-fail-on-non-empty /etc/netns 2>/dev/null' EXIT
"$machines" up "$net" 2 10gbit 2>"$folder/why" || skip_all "$(cat "$folder/why")"
export RCCLX_INIT_TIMEOUT=20 MASTER_PORT=22000
master=10.77.0.1

# rank R [NAME=VALUE...]: on machine R, with these settings; out.R and code.R are kept. Two of them make a job.
rank() {
    local r=$1
    shift
    (
        RANK=$r WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=$master "$machines" on "$net" "$r" env "$@" \
            timeout 60 "$build/bin/rcclx" perf all_reduce --device host -b 64 -e 64K -f 32 --iters 2 -w 1 >"$folder/out.$r" 2>&1
        echo $? >"$folder/code.$r"
    ) &
}

job() { # SETTINGS OF BOTH...
    MASTER_PORT=$((MASTER_PORT + 2))
    rm -f "$folder"/out.* "$folder"/code.*
    rank 0 "$@"
    rank 1 "$@"
    wait
    cat "$folder"/out.*
}

works() {
    job "$@" && [ "$(cat "$folder"/code.*)" = "0
0" ] && grep -q "Out of bounds values : 0 OK" "$folder/out.0"
}

says() { # RANK PATTERN
    cat "$folder/out.$1"
    [ "$(cat "$folder/code.$1")" != 0 ] && grep -qE "$2" "$folder/out.$1"
}

# A program that passes its unique id itself, so that the library chooses the address: the id goes by a file.
cat >"$folder/pass.py" <<'END'
import ctypes, os, sys, time
lib = ctypes.CDLL(sys.argv[1])
lib.ncclGetLastError.restype = ctypes.c_char_p
rank, path = int(sys.argv[2]), sys.argv[3]
class Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]
uid = Id()
def ok(code):
    if code:
        sys.exit(lib.ncclGetLastError(None).decode())
if rank == 0:
    ok(lib.ncclGetUniqueId(ctypes.byref(uid)))
    open(path + ".new", "wb").write(bytes(uid))
    os.rename(path + ".new", path)
else:
    for _ in range(300):
        if os.path.exists(path):
            break
        time.sleep(0.1)
    ctypes.memmove(ctypes.byref(uid), open(path, "rb").read(), 128)
comm = ctypes.c_void_p()
ok(lib.ncclCommInitRank(ctypes.byref(comm), 2, uid, rank))
x, y = (ctypes.c_int * 1000)(*[rank + 1] * 1000), (ctypes.c_int * 1000)()
ok(lib.ncclAllReduce(x, y, ctypes.c_size_t(1000), 2, 0, comm, None))
assert list(y) == [3] * 1000
ok(lib.ncclCommDestroy(comm))
END
library=$(cd "$build/lib" && pwd)/libnccl.so.2

# passed [NAME=VALUE...]: both ranks are well; what rank 0 listened at is in out.0.
passed() {
    local r
    rm -f "$folder"/id "$folder"/out.* "$folder"/code.*
    for r in 0 1; do
        (
            "$machines" on "$net" $r env RCCLX_DEVICE=host NCCL_DEBUG=INFO "$@" timeout 60 python3 "$folder/pass.py" "$library" $r "$folder/id" \
                >"$folder/out.$r" 2>&1
            echo $? >"$folder/code.$r"
        ) &
    done
    wait
    cat "$folder"/out.*
    [ "$(cat "$folder"/code.*)" = "0
0" ]
}

using() { # PATTERN of interface:address
    cat "$folder/out.0"
    grep -qE "Bootstrap: Using $1" "$folder/out.0"
}

in_each() { # SHELL COMMANDS, in the network of each machine; $i is its number
    local i
    for i in 0 1; do
        export i
        ip netns exec "$net-$i" sh -ec "$1" || return 1
    done
}

# Bridges of Docker and libvirt, the same on both machines, with a cable in so that they are up.
bridges='for b in docker0:172.17.0.1/16 virbr0:192.168.122.1/24 lxdbr0:10.5.5.1/24; do
    n=${b%%:*}
    ip link add $n type bridge && ip link add v$n type veth peer name w$n && ip link set v$n master $n
    ip link set v$n up && ip link set w$n up && ip link set $n up && ip addr add ${b#*:} dev $n
done'

ip -n "$net-1" link add unlike type veth peer name unlike2
is "bridges of containers" in_each "$bridges"
is "are not where a unique id is found" passed
is "but the network is" using 'eth0:10\.77\.0\.1'
is "nor do they keep ranks apart that a launcher started" works

# On Debian a machine's own name is 127.0.1.1 to itself.
for i in 0 1; do
    mkdir -p "/etc/netns/$net-$i"
done
echo "127.0.1.1 first" >"/etc/netns/$net-0/hosts"
echo "10.77.0.1 first" >"/etc/netns/$net-1/hosts"
master=first
is "a name that is loopback on rank 0's own machine" works
master=nowhere
is "a name that nobody knows" job RCCLX_INIT_TIMEOUT=2
is "is told" says 1 "host 'nowhere' of 'nowhere:[0-9]*' cannot be resolved"
master=10.77.0.1

# Somebody listens on the port already, on all addresses.
squatted() {
    local squatter
    ip netns exec "$net-0" python3 -c 'import socket, sys, time
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("", int(sys.argv[1]))); s.listen(); open(sys.argv[2], "w"); time.sleep(60)' $((MASTER_PORT + 3)) "$folder/there" &
    squatter=$!
    for _ in $(seq 100); do
        [ -e "$folder/there" ] && break
        sleep 0.1
    done
    MASTER_PORT=$((MASTER_PORT + 2))
    rm -f "$folder"/out.* "$folder"/code.*
    rank 0 RCCLX_INIT_TIMEOUT=4
    local r0=$!
    rank 1 RCCLX_INIT_TIMEOUT=4
    wait $r0 $!
    kill $squatter
}
is "a port that another program has" squatted
is "is told by rank 0" says 0 "cannot listen at 10\.77\.0\.1:[0-9]+ .*Address already in use; another program listens there"
is "and rank 1 does not wait for ever" says 1 "rank 1: .*(did not answer|closed the connection)"

elsewhere() {
    master=10.77.0.2
    job RCCLX_INIT_TIMEOUT=3
    master=10.77.0.1
}
is "MASTER_ADDR of another machine than rank 0's" elsewhere
is "is told by rank 0" says 0 "this machine has no such address: MASTER_ADDR"
is "and rank 1 says where it looked" says 1 "rank 1: nobody answers for this unique id at 10\.77\.0\.2:[0-9]+ \(Connection refused\): rank 0 has not come"

# A firewall that drops: answers from that port find no way out.
filtered() {
    ip -n "$net-0" rule add ipproto tcp sport $((MASTER_PORT + 3)) blackhole || return 1
    job RCCLX_INIT_TIMEOUT=4
    ip -n "$net-0" rule del ipproto tcp sport $((MASTER_PORT + 1)) blackhole
}
is "a firewall that drops" filtered
is "is suspected, with the port" says 1 "nobody answers for this unique id at 10\.77\.0\.1:($((MASTER_PORT + 1))) \(Connection timed out\): packets .* a firewall drops them: let TCP port \1 in"
is "and rank 0 says who is missing" says 0 "missing: rank 1"
no_way() {
    master=10.99.0.1
    job RCCLX_INIT_TIMEOUT=3
    master=10.77.0.1
}
ip -n "$net-0" addr add 10.99.0.1/32 dev lo
is "a network that leads nowhere" no_way
is "is told" says 1 "nobody answers for this unique id at 10\.99\.0\.1:[0-9]+ \(Network is unreachable\): from this machine no way leads there"
ip -n "$net-0" addr del 10.99.0.1/32 dev lo

# IPv6 alone, first with addresses of a network, then with those of the link; interfaces are numbered differently on the two.
is "IPv6 alone" in_each 'ip addr flush dev eth0 scope global && ip addr add fd00:77::$((i + 1))/64 dev eth0 nodad'
is "a launcher's ranks meet" eval 'master=fd00:77::1; works'
is "and those of a unique id" passed
is "at the network's address" using 'eth0:\[fd00:77::1\]'
is "addresses of the link alone" in_each 'ip addr flush dev eth0 scope global; for b in docker0 virbr0 lxdbr0; do ip link del $b; done
    ip -6 addr show dev eth0 | grep -q fe80'
is "ranks of a unique id meet and work there" eval 'passed && using "eth0:\[fe80:"'
if have_ucx; then
    is "UCX goes to no such address" eval 'export NCCL_NET=UCX; ! passed'
    is "and ranks hear it" says 1 'rank 1: UCX finds no way to rank 0: .* an address that holds beyond its link'
    unset NCCL_NET
fi
end
