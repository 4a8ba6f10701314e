#!/usr/bin/env bash
# Builds the agent's image for each architecture named: hack/image.sh amd64 arm64.
# The same sources, Go and VERSION give the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${VERSION:-dev}
name=${IMAGE:-hawser.dev/hawser-agent}:${version//[^A-Za-z0-9_.-]/-}
mkdir -p dist
for arch in "$@"; do
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  GOOS=linux GOARCH=$arch CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$version" \
    -o "$work/hawser-agent" ./cmd/hawser-agent
  go run ./hack/image -o "dist/hawser-agent-$version-$arch.tar" -arch "$arch" -name "$name" -entrypoint /hawser-agent \
    -label org.opencontainers.image.title=hawser-agent -label "org.opencontainers.image.version=$version" \
    -label org.opencontainers.image.licenses=Apache-2.0 "hawser-agent=$work/hawser-agent"
  rm -rf "$work"
  echo "dist/hawser-agent-$version-$arch.tar: $name"
done
