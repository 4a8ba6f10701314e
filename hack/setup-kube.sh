#!/usr/bin/env bash
# What make e2e-kube needs beyond make setup: a container runtime of Debian's, and
# every program of Kubernetes and CoreDNS, built once from the Go module proxy and
# kept under the user's cache. Starts no service. Prints the folder of the programs.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
modules=(e2e/kube/tools e2e/kube/coredns)
hash=$(for m in "${modules[@]}"; do cat "$m"/go.mod "$m"/go.sum; find "$m" -name '*.go' | sort | xargs cat; done | sha256sum | cut -c1-16)
cache=${HAWSER_KUBE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/hawser/kube}
bin=$cache/$hash/bin

"$root/hack/setup.sh" >&2
declare -A package_of=(
  [containerd]=containerd [runc]=runc [ethtool]=ethtool [socat]=socat [busybox]=busybox-static [dash]=dash
)
missing=()
for command in "${!package_of[@]}"; do
  command -v "$command" >/dev/null || missing+=("${package_of[$command]}")
done
[ -x /usr/lib/cni/bridge ] || missing+=(containernetworking-plugins)
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "setup-kube: please install: ${missing[*]}" >&2
    exit 1
  fi
  # As hack/setup.sh has it: a package may not start its service, now or at the next boot.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
  fi
  unit=/etc/systemd/system/containerd.service
  if [ ! -e /lib/systemd/system/containerd.service ] && [ ! -e "$unit" ] && [ ! -L "$unit" ]; then
    mkdir -p "${unit%/*}"
    ln -s /dev/null "$unit"
  fi
  echo "setup-kube: installing ${missing[*]}" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get -o DPkg::Lock::Timeout=300 update -qq >&2
  apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

version=$(sed -n 's#^\tk8s.io/kubernetes v##p' e2e/kube/tools/go.mod)
mkdir -p "$bin"
exec 9>"$cache/lock"
flock 9 # two set-ups at once build once
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
