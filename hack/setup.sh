#!/usr/bin/env bash
# Installs the Debian packages that the lab, the tests and the benchmarks run.
# Does nothing when all of them are there, and starts no service.
set -euo pipefail

declare -A package_of=(
  [nft]=nftables [ip]=iproute2 [curl]=curl [dig]=bind9-dnsutils [tcpdump]=tcpdump
  [iperf3]=iperf3 [ping]=iputils-ping [nc]=netcat-openbsd [jq]=jq [conntrack]=conntrack [wg]=wireguard-tools [iptables]=iptables [nsenter]=util-linux
)
# Programs that are in no PATH, and plugins: any of the files, by package.
declare -A files_of=(
  [charon-systemd]="/usr/sbin/charon-systemd"
  [strongswan-swanctl]="/usr/lib/ipsec/plugins/libstrongswan-vici.so"
  [libstrongswan-standard-plugins]="/usr/lib/ipsec/plugins/libstrongswan-openssl.so"
  [libcharon-extra-plugins]="/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so"
)
missing=()
for command in "${!package_of[@]}"; do
  command -v "$command" >/dev/null || missing+=("${package_of[$command]}")
done
for package in "${!files_of[@]}"; do
  [ -e "${files_of[$package]}" ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "setup: please install: ${missing[*]}" >&2
  exit 1
fi

# invoke-rc.d and deb-systemd-invoke ask this program whether a package may start
# its service (/usr/share/doc/init-system-helpers/README.policy-rc.d.gz); 101 = no.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
  trap 'rm -f "$policy"' EXIT
fi
# Nor at the next boot: our agent starts a charon of its own. A strongSwan that
# is on the host already is left as it is.
unit=/etc/systemd/system/strongswan.service
if [ ! -e /lib/systemd/system/strongswan.service ] && [ ! -e "$unit" ] && [ ! -L "$unit" ]; then
  mkdir -p "${unit%/*}"
  ln -s /dev/null "$unit"
fi

echo "setup: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
