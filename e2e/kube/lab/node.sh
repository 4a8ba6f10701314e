#!/bin/bash
# First process of a node: a container runtime, its images, and the kubelet. /etc, /run and /var
# are in the node's own directory.
set -u
pki=$DIR/../../pki/$CLUSTER
mount --make-rslave /
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /sys/fs/cgroup
for name in $CGROUPS; do
  at=/sys/fs/cgroup/${name#name=}
  mkdir "$at"
  case $name in name=*) name=none,$name ;; esac
  mount -t cgroup -o "$name" cgroup "$at"
done
if [ ! -e "$DIR/lib" ]; then
  # Layers never change, so all nodes share their files. Databases are copied.
  store=$DIR/../../images/lib
  cp -al "$store" "$DIR/lib"
  (cd "$store" && find . -type f ! -path '*/blobs/*' ! -path '*/snapshots/*' \
    -exec cp --archive --remove-destination --parents {} "$DIR/lib/" \;)
fi
mkdir -p "$DIR"/{etc,etc.work,lib/kubelet,log/pods}
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$DIR/etc,workdir=$DIR/etc.work" /etc
mount -t tmpfs tmpfs /run
mount --bind "$DIR/lib" /var/lib
mount --bind "$DIR/log" /var/log
# The kubelet changes these sysctls of the whole machine unless they have its values, so mount
# files with these values over them.
while read -r setting value; do
  [ -e "/proc/sys/$setting" ] || continue
  shown=/run/shown-${setting##*/}
  echo "$value" >"$shown"
  mount --bind "$shown" "/proc/sys/$setting"
done <<X
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
X
mount --make-rshared /
hostname "$NODE"
# No upstream server: CoreDNS reads this file and must not query itself.
echo "nameserver $ROUTER" >/run/resolv.conf
mkdir -p /run/containerd /run/netns /run/cni

keep() { # NAME ARGUMENTS...: runs a program for ever, but not while it is held
  local name=$1
  shift
  while :; do
    while [ -e "$DIR/hold.$name" ]; do sleep 0.2; done
    "$name" "$@" >>"$DIR/$name.log" 2>&1
    echo "$name ended: $?" >>"$DIR/init.log"
    sleep 0.3
  done
}

family() { # ADDRESS: as nft(8) calls it
  case $1 in *:*) echo ip6 ;; *) echo ip ;; esac
}
# shellcheck source=/dev/null # the network of the cluster: e2e/kube/cni
. "$CNI"
cat >/run/containerd.toml <<X
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/hawser/pause:lab"
  restrict_oom_score_adj = true # without CAP_SYS_RESOURCE no score can be lowered
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "/etc/containerd/certs.d"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/run/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
X
keep containerd --config /run/containerd.toml &
socket=/run/containerd/containerd.sock
until ctr -a $socket version >/dev/null 2>&1; do sleep 0.1; done
for archive in $IMAGES; do
  # An archive is newer than the node's image only after kubelab load.
  if [ "$archive" -nt "$DIR/lib/${archive##*/}" ]; then
    ctr -a $socket -n k8s.io images import "$archive" >>"$DIR/images.log" 2>&1 && touch "$DIR/lib/${archive##*/}"
  fi
done

cat >/run/kubelet.yaml <<X
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $pki/ca.crt}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix://$socket
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
clusterDNS: ["$DNS"]
clusterDomain: cluster.local
resolvConf: /run/resolv.conf
# Do not evict images when the machine's disk is full: they cannot be pulled again.
evictionHard: {nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%", imagefs.inodesFree: "0%"}
imageGCHighThresholdPercent: 100
localStorageCapacityIsolation: false
nodeStatusUpdateFrequency: 4s
syncFrequency: 5s
volumePluginDir: /var/lib/kubelet/volumeplugins
maxPods: 120
X
kubelet() { # its addresses may have changed since the node started
  # With an external cloud provider the kubelet does not set the addresses of its Node.
  local outside=
  [ ! -e "$DIR/outside" ] || outside=1
  command kubelet --config=/run/kubelet.yaml --kubeconfig="$pki/$NODE" --hostname-override="$NODE" \
    --node-ip="$(cat "$DIR/address")" --root-dir=/var/lib/kubelet ${outside:+--cloud-provider=external}
}
keep kubelet &

if [ "$PROXY" = none ]; then
  # In a cluster without kube-proxy another program replaces it. Here it serves the two Services
  # that everything else needs.
  ip=$(family "$API")
  nft -f - <<X
table $ip labproxy {
  chain services {
    $ip daddr $API tcp dport 443 dnat to $CONTROL
    $ip daddr $DNS meta l4proto { tcp, udp } th dport 53 dnat to $FIRST
  }
  chain prerouting {
    type nat hook prerouting priority dstnat; policy accept;
    jump services
  }
  chain output {
    type nat hook output priority -100; policy accept;
    jump services
  }
}
X
elif [ "$PROXY" != network ]; then
  cat >/run/proxy.yaml <<X
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: $PROXY
clientConnection: {kubeconfig: $pki/proxy}
hostnameOverride: $NODE
clusterCIDR: "$PODS"
# These sysctls belong to the whole machine and cannot be written from a namespace.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
X
  keep kube-proxy --config=/run/proxy.yaml &
fi
while :; do wait -n || sleep 1; done
