#!/bin/bash
# First process of a control plane: etcd, the API server, and then its clients.
set -u
pki=$DIR/../../pki/$CLUSTER
mount --make-rslave /
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
hostname "$MACHINE"

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

client=http://127.0.0.1:2379 peer=http://127.0.0.1:2380
keep etcd --name=lab --data-dir="$DIR/etcd" --unsafe-no-fsync --max-wals=1 --log-level=warn \
  --listen-client-urls=$client --advertise-client-urls=$client \
  --listen-peer-urls=$peer --initial-advertise-peer-urls=$peer --initial-cluster=lab=$peer &
issuer=https://kubernetes.default.svc.cluster.local
keep kube-apiserver --etcd-servers=$client --advertise-address="$ADDRESS" --secure-port=6443 \
  --service-cluster-ip-range="$SERVICES" --endpoint-reconciler-type=lease --profiling=false \
  --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true \
  --client-ca-file="$pki/ca.crt" --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
  --kubelet-client-certificate="$pki/kubelet-client.crt" --kubelet-client-key="$pki/kubelet-client.key" \
  --kubelet-preferred-address-types=InternalIP \
  --service-account-issuer=$issuer --service-account-key-file="$pki/accounts.key" --service-account-signing-key-file="$pki/accounts.key" \
  --proxy-client-cert-file="$pki/front-proxy.crt" --proxy-client-key-file="$pki/front-proxy.key" \
  --requestheader-client-ca-file="$pki/ca.crt" --requestheader-allowed-names=front-proxy \
  --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
  --requestheader-extra-headers-prefix=X-Remote-Extra- &

# Without their roles the controllers exit, and the scheduler waits long.
until kubectl --kubeconfig="$pki/admin" get --raw /readyz >/dev/null 2>&1; do sleep 0.2; done
as() { echo "--kubeconfig=$pki/$1 --authentication-kubeconfig=$pki/$1 --authorization-kubeconfig=$pki/$1 --leader-elect=false --bind-address=127.0.0.1"; }
# shellcheck disable=SC2046 # several arguments
keep kube-controller-manager $(as controllers) --use-service-account-credentials=true \
  --service-account-private-key-file="$pki/accounts.key" --root-ca-file="$pki/ca.crt" \
  --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
  --allocate-node-cidrs=false --cluster-cidr="$PODS" \
  --node-monitor-period=2s --node-monitor-grace-period=16s &
# shellcheck disable=SC2046
keep kube-scheduler $(as scheduler) &

# Also wait for orphans, which became children of this process.
while :; do wait -n || sleep 1; done
