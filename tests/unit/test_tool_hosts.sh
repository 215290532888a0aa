#!/bin/sh
# `rcclx run --hosts`: ranks of several machines, reached by an ssh that is none: it starts
# the command here, in a session of its own, so that only the leash can end it.
set -u
rcclx=$(cd "${RCCLX_BUILD:-build}/bin" && pwd)/rcclx
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failed=0 number=0

cat >"$folder/ssh" <<'END'
#!/bin/sh
# ssh HOST COMMAND: with a login's own environment, in the home folder
cd "$HOME" || exit 1
case $1 in
gone) sleep 1 && echo "ssh: connect to host gone port 22: Connection refused" >&2 && exit 255 ;;
cut) (sleep 1; kill -9 $$) & ;;
talks) echo "a line of its own" && echo "another" >&2 ;;
esac
echo "$1 $2" >>"$FOLDER/called"
env -i HOME="$HOME" PATH=/usr/bin:/bin setsid -w sh -c "$2"
END
chmod +x "$folder/ssh"
export FOLDER="$folder"

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
    timeout 60 "$rcclx" run --ssh "$folder/ssh" "$@" >"$folder/out" 2>"$folder/err" </dev/null
    got=$?
    echo "exit code $got, expected $want"
    cat "$folder/out" "$folder/err"
    [ $got = "$want" ]
}

says() { # FILE PATTERN
    cat "$folder/$1"
    grep -qE -- "$2" "$folder/$1"
}

same() { # FILE TEXT
    printf '%s\n' "$2" >"$folder/want"
    diff "$folder/want" "$1"
}

alive() {
    n=0
    while read -r pid; do
        kill -0 "$pid" 2>/dev/null && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null && n=$((n + 1))
    done <"$1"
    echo $n
}

none_left() { # FILE WITH PIDS: none is left within 8 s, and there were COUNT of them
    [ "$(wc -l <"$1")" = "$2" ] || { cat "$1"; return 1; }
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
        [ "$(alive "$1")" = 0 ] && return 0
        sleep 0.5
    done
    cat "$1"
    return 1
}

started() { # FILE COUNT: wait until so many pids are written
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do
        [ -f "$1" ] && [ "$(wc -l <"$1")" = "$2" ] && return 0
        sleep 0.2
    done
    return 1
}

is "all ranks succeed" ends 0 --hosts a:2,user@b:3 -- sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR'
sort "$folder/out" >"$folder/sorted"
is "every rank finds its variables" same "$folder/sorted" "0/5 0/2 a
1/5 1/2 a
2/5 0/3 a
3/5 1/3 a
4/5 2/3 a"
sort "$folder/called" >"$folder/sorted"
is "ssh is called once a host" same "$folder/sorted" "$(printf "a exec '%s' run --far-side\nuser@b exec '%s' run --far-side" "$rcclx" "$rcclx")"
is "they agree on port and id" ends 0 --hosts a:2,b:2 -- sh -c 'echo $MASTER_PORT $RCCLX_RUN_ID | grep -E "^[0-9]+ [0-9a-f]{32}$"'
is "one line for all" sh -c "[ \$(sort -u '$folder/out' | wc -l) = 1 ] && [ \$(wc -l <'$folder/out') = 4 ]"
is "address and port may be given" ends 0 --hosts a --master-addr fd00::1 --master-port 4567 -- sh -c 'echo $MASTER_ADDR $MASTER_PORT'
is "and are passed on" says out '^fd00::1 4567$'
is "-n leaves the last slots empty" ends 0 -n 3 --hosts a:2,b:2,c:2 -- sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE'
sort "$folder/out" >"$folder/sorted"
is "and what is left is dealt" same "$folder/sorted" "0/3 0/2
1/3 1/2
2/3 0/1"
is "a short list of names" ends 0 --hosts 'n[08-10]' --tag -- sh -c 'echo $MASTER_ADDR'
sort "$folder/out" >"$folder/sorted"
is "stands for all of them" same "$folder/sorted" "[0] n08
[1] n08
[2] n08"

printf '# two machines\n\n a slots=2 # the big one\nb:1\n\ta max_slots=4\n' >"$folder/file"
is "a host file" ends 0 --hosts "$folder/file" -- sh -c 'echo $RANK $LOCAL_WORLD_SIZE'
sort "$folder/out" >"$folder/sorted"
is "slots of lines for one host add up" same "$folder/sorted" "0 3
1 3
2 3
3 1"

is "--tag" ends 0 --hosts a,b --tag -- sh -c 'echo one; echo two >&2; printf three'
sort "$folder/out" >"$folder/sorted"
is "every line of output is tagged with the rank in the job" same "$folder/sorted" "[0] one
[0] three
[1] one
[1] three"
is "of the errors too" says err '^\[1\] two$'
is "a long line stays one" ends 0 --hosts a -- sh -c 'head -c 20000 /dev/zero | tr "\0" x; echo'
is "of all its characters" sh -c "[ \$(wc -l <'$folder/out') = 1 ] && [ \$(wc -c <'$folder/out') = 20001 ]"
is "what a login says is passed on" ends 0 --hosts talks -- true
is "on its stream" sh -c "grep -qx 'a line of its own' '$folder/out' && grep -qx another '$folder/err'"

export NCCL_DEBUG=WARN UCX_TLS=tcp RCCLX_TIMEOUT=77 NCCL_HOSTID=mine MINE=1 OTHER="a 'b' \$c
d"
is "variables" ends 0 --hosts a -x OTHER -x MORE=x=y -- sh -c 'echo "$NCCL_DEBUG,$UCX_TLS,$RCCLX_TIMEOUT,$NCCL_HOSTID,$MINE,$MORE"; echo "$OTHER"'
is "of the families that matter, and those asked for, arrive unchanged" same "$folder/out" "WARN,tcp,77,,,x=y
a 'b' \$c
d"
is "one that is not there" ends 2 --hosts a -x NOWHERE -- true
is "is told" says err '-x NOWHERE: it is not set here'
unset NCCL_DEBUG UCX_TLS RCCLX_TIMEOUT NCCL_HOSTID OTHER
is "arguments arrive unchanged" ends 0 --hosts a -- printf '%s.\n' "a 'b'" '$HOME' '' '*'
is "whatever is in them" same "$folder/out" "a 'b'.
\$HOME.
.
*."
mkdir "$folder/work" && cd "$folder/work" || exit 1
is "ranks begin in this folder" ends 0 --hosts a -- sh -c 'pwd'
is "where it exists" same "$folder/out" "$folder/work"
cd / || exit 1
is "standard input is empty" ends 0 --hosts a,b -- sh -c '[ "$(cat)" = "" ]'
is "--bind" ends 0 --hosts a:2 --bind -- sh -c 'grep Cpus_allowed_list /proc/self/status | grep -vq "[-,]"'

is "a killed rank ends the job with its code" ends 137 --hosts a:2,b:2 -- \
    sh -c "echo \$\$ >>'$folder/killed'; if [ \$RANK = 2 ]; then sleep 0.5; kill -9 \$\$; fi; sleep 60"
is "and is named, with its host" says err '^rcclx run: rank 2 on host b \(pid [0-9]+, sh\) ended by signal 9 \(Killed\); stopping the others$'
is "once" sh -c "[ \$(wc -l <'$folder/err') = 1 ]"
is "nothing is left" none_left "$folder/killed" 4
is "a failing rank ends the job with its code" ends 7 --hosts a,b -- sh -c 'if [ $RANK = 0 ]; then exit 7; fi; sleep 60'
is "and is named" says err '^rcclx run: rank 0 on host a \(pid [0-9]+, sh\) exited with code 7; stopping the others$'
is "--timeout, and ranks deaf to SIGTERM" ends 124 --hosts a,b --timeout 1 -- \
    sh -c "trap '' TERM; echo \$\$ >>'$folder/deaf'; sleep 60 & echo \$! >>'$folder/deaf'; wait; sleep 60"
is "none of which is left" none_left "$folder/deaf" 4

# interrupted SIGNAL CODE
interrupted() {
    rm -f "$folder/cut"
    "$rcclx" run --ssh "$folder/ssh" --hosts a:2,b -- sh -c "echo \$\$ >>'$folder/cut'; sleep 60 & echo \$! >>'$folder/cut'; wait" \
        2>"$folder/err" </dev/null &
    launcher=$!
    started "$folder/cut" 6 || return 1
    kill -"$1" $launcher
    wait $launcher
    got=$?
    echo "exit code $got, expected $2"
    [ $got = "$2" ] && none_left "$folder/cut" 6
}

is "Ctrl-C ends all ranks" interrupted INT 130 # a shell's child in the background ignores SIGINT, but asks for it itself
is "SIGTERM too" interrupted TERM 143
is "a launcher that is killed leaves nothing behind" interrupted KILL 137

is "a connection that is lost ends the job" ends 3 --hosts a,cut -- sh -c "echo \$\$ >>'$folder/lost'; sleep 60"
is "and is told" says err '^rcclx run: host cut: the connection to its ranks was lost \(signal 9\); stopping the others$'
is "nothing is left on either side" none_left "$folder/lost" 2

is "a host that cannot be reached" ends 3 --hosts a:2,gone:2 -- sh -c "touch '$folder/began'"
is "is named, with what ssh says" sh -c "grep -q 'Connection refused' '$folder/err' && grep -q '^rcclx run: host gone cannot be reached (exit code 255' '$folder/err'"
is "and no rank begins elsewhere" [ ! -e "$folder/began" ]
is "no rcclx there" ends 3 --hosts a --rcclx /no/such/rcclx -- true
is "is told" says err '^rcclx run: host a: /no/such/rcclx cannot be started there \(exit code 127\)'
is "no program there" ends 127 --hosts a:2,b -- ./no-such-program
is "is told, with the host" says err '^rcclx run: host [ab]: ./no-such-program: No such file or directory'
is "no ssh here" sh -c "! '$rcclx' run --hosts a --ssh '$folder/none' -- true 2>'$folder/err'"
is "is told" says err "^rcclx run: $folder/none: No such file or directory; is it installed"

printf 'a slots=2\n\nb slot=2\n' >"$folder/file"
is "a wrong host file" ends 2 --hosts "$folder/file" true
is "is told with its line" says err "^rcclx run: host file $folder/file, line 3: 'slot=2' is unknown; a line is: host slots=N"
is "a file that is not there" ends 2 --hosts "$folder/none" true
is "is told" says err "^rcclx run: host file $folder/none: No such file"
is "a wrong list" ends 2 --hosts a:2,b:none true
is "is told" says err "--hosts a:2,b:none: 'none' is no number of slots"
is "a host like an option" ends 2 --hosts=-oProxyCommand=x true
is "is refused" says err "begins with '-'"
is "too many ranks" ends 2 -n 5 --hosts a:2,b:2 true
is "are told" says err '-n 5: --hosts has 4 slots, on 2 hosts'
is "localhost among several" ends 2 --hosts localhost,b true
is "is refused, as nobody else finds it" says err '^rcclx run: ranks on 2 hosts cannot find rank 0 at localhost'
is "without --hosts" ends 2 true
is "--ssh means nothing" says err '--ssh is for ranks on other machines'
is "localhost alone needs no ssh" sh -c "[ \"\$('$rcclx' run --hosts localhost:2 -- sh -c 'echo \$RANK \$MASTER_ADDR' | sort | tr '\n' ,)\" = '0 127.0.0.1,1 127.0.0.1,' ]"
is "the far side by hand" sh -c "! '$rcclx' run --far-side </dev/null 2>'$folder/err'"
is "says whose it is" says err '--far-side is what rcclx run --hosts starts'

echo "1..$number"
exit $failed
