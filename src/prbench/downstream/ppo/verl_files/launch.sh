#!/usr/bin/env bash
# Starts this export's run, or goes on with it: ./launch.sh [overrides of verl's configuration]
# PYTHON names the interpreter that has verl; PRBENCH_SERVER_URL and PRBENCH_SERVER_TOKEN say where and how to ask.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
python="${PYTHON:-python3}"
plan="$(mktemp)"
trainer=""

finish() {
  status=$?
  trap - EXIT INT TERM
  if [[ -n "$trainer" ]] && kill -0 "$trainer" 2>/dev/null; then
    kill -TERM "$trainer"
    wait "$trainer" || true
  fi
  rm -f "$plan"
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

"$python" "$here/preflight.py" "$@" >"$plan"
mapfile -t overrides <"$plan"

run="$(sed -n "s/^prbench.run='\(.*\)'$/\1/p" "$plan")"
exec 9>"$here/runs/$run/lock"
flock --nonblock 9 || { echo "launch: another process runs $run." >&2; exit 2; }

"$python" -m verl.trainer.main_ppo --config-dir "$here" --config-name config "${overrides[@]}" "$@" 9>&- &
trainer=$!
wait "$trainer"
