#!/usr/bin/env bash
# A program for `badged conformance` whose client runs in a process that has the clients of
# many programs: it sends its variables, an empty line and its input to port $1 of this
# machine, then the line `end` unless it was killed, and prints what comes back.

exec 3<>"/dev/tcp/127.0.0.1/$1" || exit
{
  for name in "${!BADGED_@}"; do printf '%s=%s\n' "$name" "${!name}"; done
  echo
  cat
  kill -0 $$ && echo end
} <&0 >&3 &
exec cat <&3
