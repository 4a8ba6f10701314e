#!/usr/bin/env bash
# Checks a release like a user who received the directory and installs from it:
#
# hack/verify-release.sh v0.2.0 dist/v0.2.0
#
# It needs no source code except its own tools, and changes nothing outside of its own directory. It
# prints one line per successful check, and exits at the first failure.
#
#   KEY     public key of the release's signatures; by default the key in the directory
#   TOOLS=0 omits the checks with helm and krew, which the first run builds from the module proxy
set -euo pipefail
version=${1:?usage: hack/verify-release.sh VERSION DIRECTORY}
dist=$(cd "${2:?usage: hack/verify-release.sh VERSION DIRECTORY}" && pwd)
cd "$(dirname "$0")/.."
root=$PWD
. hack/install.sh
packages_for verify-release "" $(absent openssl=openssl man=man-db dpkg-deb=dpkg systemd-analyze=systemd jq=jq readelf=binutils zsh=zsh fish=fish /usr/share/bash-completion/bash_completion=bash-completion)
plain=${version#v}
arch=$(go env GOHOSTARCH)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ok() { echo "ok: $*"; }
fail() { echo "verify-release: $*" >&2; exit 1; }
same() { [ "$1" = "$2" ] || fail "$3: have $1, want $2"; }

# The first steps for users in docs/install.md.
key=${KEY:-$dist/cosign.pub}
signed() {
  base64 -d "$1.sig" >"$work/sig" && openssl dgst -sha256 -verify "$key" -signature "$work/sig" "$1" >/dev/null || fail "$1 is not signed by $key"
}
signed "$dist/SHA256SUMS"
signed "$dist/hawser_${version}_airgap.tar"
cp "$dist/SHA256SUMS" "$work/forged" && cp "$dist/SHA256SUMS.sig" "$work/forged.sig" && echo >>"$work/forged"
if (signed "$work/forged") 2>/dev/null; then fail "the signature holds for other checksums, too"; fi
ok "signatures, by openssl"
if command -v cosign >/dev/null; then
  cosign verify-blob --key "$key" --signature "$dist/SHA256SUMS.sig" --insecure-ignore-tlog=true "$dist/SHA256SUMS" 2>/dev/null || fail "cosign takes the signature for a wrong one"
  ok "signature, by cosign"
fi
(cd "$dist" && sha256sum --check --quiet --strict SHA256SUMS) || fail "checksums differ"
unlisted=$(cd "$dist" && ls | grep -vxF -e SHA256SUMS -e SHA256SUMS.sig -e cosign.pub -e "hawser_${version}_airgap.tar" -e "hawser_${version}_airgap.tar.sig" \
  | while read -r f; do grep -q "  $f\$" SHA256SUMS || echo "$f"; done)
same "$unlisted" "" "files without a checksum"
ok "checksums of $(wc -l <"$dist/SHA256SUMS") files"
mkdir "$work/airgap" && tar -xf "$dist/hawser_${version}_airgap.tar" -C "$work/airgap"
(cd "$work/airgap" && sha256sum --check --quiet --strict SHA256SUMS && cmp SHA256SUMS.sig "$dist/SHA256SUMS.sig") || fail "the archive for sites without a network differs"
ok "the archive for sites without a network has all of them"

# Programs.
runs() { [ "$1" = "linux/$arch" ] || { [ "$1" = linux/arm64 ] && [ -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ]; }; }
for program in hawser hawser-agent; do
  for platform in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64; do
    archive=$dist/${program}_${version}_${platform/\//_}.tar.gz
    if [ "$program$platform" != "${program#*-}$platform" ] && [ "${platform%/*}" = darwin ]; then
      [ ! -e "$archive" ] || fail "$archive: the agent runs on Linux alone"
      continue
    fi
    at=$work/$program/$platform
    mkdir -p "$at" && tar -xf "$archive" -C "$at"
    go version -m "$at/$program" >"$at/info"
    same "$(sed -n 's/^\tbuild\tGOOS=//p' "$at/info")/$(sed -n 's/^\tbuild\tGOARCH=//p' "$at/info")" "$platform" "$archive"
    same "$(sed -n 's/^\tbuild\tCGO_ENABLED=//p' "$at/info")" 0 "$archive: cgo"
    if [ "${platform%/*}" = linux ] && readelf -l "$at/$program" | grep INTERP >/dev/null; then fail "$archive: the program is not static"; fi
    # The SBOM must list every module of the program.
    sed -n 's/^\tdep\t\([^\t]*\)\t\([^\t]*\).*/pkg:golang\/\1@\2/p' "$at/info" | sort >"$at/modules"
    [ -s "$at/modules" ] || fail "$archive: the program does not say its modules"
    jq -r '.packages[].externalRefs[]?.referenceLocator' "$dist/${program}_$version.spdx.json" | sort >"$at/bill"
    missing=$(comm -23 "$at/modules" "$at/bill")
    same "$missing" "" "modules of $archive that ${program}_$version.spdx.json lacks"
    if runs "$platform"; then
      "$at/$program" --version | grep -qw "$version" || fail "$archive: --version says $("$at/$program" --version)"
      ok "$program of $platform runs and is $version"
    else
      ok "$program is built for $platform (not run here)"
    fi
  done
done
at=$work/hawser/linux/$arch
same "$("$at/hawser" version -o json | jq -r .version)" "$version" "hawser version"
for program in hawser hawser-agent; do
  in=$work/$program/linux/$arch
  bash -n "$in/completion/$program.bash" && zsh -n "$in/completion/_$program" && fish -n "$in/completion/$program.fish" || fail "completion of $program"
  for page in "$in/man/man1"/*.gz; do
    said=$(man --warnings -l "$page" 2>&1 >"$work/page") || true
    same "$said" "" "$page"
    grep -q "^NAME" "$work/page" || fail "$page shows nothing"
  done
  "$in/$program" man "$work/man-$program"
  same "$(ls "$in/man/man1" | sed 's/\.gz$//')" "$(ls "$work/man-$program")" "manual pages of $program"
done
# Completion works in a real bash.
same "$(bash -c '. /usr/share/bash-completion/bash_completion; PATH='"$at"':$PATH; . '"$at"'/completion/hawser.bash
  COMP_WORDS=(hawser valid) COMP_CWORD=1 COMP_LINE="hawser valid" COMP_POINT=12; __start_hawser; echo "${COMPREPLY[*]}" | xargs' 2>/dev/null)" validate "bash completes hawser valid"
ok "completion of bash, zsh and fish, and $(ls "$work/man-hawser" "$work/man-hawser-agent" | grep -c 1$) manual pages"

# Debian packages, in a separate root.
for program in hawser hawser-agent; do
  for a in amd64 arm64; do
    deb=$dist/${program}_${plain}_$a.deb
    # A prerelease sorts before its release: 0.2.0~rc.1 before 0.2.0.
    same "$(dpkg-deb -f "$deb" Package Version Architecture | tr '\n' ' ')" "Package: $program Version: ${plain/-/\~} Architecture: $a " "$deb"
  done
done
sysroot=$work/root
mkdir -p "$sysroot/var/lib/dpkg/info" "$sysroot/var/lib/dpkg/updates" "$sysroot/usr/lib" "$sysroot/bin"
touch "$sysroot/var/lib/dpkg/status"
# The package scripts find no shell in this root, and no running systemd.
dpkg --root="$sysroot" --force-script-chrootless --force-not-root --log="$work/dpkg.log" \
  -i "$dist/hawser_${plain}_$arch.deb" "$dist/hawser-agent_${plain}_$arch.deb" >"$work/dpkg.out" 2>&1 || fail "dpkg: $(cat "$work/dpkg.out")"
same "$(dpkg-query --admindir="$sysroot/var/lib/dpkg" -W -f '${Package} ${db:Status-Status};')" "hawser installed;hawser-agent installed;" "packages"
same "$(stat -c %a "$sysroot/etc/hawser/reconciler")" 700 "mode of the directory of the root key"
"$sysroot/usr/bin/hawser" --version | grep -qw "$version" && "$sysroot/usr/bin/hawser-agent" --version | grep -qw "$version" || fail "the packages have other programs"
for unit in hawser-reconciler hawser-agent; do
  sed "s#/usr/bin/#$sysroot/usr/bin/#" "$sysroot/lib/systemd/system/$unit.service" >"$work/$unit.service"
  said=$(systemd-analyze verify --man=no "$work/$unit.service" 2>&1 | grep "$unit" || true)
  same "$said" "" "$unit.service"
done
echo '# mine' >>"$sysroot/etc/default/hawser-agent"
dpkg --root="$sysroot" --force-script-chrootless --force-not-root --log="$work/dpkg.log" -i "$dist/hawser-agent_${plain}_$arch.deb" >>"$work/dpkg.out" 2>&1
grep -q '# mine' "$sysroot/etc/default/hawser-agent" || fail "an upgrade overwrites /etc/default/hawser-agent"
dpkg --root="$sysroot" --force-script-chrootless --force-not-root --log="$work/dpkg.log" --purge hawser hawser-agent >>"$work/dpkg.out" 2>&1 || fail "dpkg: $(cat "$work/dpkg.out")"
same "$(find "$sysroot/usr/bin" "$sysroot/lib/systemd" "$sysroot/etc" -type f 2>/dev/null)" "" "files that stay after a purge"
ok "packages of Debian: installed, upgraded and purged in a root of their own; units"

# Images.
while IFS=@ read -r name digest; do
  layout=$work/oci/${name##*/}
  file=${name##*/}
  file=${file%:*}
  mkdir -p "$layout" && tar -xf "$dist/${file}_$version.oci.tar" -C "$layout"
  (cd "$layout/blobs/sha256" && for b in *; do echo "$b  $b"; done | sha256sum --check --quiet --strict) || fail "$name: a blob is not what its name says"
  same "$(jq -r '.manifests[0].digest' "$layout/index.json")" "$digest" "digest of $name"
  same "$(jq -r '.manifests[0].annotations["io.containerd.image.name"]' "$layout/index.json")" "$name" "name of $name"
  blob() { cat "$layout/blobs/sha256/${1#sha256:}"; }
  for manifest in $(blob "$digest" | jq -r '.manifests[].digest'); do
    config=$(blob "$manifest" | jq -r .config.digest)
    a=$(blob "$config" | jq -r .architecture)
    same "$(blob "$digest" | jq -r --arg d "$manifest" '.manifests[] | select(.digest == $d) | .platform.architecture')" "$a" "platform of $name"
    same "$(blob "$config" | jq -r '.config.Labels["org.opencontainers.image.version"]')" "$version" "version of $name"
    revision=$(blob "$config" | jq -r '.config.Labels["org.opencontainers.image.revision"]')
    layer=$(blob "$manifest" | jq -r '.layers[0].digest')
    same "sha256:$(blob "$layer" | gunzip | sha256sum | cut -d' ' -f1)" "$(blob "$config" | jq -r '.rootfs.diff_ids[0]')" "layer of $name"
    mkdir -p "$layout/root-$a" && blob "$layer" | tar -xz -C "$layout/root-$a"
    entry=$(blob "$config" | jq -r '.config.Entrypoint[0]')
    program=${entry#/}
    cmp "$layout/root-$a/$program" "$work/$program/linux/$a/$program" || fail "$name has another $program than the archive of $a"
  done
  ok "image $name@$digest: $(blob "$digest" | jq -r '[.manifests[].platform.architecture] | join(", ")')"
done <"$dist/images.txt"
# The image needs no file of the host.
if [ "$(id -u)" = 0 ]; then
  chroot "$work/oci/hawser:$version/root-$arch" /hawser version >/dev/null || fail "the reconciler's image does not run by itself"
  ipsec=$work/oci/hawser-agent-ipsec:$version/root-$arch
  if [ -d "$ipsec" ]; then
    # Do not start charon, which would be a daemon on this machine; the loader reports whether it
    # could start.
    loader=$(cd "$ipsec" && ls lib*/ld-linux-*)
    for f in usr/sbin/charon-systemd $(cd "$ipsec" && ls usr/lib/ipsec/plugins/*.so); do
      chroot "$ipsec" "/$loader" --list "/$f" >/dev/null || fail "/$f of the IPsec image lacks a library"
    done
    for p in $(cat "deploy/ipsec.$arch.packages"); do
      jq -r '.packages[].externalRefs[]?.referenceLocator' "$dist/hawser-agent-ipsec_$version.spdx.json" | grep -xF "pkg:deb/debian/${p%%=*}@${p#*=}" >/dev/null || fail "the IPsec image has not $p"
    done
    ok "the IPsec image has the packages that deploy/ipsec.$arch.packages pins, and its charon finds all libraries"
  fi
fi
openssl crl2pkcs7 -nocrl -certfile "$work/oci/hawser:$version/root-$arch/etc/ssl/certs/ca-certificates.crt" | openssl pkcs7 -print_certs -noout | grep -c '^subject' >"$work/roots"
[ "$(cat "$work/roots")" -gt 50 ] || fail "the reconciler's image has $(cat "$work/roots") certificate authorities"
for f in "$dist"/*.spdx.json; do
  jq -e '.spdxVersion == "SPDX-2.3" and (.packages | length > 5) and ([.packages[].SPDXID] | length == (unique | length))
    and (.packages | all(.name != "" and .downloadLocation != ""))' "$f" >/dev/null || fail "$f is no SPDX 2.3"
done
ok "SPDX of $(ls "$dist"/*.spdx.json | wc -l) images"

if [ "${TOOLS:-1}" = 0 ]; then exit; fi
tools=$(hack/setup-release.sh)
PATH=$tools:$PATH

# A clusterset to install.
mkdir "$work/net"
cp clusterset.example.yaml "$work/net/clusterset.yaml"
(cd "$work/net" && "$at/hawser" keys root root.key && "$at/hawser" allocate && "$at/hawser" render --out rendered --root-key root.key --image "$(sed -n 's/^\(.*hawser-agent:.*\)$/\1/p' "$dist/images.txt")") >"$work/render" 2>&1 || fail "render: $(cat "$work/render")"
"$at/hawser" keys identity "$work/net/fra.identity" >/dev/null
kubectl kustomize "$work/net/rendered/clusters/fra" >"$work/fra.yaml"
# objects FILE prints the objects of a stream of manifests, sorted.
objects() { "$tools/objects" <"$1"; }
helm template hawser "$dist/hawser-cluster-$plain.tgz" --set-file "rendered=$work/fra.yaml" >"$work/chart.yaml"
same "$(objects "$work/chart.yaml" | sha256sum)" "$(objects "$work/fra.yaml" | sha256sum)" "objects of the chart hawser-cluster and of hawser render"
helm template hawser "$dist/hawser-cluster-$plain.tgz" --set-file "rendered=$work/fra.yaml" --set-file "identity=$work/net/fra.identity" >"$work/chart.yaml"
grep -qF "$(grep AGE-SECRET "$work/net/fra.identity")" "$work/chart.yaml" || fail "the chart has not the identity"
if helm template hawser "$dist/hawser-cluster-$plain.tgz" >"$work/said" 2>&1; then fail "the chart installs nothing without saying so"; fi
grep -q 'rendered: what hawser render wrote' "$work/said" || fail "the chart says $(cat "$work/said")"
mkdir "$work/kustomize" && tar -xf "$dist/hawser-kustomize_$version.tar.gz" -C "$work/kustomize"
cp -r "$work/net/rendered" "$work/kustomize/cluster/"
cp "$work/net/fra.identity" "$work/kustomize/cluster/identity.txt"
kubectl kustomize "$work/kustomize/cluster" >"$work/kustomized.yaml"
same "$(objects "$work/kustomized.yaml" | grep -v '"name":"hawser-age-identity"' | sha256sum)" "$(objects "$work/fra.yaml" | sha256sum)" "objects of the base cluster and of hawser render"
ok "a cluster, by the chart and by the base: what hawser render wrote"
deploy/kustomize/reconciler/render.sh "$dist/hawser-reconciler-$plain.tgz" >"$work/chart.yaml"
for chart in hawser-reconciler hawser-cluster; do
  if helm template hawser "$dist/$chart-$plain.tgz" --set repo=https://git.example.org/net.git --set repos=x >"$work/said" 2>&1; then fail "$chart accepts an unknown value"; fi
  grep -q repos "$work/said" || fail "$chart does not name the unknown value: $(cat "$work/said")"
done
kubectl kustomize "$work/kustomize/reconciler" >"$work/kustomized.yaml"
same "$(objects "$work/kustomized.yaml" | grep -v '"kind":"Namespace"')" "$(objects "$work/chart.yaml")" "objects of the base reconciler and of the chart"
helm template hawser "$dist/hawser-reconciler-$plain.tgz" --set repo=https://git.example.org/net.git --set registry=mirror.example.org/hawser >"$work/chart.yaml"
grep -q "image: \"mirror.example.org/hawser/hawser:$version\"" "$work/chart.yaml" || fail "a mirror's name does not count"
grep -A20 '^kind: NetworkPolicy' "$work/chart.yaml" | grep 'hawser.dev/reconciler-access' >/dev/null || fail "everyone reaches the reconciler's port"
helm template hawser "$dist/hawser-reconciler-$plain.tgz" --set repo=https://git.example.org/net.git --set-json 'networkPolicy.from=[]' |
  grep -A12 '^kind: NetworkPolicy' | grep -x '  ingress: \[\]' >/dev/null || fail "with no peers the policy is not one that admits none"
# The program has all flags that the chart uses.
helm template hawser "$dist/hawser-reconciler-$plain.tgz" --set repo=https://git.example.org/net.git,path=a,publishRepo=b,rootIdentity.secret=c,gitToken.secret=d,gitToken.username=e,gitSSH.secret=f,webhook.secret=g |
  sed -n 's/^        - "\?\(--[a-z-]*\)=.*/\1/p' | sort -u >"$work/flags"
"$at/hawser" reconcile --help >"$work/help"
while read -r flag; do grep -q -- " $flag " "$work/help" || fail "the chart uses $flag, which hawser reconcile has not"; done <"$work/flags"
[ "$(wc -l <"$work/flags")" -gt 10 ] || fail "the chart has $(wc -l <"$work/flags") flags"
ok "the reconciler, by the chart and by the base"

# The plugin of kubectl, as krew installs it from the archive.
export KREW_ROOT=$work/krew
sed "s#uri: .*/#uri: file://$dist/#" "$dist/hawser.krew.yaml" >"$work/hawser.yaml"
krew install --manifest="$work/hawser.yaml" --archive="$dist/hawser_${version}_linux_$arch.tar.gz" >"$work/krew.out" 2>&1 || fail "krew: $(cat "$work/krew.out")"
same "$(PATH=$KREW_ROOT/bin:$PATH kubectl hawser version -o json | jq -r .version)" "$version" "kubectl hawser version"
ok "kubectl hawser, as krew installs it"

# The same commit produces the same bytes in another directory.
same "$revision" "$(git rev-parse HEAD)" "commit that the release is of, and that of this tree, from which it is made once more"
git clone -q "$root" "$work/again"
sign=${SIGN:-${dist%/*}/cosign.key}
(cd "$work/again" && SIGN=$(realpath "$sign") IPSEC=$([ -e "$dist/hawser-agent-ipsec_$version.oci.tar" ] && echo 1 || echo 0) hack/release.sh "$version" "$work/twice" >/dev/null 2>"$work/twice.log") ||
  fail "the second build: $(cat "$work/twice.log")"
diff -r "$dist" "$work/twice" || fail "two builds of the same commit differ"
ok "a second build in another directory is equal byte for byte"
