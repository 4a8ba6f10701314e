#!/usr/bin/env bash
# Measures and writes docs/benchmarks.md. Without arguments everything; with names
# (converge, tunnel, hops, stall, stall-fast, survive, move, scale) only those sections.
# Needs root and bin/ (make build); hops needs ipset. REPS=n repeats what has faults n times only;
# OUT=file writes another page, KEEP=folder keeps raw measurements and logs.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d /tmp/hwbench-XXXXXX)
trap 'rm -rf "$work"' EXIT
CGO_ENABLED=0 go build -trimpath -o "$work/bench" ./e2e/bench
"$work/bench" -out "${OUT:-docs/benchmarks.md}" -bin bin -root . ${KEEP:+-keep "$KEEP"} "$@"
