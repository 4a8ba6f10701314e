#!/bin/bash
# Imports $IMAGES into the containerd store $DIR/lib, in its own mount and process namespaces. Files
# named as the archives mark their times.
set -eu
mount -t tmpfs tmpfs /run
mkdir -p "$DIR/lib/containerd"
mount --bind "$DIR/lib" /var/lib
socket=/run/containerd/containerd.sock
mkdir /run/containerd
cat >/run/containerd.toml <<X
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "$socket"
X
containerd --config /run/containerd.toml >"$DIR/containerd.log" 2>&1 &
until ctr -a $socket version >/dev/null 2>&1; do
  kill -0 $! || { cat "$DIR/containerd.log" && exit 1; }
  sleep 0.1
done
for archive in $IMAGES; do
  ctr -a $socket -n k8s.io images import "$archive"
  touch "$DIR/lib/${archive##*/}"
done
kill $!
wait $! || true # containerd exits with an error after a signal
