#!/usr/bin/env bash
# Runs each fuzz target for the time given in seconds (default 30s): hack/fuzz.sh 60s.
# Fails with the names of targets that found something, and of those that ran less
# than 10,000 times in 30 seconds: they need a faster function, or else they search
# nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
seconds=${time%s}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "$0: $time is not a time in seconds, such as 30s" >&2; exit 2; }
least=$((seconds * 10000 / 30))
out=$(mktemp /tmp/hwfuzz-XXXXXX)
trap 'rm -f "$out"' EXIT

bad=()
while IFS=: read -r file target; do
  package=./$(dirname "$file")
  echo "== $package $target"
  # By default Go spends up to a minute on making one input smaller.
  if ! go test -run '^$' -fuzz "^$target\$" -fuzztime "${seconds}s" -fuzzminimizetime 10x "$package" 2>&1 | tee "$out"; then
    bad+=("$package $target: failed")
    continue
  fi
  runs=$(sed -n 's/^fuzz: .* execs: \([0-9]*\) .*/\1/p' "$out" | tail -n 1)
  [ "${runs:-0}" -ge "$least" ] || bad+=("$package $target: ran ${runs:-0} times, not $least")
done < <(grep -r --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' . | sed 's|^\./||; s/func //' | sort)
[ ${#bad[@]} -eq 0 ] || { printf '\n'; printf '%s\n' "${bad[@]}"; exit 1; } >&2
