#!/bin/bash
# `rcclx run --hosts` over machines that only a network joins (scripts/machines): reached by
# a stand-in for ssh, and by ssh itself where its server is installed.
set -u
echo "# timeout 300"
. "$(dirname "$0")/tap.inc"
net=rcclxh$$
machines=$(cd "$(dirname "$0")/../../scripts" && pwd)/machines
rcclx=$(cd "$build/bin" && pwd)/rcclx
servers=
cleanup() {
    [ -z "$servers" ] || kill $servers 2>/dev/null
    "$machines" down "$net" 2>/dev/null
    rm -rf "$folder"
}
trap cleanup EXIT
"$machines" up "$net" 3 10gbit 2>"$folder/why" || skip_all "$(cat "$folder/why")"
export RCCLX_INIT_TIMEOUT=40 BENCH_SPACE=$net

# on_first CODE ARGUMENTS...: rcclx run on the first machine ends so.
on_first() {
    local want=$1
    shift
    timeout 90 "$machines" on "$net" 0 "$rcclx" run "$@" >"$folder/out" 2>&1
    local got=$?
    cat "$folder/out"
    [ $got = "$want" ] || { echo "exit code $got, expected $want"; return 1; }
}

says() {
    cat "$folder/out"
    grep -qE -- "$1" "$folder/out"
}

right() { # COUNT: results are right, and so many ranks were on the third machine
    cat "$folder/out"
    grep -q "Out of bounds values : 0 OK" "$folder/out" && [ "$(grep -c "on *$net-2 " "$folder/out")" = "$1" ]
}

by() { # SSH-NAME SSH
    is "$1: eight ranks on three machines" on_first 0 --ssh "$2" --hosts 10.77.0.1:3,10.77.0.2:3,10.77.0.3:2 -- \
        "$rcclx" perf all_reduce --device host -b 64 -e 256K -f 16 --iters 2 -w 1
    is "$1: their results are right" right 2
    is "$1: a rank that dies ends the job on all machines" on_first 137 --ssh "$2" --hosts 10.77.0.1:1,10.77.0.2:1,10.77.0.3:1 -- \
        sh -c "echo \$\$ >>$folder/pids; if [ \$RANK = 2 ]; then sleep 1; kill -9 \$\$; fi; sleep 50"
    is "$1: and is named" says 'rank 2 on host 10.77.0.3 .*ended by signal 9 \(Killed\); stopping the others'
    is "$1: and none is left" none_left
}

out_of_reach() {
    ip -n "$net-1" link set eth0 down
    on_first 3 --ssh "$ssh" --hosts 10.77.0.1,10.77.0.2 -- true
    local ok=$?
    ip -n "$net-1" link set eth0 up
    return $ok
}

none_left() {
    local p n=0
    sleep 0.5
    while read -r p; do
        kill -0 "$p" 2>/dev/null && n=$((n + 1))
    done <"$folder/pids"
    [ "$(wc -l <"$folder/pids")" = 3 ] && [ $n = 0 ]
    local ok=$?
    rm -f "$folder/pids"
    return $ok
}

agent=$(cd "$(dirname "$0")/../../bench" && pwd)/agent
by "a stand-in" "$agent"

# A server of each machine's own, whose host key and user key are made here.
serve() {
    local i
    ssh-keygen -q -t ed25519 -N '' -f "$folder/key" && ssh-keygen -q -t ed25519 -N '' -f "$folder/host" || return 1
    cp "$folder/key.pub" "$folder/authorized"
    chmod 600 "$folder/authorized"
    mkdir -p /run/sshd
    for i in 0 1 2; do
        "$machines" on "$net" $i /usr/sbin/sshd -D -f /dev/null -p 2222 -h "$folder/host" -o AuthorizedKeysFile="$folder/authorized" \
            -o PermitRootLogin=yes -o StrictModes=no -o PidFile=none -o UsePAM=no >"$folder/sshd.$i" 2>&1 &
        servers="$servers $!"
    done
    for i in 1 2 3 4 5 6 7 8 9 10; do
        "$machines" on "$net" 0 $ssh 10.77.0.3 true >"$folder/said" 2>&1 && return 0
        sleep 0.3
    done
    cat "$folder/said" "$folder"/sshd.*
    return 1
}

ssh="ssh -p 2222 -i $folder/key -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ConnectTimeout=3"
if [ -x /usr/sbin/sshd ] && command -v ssh-keygen >/dev/null; then
    is "ssh: servers" serve
    by "ssh" "$ssh"
    is "ssh: a host that is out of reach is told" out_of_reach
    is "ssh: with its name" says 'host 10.77.0.2 cannot be reached'
else
    number=$((number + 1))
    echo "ok $number - ssh # SKIP openssh-server is not installed"
fi
end
