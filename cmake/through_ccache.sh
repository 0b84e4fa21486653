#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Runs a compiler through ccache: through_ccache.sh CCACHE COMPILER ARGUMENT...
# ccache takes paths below CCACHE_BASEDIR relative to where the compiler runs, so that another clone's are the same, but
# not those behind -Xclang, by which CMake names precompiled headers.
case $PWD in
  "$CCACHE_BASEDIR"/*) ;;
  *) exec "$@" ;;  # from elsewhere nothing becomes relative
esac
up=$(printf '%s' "${PWD#"$CCACHE_BASEDIR"/}" | sed 's#[^/]\{1,\}#..#g')
before=
for argument in "$@"; do
  shift
  case $before,$argument in
    "-Xclang,$CCACHE_BASEDIR"/*) set -- "$@" "$up/${argument#"$CCACHE_BASEDIR"/}" ;;
    *) set -- "$@" "$argument" ;;
  esac
  before=$argument
done
exec "$@"
