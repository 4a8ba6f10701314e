#!/usr/bin/env bash
# Builds the controllers of Flux (hack/setup-gitops.sh flux) or of Argo CD (argo) for the tests of
# e2e/kube/gitops, once, from the Go module proxy, and stores them in the user's cache. Prints the
# directory of the programs; the directory crds next to it has their CRDs.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:?flux or argo}
cd "e2e/kube/gitops/$what"
hash=$(find . ../../../../hack/setup-gitops.sh -type f | sort | xargs cat | sha256sum | cut -c1-16)
cache=${HAWSER_KUBE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/hawser/kube}
dir=$cache/$what-$hash

mkdir -p "$cache"
exec 9>"$cache/$what.lock"
flock 9 # concurrent setups build only once
build() { CGO_ENABLED=0 nice -n 10 go build -p 2 -trimpath -ldflags '-s -w' -o "$dir.new/bin/" "$@"; }
# definitions MODULE@VERSION DIRECTORY
definitions() { cp "$(cd / && go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",\?$/\1/p')/$2"/*.yaml "$dir.new/crds/"; }
version() { go list -m -f '{{.Version}}' "$1"; }

if [ ! -d "$dir" ]; then
  rm -rf "$dir.new"
  mkdir -p "$dir.new/bin" "$dir.new/crds"
  echo "setup-gitops: building $what: some minutes the first time" >&2
  case $what in
  flux)
    flux=github.com/fluxcd/kustomize-controller
    build $flux
    definitions "$flux@$(version $flux)" config/crd/bases
    # The source controller cannot be built, because the module proxy lacks one of its modules.
    definitions github.com/fluxcd/source-controller@v1.9.5 config/crd/bases
    ;;
  argo)
    argo=github.com/argoproj/argo-cd/v3
    build .
    for name in argocd-application-controller argocd-applicationset-controller argocd-repo-server kustomize redis; do
      ln -s argo "$dir.new/bin/$name"
    done
    definitions "$argo@$(version $argo)" manifests/crds
    rm "$dir.new/crds/kustomization.yaml"
    ;;
  *)
    echo "setup-gitops: flux or argo, not $what" >&2
    exit 2
    ;;
  esac
  chmod -R u+w "$dir.new"
  mv "$dir.new" "$dir"
fi
echo "$dir/bin"
