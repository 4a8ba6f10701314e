#!/usr/bin/env bash
# Runs each fuzz target for a duration (default 30s): hack/fuzz.sh 60s. Fails with the names of
# targets that found something, and of targets that are too slow: a target with less than 170 runs
# per second of CPU time searches nothing. CPU time does not depend on other programs on the
# machine.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
seconds=${time%s}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "$0: $time is not a time in seconds, such as 30s" >&2; exit 2; }
least=170
out=$(mktemp /tmp/hwfuzz-XXXXXX)
trap 'rm -f "$out"' EXIT

# fuzz runs one target for a duration or a number of runs.
fuzz() {
  # By default Go spends up to a minute on minimizing an input.
  go test -vet=off -run '^$' -fuzz "^$2\$" -fuzztime "$3" -fuzzminimizetime 10x "$1" 2>&1
}

bad=()
while IFS=: read -r file target; do
  package=./$(dirname "$file")
  echo "== $package $target"
  fuzz "$package" "$target" 1x >/dev/null || true # builds the target, so that the build is not measured
  TIMEFORMAT='cpu: %U %S'
  if ! { time fuzz "$package" "$target" "${seconds}s"; } 2>&1 | tee "$out"; then
    bad+=("$package $target: failed")
    continue
  fi
  runs=$(sed -n 's/^fuzz: .* execs: \([0-9]*\) .*/\1/p' "$out" | tail -n 1)
  rate=$(awk -v runs="${runs:-0}" '$1 == "cpu:" { print int(runs / ($2 + $3)) }' "$out")
  [ "$rate" -ge "$least" ] || bad+=("$package $target: ran $rate times in a second of CPU time, not $least")
done < <(grep -r --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' . | sed 's|^\./||; s/func //' | sort)
[ ${#bad[@]} -eq 0 ] || { printf '\n'; printf '%s\n' "${bad[@]}"; exit 1; } >&2
