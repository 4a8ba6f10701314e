#!/usr/bin/env bash
# Installs the requirements of make e2e-kube in addition to make setup: Debian's container runtime,
# and all programs of Kubernetes and CoreDNS, built once from the Go module proxy and stored in the
# user's cache. Starts no service. Prints the directory of the programs. With --find it only checks:
# exit code 3 and the names of missing requirements.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
. hack/install.sh
modules=(e2e/kube/tools e2e/kube/coredns)
hash=$(for m in "${modules[@]}"; do cat "$m"/go.mod "$m"/go.sum; find "$m" -name '*.go' | sort | xargs cat; done | sha256sum | cut -c1-16)
cache=${HAWSER_KUBE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/hawser/kube}
bin=$cache/$hash/bin

needs=(containerd=containerd runc=runc ethtool=ethtool socat=socat busybox=busybox-static dash=dash
  /usr/lib/cni/bridge=containernetworking-plugins)
if [ "${1:-}" = --find ]; then
  missing=$(absent "${needs[@]}" "$bin/hyperkube=hyperkube" "$bin/coredns=coredns")
  # shellcheck disable=SC2086
  [ -z "$missing" ] || { echo $missing >&2 && exit 3; }
  echo "$bin"
  exit
fi
"$root/hack/setup.sh" >&2
missing=$(absent "${needs[@]}")
# The nodes of the lab start their own containerds.
# shellcheck disable=SC2086
packages_for setup-kube containerd.service $missing

version=$(sed -n 's#^\tk8s.io/kubernetes v##p' e2e/kube/tools/go.mod)
mkdir -p "$bin"
exec 9>"$cache/lock"
flock 9 # concurrent setups build only once
if [ ! -x "$bin/hyperkube" ]; then
  echo "setup-kube: building Kubernetes $version: 6 minutes and 3 GB of memory the first time on two cores" >&2
  stamp=k8s.io/component-base/version
  IFS=. read -r major minor _ <<<"$version"
  (cd e2e/kube/tools && CGO_ENABLED=0 nice -n 10 go build -p 2 -trimpath \
    -ldflags "-s -w -X $stamp.gitVersion=v$version -X $stamp.gitMajor=$major -X $stamp.gitMinor=$minor" -o "$bin/hyperkube.new" ./hyperkube)
  for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl; do
    ln -sf hyperkube "$bin/$name"
  done
  mv "$bin/hyperkube.new" "$bin/hyperkube"
fi
if [ ! -x "$bin/coredns" ]; then
  echo "setup-kube: building CoreDNS" >&2
  (cd e2e/kube/coredns && CGO_ENABLED=0 nice -n 10 go build -p 2 -trimpath -ldflags '-s -w' -o "$bin/coredns.new" .)
  mv "$bin/coredns.new" "$bin/coredns"
fi
echo "$bin"
