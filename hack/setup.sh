#!/usr/bin/env bash
# Installs the Debian packages that the lab, the tests and the benchmarks need. Does nothing if all
# of them are installed, and starts no service.
set -euo pipefail
. "$(dirname "$0")/install.sh"

missing=$(absent \
  nft=nftables ip=iproute2 curl=curl dig=bind9-dnsutils tcpdump=tcpdump iperf3=iperf3 ping=iputils-ping \
  promtool=prometheus nc=netcat-openbsd jq=jq conntrack=conntrack gpg=gnupg ssh-keygen=openssh-client \
  /usr/sbin/sshd=openssh-server wg=wireguard-tools \
  iptables=iptables nsenter=util-linux \
  /usr/sbin/charon-systemd=charon-systemd \
  /usr/lib/ipsec/plugins/libstrongswan-vici.so=strongswan-swanctl \
  /usr/lib/ipsec/plugins/libstrongswan-openssl.so=libstrongswan-standard-plugins \
  /usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so=libcharon-extra-plugins)
# The agent starts its own charon, and tests start a Prometheus and an sshd.
# shellcheck disable=SC2086
packages_for setup "strongswan.service prometheus.service ssh.service ssh.socket" $missing
