#!/bin/sh
# `rcclx run`: variables, output, exit codes, and no rank left behind.
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

# ends CODE ARGUMENTS...: rcclx run ends with that code; out and err are kept.
ends() {
    want=$1
    shift
    "$rcclx" run "$@" >"$folder/out" 2>"$folder/err"
    got=$?
    echo "exit code $got, expected $want"
    cat "$folder/out" "$folder/err"
    [ $got = "$want" ]
}

says() { # FILE PATTERN
    cat "$folder/$1"
    grep -qE "$2" "$folder/$1"
}

same() { # FILE TEXT
    printf '%s\n' "$2" >"$folder/want"
    diff "$folder/want" "$1"
}

# alive FILE: how many of the processes named in it exist still.
alive() {
    n=0
    while read -r pid; do
        kill -0 "$pid" 2>/dev/null && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null && n=$((n + 1))
    done <"$1"
    echo $n
}

none_left() { # FILE WITH PIDS: none is left within 5 s, and there were COUNT of them
    [ "$(wc -l <"$1")" = "$2" ] || { cat "$1"; return 1; }
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        [ "$(alive "$1")" = 0 ] && return 0
        sleep 0.5
    done
    cat "$1"
    return 1
}

started() { # FILE COUNT: wait until so many pids are written
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        [ -f "$1" ] && [ "$(wc -l <"$1")" = "$2" ] && return 0
        sleep 0.2
    done
    return 1
}

is "all ranks succeed" ends 0 -n 3 -- sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR'
sort "$folder/out" >"$folder/sorted"
is "every rank finds its variables" same "$folder/sorted" "0/3 0/3 127.0.0.1
1/3 1/3 127.0.0.1
2/3 2/3 127.0.0.1"
is "they agree on port and id" ends 0 -n 4 sh -c 'echo $MASTER_PORT $RCCLX_RUN_ID | grep -E "^[0-9]+ [0-9a-f]{32}$"'
is "one line for all" sh -c "[ \$(sort -u '$folder/out' | wc -l) = 1 ] && [ \$(wc -l <'$folder/out') = 4 ]"
is "options of the program are its own" ends 0 -n 1 printf '%s.' -n 7 --tag
is "and arrive unchanged" says out '^-n\.7\.--tag\.$'

is "--tag" ends 0 -n 2 --tag -- sh -c 'echo one; echo two >&2; printf three'
sort "$folder/out" >"$folder/sorted"
is "every line of output is tagged" same "$folder/sorted" "[0] one
[0] three
[1] one
[1] three"
is "of the errors too" says err '^\[1\] two$'
is "--bind" ends 0 -n 2 --bind -- sh -c 'grep Cpus_allowed_list /proc/self/status | grep -vq "[-,]"'
echo word >"$folder/in"
is "standard input goes to rank 0 alone" sh -c "[ \"\$('$rcclx' run -n 3 cat <'$folder/in')\" = word ]"

is "a killed rank ends the job with its code" ends 137 -n 4 -- \
    sh -c 'if [ $RANK = 2 ]; then sleep 0.3; kill -9 $$; fi; sleep 60'
is "and is named" says err \
    '^rcclx run: rank 2 \(pid [0-9]+, sh\) ended by signal 9 \(Killed\); stopping the other 3 ranks$'
is "a failing rank ends the job with its code" ends 7 -n 2 -- sh -c 'if [ $RANK = 1 ]; then exit 7; fi; sleep 60'
is "and is named" says err '^rcclx run: rank 1 \(pid [0-9]+, sh\) exited with code 7; stopping the other 1 rank$'
is "--timeout, and ranks deaf to SIGTERM" ends 124 -n 2 --timeout 0.5 -- \
    sh -c "trap '' TERM; echo \$\$ >>'$folder/deaf'; sleep 60 & echo \$! >>'$folder/deaf'; wait; sleep 60"
is "none of which is left" none_left "$folder/deaf" 4

"$rcclx" run -n 2 -- sh -c "echo \$\$ >>'$folder/cut'; sleep 60 & echo \$! >>'$folder/cut'; wait" 2>"$folder/err" &
launcher=$!
is "ranks and what they start are running" started "$folder/cut" 4
kill -TERM $launcher
wait $launcher
is "SIGTERM to the launcher gives 143" [ $? = 143 ]
is "and nothing is left" none_left "$folder/cut" 4

"$rcclx" run -n 2 -- sh -c "echo \$\$ >>'$folder/lost'; sleep 60 & echo \$! >>'$folder/lost'; wait" 2>"$folder/err" &
launcher=$!
is "again, for SIGKILL" started "$folder/lost" 4
kill -KILL $launcher
wait $launcher 2>/dev/null
is "nothing is left of a killed launcher either" none_left "$folder/lost" 4

is "--preload" ends 0 -n 1 --preload -- sh -c 'echo "$LD_PRELOAD"'
is "puts the library there" says out '/lib/libnccl\.so\.2$'
LD_PRELOAD=/dev/null/none.so "$rcclx" run -n 1 --preload -- sh -c 'echo "$LD_PRELOAD"' >"$folder/out" 2>/dev/null
is "before what is there already" says out '/lib/libnccl\.so\.2:/dev/null/none\.so$'

is "no such program" ends 127 -n 2 ./no-such-program
is "is named" says err "^rcclx run: ./no-such-program: No such file"
is "no program" ends 2 -n 2
is "no ranks" ends 2 -n 0 true
is "a bad number" ends 2 -n two true
is "a mistyped option" ends 2 --timeuot 3 true
is "gets the nearest one" says err 'the nearest is --timeout'
is "--help" ends 0 --help

echo "1..$number"
exit $failed
