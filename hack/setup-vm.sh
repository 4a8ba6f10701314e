#!/usr/bin/env bash
# Installs the requirements of make e2e-vm: QEMU, kmod, a static busybox, and a Debian kernel with
# its modules, which is unpacked in the user's cache and not installed. Prints that directory.
set -euo pipefail
export LC_ALL=C
. "$(dirname "$0")/install.sh"
dir=${HAWSER_VM_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/hawser/vm}
kernel=${HAWSER_VM_KERNEL:-linux-image-amd64}

missing=$(absent qemu-system-x86_64=qemu-system-x86 depmod=kmod busybox=busybox-static cpio=cpio xz=xz-utils)
# shellcheck disable=SC2086
packages_for setup-vm "" $missing

if ! compgen -G "$dir/boot/vmlinuz-*" >/dev/null; then
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "setup-vm: needs root and apt-get, or a kernel in $dir" >&2
    exit 1
  fi
  apt-get -o DPkg::Lock::Timeout=300 update -qq >&2
  image=$(apt-cache depends "$kernel" | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1)
  echo "setup-vm: fetching ${image:?no kernel is behind $kernel}" >&2
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  (cd "$work" && apt-get -o APT::Sandbox::User=root download -qq "$image" >&2)
  mkdir -p "$work/root"
  dpkg-deb -x "$work"/*.deb "$work/root"
  [ -d "$work/root/lib" ] || ln -s usr/lib "$work/root/lib"
  find "$work/root" -name '*.ko.xz' -exec xz -d {} +
  depmod -b "$work/root" "$(ls "$work/root/lib/modules")"
  rm -rf "$dir"
  mkdir -p "$(dirname "$dir")"
  mv "$work/root" "$dir"
fi
echo "$dir"
