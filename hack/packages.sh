#!/usr/bin/env bash
# Lists the packages whose unit tests need the race detector, or the others:
#
# hack/packages.sh concurrent|sequential PATTERN...
#
# A package is concurrent if its non-test code starts a goroutine, imports sync or uses a channel.
# Other code has no data races, and -race makes it up to ten times slower. A concurrent package is
# in both lists if it has test files with the build constraint !race: long tests in a single
# goroutine.
set -euo pipefail
want=${1:?concurrent or sequential}
shift
files() { # one line per file of the packages, "PACKAGE -" for those without any
  local list=$1
  shift
  go list -f '{{$p := .ImportPath}}{{$d := .Dir}}{{$p}} -{{"\n"}}'"$list" "$@"
}
code=$(files '{{range .GoFiles}}{{$p}} {{$d}}/{{.}}{{"\n"}}{{end}}' "$@")
tests=$(files '{{range .TestGoFiles}}{{$p}} {{$d}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$p}} {{$d}}/{{.}}{{"\n"}}{{end}}' "$@")
matches() { # files of a list that match a pattern
  awk '$2 != "-" {print $2}' <<<"$1" | { xargs -r -d '\n' grep -lE -- "$2" || true; }
}
concurrent=$(matches "$code" '^[[:space:]]*(defer )?go [A-Za-z_.]+\(|^[[:space:]]*(import )?([a-z_]+ )?"(sync|sync/atomic|golang.org/x/sync/[a-z]+)"|\bchan [a-zA-Z*[<(]|<-chan\b')
excluded=$(matches "$tests" '^//go:build !race$')
awk -v want="$want" '
  FILENAME == ARGV[1] { concurrent[$0] = 1; next }
  FILENAME == ARGV[2] { excluded[$0] = 1; next }
  {
    if (!($1 in seen)) { seen[$1] = 1; order[++n] = $1 }
    if ($2 in concurrent) race[$1] = 1
    if ($2 in excluded) plain[$1] = 1
  }
  END {
    for (i = 1; i <= n; i++) {
      p = order[i]
      if (want == "concurrent" ? p in race : !(p in race) || p in plain) print p
    }
  }
' <(printf '%s\n' "$concurrent") <(printf '%s\n' "$excluded") - <<<"$code"$'\n'"$tests"
