#!/bin/bash
# An installed library serves programs outside the tree, by pkg-config and by
# CMake, and keeps doing so when the whole installation is moved.
set -u
build=${RCCLX_BUILD:-build}
here=$PWD/tests/install
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export RCCLX_DEVICE=host
number=0 failed=0

# expect WHAT COMMAND...
expect() {
    local what=$1 said
    shift
    number=$((number + 1))
    if said=$("$@" 2>&1); then
        echo "ok $number - $what"
    else
        echo "$said" | sed 's/^/# /'
        echo "not ok $number - $what"
        failed=1
    fi
}

installed() {
    cmake --install "$build" --prefix "$dir/first" || return 1
    for file in include/nccl.h include/rccl/rccl.h include/rcclx.h lib/libnccl.so lib/libnccl.so.2 lib/librccl.so \
        lib/librccl.so.1 lib/librcclx.so lib/pkgconfig/nccl.pc lib/pkgconfig/rcclx.pc bin/rcclx bin/all_reduce_perf; do
        [ -e "$dir/first/$file" ] || { echo "$file was not installed"; return 1; }
    done
    mv "$dir/first" "$dir/moved"
}

by_pkg_config() {
    local flags
    flags=$(PKG_CONFIG_PATH=$dir/moved/lib/pkgconfig pkg-config --cflags --libs "$1") || return 1
    gcc -std=c11 -Wall -Werror "$here/user.c" -o "$dir/user-$1" $flags &&
        LD_LIBRARY_PATH=$dir/moved/lib "$dir/user-$1"
}

by_cmake() {
    cp -r "$here" "$dir/project" &&
        cmake -S "$dir/project" -B "$dir/project/build" -DCMAKE_PREFIX_PATH="$dir/moved" &&
        cmake --build "$dir/project/build" &&
        "$dir/project/build/user"
}

expect "everything is installed" installed
expect "a program built with pkg-config rcclx" by_pkg_config rcclx
expect "a program built with pkg-config nccl" by_pkg_config nccl
expect "a program built with find_package(rcclx)" by_cmake
expect "the installed tool starts" "$dir/moved/bin/rcclx" info
echo "1..$number"
exit $failed
