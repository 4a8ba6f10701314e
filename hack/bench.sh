#!/usr/bin/env bash
# Measures and writes docs/benchmarks.md. Without arguments everything; with names
# (nat, converge, topology, tunnel, commit) only those sections. Needs root and bin/ (make build).
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d /tmp/hwbench-XXXXXX)
trap 'rm -rf "$work"' EXIT
CGO_ENABLED=0 go build -trimpath -o "$work/bench" ./e2e/bench
"$work/bench" -out docs/benchmarks.md -bin bin -root . "$@"
