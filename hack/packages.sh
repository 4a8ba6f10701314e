#!/usr/bin/env bash
# Lists packages by whether their unit tests need the race detector:
# hack/packages.sh concurrent|sequential PATTERN...
# A package is concurrent if its own code, tests aside, starts a goroutine, imports sync
# or uses a channel. All other code has no data races, and -race slows it down up to
# tenfold.
set -euo pipefail
want=${1:?concurrent or sequential}
shift
files=$(go list -f '{{$p := .ImportPath}}{{$d := .Dir}}{{$p}} -{{"\n"}}{{range .GoFiles}}{{$p}} {{$d}}/{{.}}{{"\n"}}{{end}}' "$@")
pattern='^[[:space:]]*(defer )?go [A-Za-z_.]+\(|^[[:space:]]*(import )?([a-z_]+ )?"(sync|sync/atomic|golang.org/x/sync/[a-z]+)"|\bchan [a-zA-Z*[<(]|<-chan\b'
concurrent=$(awk '$2 != "-" {print $2}' <<<"$files" | { xargs -r -d '\n' grep -lE -- "$pattern" || true; })
awk -v want="$want" '
  NR == FNR { uses[$0] = 1; next }
  { if (!($1 in is)) { is[$1] = "sequential"; order[++n] = $1 } if ($2 in uses) is[$1] = "concurrent" }
  END { for (i = 1; i <= n; i++) if (is[order[i]] == want) print order[i] }
' <(printf '%s\n' "$concurrent") - <<<"$files"
