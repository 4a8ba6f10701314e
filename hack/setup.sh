#!/usr/bin/env bash
# Installs the Debian packages that the lab, the tests and the benchmarks run.
# Does nothing when all of them are there.
set -euo pipefail

declare -A package_of=(
  [nft]=nftables [ip]=iproute2 [curl]=curl [dig]=bind9-dnsutils [tcpdump]=tcpdump
  [iperf3]=iperf3 [ping]=iputils-ping [nc]=netcat-openbsd [jq]=jq [conntrack]=conntrack [wg]=wireguard-tools [iptables]=iptables [nsenter]=util-linux
)
missing=()
for command in "${!package_of[@]}"; do
  command -v "$command" >/dev/null || missing+=("${package_of[$command]}")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "setup: please install: ${missing[*]}" >&2
  exit 1
fi
echo "setup: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
