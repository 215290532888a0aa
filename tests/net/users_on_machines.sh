#!/bin/bash
# The tests of users' cases and of what fails, once more, their processes dealt to two
# machines (this one under two names), so that half of their peers are reached by the
# network. Left out: those of one machine's files, and those without a network.
set -u
echo "# timeout 900"
. "$(dirname "$0")/tap.inc"
trap 'rm -rf "$folder"' EXIT

on_machines() {
    RCCLX_TEST_MACHINES=2 "$build/tests/$1"
}

short="users/a01_peer_dies users/a03_teardown users/a04_sizes_differ users/a06_zero_size users/a07_rank_counts users/a11_average
    users/a14_low_precision users/a14b_low_precision_switch users/a17_groups users/a19_costs_and_leaks users/a26_threads"
long="users/a08_large users/a10_in_place users/a13_fp8 users/a27_back_to_back users/a29_ranks"
[ -n "${RCCLX_TEST_LONG:-}" ] || long=

for program in $short $long; do
    is "$program" on_machines "$program"
done
end
