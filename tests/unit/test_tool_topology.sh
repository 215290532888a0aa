#!/bin/sh
# `rcclx info --topology` and `rcclx plan --nodes`.
set -u
rcclx=${RCCLX_BUILD:-build}/bin/rcclx
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failed=0 number=0

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

# Four GPUs, each joined to each, two CPUs, a port each.
{
    echo '<system version="2">'
    for cpu in 0 1; do
        echo "<cpu numaid=\"$cpu\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"175\" modelid=\"1\">"
        for i in $((2 * cpu)) $((2 * cpu + 1)); do
            echo "<pci busid=\"0000:1$i:00.0\" class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">"
            echo "<pci busid=\"0000:2$i:00.0\" class=\"0x120000\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">"
            echo "<gpu dev=\"$i\" sm=\"304\" gcn=\"gfx942\" rank=\"$i\" gdr=\"1\">"
            for k in 0 1 2 3; do
                [ $k = $i ] || echo "<xgmi target=\"0000:2$k:00.0\" count=\"1\" tclass=\"0x120000\"/>"
            done
            echo "</gpu></pci><pci busid=\"0000:3$i:00.0\" class=\"0x020700\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">"
            echo "<nic><net name=\"mlx5_$i\" dev=\"$i\" speed=\"400000\" gdr=\"1\"/></nic></pci></pci>"
        done
        echo '</cpu>'
    done
    echo '</system>'
} >"$folder/four.xml"

is "this machine" ends 0 info --topology
is "has a CPU" says out '^CPU [0-9]'
is "a described one" ends 0 info --topology --file "$folder/four.xml"
is "how many of what" says out '^four.xml: 4 GPUs, 2 CPUs, 4 network ports$'
is "its tree" says out 'GPU 2 +gfx942 +48 GB/s +22:00.0$'
is "its ways" says out '^GPU 0 +- +XGMI 48 +XGMI 48 +XGMI 48 +PIX 48 +PXN 48'
is "rings, the best there are" says out '^6 rings of 24 GB/s: 144 GB/s, the most there can be$'
is "trees" says out '^4 trees of 48 GB/s: 192 GB/s, the most there can be; depth 1$'
is "rails" says out '^4 rails of 48 GB/s: 192 GB/s'
is "all-to-all" says out '^all-to-all in 3 rounds, 48 GB/s a pair'
is "three copies" ends 0 info --topology --file "$folder/four.xml" --nodes 3
is "have twelve ranks" says out '^3 nodes like this: 12 ranks$'
is "two of its GPUs" ends 0 info --topology --file "$folder/four.xml" --gpus 1,3
is "have one ring" says out '^1 ring of 48 GB/s'
is "a drawing" ends 0 info --topology --file "$folder/four.xml" --nodes 2 --svg "$folder/four.svg"
is "is XML" python3 -c "import xml.dom.minidom as m; assert m.parse('$folder/four.svg').documentElement.tagName == 'svg'"
is "NCCL_TOPO_FILE is read" env NCCL_TOPO_FILE="$folder/four.xml" sh -c "'$rcclx' info --topology | grep '^four.xml: 4 GPUs'"
is "NCCL_TOPO_DUMP_FILE" env NCCL_TOPO_FILE="$folder/four.xml" NCCL_TOPO_DUMP_FILE="$folder/dump.xml" "$rcclx" info --topology
is "is written" ends 0 info --topology --file "$folder/dump.xml"
is "and holds the same" says out '^dump.xml: 4 GPUs, 2 CPUs, 4 network ports$'

echo '<system><cpu numaid="zero"/></system>' >"$folder/bad.xml"
is "a broken file" ends 3 info --topology --file "$folder/bad.xml"
is "is told with line and cause" says err 'bad.xml, line 1, <cpu>: numaid="zero" must be a number'
is "a file that is not there" ends 3 info --topology --file "$folder/none.xml"
is "GPUs that are not there" ends 2 info --topology --file "$folder/four.xml" --gpus 4
is "says which there are" says err 'there are GPUs 0 to 3'
is "--file without --topology" ends 2 info --file "$folder/four.xml"
is "--topology with --json" ends 2 info --topology --json

# --- clusters on paper

is "plan --nodes" ends 0 plan ALL_REDUCE --nodes 16 --ppn 8 --size 256M
is "marks the best" says out '^\* [a-z+]+ +[0-9.]+ +[0-9.]+ +[0-9]+ '
is "has all schedules" [ "$(grep -cE '^[* ] (ring|tree|direct\+(ring|tree|direct)) ' "$folder/out")" = 5 ]
is "plan --simulate" ends 0 plan all_reduce --simulate --size 256M
is "goes to 131,072 ranks" says out '^ +16384 +131072 '
is "with a file" ends 0 plan alltoall --nodes 64 --size 4K --file "$folder/four.xml"
is "takes its GPUs and rails" says out '^64 nodes of 4 ranks, 4 rails of 48 GB/s; 48 GB/s between two GPUs, 144 of one GPU to all$'
is "with times of the network" ends 0 plan all_gather --nodes 2 --ppn 1 --tiers 1 --port-ns 5e5 --post-ns 4e5 --switch-ns 1e5 \
    --port-rate 1 --size 1M --json
is "adds them to that of the bytes" python3 -c "import json; d = json.load(open('$folder/out'))
assert all(abs(s['ns'] - (1e6 + 2**20)) < 2000 for s in d['schedules'])"
is "JSON" ends 0 plan all_gather --nodes 4 --json
is "is valid" python3 -c "import json; d = json.load(open('$folder/out')); assert len(d['schedules']) == 3 and d['nodes'] == 4"
is "oversubscription" ends 0 plan alltoall --nodes 256 --size 64K --oversubscription 4
is "shows" says out 'ways up from the leaves'
is "what is not simulated" ends 2 plan broadcast --nodes 4
is "says what is" says err 'all_reduce, all_gather, reduce_scatter and alltoall are'
is "a cluster too large" ends 2 plan all_reduce --nodes 70000
is "drawings are for one machine" ends 2 plan all_reduce --nodes 4 --svg

echo "1..$number"
exit $failed
