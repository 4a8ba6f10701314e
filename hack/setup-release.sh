#!/usr/bin/env bash
# Builds the third-party tools of make verify-release and of the release tests: helm, krew, crane
# and kubectl, or only the named ones, once, from the Go module proxy, and a program that compares
# manifests. Stores them in the user's cache and prints their directory.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=(helm.sh/helm/v3/cmd/helm@v3.22.0 sigs.k8s.io/krew/cmd/krew@v0.4.3 github.com/google/go-containerregistry/cmd/crane@v0.21.5)
hash=$(printf '%s\n' "${tools[@]}" | sha256sum | cut -c1-16)
dir=${XDG_CACHE_HOME:-$HOME/.cache}/hawser/release/$hash
mkdir -p "$dir"
exec 9>"$dir/lock"
flock 9 # concurrent setups build only once
for tool in "${tools[@]}"; do
  name=${tool##*/} name=${name%@*}
  [ -x "$dir/$name" ] && continue
  [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
  echo "setup-release: building $name: some minutes the first time" >&2
  GOBIN=$dir CGO_ENABLED=0 nice -n 10 go install -trimpath -ldflags '-s -w' "$tool"
done
command -v kubectl >/dev/null || [ -e "$dir/kubectl" ] || ln -s "$(hack/setup-kube.sh)/kubectl" "$dir/kubectl"
go build -o "$dir/objects" ./hack/jsonlines
echo "$dir"
