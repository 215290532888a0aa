#!/bin/sh
# `rcclx perf` and the *_perf names: options, table, JSON, exit codes; wrong
# results and dying ranks by means of a small library that misbehaves on demand.
set -u
bin=${RCCLX_BUILD:-build}/bin
rcclx=$bin/rcclx
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failed=0 number=0
unset NCCL_ALGO RCCLX_ALGO NCCL_TESTS_MIN_BW
export RCCLX_DEVICE=host

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

# ends CODE COMMAND...: the command ends with that code; out and err are kept.
ends() {
    want=$1
    shift
    "$@" >"$folder/out" 2>"$folder/err"
    got=$?
    echo "exit code $got, expected $want"
    cat "$folder/out" "$folder/err"
    [ $got = "$want" ]
}

says() { # FILE PATTERN
    cat "$folder/$1"
    grep -qE "$2" "$folder/$1"
}

json() { # FILE PYTHON-CONDITION over d
    cat "$1"
    python3 -c "import json, sys; d = json.load(open('$1')); sys.exit(not ($2))"
}

# --- a library for one rank; LIAR=wrong|fail|die makes it misbehave

cat >"$folder/liar.c" <<'END'
#include "nccl.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#define API __attribute__((visibility("default")))
static int is(const char *what) { const char *s = getenv("LIAR"); return s && !strcmp(s, what); }
static ncclResult_t copy(const void *in, void *out, size_t n)
{
    if (is("die")) raise(SIGSEGV);
    if (is("fail")) return ncclInternalError;
    if (in != out) memmove(out, in, n);
    if (is("wrong") && n) *(char *)out ^= 1;
    if (is("last") && n) ((char *)out)[n - 1] ^= 1;
    if (is("beyond")) ((char *)out)[n] ^= 1;
    return ncclSuccess;
}
API ncclResult_t ncclGetVersion(int *v) { *v = 21903; return ncclSuccess; }
API const char *ncclGetErrorString(ncclResult_t r) { return r ? "the liar refuses" : "no error"; }
API ncclResult_t ncclGetUniqueId(ncclUniqueId *id) { memset(id, 1, sizeof *id); return ncclSuccess; }
API ncclResult_t ncclCommInitRank(ncclComm_t *c, int n, ncclUniqueId id, int r)
{ (void)id; (void)r; *c = malloc(1); return n == 1 ? ncclSuccess : ncclInvalidArgument; }
API ncclResult_t ncclCommDestroy(ncclComm_t c) { free(c); return ncclSuccess; }
API ncclResult_t ncclGroupStart(void) { return ncclSuccess; }
API ncclResult_t ncclGroupEnd(void) { return ncclSuccess; }
#define ARGS const void *in, void *out, size_t n, ncclDataType_t t
#define REST ncclComm_t c, cudaStream_t s
#define COPY { (void)t; (void)c; (void)s; return copy(in, out, 4 * n); }
API ncclResult_t ncclAllReduce(ARGS, ncclRedOp_t o, REST) { (void)o; COPY }
API ncclResult_t ncclReduce(ARGS, ncclRedOp_t o, int r, REST) { (void)o; (void)r; COPY }
API ncclResult_t ncclBroadcast(ARGS, int r, REST) { (void)r; COPY }
API ncclResult_t ncclAllGather(ARGS, REST) COPY
API ncclResult_t ncclReduceScatter(ARGS, ncclRedOp_t o, REST) { (void)o; COPY }
static const void *sent;
API ncclResult_t ncclSend(const void *in, size_t n, ncclDataType_t t, int p, REST)
{ (void)n; (void)t; (void)p; (void)c; (void)s; sent = in; return ncclSuccess; }
API ncclResult_t ncclRecv(void *out, size_t n, ncclDataType_t t, int p, REST)
{ const void *in = sent; (void)p; COPY }
END
liar=$folder/liar.so
${CC:-cc} -shared -fPIC -fvisibility=hidden -Iinclude -o "$liar" "$folder/liar.c" || exit 1

# --- the table

is "a sweep of two ranks" ends 0 "$rcclx" perf all_reduce -n 2 -b 8 -e 64K -f 8 --iters 2
is "names the library and its version" says out '^# Library: /.*/libnccl\.so\.2[^ ]* \(version 2\.28\.9, rcclx '
is "header line 1" says out '^# nThread 1 nGpus 1 minBytes 8 maxBytes 65536 step: 8\(factor\) warmup iters: 5 iters: 2 agg iters: 1 validation: 1 graph: 0 unalign: 0$'
is "a line a rank" says out '^#  Rank  1 Group  0 Pid +[0-9]+ on +[^ ]+ device  0 \[host\] '
is "column names" says out '^#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong'
is "a row" says out '^        4096          1024     float     sum      -1 +[0-9.]+ +[0-9.]+ +[0-9.]+ +0 +[0-9.]+ +[0-9.]+ +[0-9.]+ +0$'
is "five rows" [ "$(grep -c '^ .* float ' "$folder/out")" = 5 ]
is "all right" says out '^# Out of bounds values : 0 OK$'
is "the average" says out '^# Avg bus bandwidth    : [0-9.e+-]+ $'
is "the end" says out '^# Collective test concluded: all_reduce_perf$'

for kind in all_gather reduce_scatter alltoall alltoallv broadcast reduce gather scatter sendrecv; do
    is "$kind of three ranks" ends 0 "$rcclx" perf $kind -n 3 -b 1 -e 40000 -f 40 --iters 1 -w 0 -d int32 -r all
done
is "alltoall has no in-place column" ends 0 "$rcclx" perf alltoall -n 2 -b 8 -e 8 --iters 1
is "but N/A" says out ' N/A +N/A +N/A +N/A$'
is "all types and operators" ends 0 "$rcclx" perf all_reduce -n 3 -b 1000 -e 1000 --iters 1 -w 0 -d all -o all
is "72 rows" [ "$(grep -c '^ .* -1 ' "$folder/out")" = 72 ]
is "threads and several ranks of each" ends 0 "$rcclx" perf all_reduce -n 2 -t 2 -g 2 -b 8K -e 8K --iters 2
is "eight ranks" says out '^#  Rank  7 '
is "under a launcher" ends 0 "$rcclx" run -n 3 "$bin/all_gather_perf" -b 1K -e 1K -n 2
is "three ranks, one table" [ "$(grep -c '^#  Rank  [012] ' "$folder/out")" = 3 ]
is "streams, aggregation, timestamps, plain and dirty buffers" ends 0 "$rcclx" perf all_reduce -n 2 -b 1K -e 1K \
    --iters 2 -y 0 -m 2 -S 1 -M 1 -u 1 -R 1 -a 3 --plain --dirty --bind
is "the time of day" says out '[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}$'

# --- the names of nccl-tests

is "all_reduce_perf: -n is iterations" ends 0 "$bin/all_reduce_perf" -b 1K -e 4K -i 1K -n 3 -w 2 -c 0
is "as the header says" says out 'minBytes 1024 maxBytes 4096 step: 1024\(bytes\) warmup iters: 2 iters: 3 .*validation: 0'
is "unchecked is N/A" says out ' N/A +[0-9.]+ +[0-9.]+ +[0-9.]+ +N/A$'
is "four sizes" [ "$(grep -c '^ .* float ' "$folder/out")" = 4 ]
is "long options" ends 0 "$bin/broadcast_perf" --minbytes=1K --maxbytes 1K --iters=1 --datatype=half --root=0 --ranks 2
is "letters joined to values" ends 0 "$bin/reduce_perf" -b1K -e1K -n1 -g2 -omax

# --- JSON

is "--json to standard output" ends 0 "$rcclx" perf all_reduce -n 2 -b 8 -e 512 -f 8 --iters 2 --json
is "is valid and complete" json "$folder/out" "len(d['rows']) == 3 and d['out_of_bounds'] == 0 and d['nranks'] == 2 and
    [r['size'] for r in d['rows']] == [8, 64, 512] and
    all(r[p]['wrong'] == 0 and r[p]['time_us'] > 0 for r in d['rows'] for p in ('out_of_place', 'in_place')) and
    d['rows'][0]['type'] == 'float' and d['rows'][0]['op'] == 'sum' and d['command'][0] == 'perf' and
    d['mode'] == 'hot' and d['machine']['cores'] > 0 and d['library']['path'].startswith('/')"
is "low precision" ends 0 "$rcclx" perf all_reduce -n 2 -b 64 -e 4K -f 8 --iters 1 --low-precision int8
is "is said, and how it is checked" says out '^# low precision: int8 from 1 bytes on; results are checked within '
is "from some size on, in JSON" ends 0 "$rcclx" perf alltoallv -n 3 -b 1K -e 1K --iters 1 -d half --low-precision=fp8 --low-precision-min 2K --json
is "says it, too" json "$folder/out" "d['low_precision'] == 'fp8' and d['low_precision_min'] == 2048 and d['out_of_bounds'] == 0"
is "low precision of the environment" ends 0 env RCCLX_LOW_PRECISION=fp8 "$rcclx" perf all_gather -n 2 -b 64 -e 64 --iters 1
is "is seen" says out '^# low precision: fp8 where it pays; '
is "and put off" ends 0 env RCCLX_LOW_PRECISION=fp8 "$rcclx" perf all_gather -n 2 -b 64 -e 64 --iters 1 --low-precision off
is "altogether" [ "$(grep -c 'low precision' "$folder/out")" = 0 ]
is "--json FILE beside the table" ends 0 "$rcclx" perf --json "$folder/file" alltoall -n 2 -b 8 -e 8 --iters 1 --dirty
is "holds the row" json "$folder/file" "d['rows'][0]['in_place'] is None and d['mode'] == 'dirty'"
is "the table is there" says out '^# Out of bounds values : 0 OK$'
is "-J FILE" ends 0 "$bin/gather_perf" -b 8 -e 8 -n 1 -J "$folder/file2"
is "holds the row too" json "$folder/file2" "d['collective'] == 'gather'"
is "a file that cannot be" ends 3 "$bin/gather_perf" -b 8 -e 8 -n 1 -J "$folder/no/such"

# --- libraries that are wrong, refuse, die

is "another library" ends 0 "$rcclx" perf all_reduce -n 1 -b 8 -e 8 --lib "$liar"
is "is named" says out '^# Library: .*/liar\.so \(version 2\.19\.3\)$'
is "wrong results give 1" ends 1 env LIAR=wrong "$rcclx" perf all_reduce -n 1 -b 8 -e 8 --lib "$liar"
is "and are counted" says out '^# Out of bounds values : 2 FAILED$'
is "writing beyond the buffer is noticed" ends 1 env LIAR=beyond "$rcclx" perf broadcast -n 1 -b 8 -e 8 --lib "$liar"
is "wrong results in JSON" ends 1 env LIAR=wrong "$rcclx" perf sendrecv -n 1 -b 8 -e 8 --lib "$liar" --json
is "are counted, too" json "$folder/out" "d['out_of_bounds'] == 1 and d['rows'][0]['out_of_place']['wrong'] == 1"
is "a refusal gives 3" ends 3 env LIAR=fail "$rcclx" perf all_reduce -n 1 -b 8 -e 8 --lib "$liar"
is "with call and library" says err '^rcclx perf: rank 0: ncclAllReduce: the liar refuses \(3\) .*liar\.so'
is "a dying rank gives 128 + its signal" ends 139 env LIAR=die "$rcclx" perf all_reduce -n 1 -b 8 -e 8 --lib "$liar"
is "with its name" says err '^rcclx perf: rank 0 \(pid [0-9]+, all_reduce\) ended by signal 11 '
is "too slow gives 1" ends 1 env NCCL_TESTS_MIN_BW=1e9 "$rcclx" perf sendrecv -n 2 -b 8 -e 8 --iters 1
is "and says so" says out '^# Avg bus bandwidth    : .* FAILED$'
is "no such library" ends 3 "$rcclx" perf all_reduce -n 1 --lib "$folder/none.so"
is "no NCCL library" ends 3 sh -c "ln -s /dev/null '$folder/null.so'; '$rcclx' perf all_reduce -n 1 --lib '$folder/null.so'"

# --- two libraries

is "--vs" ends 0 "$rcclx" perf all_reduce -n 1 -b 8 -e 8 --iters 3 --vs "$liar"
is "names ours" says out '^# Library ours: /.*/libnccl\.so\.2[^ ]* \(version 2\.28\.9, rcclx '
is "names theirs" says out '^# Library theirs: .*/liar\.so \(version 2\.19\.3\)$'
is "both times and the ratio" says out ' ours  theirs   ratio  #wrong '
is "their errors count" ends 1 env LIAR=wrong "$rcclx" perf all_reduce -n 1 -b 8 -e 8 --iters 3 --vs "$liar" --json
is "on their side" json "$folder/out" "d['rows'][0]['out_of_place']['wrong'] == 0 and
    d['rows'][0]['other']['out_of_place']['wrong'] == 1 and d['rows'][0]['ratio']['in_place'] > 0"
is "three sides" ends 0 "$rcclx" perf all_reduce -n 1 -b 8 -e 8 --iters 3 --vs "$liar" --vs "$liar:default" --json "$folder/three"
is "have numbers" says out ' ours      #1      #2   ratio  #wrong '
is "the file says which" says out '^# Library #2: .*/liar\.so '
is "the ratio is to the best" json "$folder/three" "[len(o) for o in d['rows'][0]['others']] == [2, 2] and
    abs(d['rows'][0]['ratio']['in_place'] * min(o['in_place']['time_us'] for o in d['rows'][0]['others'])
    - d['rows'][0]['in_place']['time_us']) < 1e-6 + d['rows'][0]['in_place']['time_us'] / 1e3"
is "the same library twice is said to be one" ends 0 "$rcclx" perf all_reduce -n 1 -b 8 -e 8 --iters 1 --lib "$liar" --vs "$liar"
is "in so many words" says out '^# Both are the same file'

# --- GPUs, emulated ones: the liar copies as the host, which may read and write their memory

emu() {
    "$rcclx" perf "$@" -n 1 --device emu -R 0 --lib "$liar" --iters 3
}
is "a device in place of host memory" ends 0 emu all_reduce -b 8 -e 64K -f 16
is "has a name and a place" says out '^#  Rank  0 .* device  0 \[ffff:00:00\.0\] Emulated GPU 0$'
is "says what is timed and how" says out '^# time: 3 calls .*between events on the GPU, the slowest rank; median of 7$'
is "what the buffers are" says out "^# buffers: the driver's memory, not registered$"
is "and that all was right" says out '^# Out of bounds values : 0 OK$'
is "graphs, three sides, JSON" ends 0 emu all_gather -b 1K -e 4K -f 4 -G 2 --repeats 3 --json "$folder/gpu" \
    --vs "$liar:default" --vs "$liar"
is "head says so" says out 'graph: 2 unalign: 0$'
is "JSON has device and sides" json "$folder/gpu" "d['mode'] == 'graph' and d['graph'] == 2 and d['repeats'] == 3 and
    d['device']['kind'] == 'emu' and d['device']['ranks'][0]['name'] == 'Emulated GPU 0' and len(d['sides']) == 3 and
    all(0 < r[p]['min_us'] <= r[p]['time_us'] and r[p]['wrong'] == 0 for r in d['rows'] for p in ('out_of_place', 'in_place'))"
is "time of the host alone, unaligned" ends 0 emu broadcast -b 1000 -e 1000 --repeats 1 --cputime -u 3 -d int32
is "a message in pieces" ends 0 emu sendrecv -b 128M -e 128M --repeats 1 -w 0 -T 120
is "wrong results on a device" ends 1 env LIAR=wrong "$rcclx" perf all_reduce -n 1 --device emu -R 0 --lib "$liar" -b 8 -e 8
is "are counted: in and out of place" says out '^# Out of bounds values : 2 FAILED$'
is "the last byte of a large message" ends 1 env LIAR=last "$rcclx" perf sendrecv -n 1 --device emu -R 0 --lib "$liar" \
    -b 128M -e 128M --iters 1 --repeats 1 -w 0
is "is looked at" says out '^# Out of bounds values : 1 FAILED$'
is "a byte behind the output" ends 1 env LIAR=beyond "$rcclx" perf sendrecv -n 1 --device emu -R 0 --lib "$liar" -b 128M \
    -e 128M --iters 1 --repeats 1 -w 0
is "is seen, even of a large one" says out '^# Out of bounds values : 1 FAILED$'
is "no capture of the default stream" ends 2 emu all_reduce -b 8 -e 8 -G 1 -y 1
is "says why" says err 'the default stream .* cannot be captured'
is "our own library in a file" ends 3 "$rcclx" perf all_reduce -n 1 --device emu --lib "$bin/../lib/libnccl.so.2"
is "would have GPUs of its own" says err 'would emulate GPUs of its own'

# --- our own library on emulated GPUs

ours() {
    RCCLX_EMU_DEVICES=4 timeout 100 "$rcclx" perf "$@" --device emu --iters 2 --repeats 2 -w 1
}
is "two GPUs, eager" ends 0 ours all_reduce -n 2 -b 1K -e 16K -f 16
is "each with its own" says out '^#  Rank  1 .* device  1 \[ffff:01:00\.0\] Emulated GPU 1$'
is "registered memory of the library" says out '^# buffers: ncclMemAlloc, ncclCommRegister$'
is "graphs, windows" ends 0 ours all_gather -n 2 -b 1K -e 16K -f 16 -G 2 -R 2
is "ordinary memory" ends 0 ours reduce_scatter -n 2 -b 1K -e 16K -f 16 -R 0
is "several GPUs of one thread, graphs" ends 0 ours all_reduce -n 1 -g 2 -b 1K -e 1K -G 1
is "in threads, groups of calls" ends 0 ours all_reduce -n 1 -t 2 -b 1K -e 1K -m 2 -z 1
is "under a launcher" ends 0 env RCCLX_EMU_DEVICES=4 "$rcclx" run -n 2 "$rcclx" perf all_gather --device emu -b 1K -e 1K \
    --iters 1 --repeats 1 -w 0 -G 1
is "one table, two devices" [ "$(grep -cE '^#  Rank  [01] .* device  [01] \[ffff' "$folder/out")" = 2 ]
is "as many ranks as devices" ends 0 ours broadcast -b 64 -e 64
is "four" says out '^#  Rank  3 .* device  3 '

# --- codecs alone

codec() {
    timeout 100 "$rcclx" perf codec --device emu --iters 2 --repeats 3 "$@"
}
is "codecs alone" ends 0 codec -b 64K -e 256K -f 4
is "say where" says out '^# Codecs alone on device 0 \[ffff:00:00\.0\] Emulated GPU 0, '
is "four ways, two codecs, two sizes" [ "$(grep -cE '^ .* (fp8|int8) .* (encode|decode|copy|driver) +[0-9.]+ .* 0$' \
    "$folder/out")" = 16 ]
is "the kernel's copy is the measure" says out '^ +262144 +65536 +float +int8 +8 +copy +[0-9.]+ +[0-9.]+ +1\.000 +[0-9.]+ +0$'
is "and all is right" says out '^# Wrong bytes : 0 OK$'
is "one codec, one odd size, JSON" ends 0 codec -d bfloat16 --low-precision int8 -b 100002 -e 100002 --json
is "counts what is read and written" json "$folder/out" "[r['codec'] for r in d['rows']] == ['int8'] and d['out_of_bounds'] == 0 and
    d['rows'][0]['count'] == 50001 and d['rows'][0]['type'] == 'bfloat16' and d['device']['kind'] == 'emu' and
    d['threads'] == 64 and
    all(0 < w['min_us'] <= w['time_us'] and w['wrong'] == 0 and abs(w['gbps'] * w['time_us'] * 1e3 - n) < 1
        for w, n in [(d['rows'][0][w], 100002 + (53127 if w in ('encode', 'decode') else 100002))
                     for w in ('encode', 'decode', 'copy', 'driver')])"
is "an element, and as many as fill some blocks, beside the table" ends 0 codec -b 2 -e 70K -f 35840 -d half -J "$folder/codec"
is "are right, too" json "$folder/codec" "d['out_of_bounds'] == 0 and
    [(r['count'], r['blocks']) for r in d['rows']] == [(1, 1), (1, 1), (35840, 3), (35840, 3)]"
is "a long one, checked in parts" ends 0 codec --low-precision fp8 -b 66M -e 66M --iters 0
is "is not timed" says out ' encode +N/A +N/A +N/A +N/A +0$'

# --- bad command lines: bad WHAT-IT-SAYS ARGUMENTS...

bad() {
    what=$1
    shift
    is "refused: perf $*" ends 2 "$rcclx" perf "$@"
    is "says: $what" says err "$what"
}
bad 'which collective' -n 2
bad 'the nearest is all_reduce' all_reduc -n 2
bad 'the nearest is --stepfactor' all_reduce --stepfacter 2
bad 'unknown option -q' all_reduce -q 1
bad 'the nearest is float' all_reduce -d flaot
bad 'there are sum, prod' all_reduce -o add
bad 'a size in bytes is needed' all_reduce -b 8Q
bad 'smallest size .* is larger' all_reduce -b 2K -e 1K
bad 'greater than 1' all_reduce -f 0.5
bad 'from 1 to 1024' all_reduce -n 0
bad 'the job has 2 ranks' broadcast -n 2 -r 2
bad 'needs a value' all_reduce -n
bad 'takes no value' all_reduce --dirty=1
bad 'graphs need a GPU' all_reduce -G 1
bad 'only for calls from inside kernels' all_reduce -D 2
bad 'there are off, fp8 and int8' all_reduce --low-precision fp7
bad 'the devices are' all_reduce --device tpu
bad 'collective is all_reduce already' all_reduce all_gather
bad 'three other libraries' all_reduce --vs a --vs b --vs c --vs d
bad 'Give --vs before' all_reduce --vs-registration 1
bad 'measured on a GPU' codec
bad 'there are fp8, int8 and both' codec --low-precision off
bad 'codecs take float' codec -d int32
bad 'an element has 4 bytes' codec -b 2
bad 'It is the codecs' codec all_reduce
bad 'unknown option -n' codec -n 2
is "a library without low precision" ends 3 "$rcclx" perf all_reduce -n 1 -b 8 -e 8 --iters 1 --lib "$liar" --low-precision fp8
is "is named so" says err 'the library has no rcclxCommSetLowPrecision'
is "no GPU" ends 3 env CUDA_VISIBLE_DEVICES= "$rcclx" perf all_reduce --device cuda
is "says so, and what to do" says err '^rcclx perf: --device cuda: no GPUs: .*--device host'
is "auto is host memory then" ends 0 env -u RCCLX_DEVICE CUDA_VISIBLE_DEVICES= HIP_VISIBLE_DEVICES= \
    "$rcclx" perf all_reduce -n 2 -b 8 -e 8 --iters 1
is "as the table says" says out '^#  Rank  0 .*\[host\]'
is "--help" ends 0 "$rcclx" perf --help
is "names every collective" says out 'all_reduce all_gather reduce_scatter alltoall alltoallv broadcast reduce gather scatter sendrecv'
is "--help of codec" ends 0 "$rcclx" perf codec --help
is "names its own options" says out '^ +--low-precision X +int8, fp8 or both$'
is "--help of a test" ends 0 "$bin/alltoallv_perf" -h
is "says what -n is there" says out '^  -n, --iters N '

echo "1..$number"
exit $failed
