# shellcheck shell=bash
# Functions that install Debian packages, sourced by the setup scripts.

# absent NAME=PACKAGE... prints the packages whose NAME is missing: a program, or a file if NAME
# starts with a slash.
absent() {
  local pair
  for pair in "$@"; do
    case $pair in
      /*) [ -e "${pair%%=*}" ] ;;
      *) command -v "${pair%%=*}" >/dev/null ;;
    esac || echo "${pair#*=}"
  done
}

# packages_for WHO UNITS PACKAGE... installs the packages for the script WHO. UNITS are the systemd
# units of the packages. None of them starts, now or at the next boot. Without packages it does
# nothing. It prints nothing to stdout.
packages_for() (
  who=$1 units=$2
  shift 2
  [ $# -gt 0 ] || exit 0
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "$who: please install: $*" >&2
    exit 1
  fi
  # invoke-rc.d and deb-systemd-invoke run this program to check whether a package may start its
  # service (/usr/share/doc/init-system-helpers/README.policy-rc.d.gz); 101 = no.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
  fi
  # Do not change existing units and masks.
  for unit in $units; do
    mask=/etc/systemd/system/$unit
    if [ ! -e "/lib/systemd/system/$unit" ] && [ ! -e "$mask" ] && [ ! -L "$mask" ]; then
      mkdir -p "${mask%/*}"
      ln -s /dev/null "$mask"
    fi
  done
  echo "$who: installing $*" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get -o DPkg::Lock::Timeout=300 update -qq >&2
  apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@" >/dev/null
)
