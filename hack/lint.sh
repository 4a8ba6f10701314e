#!/usr/bin/env bash
# Runs all static checks of the code.
set -euo pipefail
cd "$(dirname "$0")/.."

unformatted=$(gofmt -l $(git ls-files '*.go'))
if [ -n "$unformatted" ]; then
  printf 'not gofmt-ed (run gofmt -w):\n%s\n' "$unformatted" >&2
  exit 1
fi
go vet ./...
go vet -tags vm ./e2e/vm
go vet -tags kube ./e2e/kube/...
go tool staticcheck ./...
(cd e2e/ui && go vet ./...) # a separate module
# The command line also runs on macOS.
GOOS=darwin CGO_ENABLED=0 go build -o /dev/null ./cmd/hawser
go test -count=1 ./internal/importcheck
go test -count=1 ./schema/internal/gen ./e2e/kube/cni/record -run '^TestCurrent$'
echo "lint: clean"
