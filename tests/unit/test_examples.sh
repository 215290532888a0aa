#!/bin/sh
# Runs the examples, as built, and holds them to what they claim.
set -u
examples=${RCCLX_BUILD:-build}/bin/examples
launch="${RCCLX_BUILD:-build}/bin/rcclx run -n"
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

all_say() { # FILE COUNT PATTERN
    cat "$1"
    [ "$(grep -cE "$3" "$1")" = "$2" ]
}

accurate() { # REPORT: at least 95 % of the test images
    cat "$1"
    awk '/^test accuracy:/ { found = 1; good = $3 >= 95 } END { exit !(found && good) }' "$1"
}

same_curve() { # CSV CSV: 20 epochs, losses at most 1e-5 apart, falling to a tenth
    paste -d, "$1" "$2" | awk -F, '
        NR == 1 { next }
        { apart = $2 - $5; if (apart < 0) apart = -apart; if (apart > 1e-5 || $2 == "" || $5 == "") bad = 1
          if (NR == 2) first = $2; last = $2 }
        END { print "first", first, "last", last; exit bad || NR != 21 || !(last < first / 10) }'
}

as_accurate() { # REPORT REPORT: two means over 10 seeds, at most 0.3 points apart; the first says so itself
    cat "$1" "$2"
    grep -q '^(mean of 10 seeds' "$1" && grep -q '^(mean of 10 seeds' "$2" && grep -qE '^in (int8|fp8): .*allowed: 0.30' "$1" &&
        cat "$1" "$2" | awk '/^test accuracy:/ { mean[++n] = $3 }
            END { apart = mean[1] - mean[2]; exit !(n == 2 && mean[1] >= 95 && apart * apart <= 0.3 * 0.3) }'
}

another_curve() { # CSV CSV: the same number of epochs, but losses that rounding in float32 does not explain
    paste -d, "$1" "$2" | awk -F, '
        NR > 1 { apart = $2 - $5; if (apart < 0) apart = -apart; if (apart > most) most = apart }
        END { print "apart", most; exit !(NR == 21 && most > 1e-4 && most < 0.1) }'
}

$launch 3 -- "$examples/hello" >"$folder/hello" 2>&1
is "hello: three processes get the sum" all_say "$folder/hello" 3 '^rank [0-2] of 3: all numbers together are 3$'
"$examples/hello" >"$folder/hello1" 2>&1
is "hello: without a launcher it is rank 0 of 1" all_say "$folder/hello1" 1 '^rank 0 of 1: all numbers together are 0$'

"$examples/threads" >"$folder/threads" 2>&1
is "threads: a rank each" all_say "$folder/threads" 4 '^thread [0-3]: 4002$'
is "threads: one thread for all" all_say "$folder/threads" 4 '^rank [0-3] of one thread: 0 1 4 9$'

for n in 1 2 4; do
    is "train_digits -n $n" sh -c "'$examples/train_digits' -n $n -c >'$folder/curve$n' 2>'$folder/report$n' ||
        { cat '$folder/report$n'; exit 1; }"
    is "train_digits -n $n: at least 95 %" accurate "$folder/report$n"
    is "train_digits -n $n: the same weights on all ranks" all_say "$folder/report$n" 1 '^weights: identical on all ranks'
    is "train_digits -n $n: the curve of one rank" same_curve "$folder/curve1" "$folder/curve$n"
done

is "train_digits: 10 seeds" sh -c "'$examples/train_digits' --seeds 10 >'$folder/full'"
for codec in int8 fp8; do
    is "train_digits in $codec" sh -c "'$examples/train_digits' --low-precision $codec -c >'$folder/low' 2>'$folder/report' ||
        { cat '$folder/report'; exit 1; }"
    is "train_digits in $codec: that it is in low precision shows" another_curve "$folder/curve4" "$folder/low"
    is "train_digits in $codec: 10 seeds" sh -c "'$examples/train_digits' --low-precision $codec --seeds 10 >'$folder/$codec'"
    is "train_digits in $codec: the same weights on all ranks" all_say "$folder/$codec" 1 '^weights: identical on all ranks'
    is "train_digits in $codec: as accurate as in full precision" as_accurate "$folder/$codec" "$folder/full"
done
is "train_digits: an unknown codec is noticed" sh -c \
    "! '$examples/train_digits' --low-precision int4 2>'$folder/why' && grep 'there are off, fp8, int8' '$folder/why'"

$launch 4 -- "$examples/train_digits" -c >"$folder/launched" 2>"$folder/report"
is "train_digits: under a launcher, the same bits" cmp "$folder/launched" "$folder/curve4"

head -n 1000 examples/data/digits.txt >"$folder/short"
is "train_digits: a damaged file is noticed" sh -c \
    "! '$examples/train_digits' -d '$folder/short' 2>'$folder/why' && grep 'the data file is damaged' '$folder/why'"

echo "1..$number"
exit $failed
