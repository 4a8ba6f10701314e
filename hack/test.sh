#!/usr/bin/env bash
# Runs go test like CI: hack/test.sh ARGS... with the flags and packages of go test. Failed tests
# run once more, one after the other. Tests that pass then are listed at the end as flaky. A flaky
# test is a bug too: with CI=true it fails the run. Data races, panics (including a -timeout), build
# errors and more than ten failures always fail the run. RERUNS=0 disables the second run. go vet is
# part of hack/lint.sh. Test programs are linked without debug information, which is faster.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d /tmp/hwtest-XXXXXX)
trap 'rm -rf "$work"' EXIT
(cd "$root" && go build -o "$work/gotestsum" gotest.tools/gotestsum)

# The flags of go test come before its packages.
flags=()
while [[ ${1:-} == -* ]]; do
  flags+=("$1")
  case $1 in -p | -parallel | -timeout | -run | -count) flags+=("$2"); shift ;; esac
  shift
done
result=0
"$work/gotestsum" --format "${FORMAT:-pkgname}" --no-color --hide-summary=skipped \
  --jsonfile "$work/events.json" --packages "$*" \
  --rerun-fails="${RERUNS:-1}" --rerun-fails-abort-on-data-race --rerun-fails-report "$work/again.txt" \
  -- -vet=off -ldflags=-w "${flags[@]}" || result=$?

slowest=$("$work/gotestsum" tool slowest --num 15 --jsonfile "$work/events.json" 2>/dev/null) || true
[ -z "$slowest" ] || printf '\nslowest:\n%s\n' "$slowest"
# Tests in the report that passed in the second run: "package.Test: 2 runs, 1 failures".
flaky=$(sed -n 's/^\(.*\): 2 runs, 1 failures$/  \1/p' "$work/again.txt" 2>/dev/null) || true
if [ -n "$flaky" ]; then
  printf '\nflaky: passed the second time:\n%s\n' "$flaky"
  if [ "${CI:-}" = true ]; then
    printf 'a test that passes only the second time is a bug: mend it at its cause\n'
    result=1
  fi
fi
exit "$result"
