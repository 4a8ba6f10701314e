#!/usr/bin/env bash
# Builds the agent's image for each given architecture: hack/image.sh amd64 arm64. The same sources,
# Go and VERSION produce the same bytes. With IPSEC=1 the images also contain the strongSwan charon
# of this machine (hack/setup.sh), and their names end in -ipsec; this only works for this machine's
# architecture. Next to each archive is its SBOM (SPDX), and one file with the checksums of all of
# them. SIGN=KEY signs the checksums with an SSH key.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${VERSION:-dev}
name=${IMAGE:-hawser.dev/hawser-agent}:${version//[^A-Za-z0-9_.-]/-}
variant='' charon=''
if [ -n "${IPSEC:-}" ]; then variant=-ipsec charon=-charon; fi
dist=${DIST:-dist}
mkdir -p "$dist"
for arch in "$@"; do
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  GOOS=linux GOARCH=$arch CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$version" \
    -o "$work/hawser-agent" ./cmd/hawser-agent
  tar=$dist/hawser-agent$variant-$version-$arch.tar
  go run ./hack/image -o "$tar" -sbom "${tar%.tar}.spdx.json" -arch "$arch" -name "$name$variant" $charon -entrypoint /hawser-agent \
    -label org.opencontainers.image.title=hawser-agent -label "org.opencontainers.image.version=$version" \
    -label org.opencontainers.image.licenses=Apache-2.0 "hawser-agent=$work/hawser-agent"
  rm -rf "$work"
  echo "$tar: $name$variant"
done
sums=hawser-agent$variant-$version.sha256
(cd "$dist" && sha256sum $(for arch in "$@"; do echo "hawser-agent$variant-$version-$arch".{tar,spdx.json}; done) >"$sums")
rm -f "$dist/$sums.sig"
if [ -n "${SIGN:-}" ]; then ssh-keygen -q -Y sign -n hawser-image -f "$SIGN" "$dist/$sums"; fi
echo "$dist/$sums${SIGN:+, $dist/$sums.sig}"
