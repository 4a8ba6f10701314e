#!/usr/bin/env bash
# Runs the measurements and writes docs/benchmarks.md. Arguments select sections: converge, tunnel,
# hops, stall, stall-fast, survive, move, scale. Without arguments it runs all of them. It requires
# root and bin/ (make build); hops requires ipset. REPS=n sets the repetitions of sections with
# faults. OUT=file writes another page. KEEP=directory keeps raw measurements and logs.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d /tmp/hwbench-XXXXXX)
trap 'rm -rf "$work"' EXIT
CGO_ENABLED=0 go build -trimpath -o "$work/bench" ./e2e/bench
"$work/bench" -out "${OUT:-docs/benchmarks.md}" -bin bin -root . ${KEEP:+-keep "$KEEP"} "$@"
