#!/usr/bin/env bash
# Installs the requirements of a network of e2e/kube/cni on this machine: Debian packages, without
# starting their services, and programs, built once from the Go module proxy and stored in the
# user's cache. Prints the directory of the programs, if there is one. With --find before the name
# it only checks: exit code 3 and the names of missing requirements.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/install.sh
find=''
if [ "${1:-}" = --find ]; then
  find=1
  shift
fi
name=${1:?one of the networks that kubelab up --help tells}
module='' needs=() units=''
case $name in
bridge | no-podcidrs) ;;
calico-like) needs=(ipset=ipset iptables=iptables) ;;
flannel) module=github.com/flannel-io/flannel ;;
kube-ovn)
  module=github.com/kubeovn/kube-ovn
  needs=(ovs-vswitchd=openvswitch-switch ovn-northd=ovn-central ovn-controller=ovn-host ipset=ipset ethtool=ethtool jq=jq)
  units="openvswitch-switch.service ovsdb-server.service ovs-vswitchd.service ovs-record-hostname.service ovn-central.service ovn-host.service
    ovn-controller.service ovn-northd.service ovn-ovsdb-server-nb.service ovn-ovsdb-server-sb.service"
  ;;
cilium)
  module=github.com/cilium/cilium
  needs=(clang=clang llc=llvm bpftool=bpftool ipset=ipset)
  ;;
*)
  echo "setup-cni: no network $name" >&2
  exit 2
  ;;
esac
dir=''
if [ -n "$module" ]; then
  programs=e2e/kube/cni/$name/programs
  hash=$(find "$programs" hack/setup-cni.sh -type f | sort | xargs cat | sha256sum | cut -c1-16)
  dir=${HAWSER_CNI_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/hawser/cni}/$hash
fi
export PATH=$PATH:/usr/sbin:/sbin
missing=$(absent ${needs[@]+"${needs[@]}"} ${dir:+"$dir=$name"})
if [ -n "$find" ]; then
  # shellcheck disable=SC2086
  [ -z "$missing" ] || { echo $missing >&2 && exit 3; }
  echo "$dir"
  exit
fi
missing=$(absent ${needs[@]+"${needs[@]}"})
# shellcheck disable=SC2086 # lists of words
packages_for setup-cni "$units" $missing
[ -n "$dir" ] || exit 0

from='' modfile='' # where the module's source is, and how the build takes another
# changed FILE SED... makes the build use a copy of the module with a file that sed has changed,
# because Go cannot replace single files of its module cache.
changed() {
  local file=$1
  shift
  cp -r "$from" "$dir.new/source"
  chmod -R u+w "$dir.new/source"
  sed -i "$@" "$dir.new/source/$file"
  if cmp -s "$from/$file" "$dir.new/source/$file"; then
    echo "setup-cni: $file of $name has nothing to change" >&2
    exit 1
  fi
  cp go.mod go.sum "$dir.new"
  go mod edit -replace "$module=$dir.new/source" "$dir.new/go.mod"
  modfile="-modfile=$dir.new/go.mod"
}
build() { # PROGRAM PACKAGE FLAGS...
  local program=$1 package=$2
  shift 2
  # shellcheck disable=SC2086 # none or one
  CGO_ENABLED=0 nice -n 10 go build -p 2 -trimpath $modfile "$@" -o "$dir.new/$program" "$package"
}
strip='-s -w'
mkdir -p "${dir%/*}"
exec 9>"${dir%/*}/lock"
flock 9 # concurrent setups build only once
if [ ! -d "$dir" ]; then
  rm -rf "$dir.new"
  mkdir "$dir.new"
  cd "$programs"
  echo "setup-cni: building $name: some minutes the first time" >&2
  from=$(go mod download -json "$module@$(go list -m -f '{{.Version}}' "$module")" | sed -n 's/^\t"Dir": "\(.*\)",\?$/\1/p')
  case $name in
  flannel)
    # The cloud backends need modules that a proxy may not have.
    changed main.go '/backend\/\(tencentvpc\|ipip\|ipsec\|udp\|wireguard\)"/d'
    build flanneld github.com/flannel-io/flannel -ldflags "$strip"
    ;;
  kube-ovn)
    build kube-ovn github.com/kubeovn/kube-ovn/cmd/cni -ldflags "$strip"
    build kube-ovn-daemon github.com/kubeovn/kube-ovn/cmd/daemon -ldflags "$strip"
    build kube-ovn-controller ./kube-ovn-controller -ldflags "$strip"
    cp "$from/charts/kube-ovn/templates/kube-ovn-crd.yaml" "$dir.new/crds.yaml"
    # Kube-OVN rejects databases without the columns of a newer OVN than Debian's. The OVN programs
    # ignore columns that they do not know.
    strings='{"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}'
    jq ".tables.ACL.columns.tier = {type: \"integer\"}
      | .tables.DNS.columns.options = $strings
      | .tables.Logical_Router_Port.columns.status = $strings
      | .tables.Logical_Router_Policy.columns.bfd_sessions = {type: {key: {type: \"uuid\", refTable: \"BFD\", refType: \"weak\"}, min: 0, max: \"unlimited\"}}" \
      /usr/share/ovn/ovn-nb.ovsschema >"$dir.new/nb.ovsschema"
    group='{"type": {"key": {"type": "uuid", "refTable": "Logical_DP_Group"}, "min": 0, "max": 1}}'
    jq ".tables.BFD.columns.chassis_name = {type: \"string\"} | .tables.IGMP_Group.columns.chassis_name = {type: \"string\"}
      | .tables.Service_Monitor.columns.chassis_name = {type: \"string\"} | .tables.DNS.columns.options = $strings
      | .tables.FDB.columns.timestamp = {type: \"integer\"}
      | .tables.Load_Balancer.columns.ls_datapath_group = $group | .tables.Load_Balancer.columns.lr_datapath_group = $group" \
      /usr/share/ovn/ovn-sb.ovsschema >"$dir.new/sb.ovsschema"
    ;;
  cilium)
    # A kernel without modules has no /proc/modules, and the agent would exit. node.sh writes
    # /run/modules.
    changed pkg/datapath/linux/modules/modules_linux.go 's|= "/proc/modules"|= "/run/modules"|'
    stamp="$strip -X github.com/cilium/cilium/pkg/version.ciliumVersion=$(go list -m -f '{{slice .Version 1}}' "$module")"
    build cilium-agent github.com/cilium/cilium/daemon -ldflags "$stamp"
    build cilium-cni github.com/cilium/cilium/plugins/cilium-cni -ldflags "$stamp"
    build cilium-dbg github.com/cilium/cilium/cilium-dbg -ldflags "$stamp"
    cp -r "$from/bpf" "$dir.new/bpf"
    mkdir "$dir.new/crds"
    cp "$from"/pkg/k8s/apis/cilium.io/client/crds/v2/*.yaml "$from"/pkg/k8s/apis/cilium.io/client/crds/v2alpha1/*.yaml "$dir.new/crds"
    ;;
  esac
  rm -rf "$dir.new/source" "$dir.new/go.mod" "$dir.new/go.sum"
  chmod -R u+w "$dir.new"
  mv "$dir.new" "$dir"
fi
echo "$dir"
