#!/usr/bin/env bash
# Writes go.mod and go.sum of a CNI's programs with the requirements and replacements of the CNI's
# own module: e2e/kube/cni/gomod.sh flannel v0.28.10. go mod tidy would also need modules of
# programs that are not built, which a proxy may lack.
set -euo pipefail
cd "$(dirname "$0")"
name=${1:?flannel, kube-ovn or cilium}
version=${2:?the version, such as v0.28.10}
case $name in
flannel) module=github.com/flannel-io/flannel go=1.26.0 tools=("$module") ;;
kube-ovn) module=github.com/kubeovn/kube-ovn go=1.24.0 tools=("$module/cmd/cni" "$module/cmd/daemon") ;;
cilium) module=github.com/cilium/cilium go=1.24.0 tools=("$module/daemon" "$module/plugins/cilium-cni" "$module/cilium-dbg") ;;
esac
# If a checksum database lacks this version, write its sums by hand from the tag of the project's
# repository. The go.sum of the project has all others.
from=$(cd / && GONOSUMDB=$module go mod download -json "$module@$version" | sed -n 's/^\t"Dir": "\(.*\)",\?$/\1/p')
{
  echo "// Written by gomod.sh $name $version."
  echo "module hawser.dev/hawser/e2e/kube/cni/$name"
  printf '\ngo %s\n\n' "$go"
  printf 'tool %s\n' "${tools[@]}"
  echo "require $module $version"
  sed '/^\(module\|go\|toolchain\|tool\) /d; /^\/\//d' "$from/go.mod"
} >"$name/programs/go.mod"
grep -s "^$module $version" "$name/programs/go.sum" >go.sum.new || true
cat "$from/go.sum" >>go.sum.new
mv go.sum.new "$name/programs/go.sum"
cd "$name/programs"
go mod edit -fmt
go mod download "$module" # adds its own sums, unless they are there
sort -u -o go.sum go.sum
