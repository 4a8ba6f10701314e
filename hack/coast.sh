#!/usr/bin/env bash
# Writes internal/coast/coast.txt anew: the land of Natural Earth, 1:110m, from the package
# world-atlas of npm, by a fixed hash.
set -euo pipefail
cd "$(dirname "$0")/.."
version=2.0.2
hash=ead5f68119c49a9250902e7da303bcb209341bbb8fefe7369a439b48b704658a

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && npm pack --silent "world-atlas@$version" >/dev/null && tar -xzf "world-atlas-$version.tgz" package/land-110m.json package/LICENSE)
if ! echo "$hash  $work/package/land-110m.json" | sha256sum --check --status; then
  echo "coast: land-110m.json of world-atlas $version has another hash than $hash" >&2
  exit 1
fi
go run ./hack/coast "world-atlas $version" <"$work/package/land-110m.json" >"$work/coast.txt"
cp "$work/coast.txt" "$work/package/LICENSE" internal/coast/
