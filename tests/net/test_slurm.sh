#!/bin/bash
# A real Slurm: its daemons on two machines (scripts/machines), with a configuration that
# lies in a temporary folder; srun starts ranks, which find each other by its variables.
set -u
echo "# timeout 240"
. "$(dirname "$0")/tap.inc"
net=rcclxs$$
machines=$(cd "$(dirname "$0")/../../scripts" && pwd)/machines
rcclx=$(cd "$build/bin" && pwd)/rcclx
daemons=

cleanup() {
    [ -z "$daemons" ] || { kill $daemons; sleep 1; kill -9 $daemons; } 2>/dev/null
    # what slurmd started stays behind when it ends; all of it knows this folder
    for p in /proc/[0-9]*; do
        tr '\0' '\n' <"$p/environ" 2>/dev/null | grep -qx "SLURM_CONF=$folder/slurm.conf" && [ "${p#/proc/}" != $$ ] && kill -9 "${p#/proc/}"
    done 2>/dev/null
    "$machines" down "$net" 2>/dev/null
    rm -rf "$folder" /etc/netns/"$net"-[01]
    rmdir --ignore-fail-on-non-empty /etc/netns 2>/dev/null
}
trap cleanup EXIT

[ -n "${RCCLX_TEST_LONG:-}" ] || skip_all "a part of make test-net"
for command in slurmctld slurmd srun sbatch munged; do
    PATH=$PATH:/usr/sbin command -v $command >/dev/null || skip_all "no $command here (apt-get install slurm-wlm munge)"
done
"$machines" up "$net" 2 10gbit 2>"$folder/why" || skip_all "$(cat "$folder/why")"

# Names of the two machines, for themselves alone.
for i in 0 1; do
    mkdir -p "/etc/netns/$net-$i"
    printf '127.0.0.1 localhost\n10.77.0.1 %s-0\n10.77.0.2 %s-1\n' "$net" "$net" >"/etc/netns/$net-$i/hosts"
done

cat >"$folder/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$net-0(10.77.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/ctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/ctld.log
SlurmdLogFile=$folder/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/builtin
ReturnToService=2
MpiDefault=none
KillWait=2
NodeName=$net-0 NodeAddr=10.77.0.1 CPUs=4 State=UNKNOWN
NodeName=$net-1 NodeAddr=10.77.0.2 CPUs=4 State=UNKNOWN
SlurmdParameters=config_overrides
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
echo "CgroupPlugin=cgroup/v1" >"$folder/cgroup.conf" # asks for nothing that has to be mounted
export SLURM_CONF=$folder/slurm.conf PATH=$PATH:/usr/sbin RCCLX_INIT_TIMEOUT=40
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE

start() { # MACHINE COMMAND...
    "$machines" on "$net" "$@" >"$folder/daemon.$2.$1" 2>&1 &
    daemons="$daemons $!"
}

idle() {
    for _ in $(seq 60); do
        [ "$(timeout 5 "$machines" on "$net" 0 sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && return 0
        sleep 0.5
    done
    tail -n 5 "$folder"/daemon.* "$folder"/*.log
    return 1
}

bring_up() {
    mkdir "$folder/state"
    head -c 1024 /dev/urandom >"$folder/key"
    chmod 600 "$folder/key"
    chmod 755 "$folder"
    munged -F --key-file="$folder/key" --socket="$folder/munge" --pid-file="$folder/munge.pid" --log-file="$folder/munge.log" \
        --seed-file="$folder/seed" >"$folder/daemon.munged" 2>&1 &
    daemons="$daemons $!"
    for _ in $(seq 20); do
        [ -S "$folder/munge" ] && break
        sleep 0.1
    done
    start 0 slurmctld -D
    start 0 slurmd -D -N "$net-0"
    start 1 slurmd -D -N "$net-1"
    idle
}

right() { # COUNT: results are right, and so many ranks ran on the second machine
    cat "$folder/out"
    grep -q "Out of bounds values : 0 OK" "$folder/out" && [ "$(grep -c "on *$net-1 " "$folder/out")" = "$1" ]
}

perf="$rcclx perf all_reduce --device host -b 64 -e 64K -f 32 --iters 2 -w 1"

step() { # COUNT-ON-THE-SECOND SRUN'S OPTIONS...
    local second=$1
    shift
    timeout 60 "$machines" on "$net" 0 srun "$@" $perf >"$folder/out" 2>&1
    local code=$?
    right "$second" && [ $code = 0 ] || { echo "exit code $code"; return 1; }
}

# Without --kill-on-bad-exit srun lets the others run on: the library ends them.
dies() {
    timeout 60 "$machines" on "$net" 0 srun -N 2 -n 4 --ntasks-per-node 2 sh -c '[ $SLURM_PROCID != 3 ] || { sleep 3; kill -9 $$; } &
        exec "$@"' sh $rcclx perf all_reduce --device host -b 1M -e 1M --iters 100000 -w 1 -c 0 >"$folder/out" 2>&1
    local code=$?
    cat "$folder/out"
    [ $code != 0 ] && [ $code != 124 ] && grep -qE "rank [0-2]: .*rank 3 .*(has ended|out of reach)|rank 3 failed" "$folder/out"
}

batch() {
    cat >"$folder/job" <<END
#!/bin/sh
#SBATCH --nodes 2 --ntasks 4 --output $folder/out
# the script itself is no rank
$rcclx perf all_reduce --device host -n 2 -b 8 -e 8 --iters 1 -w 1 | grep -c "Out of bounds values : 0 OK"
RCCLX_INIT_TIMEOUT=5 $rcclx perf all_reduce --device host -t 1 -b 8 -e 8 --iters 1 -w 1 | grep "nranks\|Rank"
srun $perf
srun -n 2 -N 1 $perf
END
    timeout 90 "$machines" on "$net" 0 sbatch -W "$folder/job"
    local code=$?
    cat "$folder/out"
    [ $code = 0 ] && [ "$(grep -c "Out of bounds values : 0 OK" "$folder/out")" = 2 ] && grep -qx 1 "$folder/out"
}

by_tool() {
    cat >"$folder/job" <<END
#!/bin/sh
#SBATCH --nodes 2 --ntasks 4 --output $folder/out
$rcclx run --hosts "\$SLURM_JOB_NODELIST:2" --ssh "$folder/reach" -- $perf
END
    printf '#!/bin/sh\nexec srun -N 1 -n 1 --overlap -w "$1" sh -c "$2"\n' >"$folder/reach"
    chmod +x "$folder/reach"
    timeout 90 "$machines" on "$net" 0 sbatch -W "$folder/job"
    right 2
}

is "Slurm's daemons, on two machines" bring_up
is "srun: four ranks on two machines" step 2 -N 2 -n 4 --ntasks-per-node 2
is "srun: three, dealt unevenly" step 1 -N 2 -n 3
is "srun: on one machine" step 0 -N 1 -n 3
is "srun: ranks dealt in turns" step 2 -N 2 -n 4 --ntasks-per-node 2 -m cyclic
is "srun --mpi=pmi2" step 2 -N 2 -n 4 --ntasks-per-node 2 --mpi=pmi2
[ -e /usr/lib/x86_64-linux-gnu/slurm-wlm/mpi_pmix.so ] && is "srun --mpi=pmix" step 0 -N 1 -n 2 --mpi=pmix
is "sbatch: steps of a job, and the script itself" batch
is "rcclx run in an allocation, through srun" by_tool
is "a rank that dies is told to the others by name" dies
end
