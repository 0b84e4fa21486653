#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Runs Clang through ccache: through_ccache.sh CCACHE COMPILER ARGUMENT...
# ccache takes paths below CCACHE_BASEDIR relative to where the compiler runs, so that another clone's are the same, but
# not those behind -Xclang, by which CMake names precompiled headers. Such a header holds the absolute paths of its
# clone: it is never another's, and ccache knows what includes it by a sum of its text (CCACHE_PCH_EXTSUM).
case $PWD in
  "$CCACHE_BASEDIR"/*) ;;
  *) exec "$@" ;;  # from elsewhere nothing becomes relative
esac
up=$(printf '%s' "${PWD#"$CCACHE_BASEDIR"/}" | sed 's#[^/]\{1,\}#..#g')
case " $* " in
  *" -emit-pch "*)
    env -u CCACHE_BASEDIR -u CCACHE_NOHASHDIR "$@" || exit
    shift
    before=
    for argument in "$@"; do
      shift
      case $before,$argument in
        *,-emit-pch) set -- "$@" -E -Xclang -dD ;;
        -o,*) header=$argument && set -- "$@" "$header.text" ;;
        *) set -- "$@" "$argument" ;;
      esac
      before=$argument
    done
    "$@" && sed "s#$CCACHE_BASEDIR/#$up/#g" "$header.text" | sha256sum >"$header.sum"
    exec rm "$header.text"
    ;;
esac
before=
for argument in "$@"; do
  shift
  case $before,$argument in
    "-Xclang,$CCACHE_BASEDIR"/*) set -- "$@" "$up/${argument#"$CCACHE_BASEDIR"/}" ;;
    *) set -- "$@" "$argument" ;;
  esac
  before=$argument
done
CCACHE_PCH_EXTSUM=1 exec "$@"
