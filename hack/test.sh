#!/usr/bin/env bash
# go test as CI runs it: hack/test.sh ARGS... with the flags and packages of go test.
# What failed is run once more, alone, one test after the other; what passes then is
# listed at the end as flaky, which is a bug too: with CI=true it fails the run. Data
# races, panics (the end of -timeout is one), programs that do not build and more than
# ten failures always do. RERUNS=0 repeats nothing. go vet is left to hack/lint.sh, and test
# programs are linked without debug information, which is faster.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d /tmp/hwtest-XXXXXX)
trap 'rm -rf "$work"' EXIT
(cd "$root" && go build -o "$work/gotestsum" gotest.tools/gotestsum)

# go test's flags come before its packages.
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
# What is in the report and did not fail a second time: "package.Test: 2 runs, 1 failures".
flaky=$(sed -n 's/^\(.*\): 2 runs, 1 failures$/  \1/p' "$work/again.txt" 2>/dev/null) || true
if [ -n "$flaky" ]; then
  printf '\nflaky: passed the second time:\n%s\n' "$flaky"
  if [ "${CI:-}" = true ]; then
    printf 'a test that passes only the second time is a bug: mend it at its cause\n'
    result=1
  fi
fi
exit "$result"
