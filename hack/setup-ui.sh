#!/usr/bin/env bash
# Installs the requirements of the browser tests of e2e/ui: Debian's chromium, and axe-core with a
# fixed hash, which finds accessibility problems. Prints the path of axe-core's script, which is
# stored in the user's cache.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/install.sh
version=4.10.3
hash=880970c081707360e64f34cea25ff91892f5bc95675b0776925b9709dd8a68bb

missing=$(absent chromium=chromium /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf=fonts-dejavu-core)
# shellcheck disable=SC2086
packages_for setup-ui "" $missing

cache=${XDG_CACHE_HOME:-$HOME/.cache}/hawser/ui
script=$cache/axe-$version.min.js
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9 # concurrent setups download only once
if [ ! -f "$script" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  (cd "$work" && npm pack --silent "axe-core@$version" >/dev/null && tar -xzf "axe-core-$version.tgz" package/axe.min.js)
  if ! echo "$hash  $work/package/axe.min.js" | sha256sum --check --status; then
    echo "setup-ui: axe-core $version has another hash than $hash" >&2
    exit 1
  fi
  mv "$work/package/axe.min.js" "$script"
fi
echo "$script"
