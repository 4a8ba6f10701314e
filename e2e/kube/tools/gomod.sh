#!/usr/bin/env bash
# Writes go.mod and go.sum for a Kubernetes version: e2e/kube/tools/gomod.sh 1.34.4 3.6.4
# k8s.io/kubernetes keeps its libraries in its own repository and replaces them by
# paths; from the module proxy each of them is a module of its own, v0 for v1.
set -euo pipefail
cd "$(dirname "$0")"
kubernetes=${1:?the version of Kubernetes, such as 1.34.4}
etcd=${2:?the version of etcd that goes with it, such as 3.6.4}
upstream=$(cd / && go mod download -json "k8s.io/kubernetes@v$kubernetes" | sed -n 's/^\t"GoMod": "\(.*\)",\?$/\1/p')
{
  echo "// Written by gomod.sh $kubernetes $etcd."
  echo "module hawser.dev/hawser/e2e/kube/tools"
  echo
  sed -n '/^go /p' "$upstream"
  echo
  echo "require ("
  echo "	go.etcd.io/etcd/server/v3 v$etcd"
  echo "	k8s.io/kubernetes v$kubernetes"
  echo ")"
  echo
  echo "replace ("
  awk -v v="v0.${kubernetes#1.}" '$2 == "=>" && $3 ~ /^\.\/staging\// { print "\t" $1 " => " $1 " " v }' "$upstream"
  echo ")"
} >go.mod
go mod tidy
